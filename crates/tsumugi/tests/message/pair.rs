//! Two endpoints with a port each, and what the tests send.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tsumugi::message::{Buffer, Completion, MessageOptions, Port, Protocol, Request};
use tsumugi::{Config, Endpoint, PeerId};

/// One thread plays all sides: when endpoints are dropped, nobody is left to acknowledge.
const LINGER: Duration = Duration::from_millis(20);

pub(crate) const CHANNEL: u16 = 5;
/// Longest time to wait for what must come. Only a test that fails waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const PROTOCOLS: [Protocol; 4] =
    [Protocol::Auto, Protocol::Eager, Protocol::Rendezvous, Protocol::ActiveZeroCopy];

/// The payload of message `number`. Any byte out of place shows.
pub(crate) fn payload(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|at| (at.wrapping_mul(31) ^ number.wrapping_mul(0x9e37_79b9) ^ (at >> 8)) as u8)
        .collect()
}

/// Packets as they are on Ethernet, so that long messages are not very long.
pub(crate) fn config() -> Config {
    Config::loopback().datagram_bytes(Some(1472)).linger(LINGER)
}

pub(crate) fn protocol(protocol: Protocol) -> MessageOptions {
    MessageOptions::default().protocol(protocol).eager_bytes(1000)
}

/// Two endpoints of one thread, each with a port.
pub(crate) struct Pair {
    pub(crate) here: Endpoint,
    pub(crate) there: Endpoint,
    pub(crate) from: Port,
    pub(crate) to: Port,
    /// The second as the first knows it.
    pub(crate) peer: PeerId,
}

pub(crate) fn pair_of(here: Config, there: Config, options: &MessageOptions) -> Pair {
    let there = Endpoint::open(there).unwrap();
    let here = Endpoint::open(here).unwrap();
    let peer = here.add_peer(format!("127.0.0.1:{}", there.port())).unwrap();
    let from = Port::open_with(&here, CHANNEL, options.clone()).unwrap();
    let to = Port::open_with(&there, CHANNEL, options.clone()).unwrap();
    Pair { here, there, from, to, peer }
}

pub(crate) fn pair(options: &MessageOptions) -> Pair {
    pair_of(config(), config(), options)
}

impl Pair {
    /// Makes progress on both sides until `ready` says so.
    pub(crate) fn until<T>(&mut self, mut ready: impl FnMut(&mut Pair) -> Option<T>) -> T {
        let started = Instant::now();
        loop {
            self.from.progress().unwrap();
            self.to.progress().unwrap();
            if let Some(found) = ready(self) {
                return found;
            }
            assert!(started.elapsed() < PATIENCE, "it does not come\n{}", self.there.counters());
        }
    }

    pub(crate) fn received(&mut self, mut request: Request) -> Completion {
        self.until(|pair| pair.to.test(&mut request).unwrap())
    }

    pub(crate) fn sent(&mut self, mut request: Request) -> Completion {
        self.until(|pair| pair.from.test(&mut request).unwrap())
    }

    /// Sends, and makes progress until the second has it in its memory.
    pub(crate) fn deliver(&mut self, tag: u64, data: &[u8]) {
        let request = self.from.send(self.peer, tag, data).unwrap();
        let ticket = self.sent(request).ticket.expect("data were sent");
        self.until(|pair| (pair.here.status(ticket) != tsumugi::TicketStatus::Pending).then_some(()));
        assert_eq!(self.here.status(ticket), tsumugi::TicketStatus::Delivered);
        self.to.progress().unwrap();
    }
}

pub(crate) fn buffer(bytes: usize) -> Buffer {
    vec![0; bytes].into()
}

pub(crate) const SIZES: [usize; 12] = [0, 1, 8, 999, 1000, 1001, 1424, 1425, 5000, 70_000, 8, 1 << 20];

/// Runs two threads, each with an endpoint and a port. The second closes when the first has let go of everything.
pub(crate) fn transfer(
    sender: Config,
    receiver: Config,
    options: &MessageOptions,
    send: impl FnOnce(&mut Port, PeerId),
    receive: impl FnOnce(&mut Port) + Send + 'static,
) {
    let (tell, told): (Sender<u16>, Receiver<u16>) = channel();
    let (done, is_done): (Sender<()>, Receiver<()>) = channel();
    let there = options.clone();
    let receiving = thread::spawn(move || {
        let endpoint = Endpoint::open(receiver).unwrap();
        let mut port = Port::open_with(&endpoint, CHANNEL, there).unwrap();
        tell.send(endpoint.port()).unwrap();
        receive(&mut port);
        done.send(()).unwrap();
        // Until the sender has heard that everything arrived.
        let _ = endpoint.flush();
    });
    let endpoint = Endpoint::open(sender).unwrap();
    let peer = endpoint.add_peer(format!("127.0.0.1:{}", told.recv().unwrap())).unwrap();
    let mut port = Port::open_with(&endpoint, CHANNEL, options.clone()).unwrap();
    send(&mut port, peer);
    while is_done.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
        port.progress().unwrap();
    }
    receiving.join().unwrap();
}
