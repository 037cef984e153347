//! Two endpoints throw a message back and forth.
//!
//! ```text
//! ping_pong pong [PORT]
//! ping_pong ping HOST:PORT [BYTES] [COUNT]
//! ```

use std::time::Instant;
use tsumugi::{Config, DEFAULT_PORT, Endpoint, ReceiveError, Wait};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |word| word.parse());
    match arguments.first().map(String::as_str) {
        Some("pong") => {
            let port = number(1, u64::from(DEFAULT_PORT))? as u16;
            let endpoint = Endpoint::open(Config::default().port(port).wait(Wait::Spin))?;
            let channel = endpoint.channel(0)?;
            loop {
                // A peer that leaves in good order is no error: the next one may come.
                match channel.receive() {
                    Ok(message) => {
                        channel.send(message.source(), &message)?;
                    }
                    Err(ReceiveError::Peer(failure)) => println!("{failure}"),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Some("ping") => {
            let peer = arguments.get(1).ok_or("ping whom? give HOST:PORT")?;
            let (bytes, count) = (number(2, 64)? as usize, number(3, 100_000)?);
            let endpoint = Endpoint::open(Config::default().wait(Wait::Spin))?;
            let peer = endpoint.add_peer(peer)?;
            let channel = endpoint.channel(0)?;
            let data = vec![7; bytes];
            let mut times_ns = Vec::with_capacity(count as usize);
            for _ in 0..count {
                let start = Instant::now();
                channel.send(peer, &data)?;
                assert_eq!(channel.receive()?.len(), bytes);
                times_ns.push(start.elapsed().as_nanos());
            }
            times_ns.sort_unstable();
            println!("{bytes} B: median round trip {:.2} µs", times_ns[times_ns.len() / 2] as f64 / 1e3);
            drop(channel);
            Ok(endpoint.close()?)
        }
        _ => Err("say ping or pong; see the top of this file".into()),
    }
}
