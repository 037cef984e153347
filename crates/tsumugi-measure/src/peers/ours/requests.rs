//! Active messages: what is sent is a request with data, and its answer is the reply.

use std::collections::VecDeque;
use std::time::Duration;

use tsumugi::active_message::{ActiveMessageOptions, ActiveMessages};
use tsumugi::{Endpoint, PeerId};

use super::carrier::Carrier;
use super::{CHANNEL, failed};
use crate::peers::Failure;

/// The handler of everything.
const HANDLER: &str = "perf";
/// Requests under way.
const TOKENS: u16 = 256;

pub(super) struct Requests {
    port: ActiveMessages<Seen>,
}

struct Seen {
    arrived: VecDeque<(PeerId, usize)>,
    /// Requests are replied to with their own data: the answer to each is sent by its handler.
    echoes: bool,
    /// What went wrong with a request.
    error: Option<String>,
}

impl Requests {
    pub(super) fn new(endpoint: &Endpoint, is_client: bool) -> Result<Requests, Failure> {
        let options = ActiveMessageOptions::default().tokens(TOKENS).bulk_bytes(Self::BYTES_MAX as usize);
        let seen = Seen { arrived: VecDeque::new(), echoes: !is_client, error: None };
        let mut port =
            ActiveMessages::open(endpoint, CHANNEL, options, seen).map_err(failed("cannot open a port"))?;
        port.register(HANDLER, |seen: &mut Seen, request, reply| {
            seen.arrived.push_back((request.source, request.data.len()));
            let echo = if seen.echoes { request.data } else { &[] };
            if let Err(error) = reply.send_bulk(request.words, echo) {
                seen.error = Some(error.to_string());
            }
        })
        .map_err(failed("cannot register a handler"))?;
        Ok(Requests { port })
    }
}

impl Carrier for Requests {
    const BYTES_MAX: u64 = 64 << 10;

    fn send(&mut self, _: &Endpoint, peer: PeerId, message: &[u8]) -> Result<(), Failure> {
        if self.port.state().echoes {
            return Ok(()); // the handler has replied
        }
        let then = move |seen: &mut Seen, answer: Result<tsumugi::active_message::Answer<'_>, _>| match answer
        {
            Ok(answer) if !answer.data.is_empty() => seen.arrived.push_back((peer, answer.data.len())),
            Ok(_) => {}
            Err(error) => seen.error = Some(tsumugi::active_message::Unanswered::to_string(&error)),
        };
        self.port.request_bulk(peer, HANDLER, [0; 4], message, then).map_err(failed("cannot send"))
    }

    fn next(&mut self, endpoint: &Endpoint, look_up: Duration) -> Result<Option<(PeerId, usize)>, Failure> {
        let port = &mut self.port;
        let mut broken = None;
        let mut look = || match port.poll() {
            Ok(_) => port.state_mut().arrived.pop_front(),
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
        match (broken, self.port.state_mut().error.take()) {
            (Some(error), _) => Err(failed("cannot receive")(error)),
            (None, Some(error)) => Err(Failure::Refused(error)),
            (None, None) => Ok(found),
        }
    }

    fn sink(&mut self) {
        self.port.state_mut().echoes = false;
    }
}
