//! Participants, each in a thread of its own.

use crate::common::loopback::open;
use std::sync::{Arc, Barrier, Mutex};
use tsumugi::collective::Group;
use tsumugi::{Config, Endpoint, PeerId};

pub(crate) const CHANNEL: u16 = 3;
/// Where each participant is.
pub(crate) struct Site {
    pub(crate) endpoint: Endpoint,
    pub(crate) rank: usize,
    pub(crate) peers: Vec<Option<PeerId>>,
}

impl Site {
    pub(crate) fn group(&self, channel: u16) -> Group {
        Group::open(&self.endpoint, channel, self.rank, &self.peers).unwrap()
    }
}

/// Has `size` participants do some work, each in a thread of its own, with an endpoint each, and returns what came of it.
pub(crate) fn together<T: Send + 'static>(
    size: usize,
    config: impl Fn(usize) -> Config + Send + Sync + 'static,
    work: impl Fn(&Site) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let ports = Arc::new((Mutex::new(vec![0; size]), Barrier::new(size)));
    let shared = Arc::new((config, work));
    let threads: Vec<_> = (0..size)
        .map(|rank| {
            let (ports, shared) = (Arc::clone(&ports), Arc::clone(&shared));
            std::thread::spawn(move || {
                let endpoint = open(shared.0(rank));
                ports.0.lock().unwrap()[rank] = endpoint.port();
                ports.1.wait();
                let known = ports.0.lock().unwrap().clone();
                let peer = |(at, port): (usize, &u16)| {
                    (at != rank).then(|| endpoint.add_peer(format!("127.0.0.1:{port}")).unwrap())
                };
                let peers = known.iter().enumerate().map(peer).collect();
                let site = Site { endpoint, rank, peers };
                let outcome = shared.1(&site);
                // Some may have left before.
                let _ = site.endpoint.close();
                outcome
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}
