//! A group of threads, each with an endpoint, approximates π together, and agrees on it to the last bit.
//!
//! ```text
//! collective [PARTICIPANTS]
//! ```

use std::sync::{Arc, Barrier, Mutex};
use tsumugi::collective::{Group, Reduction};
use tsumugi::{Config, Endpoint};

const CHANNEL: u16 = 1;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let size = std::env::args().nth(1).map_or(Ok(4), |word| word.parse())?;
    // Threads can tell each other their ports like this; processes have a list of hosts.
    let ports = Arc::new((Mutex::new(vec![0; size]), Barrier::new(size)));
    let participant = |rank| {
        let ports = Arc::clone(&ports);
        std::thread::spawn(move || participate(rank, &ports.0, &ports.1))
    };
    let participants: Vec<_> = (0..size).map(participant).collect();
    for participant in participants {
        participant.join().map_err(|_| "a participant panicked")??;
    }
    Ok(())
}

fn participate(rank: usize, ports: &Mutex<Vec<u16>>, all_known: &Barrier) -> Outcome<()> {
    let endpoint = Endpoint::open(Config::loopback())?;
    ports.lock().map_err(|_| "another participant panicked")?[rank] = endpoint.port();
    all_known.wait();
    let ports = ports.lock().map_err(|_| "another participant panicked")?.clone();
    let peer = |(other, port): (usize, &u16)| match other == rank {
        true => Ok(None),
        false => endpoint.add_peer(format!("127.0.0.1:{port}")).map(Some),
    };
    let peers = ports.iter().enumerate().map(peer).collect::<Result<Vec<_>, _>>()?;
    let group = Group::open(&endpoint, CHANNEL, rank, &peers)?;

    // Rank 0 says how many terms of Leibniz' series are added up, each its share.
    let mut terms = [if rank == 0 { 1_000_000u64 } else { 0 }];
    group.broadcast(0, &mut terms)?;
    let share = (0..terms[0]).skip(rank).step_by(group.size());
    let term = |at: u64| (if at.is_multiple_of(2) { 4.0 } else { -4.0 }) / (2 * at + 1) as f64;
    let mut sum = [share.map(term).sum::<f64>()];
    group.allreduce(&mut sum, &Reduction::sum())?;

    // Everybody has the same bits.
    let all = group.allgather(&[sum[0].to_bits()])?;
    assert!(all.iter().all(|bits| *bits == sum[0].to_bits()));
    if rank == 0 {
        println!("{} participants: {:.10}", group.size(), sum[0]);
    }
    group.barrier()?;
    drop(group);
    // The others may have closed before.
    let _ = endpoint.close();
    Ok(())
}
