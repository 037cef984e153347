//! A conversation in long messages over sockets, and where in it the time goes.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant as Clock};

use tsumugi::{Channel, Config, Endpoint, PeerId, ReceiveChoice, SendChoice, Wait};
use tsumugi_rail::copy::Staging;
use tsumugi_rail::{Deliver, Packet, Rail, RailError};
use tsumugi_wire::Instant;

use super::super::CostsError;
use super::super::noted::{Noted, Onlooker};
use super::PATIENCE;

const CHANNEL: u16 = 1;
/// Datagrams of this length and more bring a message, and no acknowledgement alone.
pub(super) const MESSAGE_BYTES_MIN: usize = 256;
/// How long both sides go on after a conversation: acknowledgements wait up to 100 µs to ride on data.
const SETTLE: Duration = Duration::from_millis(2);
/// The rounds of one size are a pause for the others.
const PEER_TIMEOUT: Duration = Duration::from_secs(600);

/// What the rail has spent.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    /// In calls that send.
    sending: Duration,
    /// In calls that found something, without what the library does with it.
    receiving: Duration,
    /// In calls that found nothing, between two that found something.
    waiting: Duration,
    /// When the first call that found something began.
    seen: Option<Clock>,
}

/// Adds up what a rail spends.
#[derive(Debug, Default)]
struct Spans {
    on: Cell<bool>,
    spent: Cell<Spent>,
}

impl Onlooker for Spans {
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
        let begun = Clock::now();
        let sent = rail.send(now, to, burst);
        let mut spent = self.spent.get();
        spent.sending += begun.elapsed();
        self.spent.set(spent);
        sent
    }

    fn receive(
        &self,
        rail: &mut dyn Rail,
        now: Instant,
        deliver: &mut Deliver<'_>,
    ) -> Result<usize, RailError> {
        if !self.on.get() {
            return rail.receive(now, deliver);
        }
        let (mut library, mut found) = (Duration::ZERO, false);
        let begun = Clock::now();
        let received = rail.receive(now, &mut |from, datagram| {
            let delivered = Clock::now();
            found |= datagram.len() >= MESSAGE_BYTES_MIN;
            deliver(from, datagram);
            library += delivered.elapsed();
        });
        let all = begun.elapsed();
        let mut spent = self.spent.get();
        if found {
            spent.receiving += all - library;
            spent.seen = spent.seen.or(Some(begun));
        } else if spent.seen.is_some() {
            spent.waiting += all;
        }
        self.spent.set(spent);
        received
    }
}

/// One message sent and one received, as one side saw them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// The application's call, and its return.
    pub(super) posted: Clock,
    pub(super) returned: Clock,
    /// Of that, in calls that send.
    pub(super) sending: Duration,
    /// The look that found the first of the answer, and when the application had all of it.
    pub(super) seen: Clock,
    pub(super) taken: Clock,
    /// Of that, in calls that found more of it, and in such that did not.
    pub(super) receiving: Duration,
    pub(super) waiting: Duration,
}

/// One end of a conversation.
pub(super) struct Talker {
    // Before the endpoint, so that it is dropped first.
    channel: Channel,
    endpoint: Endpoint,
    spans: Rc<Spans>,
    message: Staging,
}

impl Talker {
    /// Opens an endpoint for messages of so many bytes, over sockets alone.
    pub(super) fn open(bind: IpAddr, bytes: usize) -> Result<Talker, CostsError> {
        let config = Config::default()
            .bind(bind)
            .port(0)
            .accept_unknown(true)
            .wait(Wait::Spin)
            .send(SendChoice::Udp)
            .receive(ReceiveChoice::Socket)
            .peer_timeout(PEER_TIMEOUT)
            .connect_timeout(PEER_TIMEOUT);
        let spans = Rc::new(Spans::default());
        let wrap = |rail| Box::new(Noted { rail, notes: Rc::clone(&spans) }) as Box<dyn Rail>;
        let endpoint = tsumugi::internal::open_through(&config, wrap)
            .map_err(CostsError::failed("opening an endpoint"))?;
        let channel = endpoint.channel(CHANNEL).map_err(CostsError::failed("opening a channel"))?;
        Ok(Talker { channel, endpoint, spans, message: Staging::new(bytes, 0x5a) })
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

    /// Has what the rail does added up, or not.
    pub(super) fn note(&self, on: bool) {
        self.spans.on.set(on);
    }

    /// Asks so many times, and answers nothing.
    pub(super) fn ask(&self, peer: PeerId, count: usize) -> Result<Vec<Sample>, CostsError> {
        let ask = |_| {
            let sent = self.send(peer)?;
            let (_, received) = self.receive()?;
            Ok(sample(sent, received))
        };
        let samples = (0..count).map(ask).collect();
        self.settle()?;
        samples
    }

    /// Answers so many times.
    pub(super) fn answer(&self, count: usize) -> Result<Vec<Sample>, CostsError> {
        let answer = |_| {
            let (peer, received) = self.receive()?;
            let sent = self.send(peer)?;
            Ok(sample(sent, received))
        };
        let samples = (0..count).map(answer).collect();
        self.settle()?;
        samples
    }

    fn send(&self, peer: PeerId) -> Result<(Clock, Clock, Spent), CostsError> {
        self.spans.spent.take();
        let posted = Clock::now();
        self.channel.send(peer, &self.message).map_err(CostsError::failed("sending"))?;
        Ok((posted, Clock::now(), self.spans.spent.take()))
    }

    fn receive(&self) -> Result<(PeerId, (Clock, Spent)), CostsError> {
        self.spans.spent.take();
        let message = self.channel.receive_timeout(PATIENCE).map_err(CostsError::failed("receiving"))?;
        let taken = Clock::now();
        if message.len() != self.message.len() {
            return Err(CostsError::Lost("a message of another length arrived"));
        }
        Ok((message.source(), (taken, self.spans.spent.take())))
    }

    /// Goes on until everything is acknowledged, on both sides.
    fn settle(&self) -> Result<(), CostsError> {
        self.note(false);
        let start = Clock::now();
        while start.elapsed() < SETTLE {
            self.endpoint.progress().map_err(CostsError::failed("waiting for acknowledgements"))?;
        }
        Ok(())
    }
}

fn sample((posted, returned, out): (Clock, Clock, Spent), (taken, back): (Clock, Spent)) -> Sample {
    Sample {
        posted,
        returned,
        sending: out.sending,
        // What was not noted has no first look.
        seen: back.seen.unwrap_or(taken),
        taken,
        receiving: back.receiving,
        waiting: back.waiting,
    }
}
