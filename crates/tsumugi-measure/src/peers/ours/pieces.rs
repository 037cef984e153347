//! Streams: a message is sent as one piece, and read by a handler while it arrives.

use std::collections::VecDeque;
use std::time::Duration;

use tsumugi::stream::{Incoming, StreamOptions, Streams};
use tsumugi::{Endpoint, PeerId};

use super::carrier::Carrier;
use super::{CHANNEL, failed};
use crate::peers::Failure;

/// The handler of everything.
const HANDLER: &str = "perf";
/// Bytes that a handler reads at once.
const READ_BYTES: usize = 64 << 10;

/// Messages that were read to their end.
type Arrived = VecDeque<(PeerId, usize)>;

pub(super) struct Pieces {
    port: Streams<Arrived>,
}

impl Pieces {
    pub(super) fn new(endpoint: &Endpoint) -> Result<Pieces, Failure> {
        let mut port = Streams::open(endpoint, CHANNEL, StreamOptions::default(), Arrived::new())
            .map_err(failed("cannot open a port"))?;
        port.register(HANDLER, |mut incoming: Incoming<Arrived>| async move {
            let mut buffer = vec![0; READ_BYTES];
            let mut bytes = 0;
            // A message that breaks off is none; that its sender is gone is told elsewhere.
            while let Ok(read) = incoming.read_some(&mut buffer).await {
                if read == 0 {
                    let source = incoming.source();
                    incoming.with(|arrived| arrived.push_back((source, bytes)));
                    return;
                }
                bytes += read;
            }
        })
        .map_err(failed("cannot register a handler"))?;
        Ok(Pieces { port })
    }
}

impl Carrier for Pieces {
    fn send(&mut self, _: &Endpoint, peer: PeerId, message: &[u8]) -> Result<(), Failure> {
        let mut outgoing = self.port.begin(peer, HANDLER).map_err(failed("cannot send"))?;
        self.port.piece(&mut outgoing, message).map_err(failed("cannot send"))?;
        self.port.end(outgoing).map(drop).map_err(failed("cannot send"))
    }

    fn next(&mut self, endpoint: &Endpoint, look_up: Duration) -> Result<Option<(PeerId, usize)>, Failure> {
        let port = &mut self.port;
        let mut broken = None;
        let mut look = || match port.poll() {
            Ok(_) => port.with(VecDeque::pop_front),
            Err(error) => {
                broken = Some(error);
                None
            }
        };
        let found = match look() {
            None if !look_up.is_zero() => {
                endpoint.wait_until(look_up, look).map_err(failed("cannot receive"))?
            }
            found => found,
        };
        broken.map_or(Ok(found), |error| Err(failed("cannot receive")(error)))
    }
}
