//! Endpoints on the loopback interface, and patience with them.

#![allow(dead_code, reason = "every test program uses its own part")]

use std::time::{Duration, Instant};
use tsumugi::{Config, Endpoint, PeerId, TicketStatus};

/// One thread plays all sides: when endpoints are dropped, nobody is left to acknowledge.
const LINGER: Duration = Duration::from_millis(20);
/// After this time, which is long on any machine, something has gone wrong.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn open(config: Config) -> Endpoint {
    Endpoint::open(config.linger(LINGER)).expect("an endpoint on loopback")
}

/// The payload of message `number`. Any byte out of place shows.
pub(crate) fn payload(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|at| (at.wrapping_mul(31) ^ number.wrapping_mul(0x9e37_79b9) ^ (at >> 8)) as u8)
        .collect()
}

/// Endpoints that have one another on their lists, and at `[from][to]` the number of each with each.
pub(crate) fn cluster(count: usize, config: &Config) -> (Vec<Endpoint>, Vec<Vec<PeerId>>) {
    let endpoints: Vec<Endpoint> = (0..count).map(|_| open(config.clone())).collect();
    let peers = endpoints
        .iter()
        .map(|from| {
            let number = |to: &Endpoint| from.add_peer(format!("127.0.0.1:{}", to.port())).unwrap();
            endpoints.iter().map(number).collect()
        })
        .collect();
    (endpoints, peers)
}

/// Two endpoints between which packets flow, and the number of the second with the first; the first is peer 0 with
/// the second.
pub(crate) fn connected(here: Config, there: Config) -> (Endpoint, Endpoint, PeerId) {
    let (here, there) = (open(here), open(there));
    let peer = here.add_peer(format!("127.0.0.1:{}", there.port())).unwrap();
    let (from, to) = (here.channel(999).unwrap(), there.channel(999).unwrap());
    let ticket = from.post(peer, b"hello").unwrap();
    let mut source = None;
    eventually("a first message arrives", || {
        here.progress().unwrap();
        source = source.or(to.try_receive().unwrap().map(|message| message.source()));
        source.is_some()
    });
    assert_eq!(source, Some(PeerId(0)));
    eventually("it is acknowledged", || {
        there.progress().unwrap();
        here.progress().unwrap();
        here.status(ticket) == TicketStatus::Delivered
    });
    drop((from, to));
    (here, there, peer)
}

/// Does `step` until it says that all is as it should be.
pub(crate) fn eventually(what: &str, mut step: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !step() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
    }
}

/// Runs something that waits, in a thread of its own, so that it cannot wait for ever.
pub(crate) fn in_time(work: impl FnOnce() + Send + 'static) {
    let (done_out, done_in) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        let _ = done_out.send(());
    });
    match done_in.recv_timeout(PATIENCE) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it waits for ever"),
        _ => thread.join().unwrap(),
    }
}
