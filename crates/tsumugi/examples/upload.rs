//! Files are sent to another host, with progress shown: how much has arrived, not how much is queued here.
//!
//! On one host:    cargo run --example upload -- into FOLDER
//! On others:      cargo run --example upload -- FILE HOST

use std::{collections::HashMap, error::Error, fs::File, io::Write, path::Path};
use tsumugi::{Config, DEFAULT_PORT, Endpoint, ReceiveError, TicketStatus};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match &words[..] {
        [into, folder] if into == "into" => receive(Path::new(folder)),
        [file, host] => send(Path::new(file), host),
        _ => Err("say into FOLDER to receive, or FILE HOST to send".into()),
    };
    if let Err(error) = done {
        eprintln!("upload: {error}");
        std::process::exit(1);
    }
}

/// A file comes as its name, its pieces, and an empty message.
fn receive(folder: &Path) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::open(Config::default().port(DEFAULT_PORT))?;
    let (channel, mut files) = (endpoint.channel(1)?, HashMap::<_, File>::new());
    loop {
        match channel.receive() {
            Ok(message) => match files.get_mut(&message.source()) {
                None => {
                    let name = String::from_utf8_lossy(&message);
                    let name = Path::new(&*name).file_name().unwrap_or("nameless".as_ref());
                    files.insert(message.source(), File::create(folder.join(name))?);
                }
                Some(_) if message.is_empty() => drop(files.remove(&message.source())),
                Some(file) => file.write_all(&message)?,
            },
            Err(ReceiveError::Peer(gone)) => println!("{gone}; unfinished: {:?}", files.remove(&gone.peer)),
            Err(error) => return Err(error.into()),
        }
    }
}

fn send(path: &Path, host: &str) -> Result<(), Box<dyn Error>> {
    let (data, name) = (std::fs::read(path)?, path.file_name().ok_or("FILE has no name")?);
    let endpoint = Endpoint::open(Config::default())?;
    let (peer, channel) = (endpoint.add_peer(host)?, endpoint.channel(1)?);
    channel.send(peer, name.as_encoded_bytes())?;
    let (pieces, mut under_way) = (data.chunks(256 << 10), Vec::new());
    for (number, piece) in pieces.clone().enumerate() {
        under_way.push(channel.send(peer, piece)?);
        under_way.retain(|ticket| endpoint.status(*ticket) == TicketStatus::Pending);
        eprint!("\r{} of {} pieces have arrived", number + 1 - under_way.len(), pieces.len());
    }
    channel.send(peer, b"")?;
    endpoint.close()?;
    println!("\nall {} B have arrived", data.len());
    Ok(())
}
