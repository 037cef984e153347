//! A conversation through the real library, and where in it the time goes.
//!
//! The library's rail is wrapped in one that notes when it was entered and left: the clock is read there and nowhere
//! in the library.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant as Clock};

use tsumugi::{Channel, Config, Endpoint, PeerId, ReceiveChoice, Wait};
use tsumugi_rail::{Deliver, Packet, Rail, RailError};
use tsumugi_wire::Instant;

use super::CostsError;
use super::noted::{Noted, Onlooker};

/// Bytes of a message.
pub(super) const MESSAGE_BYTES: usize = 64;
const CHANNEL: u16 = 1;
/// An answer takes microseconds; after so long there is none.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long both sides go on after a conversation, so that everything is acknowledged: ACKs wait up to
/// 100 µs to ride on data.
const FLUSH_ACKS: Duration = Duration::from_millis(2);
/// The rounds of one send path are a pause for the others.
const PEER_TIMEOUT: Duration = Duration::from_secs(600);

/// What the rail notes.
#[derive(Debug)]
struct Notes {
    on: Cell<bool>,
    entered: Cell<Clock>,
    left: Cell<Clock>,
    looked: Cell<Clock>,
    packet_bytes: Cell<usize>,
}

impl Notes {
    fn new() -> Notes {
        let now = || Cell::new(Clock::now());
        let on = Cell::new(false);
        Notes { on, entered: now(), left: now(), looked: now(), packet_bytes: Cell::new(0) }
    }
}

/// Notes when packets were sent and when arrivals were last looked for.
impl Onlooker for Notes {
    fn send(
        &self,
        rail: &mut dyn Rail,
        now: Instant,
        to: SocketAddr,
        burst: &[Packet<'_>],
    ) -> Result<usize, RailError> {
        if !self.on.get() {
            return rail.send(now, to, burst);
        }
        self.packet_bytes.set(burst.iter().map(Packet::bytes).max().unwrap_or(0));
        self.entered.set(Clock::now());
        let sent = rail.send(now, to, burst);
        self.left.set(Clock::now());
        sent
    }

    fn receive(
        &self,
        rail: &mut dyn Rail,
        now: Instant,
        deliver: &mut Deliver<'_>,
    ) -> Result<usize, RailError> {
        let received = rail.receive(now, deliver);
        if self.on.get() {
            // The library looks into the queue next.
            self.looked.set(Clock::now());
        }
        received
    }
}

/// One message sent and one received, as one side saw them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// The application's call, and when its packet entered the send path and left it.
    pub(super) posted: Clock,
    pub(super) entered: Clock,
    pub(super) left: Clock,
    /// The look that found the record, and when the application had its bytes.
    pub(super) seen: Clock,
    pub(super) taken: Clock,
}

/// One end of a conversation.
pub(super) struct Talker {
    // Before the endpoint, so that it is dropped first.
    channel: Channel,
    endpoint: Endpoint,
    notes: Rc<Notes>,
    message: [u8; MESSAGE_BYTES],
}

impl Talker {
    /// Opens an endpoint with the XDP receive path.
    pub(super) fn open(bind: std::net::IpAddr, send_path: &str) -> Result<Talker, CostsError> {
        let config = Config::default()
            .bind(bind)
            .port(0)
            .accept_unknown(true)
            .wait(Wait::Spin)
            .send(send_path.parse().map_err(CostsError::failed("choosing the send path"))?)
            .receive(ReceiveChoice::Xdp)
            .peer_timeout(PEER_TIMEOUT)
            .connect_timeout(PEER_TIMEOUT);
        let notes = Rc::new(Notes::new());
        let wrap = |rail| Box::new(Noted { rail, notes: Rc::clone(&notes) }) as Box<dyn Rail>;
        let endpoint = tsumugi::internal::open_through(&config, wrap)
            .map_err(CostsError::failed("opening an endpoint"))?;
        let channel = endpoint.channel(CHANNEL).map_err(CostsError::failed("opening a channel"))?;
        Ok(Talker { channel, endpoint, notes, message: [0x5a; MESSAGE_BYTES] })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) fn port(&self) -> u16 {
        self.endpoint.port()
    }

    /// Adds the other side as a peer.
    pub(super) fn add_peer(&self, peer: SocketAddr) -> Result<PeerId, CostsError> {
        self.endpoint.add_peer(peer).map_err(CostsError::failed("adding a peer"))
    }

    /// Bytes of the packet that carried the last message that was noted.
    pub(super) fn packet_bytes(&self) -> usize {
        self.notes.packet_bytes.get()
    }

    fn send(&mut self, peer: PeerId) -> Result<Clock, CostsError> {
        let posted = Clock::now();
        self.channel.send(peer, &self.message).map_err(CostsError::failed("sending"))?;
        Ok(posted)
    }

    /// Takes the next message, copies it out and gives it back.
    fn receive(&mut self) -> Result<PeerId, CostsError> {
        let message = self.channel.receive_timeout(ANSWER_MAX).map_err(CostsError::failed("receiving"))?;
        if message.len() != MESSAGE_BYTES {
            return Err(CostsError::Lost("a message of another length arrived"));
        }
        self.message.copy_from_slice(&message);
        Ok(message.source())
    }

    /// Times of `count` round trips, ns.
    pub(super) fn ask(&mut self, peer: PeerId, count: usize) -> Result<Vec<u64>, CostsError> {
        let mut times = Vec::with_capacity(count);
        let mut before = Clock::now();
        for _ in 0..count {
            self.send(peer)?;
            self.receive()?;
            let after = Clock::now();
            times.push((after - before).as_nanos() as u64);
            before = after;
        }
        self.flush_acks()?;
        Ok(times)
    }

    /// Answers `count` messages.
    pub(super) fn answer(&mut self, count: usize) -> Result<(), CostsError> {
        for _ in 0..count {
            let peer = self.receive()?;
            self.send(peer)?;
        }
        self.flush_acks()
    }

    /// As [`Talker::ask`], with everything noted.
    pub(super) fn ask_noted(&mut self, peer: PeerId, count: usize) -> Result<Vec<Sample>, CostsError> {
        self.noted(count, |talker| {
            let posted = talker.send(peer)?;
            let (entered, left) = (talker.notes.entered.get(), talker.notes.left.get());
            talker.receive()?;
            Ok(Sample { posted, entered, left, seen: talker.notes.looked.get(), taken: Clock::now() })
        })
    }

    /// As [`Talker::answer`], with everything noted.
    pub(super) fn answer_noted(&mut self, count: usize) -> Result<Vec<Sample>, CostsError> {
        self.noted(count, |talker| {
            let peer = talker.receive()?;
            let (taken, seen) = (Clock::now(), talker.notes.looked.get());
            let posted = talker.send(peer)?;
            Ok(Sample {
                posted,
                entered: talker.notes.entered.get(),
                left: talker.notes.left.get(),
                seen,
                taken,
            })
        })
    }

    fn noted(
        &mut self,
        count: usize,
        mut exchange: impl FnMut(&mut Talker) -> Result<Sample, CostsError>,
    ) -> Result<Vec<Sample>, CostsError> {
        self.notes.on.set(true);
        let samples: Result<Vec<Sample>, CostsError> = (0..count).map(|_| exchange(self)).collect();
        self.notes.on.set(false);
        self.flush_acks()?;
        samples
    }

    fn flush_acks(&self) -> Result<(), CostsError> {
        let start = Clock::now();
        while start.elapsed() < FLUSH_ACKS {
            self.endpoint.progress().map_err(CostsError::failed("flushing acknowledgements"))?;
        }
        Ok(())
    }
}
