//! Hosts in a row: the first makes data, each other takes them from the one before it and, but for the last, passes them on.
//!
//! On each host, with its place from 0 and the same list:    cargo run --release --example pipeline -- PLACE BYTES HOST HOST…
//! On one machine the hosts are 127.0.0.1:7501, 127.0.0.1:7502 and so on.

use std::error::Error;
use std::time::Instant;
use tsumugi::{Config, DEFAULT_PORT, Endpoint};

const CHANNEL: u16 = 1;
const CHUNK_BYTES: u64 = 1 << 20;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match &words[..] {
        [place, bytes, hosts @ ..] if hosts.len() > 1 => run(place, bytes, hosts),
        _ => Err("say PLACE BYTES HOST HOST…, for instance 0 1073741824 n0 n1 n2".into()),
    };
    if let Err(error) = done {
        eprintln!("pipeline: {error}");
        std::process::exit(1);
    }
}

fn run(place: &str, bytes: &str, hosts: &[String]) -> Result<(), Box<dyn Error>> {
    let (place, bytes): (usize, u64) = (place.parse()?, bytes.parse()?);
    let own = hosts.get(place).ok_or("PLACE is beyond the list of hosts")?;
    let port = own.rsplit_once(':').map_or(Ok(DEFAULT_PORT), |(_, port)| port.parse())?;
    let endpoint = Endpoint::open(Config::default().port(port))?;
    let next = hosts.get(place + 1).map(|host| endpoint.add_peer(host.as_str())).transpose()?;
    let channel = endpoint.channel(CHANNEL)?;
    let (start, mut done, mut sum) = (Instant::now(), 0, 0u64);
    while done < bytes {
        // `send` waits while the next host has no room: so nobody runs ahead of the slowest.
        let length = if place == 0 {
            let chunk = vec![(done / CHUNK_BYTES) as u8; CHUNK_BYTES.min(bytes - done) as usize];
            sum += u64::from(chunk[0]) * chunk.len() as u64;
            channel.send(next.ok_or("the first host has a next one")?, &chunk)?;
            chunk.len()
        } else {
            let chunk = channel.receive()?;
            sum += chunk.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            if let Some(next) = next {
                channel.send(next, &chunk)?;
            }
            chunk.len()
        };
        done += length as u64;
    }
    let rate = done as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("place {place}: {done} B, their sum is {sum}, {rate:.0} MB/s");
    Ok(endpoint.close()?)
}
