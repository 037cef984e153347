//! A member of a group for multicast: joins, and renews its lease before the box forgets it.
//!
//! Sans-IO, as [`super::member`]. There is nothing to be waited for here: member 0 sends by itself whatever no box gives to the
//! others, and so does it while its lease is not in force.

use super::member::{Failure, Membership, PASSED_MAX, Packet, RETRY_MAX_NS, RETRY_NS, seal};
use tsumugi_wire::group::{Answer, BODY_BYTES, Notice};
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Header, Instant, Kind};

/// A lease is renewed after so long, ns. A box that was restarted has all members again after that.
pub const RENEW_NS: u64 = 1_000 * MILLISECOND_NS;

/// How it stands with a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not all members have joined, as far as is known.
    Joining,
    /// All have.
    Joined,
    /// It is given up, and why.
    Failed(Failure),
}

/// A member's lease.
#[derive(Clone, Debug)]
pub struct Lease {
    membership: Membership,
    standing: Standing,
    /// The seat and its token, in [`Standing::Joined`].
    seat: (u32, u64),
    /// How many flows it has joined with, this one included: a JOIN that comes late must not undo a newer one.
    flows: u64,
    retry_at: Instant,
    retry_ns: u64,
    /// JOINs in a row that have reached another member, and whether the last is among them.
    passed: u32,
    has_passed: bool,
}

impl Lease {
    /// A member that joins. The flow is that in which member 0 sends to it; its token is 0 as long as there is none.
    #[must_use]
    pub const fn new(now: Instant, membership: Membership) -> Lease {
        Lease {
            membership,
            standing: Standing::Joining,
            seat: (0, 0),
            flows: 1,
            retry_at: now,
            retry_ns: RETRY_NS,
            passed: 0,
            has_passed: false,
        }
    }

    /// How it stands.
    #[must_use]
    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// The flow that it has joined with, and its token.
    #[must_use]
    pub const fn flow(&self) -> (u32, u64) {
        (self.membership.flow, self.membership.token)
    }

    /// Member 0 sends in another flow from now on.
    pub fn follow(&mut self, now: Instant, flow: u32, token: u64) {
        (self.membership.flow, self.membership.token) = (flow, token);
        self.flows += 1;
        if !matches!(self.standing, Standing::Failed(_)) {
            self.join_anew(now);
        }
    }

    /// Nothing is to be sent before this time.
    pub fn postpone(&mut self, until: Instant) {
        self.retry_at = until;
    }

    fn join_anew(&mut self, now: Instant) {
        self.standing = Standing::Joining;
        (self.retry_at, self.retry_ns) = (now, RETRY_NS);
        (self.passed, self.has_passed) = (0, false);
    }

    /// When [`Lease::transmit`] has something to do.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        match self.standing {
            Standing::Joining | Standing::Joined => self.retry_at,
            Standing::Failed(_) => Instant::NEVER,
        }
    }

    /// What is to be sent now.
    pub fn transmit(&mut self, now: Instant) -> Option<Packet> {
        if now < self.deadline() {
            return None;
        }
        self.has_passed = false;
        if self.standing == Standing::Joined {
            self.retry_at = now.plus(RENEW_NS);
        } else {
            self.retry_at = now.plus(self.retry_ns);
            self.retry_ns = (2 * self.retry_ns).min(RETRY_MAX_NS);
        }
        Some(self.membership.join(self.flows))
    }

    /// The header of a packet for all others, but for what is in its body. `None`: they are sent to one by one.
    #[must_use]
    pub fn header(&self) -> Option<Header> {
        (self.standing == Standing::Joined).then(|| self.membership.of_seat(Kind::Multicast, self.seat))
    }

    /// That it leaves; to be sent once, and never asked for again. `None`: it holds no seat.
    pub fn leave(&mut self) -> Option<Packet> {
        let is_in = self.standing == Standing::Joined;
        self.standing = Standing::Failed(Failure::Refused);
        is_in.then(|| seal(self.membership.of_seat(Kind::Leave, self.seat), [0; BODY_BYTES]))
    }

    /// Whether a notice is for this member. Before it has a flow, none is.
    #[must_use]
    pub const fn is_for(&self, header: &Header) -> bool {
        self.membership.token != 0 && self.membership.is_for(header)
    }

    /// A box has answered, or the member that got the packet.
    pub fn on_notice(&mut self, now: Instant, answer: &Answer) {
        match (answer.notice, self.standing) {
            (_, Standing::Failed(_)) => {}
            (Notice::Joined, _) => {
                self.seat = (answer.seat, answer.seat_token);
                self.passed = 0;
                if self.standing == Standing::Joining {
                    self.standing = Standing::Joined;
                    self.retry_at = now.plus(RENEW_NS);
                }
            }
            (Notice::Refused, _) => self.standing = Standing::Failed(Failure::Refused),
            (Notice::Waiting, Standing::Joining) => self.passed = 0,
            // The box has forgotten the group since, or is another.
            (Notice::Waiting | Notice::Unknown | Notice::NoBox, Standing::Joined) => self.join_anew(now),
            (Notice::NoBox, Standing::Joining) if !self.has_passed => {
                self.has_passed = true;
                self.passed += 1;
                if self.passed == PASSED_MAX {
                    self.standing = Standing::Failed(Failure::NoBox);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> Lease {
        let membership =
            Membership { job: 1, key: 2, group: 3, size: 4, member: 0, epoch: 5, flow: 6, token: 7 };
        Lease::new(Instant(0), membership)
    }

    fn said(notice: Notice) -> Answer {
        Answer { notice, via: 0, member: 0, weight: 1, seat: 64, seat_token: 9, generation: 0 }
    }

    #[test]
    fn a_lease_is_renewed_and_joins_anew_when_the_box_has_forgotten_it() {
        let mut lease = lease();
        assert!(lease.transmit(Instant(0)).is_some() && lease.header().is_none());
        lease.on_notice(Instant(1), &said(Notice::Waiting));
        lease.on_notice(Instant(2), &said(Notice::Joined));
        let header = lease.header().expect("it has a seat");
        assert_eq!((header.flow, header.token, header.psn.0, header.ack.0), (64, 9, 6, 7));
        assert_eq!(lease.deadline(), Instant(2).plus(RENEW_NS));
        assert!(lease.transmit(lease.deadline()).is_some() && lease.header().is_some());
        for forgotten in [Notice::Unknown, Notice::Waiting, Notice::NoBox] {
            lease.on_notice(Instant(9), &said(forgotten));
            assert_eq!((lease.standing(), lease.deadline()), (Standing::Joining, Instant(9)));
            lease.on_notice(Instant(9), &said(Notice::Joined));
        }
    }

    #[test]
    fn without_a_box_it_is_given_up() {
        let mut lease = lease();
        for _ in 0..PASSED_MAX {
            assert!(lease.transmit(lease.deadline()).is_some());
            lease.on_notice(Instant(0), &said(Notice::NoBox));
            lease.on_notice(Instant(0), &said(Notice::NoBox));
        }
        assert_eq!((lease.standing(), lease.deadline()), (Standing::Failed(Failure::NoBox), Instant::NEVER));
        lease.on_notice(Instant(0), &said(Notice::Joined));
        assert!(lease.header().is_none() && lease.leave().is_none());
    }
}
