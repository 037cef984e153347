//! A table of words and how often they were seen, kept by one process and filled by others with active messages.
//!
//! ```text
//! active_message                              both sides, over the loopback interface
//! active_message serve [PORT]
//! active_message ask HOST:PORT [COUNT]
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};
use tsumugi::active_message::{ActiveMessageOptions, ActiveMessages};
use tsumugi::{Config, DEFAULT_PORT, Endpoint};

const CHANNEL: u16 = 1;
const WORDS: [&str; 4] = ["warp", "weft", "heddle", "shuttle"];

/// What the server keeps.
#[derive(Default)]
struct Table {
    counts: HashMap<String, u64>,
    is_over: bool,
}

fn serve(endpoint: &Endpoint) -> Result<(), Box<dyn Error>> {
    let mut port =
        ActiveMessages::open(endpoint, CHANNEL, ActiveMessageOptions::default(), Table::default())?;
    // Data: a word. The reply: how often it has been seen.
    port.register("seen", |table: &mut Table, request, reply| {
        let word = String::from_utf8_lossy(request.data).into_owned();
        let count = table.counts.entry(word).or_default();
        *count += 1;
        // A requester that is gone needs no reply.
        let _ = reply.send([*count, 0, 0, 0]);
    })?;
    port.register("over", |table: &mut Table, _, _| table.is_over = true)?;
    while !port.state().is_over {
        port.poll_timeout(Duration::MAX)?;
    }
    let mut counts: Vec<_> = port.state().counts.iter().collect();
    counts.sort();
    println!("server: {counts:?}");
    Ok(())
}

fn ask(endpoint: &Endpoint, peer: &str, count: usize) -> Result<(), Box<dyn Error>> {
    let peer = endpoint.add_peer(peer)?;
    let mut port = ActiveMessages::open(endpoint, CHANNEL, ActiveMessageOptions::default(), 0u64)?;
    // One after the other: each waits for its reply.
    let mut times_ns = Vec::with_capacity(count);
    for word in WORDS.iter().cycle().take(count) {
        let start = Instant::now();
        port.call(peer, "seen", [0; 4], word.as_bytes())?;
        times_ns.push(start.elapsed().as_nanos());
    }
    times_ns.sort_unstable();
    println!("client: median of a call {:.2} µs", times_ns[times_ns.len() / 2] as f64 / 1e3);
    // As many at once as the server takes.
    let start = Instant::now();
    for word in WORDS.iter().cycle().take(count) {
        port.request_bulk(peer, "seen", [0; 4], word.as_bytes(), |failed, answer| {
            *failed += u64::from(answer.is_err());
        })?;
    }
    port.finish()?;
    let rate = count as f64 / start.elapsed().as_secs_f64();
    println!("client: {:.0} requests in a millisecond, {} failed", rate / 1e3, port.state());
    port.call(peer, "over", [0; 4], &[])?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| arguments.get(at).map_or(Ok(default), |word| word.parse());
    match arguments.first().map(String::as_str) {
        Some("serve") => {
            let port = number(1, usize::from(DEFAULT_PORT))? as u16;
            let endpoint = Endpoint::open(Config::default().port(port))?;
            serve(&endpoint)?;
            Ok(endpoint.close()?)
        }
        Some("ask") => {
            let peer = arguments.get(1).ok_or("ask whom? give HOST:PORT")?;
            let endpoint = Endpoint::open(Config::default())?;
            ask(&endpoint, peer, number(2, 100_000)?.max(1))?;
            Ok(endpoint.close()?)
        }
        None => {
            let (port_out, port_in) = std::sync::mpsc::channel();
            let server = thread::spawn(move || {
                let endpoint = Endpoint::open(Config::loopback()).map_err(|error| error.to_string())?;
                port_out.send(endpoint.port()).map_err(|error| error.to_string())?;
                serve(&endpoint).map_err(|error| error.to_string())?;
                endpoint.close().map_err(|error| error.to_string())
            });
            let endpoint = Endpoint::open(Config::loopback())?;
            ask(&endpoint, &format!("127.0.0.1:{}", port_in.recv()?), 10_000)?;
            endpoint.close()?;
            Ok(server.join().map_err(|_| "the server panicked")??)
        }
        Some(_) => Err("say serve, ask or nothing; see the top of this file".into()),
    }
}
