//! A server that answers any number of clients, which come and go: each request comes back in capitals.
//!
//! On one host:    cargo run --example request_reply
//! On others:      cargo run --example request_reply -- HOST TEXT [COUNT]

use std::error::Error;
use tsumugi::{Config, DEFAULT_PORT, Endpoint, ReceiveError, SendError};

const CHANNEL: u16 = 1;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match &words[..] {
        [] => serve(),
        [host, text] => ask(host, text, 1),
        [host, text, count] => count.parse().map_err(Into::into).and_then(|count| ask(host, text, count)),
        _ => Err("say nothing to serve, or HOST TEXT [COUNT] to ask".into()),
    };
    if let Err(error) = done {
        eprintln!("request_reply: {error}");
        std::process::exit(1);
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::open(Config::default().port(DEFAULT_PORT))?;
    let channel = endpoint.channel(CHANNEL)?;
    loop {
        let request = match channel.receive() {
            Ok(request) => request,
            // A client was killed, or its host is silent. One that closes is no error.
            Err(ReceiveError::Peer(failure)) => {
                eprintln!("{failure}");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match channel.send(request.source(), &request.to_ascii_uppercase()) {
            Ok(_) => {}
            Err(SendError::Peer(failure)) => eprintln!("not answered: {failure}"),
            Err(error) => return Err(error.into()),
        }
    }
}

fn ask(host: &str, text: &str, count: u64) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::open(Config::default())?;
    let server = endpoint.add_peer(host)?;
    let channel = endpoint.channel(CHANNEL)?;
    for number in 1..=count {
        channel.send(server, format!("{text} {number}").as_bytes())?;
        println!("{}", String::from_utf8_lossy(&channel.receive()?));
    }
    Ok(endpoint.close()?)
}
