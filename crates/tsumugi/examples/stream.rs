//! Records of any length, written in pieces and read in other pieces while they arrive; the sum comes back.
//!
//! ```text
//! stream                              both sides, over the loopback interface
//! stream serve [PORT]
//! stream send HOST:PORT [RECORDS]
//! ```

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};
use tsumugi::stream::{Incoming, ReadError, StreamOptions, Streams};
use tsumugi::{Config, DEFAULT_PORT, Endpoint};

const CHANNEL: u16 = 1;

/// Reads records, each behind its length, sums their bytes, and sends the sum back.
async fn sum(mut incoming: Incoming<bool>) {
    if let Err(error) = read_and_answer(&mut incoming).await {
        println!("server: {error}");
    }
    incoming.with(|is_over| *is_over = true);
}

async fn read_and_answer(incoming: &mut Incoming<bool>) -> Result<(), Box<dyn Error>> {
    let (mut records, mut sum, mut length, mut record) = (0u64, 0u64, [0; 4], Vec::new());
    loop {
        match incoming.read_exact(&mut length).await {
            Ok(()) => {}
            // The end, between two records.
            Err(ReadError::Ended { missing: 4 }) => break,
            Err(error) => return Err(error.into()),
        }
        record.resize(u32::from_le_bytes(length) as usize, 0);
        incoming.read_exact(&mut record).await?;
        records += 1;
        sum += record.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
    println!("server: {records} records");
    let mut answer = incoming.begin(incoming.source(), "sum")?;
    answer.piece(&sum.to_le_bytes()).await?;
    answer.end().await?;
    Ok(())
}

fn serve(endpoint: &Endpoint) -> Result<(), Box<dyn Error>> {
    let mut port = Streams::open(endpoint, CHANNEL, StreamOptions::default(), false)?;
    port.register("records", sum)?;
    while !port.with(|is_over| *is_over) {
        port.poll_timeout(Duration::MAX)?;
    }
    Ok(())
}

fn send(endpoint: &Endpoint, peer: &str, records: u32) -> Result<(), Box<dyn Error>> {
    let peer = endpoint.add_peer(peer)?;
    let mut port = Streams::open(endpoint, CHANNEL, StreamOptions::default(), None)?;
    port.register("sum", |mut incoming: Incoming<Option<u64>>| async move {
        let mut sum = [0; 8];
        if incoming.read_exact(&mut sum).await.is_ok() {
            incoming.with(|answer| *answer = Some(u64::from_le_bytes(sum)));
        }
    })?;
    let (start, mut expected, mut bytes) = (Instant::now(), 0, 0);
    let mut message = port.begin(peer, "records")?;
    for number in 0..records {
        let record = vec![number as u8; (number % 5000) as usize];
        port.piece(&mut message, &(record.len() as u32).to_le_bytes())?;
        port.piece(&mut message, &record)?;
        expected += u64::from(number as u8) * record.len() as u64;
        bytes += record.len();
    }
    port.end(message)?;
    while port.with(|answer| answer.is_none()) {
        port.poll_timeout(Duration::MAX)?;
    }
    let rate = bytes as f64 / start.elapsed().as_secs_f64();
    println!(
        "client: the sum is {:?}, {expected} was expected; {:.0} MB/s",
        port.with(|sum| *sum),
        rate / 1e6
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u32| arguments.get(at).map_or(Ok(default), |word| word.parse());
    match arguments.first().map(String::as_str) {
        Some("serve") => {
            let port = number(1, u32::from(DEFAULT_PORT))? as u16;
            let endpoint = Endpoint::open(Config::default().port(port))?;
            serve(&endpoint)?;
            Ok(endpoint.close()?)
        }
        Some("send") => {
            let peer = arguments.get(1).ok_or("send to whom? give HOST:PORT")?;
            let endpoint = Endpoint::open(Config::default())?;
            send(&endpoint, peer, number(2, 100_000)?)?;
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
            send(&endpoint, &format!("127.0.0.1:{}", port_in.recv()?), 10_000)?;
            endpoint.close()?;
            Ok(server.join().map_err(|_| "the server panicked")??)
        }
        Some(_) => Err("say serve, send or nothing; see the top of this file".into()),
    }
}
