//! Two copies of this program greet each other: `hello` waits on one host, `hello HOST` calls from another.

use tsumugi::{Config, DEFAULT_PORT, Endpoint};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1) {
        None => {
            let endpoint = Endpoint::open(Config::default().port(DEFAULT_PORT))?;
            let channel = endpoint.channel(7)?; // exclusive; no connection to set up
            let message = channel.receive()?; // in place: a view of receive memory
            println!("{}: {}", message.source(), String::from_utf8_lossy(&message));
            channel.send(message.source(), b"a strong everyday cloth")?;
            drop(message); // gives its memory back
            endpoint.close()?; // all has arrived, or the error says what has not
        }
        Some(host) => {
            let endpoint = Endpoint::open(Config::default())?;
            let peer = endpoint.add_peer(host)?; // by name or address
            let channel = endpoint.channel(7)?;
            channel.send(peer, b"spun from plain yarn")?; // reliable, ordered, whole
            println!("{peer}: {}", String::from_utf8_lossy(&channel.receive()?));
            endpoint.close()?;
        }
    }
    Ok(())
}
