//! A table of keys and values in one process, read and changed by others with active messages.
//!
//! On one host:    cargo run --example key_value
//! On others:      cargo run --example key_value -- HOST set KEY VALUE
//!                 cargo run --example key_value -- HOST get KEY

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;
use tsumugi::active_message::{ActiveMessageOptions, ActiveMessages, Reply};
use tsumugi::{Config, DEFAULT_PORT, Endpoint};

const PATIENCE: Duration = Duration::from_secs(10);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] => serve(),
        [host, "set", key, value] => ask(host, "set", key, value),
        [host, "get", key] => ask(host, "get", key, ""),
        _ => Err("say nothing to serve, HOST set KEY VALUE, or HOST get KEY".into()),
    };
    if let Err(error) = done {
        eprintln!("key_value: {error}");
        std::process::exit(1);
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::open(Config::default().port(DEFAULT_PORT))?;
    let table = HashMap::<Vec<u8>, Vec<u8>>::new();
    let mut port = ActiveMessages::open(&endpoint, 1, ActiveMessageOptions::default(), table)?;
    // The first word is the key's length; the data are key and value.
    port.register("set", |table: &mut HashMap<_, _>, request, reply| {
        let (key, value) = request.data.split_at(request.data.len().min(request.words[0] as usize));
        answer(reply, table.insert(key.to_vec(), value.to_vec()).as_deref());
    })?;
    port.register("get", |table, request, reply| answer(reply, table.get(request.data).map(|it| &it[..])))?;
    loop {
        port.poll_timeout(Duration::MAX)?;
    }
}

/// Replies with the value that was there. A client that is gone needs no reply.
fn answer(reply: Reply<'_>, value: Option<&[u8]>) {
    let _ = reply.send_bulk([value.is_some().into(), 0, 0, 0], value.unwrap_or_default());
}

fn ask(host: &str, what: &'static str, key: &str, value: &str) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::open(Config::default())?;
    let server = endpoint.add_peer(host)?;
    let mut port = ActiveMessages::open(&endpoint, 1, ActiveMessageOptions::default(), ())?;
    let data = [key.as_bytes(), value.as_bytes()].concat();
    let ([was_there, ..], found) =
        port.call_timeout(server, what, [key.len() as u64, 0, 0, 0], &data, PATIENCE)?;
    println!("{}", if was_there == 0 { "(nothing)".into() } else { String::from_utf8_lossy(&found) });
    drop(port);
    Ok(endpoint.close()?)
}
