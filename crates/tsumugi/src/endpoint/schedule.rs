//! Which peers have something to do, and when.
//!
//! A peer's [`Listed`] tells on which lists it is, so that it is on each of them once. Only the [`Schedule`] changes it.

use std::collections::VecDeque;
use tsumugi_wire::Instant;

/// The lists that a peer is on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Listed {
    to_send: bool,
    timed: bool,
    to_grant: bool,
    holding: bool,
}

impl Listed {
    /// Whether it is on any of them.
    pub(crate) const fn is_anywhere(self) -> bool {
        self.to_send || self.timed || self.to_grant || self.holding
    }

    /// Whether something is to be sent to it.
    pub(crate) const fn is_to_send(self) -> bool {
        self.to_send
    }
}

/// The lists, by the peers' numbers.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Something is to be sent to them, in turn.
    to_send: VecDeque<u32>,
    /// They have timers running.
    timed: Vec<u32>,
    /// Empty; the room of the list before, so that a tick allocates nothing.
    timed_before: Vec<u32>,
    /// No timer of any peer is due before this.
    deadline: Instant,
    /// The application receives: whoever may send is asked for signs of life, next at this time.
    watches: bool,
    watch_due: Instant,
    /// Credit is to be granted to them ahead.
    to_grant: Vec<u32>,
    /// Packets of them are held, if any of theirs may be written directly.
    holding: Vec<u32>,
    /// Kernels are to be asked about them.
    doubted: Vec<u32>,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule {
            to_send: VecDeque::new(),
            timed: Vec::new(),
            timed_before: Vec::new(),
            deadline: Instant::NEVER,
            watches: false,
            watch_due: Instant::NEVER,
            to_grant: Vec::new(),
            holding: Vec::new(),
            doubted: Vec::new(),
        }
    }
}

impl Schedule {
    /// Something is to be sent to a peer.
    #[inline]
    pub(crate) fn send(&mut self, listed: &mut Listed, index: u32) {
        if !listed.to_send {
            listed.to_send = true;
            self.to_send.push_back(index);
        }
    }

    /// Takes the peer whose turn it is to be sent to.
    #[inline]
    pub(crate) fn next_to_send<'a>(&mut self, listed: impl FnOnce(u32) -> &'a mut Listed) -> Option<u32> {
        let index = self.to_send.pop_front()?;
        listed(index).to_send = false;
        Some(index)
    }

    /// How many peers something is to be sent to.
    #[inline]
    pub(crate) fn to_send(&self) -> usize {
        self.to_send.len()
    }

    /// When a timer is due.
    #[inline]
    pub(crate) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The next call is due at this time, whatever timer is due before: what that asks for could not be sent.
    pub(crate) fn retry(&mut self, at: Instant) {
        self.deadline = at;
    }

    /// Sees to it that a peer is looked at when `due`.
    #[inline]
    pub(crate) fn set_timer(&mut self, listed: &mut Listed, index: u32, due: Instant) {
        if due == Instant::NEVER {
            return;
        }
        self.deadline = self.deadline.min(due);
        if !listed.timed {
            listed.timed = true;
            self.timed.push(index);
        }
    }

    /// A peer with timers, by its place on the list.
    pub(crate) fn timed(&self, at: usize) -> Option<u32> {
        self.timed.get(at).copied()
    }

    /// Takes all peers with timers, which are to be looked at and come back by [`Schedule::tock`].
    pub(crate) fn tick(&mut self) -> Vec<u32> {
        self.deadline = Instant::NEVER;
        let mut timed = std::mem::take(&mut self.timed_before);
        std::mem::swap(&mut timed, &mut self.timed);
        timed
    }

    /// One that was [taken](Schedule::tick) has no timer any more.
    pub(crate) fn ticks(listed: &mut Listed) {
        listed.timed = false;
    }

    /// They have been looked at, and have set new timers.
    pub(crate) fn tock(&mut self, mut timed: Vec<u32>) {
        self.deadline = self.deadline.min(self.watch_due);
        timed.clear();
        self.timed_before = timed;
    }

    /// From now on peers are watched.
    #[inline]
    pub(crate) fn watch(&mut self) {
        if !self.watches {
            self.watches = true;
            (self.watch_due, self.deadline) = (Instant(0), Instant(0));
        }
    }

    /// Whether the watched peers are to be looked at.
    pub(crate) fn is_watch_due(&self, now: Instant) -> bool {
        now >= self.watch_due
    }

    /// They have been looked at, and are to be again at this time.
    pub(crate) fn watch_at(&mut self, due: Instant) {
        self.watch_due = due;
        self.deadline = self.deadline.min(due);
    }

    /// If peers are watched, this is no later than the next look at them.
    pub(crate) fn watch_by(&mut self, due: Instant) {
        if self.watches {
            self.watch_at(self.watch_due.min(due));
        }
    }

    /// Credit is to be granted ahead to a peer.
    #[inline]
    pub(crate) fn grant(&mut self, listed: &mut Listed, index: u32) {
        if !listed.to_grant {
            listed.to_grant = true;
            self.to_grant.push(index);
        }
    }

    /// Takes a peer that credit is to be granted to.
    #[inline]
    pub(crate) fn next_to_grant<'a>(&mut self, listed: impl FnOnce(u32) -> &'a mut Listed) -> Option<u32> {
        let index = self.to_grant.pop()?;
        listed(index).to_grant = false;
        Some(index)
    }

    /// Packets of a peer are held.
    pub(crate) fn hold(&mut self, listed: &mut Listed, index: u32) {
        if !listed.holding {
            listed.holding = true;
            self.holding.push(index);
        }
    }

    /// Whether packets of any peer are held.
    pub(crate) fn is_holding(&self) -> bool {
        !self.holding.is_empty()
    }

    /// Takes all peers of which packets are held.
    pub(crate) fn take_holding(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.holding)
    }

    /// One that was [taken](Schedule::take_holding) is looked at.
    pub(crate) fn held(listed: &mut Listed) {
        listed.holding = false;
    }

    /// Kernels are to be asked about a peer.
    pub(crate) fn doubt(&mut self, index: u32) {
        if !self.doubted.contains(&index) {
            self.doubted.push(index);
        }
    }

    /// Takes a peer that kernels are to be asked about.
    #[inline]
    pub(crate) fn next_doubted(&mut self) -> Option<u32> {
        self.doubted.pop()
    }

    /// Takes a peer off every list, which it has another number on from now on.
    pub(crate) fn unlist(&mut self, listed: &mut Listed, index: u32) {
        self.to_send.retain(|other| *other != index);
        for list in [&mut self.timed, &mut self.to_grant, &mut self.holding, &mut self.doubted] {
            list.retain(|other| *other != index);
        }
        (listed.to_send, listed.timed) = (false, false);
    }

    /// Puts it back, but for what its new timers and what is to be sent to it will do.
    pub(crate) fn relist(&mut self, listed: Listed, index: u32) {
        if listed.to_grant {
            self.to_grant.push(index);
        }
        if listed.holding {
            self.holding.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_on_each_list_once() {
        let (mut schedule, mut listed) = (Schedule::default(), Listed::default());
        for _ in 0..2 {
            schedule.send(&mut listed, 7);
            schedule.set_timer(&mut listed, 7, Instant(9));
            schedule.grant(&mut listed, 7);
            schedule.hold(&mut listed, 7);
            schedule.doubt(7);
        }
        assert_eq!((schedule.to_send(), schedule.timed(0), schedule.timed(1)), (1, Some(7), None));
        assert_eq!(schedule.next_to_send(|_| &mut listed), Some(7));
        assert_eq!(schedule.next_to_grant(|_| &mut listed), Some(7));
        assert_eq!(schedule.next_to_grant(|_| &mut listed), None);
        assert_eq!((schedule.next_doubted(), schedule.next_doubted()), (Some(7), None));
        assert_eq!(schedule.take_holding(), [7]);
        Schedule::held(&mut listed);
        assert!(listed.is_anywhere() && !listed.is_to_send(), "it has a timer");
        assert_eq!(schedule.tick(), [7]);
        Schedule::ticks(&mut listed);
        assert!(!listed.is_anywhere());
    }

    #[test]
    fn the_deadline_is_that_of_the_first_timer() {
        let (mut schedule, mut listed) = (Schedule::default(), Listed::default());
        schedule.set_timer(&mut listed, 1, Instant::NEVER);
        assert!(!listed.is_anywhere());
        schedule.set_timer(&mut listed, 1, Instant(20));
        schedule.set_timer(&mut listed, 1, Instant(30));
        assert_eq!(schedule.deadline(), Instant(20));
        let timed = schedule.tick();
        assert_eq!((timed.clone(), schedule.deadline()), (vec![1], Instant::NEVER));
        schedule.tock(timed);
        schedule.watch_by(Instant(5));
        assert_eq!(schedule.deadline(), Instant::NEVER, "nobody is watched");
        schedule.watch();
        assert!(schedule.is_watch_due(Instant(0)));
        schedule.watch_at(Instant(50));
        schedule.watch_by(Instant(40));
        assert!(!schedule.is_watch_due(Instant(39)) && schedule.is_watch_due(Instant(40)));
    }
}
