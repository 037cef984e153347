//! A token goes round a ring of hosts by tagged messages. Each takes whatever comes, from anybody and with any tag; the tag
//! tells how far the token has come.
//!
//! On each host, with its place from 0 and the same list:    cargo run --example token_ring -- PLACE ROUNDS HOST HOST…
//! On one machine the hosts are 127.0.0.1:7501, 127.0.0.1:7502 and so on.

use std::error::Error;
use tsumugi::message::{Pattern, Port};
use tsumugi::{Config, DEFAULT_PORT, Endpoint};

const CHANNEL: u16 = 1;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match &words[..] {
        [place, rounds, hosts @ ..] if hosts.len() > 1 => run(place, rounds, hosts),
        _ => Err("say PLACE ROUNDS HOST HOST…, for instance 0 10 n0 n1 n2".into()),
    };
    if let Err(error) = done {
        eprintln!("token_ring: {error}");
        std::process::exit(1);
    }
}

fn run(place: &str, rounds: &str, hosts: &[String]) -> Result<(), Box<dyn Error>> {
    let (place, rounds): (usize, u64) = (place.parse()?, rounds.parse()?);
    let own = hosts.get(place).ok_or("PLACE is beyond the list of hosts")?;
    let number = own.rsplit_once(':').map_or(Ok(DEFAULT_PORT), |(_, port)| port.parse())?;
    let endpoint = Endpoint::open(Config::default().port(number))?;
    let next = endpoint.add_peer(hosts[(place + 1) % hosts.len()].as_str())?;
    let port = Port::open(&endpoint, CHANNEL)?;
    // Sends the token on; it says who has had it.
    let pass = |tag: u64, token: &[u8]| -> Result<(), Box<dyn Error>> {
        let mut sent = port.send(next, tag, &[token, format!(" {place}").as_bytes()].concat())?;
        port.wait(&mut sent)?.outcome?;
        Ok(())
    };
    if place == 0 {
        pass(1, b"token:")?;
    }
    for round in 1..=rounds {
        let mut receive = port.receive(Pattern::any(), vec![0; 64 << 10].into());
        let received = port.wait(&mut receive)?;
        let status = received.outcome.clone()?;
        let token = received.data();
        println!("round {round}: {}, after {} steps", String::from_utf8_lossy(token), status.tag);
        if place != 0 || round < rounds {
            pass(status.tag + 1, token)?;
        }
    }
    drop(port);
    Ok(endpoint.close()?)
}
