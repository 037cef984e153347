//! Which sockets `receive` looks into.
//!
//! Many sockets must not make an idle poll dearer: it looks into the one that spoke last, and only now and then into all of
//! them together, through epoll.

use super::sockets::{MAIN, Sockets};
use crate::sys::{Epoll, READY_MAX};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use tsumugi_wire::Instant;
use tsumugi_wire::time::MICROSECOND_NS;

/// Calls after which `receive` asks every socket: few while several peers speak, more when these
/// looks keep finding only the one that is asked anyway, as in a conversation of two.
const LOOK_EVERY_MIN: u32 = 4;
const LOOK_EVERY_MAX: u32 = 16;
/// Calls in a row that found something in the same socket, after which an owner that spins has it taken
/// out of epoll. Telling epoll of an arrival costs 0.15 µs, each way of a round trip; changing the set
/// costs more, so that it must not be done for every change of speaker.
const CONVERSATION_CALLS: u32 = 64;
/// A caller that was away for so long has slept, or computed: anyone may have spoken meanwhile.
const AWAY_NS: u64 = 20 * MICROSECOND_NS;

/// The sockets that are watched, and who speaks.
#[derive(Debug)]
pub(super) struct Polling {
    /// `None` where it is forbidden; then no peer has a socket of its own.
    epoll: Option<Epoll>,
    /// Whether epoll must know of every arrival; if not, the slot that was taken out of it.
    watching: bool,
    unwatched: Option<usize>,
    /// Calls in a row that found something in the active socket.
    conversation: u32,
    /// Token of the socket that spoke last.
    active: usize,
    /// Whether the last `receive` found something.
    busy: bool,
    /// Calls since every socket was asked, and after how many they are asked again.
    since_look: u32,
    look_every: u32,
    /// When `receive` was called last.
    received_at: Instant,
}

impl Polling {
    pub(super) fn new(epoll: Option<Epoll>) -> Polling {
        Polling {
            epoll,
            watching: true,
            unwatched: None,
            conversation: 0,
            active: MAIN,
            busy: false,
            since_look: 0,
            look_every: LOOK_EVERY_MIN,
            received_at: Instant(0),
        }
    }

    /// Token of the socket that spoke last.
    pub(super) const fn active(&self) -> usize {
        self.active
    }

    /// Whether the last `receive` found something.
    pub(super) const fn is_busy(&self) -> bool {
        self.busy
    }

    pub(super) const fn epoll(&self) -> Option<&Epoll> {
        self.epoll.as_ref()
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().map(|epoll| epoll.descriptor().as_fd())
    }

    /// Counts a call of `receive`, and says whether every socket is to be asked in it.
    pub(super) fn is_time_to_look(&mut self, now: Instant, sockets: &Sockets) -> bool {
        let away = now.since(self.received_at) > AWAY_NS;
        self.received_at = now;
        self.since_look += 1;
        let look = (away || self.since_look >= self.look_every) && sockets.has_dedicated();
        if look {
            self.since_look = 0;
        }
        look
    }

    /// Writes the tokens of the sockets that have something, or must be asked in any case, into `tokens`, and returns how
    /// many; `None` without epoll.
    pub(super) fn ready(
        &self,
        sockets: &Sockets,
        tokens: &mut [u64; READY_MAX],
    ) -> io::Result<Option<usize>> {
        let Some(epoll) = &self.epoll else { return Ok(None) };
        let mut ready = match epoll.ready(tokens) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            count => count.unwrap_or(0),
        };
        // An empty socket is never ready, but must be closed.
        for slot in sockets.to_close().into_iter().chain(self.unwatched) {
            if ready < tokens.len() {
                tokens[ready] = slot as u64;
                ready += 1;
            }
        }
        Ok(Some(ready))
    }

    /// Something was found in this socket: it is the one to ask. Returns whether it was not before.
    pub(super) fn spoke(&mut self, token: usize) -> bool {
        std::mem::replace(&mut self.active, token) != token
    }

    /// Every socket has been asked; `others`: another than the active one had something.
    pub(super) fn looked(&mut self, others: bool, sockets: &Sockets) -> io::Result<()> {
        self.look_every = if others { LOOK_EVERY_MIN } else { (self.look_every + 1).min(LOOK_EVERY_MAX) };
        if others {
            self.conversation = 0;
            self.watch_again(sockets)?;
        }
        Ok(())
    }

    /// The socket that was asked is closed.
    pub(super) fn closed(&mut self) {
        self.active = MAIN;
        self.conversation = 0;
    }

    /// Ends a call of `receive`: `found` says whether there was something. Takes the active socket out of epoll when it has
    /// been the only one to speak for a while.
    pub(super) fn received(&mut self, found: bool, sockets: &Sockets) -> io::Result<()> {
        self.busy = found;
        if !found {
            return Ok(());
        }
        self.conversation += 1;
        if self.conversation < CONVERSATION_CALLS || self.watching || self.unwatched.is_some() {
            return Ok(());
        }
        if let (Some(epoll), Some(dedicated)) = (&self.epoll, sockets.dedicated(self.active))
            && !dedicated.closing
        {
            epoll.remove(dedicated.socket.as_fd())?;
            self.unwatched = Some(self.active);
        }
        Ok(())
    }

    /// From now on epoll knows of every arrival, or need not.
    pub(super) fn watch(&mut self, on: bool, sockets: &Sockets) -> io::Result<()> {
        self.watching = on;
        if on { self.watch_again(sockets) } else { Ok(()) }
    }

    /// The peer of this slot is gone: its socket is closed when it is empty.
    pub(super) fn closing(&mut self, slot: usize, sockets: &Sockets) {
        if self.unwatched == Some(slot) {
            // Failing leaves it to the next look, which asks closing sockets in any case.
            let _ = self.watch_again(sockets);
        }
    }

    /// Puts the socket that was taken out of epoll back; what waits in it is told at once.
    fn watch_again(&mut self, sockets: &Sockets) -> io::Result<()> {
        if let Some(slot) = self.unwatched.take()
            && let (Some(epoll), Some(dedicated)) = (&self.epoll, sockets.dedicated(slot))
        {
            epoll.add(dedicated.socket.as_fd(), slot as u64)?;
        }
        Ok(())
    }
}
