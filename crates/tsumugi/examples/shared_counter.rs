//! Numbers are drawn from a counter in another process's memory by fetch-and-add: each number once, whoever else draws
//! and whoever is killed meanwhile.
//!
//! On one host:    cargo run --example shared_counter
//! On others:      cargo run --example shared_counter -- HOST COUNT

use std::error::Error;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tsumugi::remote_memory::{ImportError, RemoteMemory};
use tsumugi::{Config, DEFAULT_PORT, Endpoint, ReceiveError, Region, Rights};

const CHANNEL: u16 = 1;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match &words[..] {
        [] => keep(),
        [host, count] => count.parse().map_err(Into::into).and_then(|count| draw(host, count)),
        _ => Err("say nothing to keep the counter, or HOST COUNT to draw numbers from it".into()),
    };
    if let Err(error) = done {
        eprintln!("shared_counter: {error}");
        std::process::exit(1);
    }
}

/// Exports the counter, and says where it stands whenever a client has died.
fn keep() -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::open(Config::default().port(DEFAULT_PORT))?;
    let counter = Region::new(8)?;
    let mut memory = RemoteMemory::open(&endpoint, CHANNEL)?;
    memory.export("counter", &counter.all(), Rights::ALL)?;
    loop {
        match memory.poll_timeout(Duration::MAX) {
            Ok(_) => {}
            Err(ImportError::Receive(ReceiveError::Peer(failure))) => {
                println!("at {}: {failure}", counter.word(0)?.load(Ordering::Acquire));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn draw(host: &str, count: u64) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::open(Config::default())?;
    let keeper = endpoint.add_peer(host)?;
    let mut memory = RemoteMemory::open(&endpoint, CHANNEL)?;
    let counter = memory.import(keeper, "counter", PATIENCE)?.target();
    for _ in 0..count {
        println!("{}", endpoint.remote().fetch_add(keeper, counter, 1)?.wait()?);
    }
    drop(memory);
    Ok(endpoint.close()?)
}
