//! What a group sends.

use super::call::Call;
use super::error::Broken;
use super::execution::Pending;
use super::format::{HEADER_BYTES, Header, Kind, Part, words_as_data};
use super::multicasts::Route;
use super::partner::Leave;
use super::schedule::Position;
use super::state::{Running, State};
use crate::endpoint::multicast::MulticastId;
use crate::error::SendError;
use tsumugi_rail::RailError;

/// Why a send does not go on.
enum Stop {
    /// The participant does not take more at the moment.
    Blocked,
    Broken(Broken),
    Rail(RailError),
}

impl State {
    /// Goes on with an operation as far as it can.
    pub(super) fn go_on(&mut self, sequence: u64) -> Result<(), RailError> {
        loop {
            let has_sent = match self.send(sequence) {
                Ok(has_sent) => has_sent,
                Err(Stop::Broken(broken)) => {
                    self.give_up(sequence, broken);
                    return Ok(());
                }
                Err(Stop::Blocked) => false,
                Err(Stop::Rail(error)) => return Err(error),
            };
            let Some(Running { execution: Some(execution), .. }) = self.running.get_mut(&sequence) else {
                return Ok(());
            };
            execution.advance();
            if execution.is_done() {
                self.finish(sequence);
                return Ok(());
            }
            if execution.sends().is_empty() {
                self.blocked.remove(&sequence);
                return Ok(());
            }
            if !has_sent {
                self.blocked.insert(sequence);
                return Ok(());
            }
        }
    }

    /// Goes on with what could not be sent before.
    pub(super) fn go_on_blocked(&mut self) -> Result<(), RailError> {
        // Whoever is still stalled will be found to be.
        self.stalled.clear();
        let blocked: Vec<u64> = self.blocked.iter().copied().collect();
        blocked.into_iter().try_for_each(|sequence| self.go_on(sequence))
    }

    /// Sends what an operation has to send and may. Returns whether that was anything.
    fn send(&mut self, sequence: u64) -> Result<bool, Stop> {
        let (mut at, mut has_sent, mut blocked) = (0, false, Vec::new());
        if let Some(Running { route: Route::ToAll(Some(id)), .. }) = self.running.get(&sequence) {
            let id = *id;
            while self.send_part_to_all(sequence, id)? {
                has_sent = true;
            }
            return Ok(has_sent);
        }
        while let Some(Running { execution: Some(execution), .. }) = self.running.get(&sequence)
            && let Some(next) = execution.sends().get(at)
        {
            let rank = next.rank;
            if blocked.contains(&rank) {
                at += 1;
                continue;
            }
            match self.send_part(sequence, at) {
                Ok(()) => has_sent = true,
                Err(Stop::Blocked) => {
                    blocked.push(rank);
                    at += 1;
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok(has_sent)
    }

    /// Sends the next part of the send at `at`, if that may be now.
    fn send_part(&mut self, sequence: u64, at: usize) -> Result<(), Stop> {
        let State { running, partners, channel, me, started, .. } = self;
        let Some(Running { call, route, execution: Some(execution), .. }) = running.get_mut(&sequence) else {
            return Err(Stop::Blocked);
        };
        let call = *call;
        let Some(send) = execution.sends().get(at) else { return Err(Stop::Blocked) };
        let rank = send.rank;
        let Some(partner) = partners.get_mut(rank).and_then(Option::as_mut) else {
            return Err(Stop::Blocked);
        };
        let start = send.range.start + send.done;
        let bytes = (send.range.end - start).min(partner.piece_bytes);
        let leave = partner.may_send(sequence, bytes);
        let mut posted = Err(Stop::Blocked);
        if leave != Leave::Refused {
            let header = header_of(send, call, matches!(route, Route::ToAll(_)), (*me, sequence, *started));
            let length = (HEADER_BYTES + bytes) as u64;
            let may_post = channel.shared.inner.borrow().core.may_post(partner.peer, length);
            let sent = may_post.and_then(|()| {
                let parts = [&header.encode()[..], execution.bytes(start..start + bytes)];
                channel.post_reserved(partner.peer, parts)
            });
            posted = match sent {
                Ok(_) => {
                    partner.on_sent(sequence, bytes);
                    execution.on_sent(at, bytes);
                    Ok(())
                }
                Err(error) => match self.on_refused(rank, length, error) {
                    Ok(()) => return self.send_part(sequence, at),
                    Err(stop) => Err(stop),
                },
            };
        }
        self.ask_leave(rank, leave, call, sequence);
        self.has_said |= posted.is_ok();
        posted
    }

    /// A participant does not take a message of this length. `Ok`: it takes shorter ones than we do, and is to be sent such.
    fn on_refused(&mut self, rank: usize, length: u64, error: SendError) -> Result<(), Stop> {
        match error {
            SendError::WouldBlock => {
                self.stalled.insert(rank, length);
                Err(Stop::Blocked)
            }
            SendError::TooLong { limit, .. } if limit > HEADER_BYTES as u64 && limit < length => {
                if let Some(partner) = self.partner(rank) {
                    partner.piece_bytes = (limit - HEADER_BYTES as u64) as usize;
                }
                Ok(())
            }
            SendError::Peer(failure) => Err(Stop::Broken(Broken::Gone { rank, failure })),
            SendError::Rail(error) => Err(Stop::Rail(error)),
            error => Err(Stop::Broken(Broken::Unsent { rank, why: error.to_string() })),
        }
    }

    /// Asks a participant to say when it has started an operation, if more may not be sent to it before, or soon may not.
    fn ask_leave(&mut self, rank: usize, leave: Leave, call: Call, sequence: u64) {
        if leave != Leave::Granted && self.partner(rank).is_some_and(|partner| partner.ask(sequence)) {
            let token = self.token;
            self.say(rank, Kind::Ask { call, token }, sequence);
        }
    }

    /// Sends the next part of what goes to all. Returns whether there was one; it waits for whoever may not be sent to yet.
    fn send_part_to_all(&mut self, sequence: u64, id: MulticastId) -> Result<bool, Stop> {
        let State { running, partners, channel, me, started, .. } = self;
        let Some(Running { call, execution: Some(execution), .. }) = running.get_mut(&sequence) else {
            return Ok(false);
        };
        let call = *call;
        let Some(send) = execution.sends().front() else { return Ok(false) };
        let first = send.rank;
        let start = send.range.start + send.done;
        let shortest = partners.iter().flatten().map(|partner| partner.piece_bytes).min().unwrap_or_default();
        let bytes = (send.range.end - start).min(shortest);
        let leaves: Vec<_> = partners
            .iter()
            .enumerate()
            .filter_map(|(rank, partner)| Some((rank, partner.as_ref()?.may_send(sequence, bytes))))
            .collect();
        let is_free = leaves.iter().all(|(_, leave)| *leave != Leave::Refused);
        if is_free {
            let header = header_of(send, call, true, (*me, sequence, *started));
            let parts = [&header.encode()[..], execution.bytes(start..start + bytes)];
            match channel.post_multicast(id, parts) {
                Ok(_) => {
                    partners.iter_mut().flatten().for_each(|partner| partner.on_sent(sequence, bytes));
                    execution.on_sent_to_all(bytes);
                }
                Err((peer, error)) => {
                    let rank = self.ranks.get(&peer).copied().unwrap_or(first);
                    return match self.on_refused(rank, (HEADER_BYTES + bytes) as u64, error) {
                        Ok(()) => Ok(true),
                        Err(Stop::Blocked) => Ok(false),
                        Err(stop) => Err(stop),
                    };
                }
            }
        }
        leaves.into_iter().for_each(|(rank, leave)| self.ask_leave(rank, leave, call, sequence));
        self.has_said |= is_free;
        Ok(is_free)
    }

    /// Tells a participant something that is not data. Whoever is gone need not be told.
    pub(super) fn say(&mut self, rank: usize, kind: Kind, sequence: u64) {
        let Some(partner) = self.partners.get(rank).and_then(Option::as_ref) else { return };
        if partner.gone.is_some() {
            return;
        }
        let (me, size) = (self.me.rank as u32, self.me.size as u32);
        let header = Header { kind, rank: me, size, sequence, started: self.started };
        // There are few of these: one for each question, and one when something is given up.
        let posted = match kind {
            Kind::Counted { words } => {
                self.channel.post_reserved(partner.peer, [&header.encode(), &words_as_data(&words)])
            }
            _ => self.channel.post_reserved(partner.peer, [&header.encode(), &[]]),
        };
        self.has_said |= posted.is_ok();
    }

    /// Has what was accepted leave.
    pub(super) fn leave(&mut self) -> Result<(), RailError> {
        if std::mem::take(&mut self.has_said) {
            self.channel.shared.transmit(self.channel.shared.now())?;
        }
        Ok(())
    }
}

/// What precedes the next data of a send of an operation.
fn header_of(
    send: &Pending,
    call: Call,
    is_to_all: bool,
    (me, sequence, started): (Position, u64, u64),
) -> Header {
    let (whole, at) = (send.range.len() as u64, send.done as u64);
    let kind = Kind::Data(Part { call, whole, at, is_to_all });
    Header { kind, rank: me.rank as u32, size: me.size as u32, sequence, started }
}
