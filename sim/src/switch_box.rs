//! A switch box between all hosts: it takes the packets of groups off the wire, as its program does.

use crate::random::Random;
use std::net::SocketAddr;
use tsumugi_proto::group::boxes::{Groups, Sender, Slot, Step};
use tsumugi_proto::group::headers::answer_to;
use tsumugi_proto::group::member::seal;
use tsumugi_wire::group::{Answer, Contribution, mix};
use tsumugi_wire::time::SECOND_NS;
use tsumugi_wire::{Flags, Header, Instant, Kind, multicast};

/// How to send to a member: where it is, and to whom it sends, which is where what it gets comes from.
type Address = Option<(SocketAddr, SocketAddr)>;

/// A datagram that leaves the box: from, to, bytes.
pub(crate) type Leaving = (SocketAddr, SocketAddr, Vec<u8>);

/// A group of which nothing was heard for so long makes room, s.
const LEASE_S: u32 = 60;

#[derive(Debug)]
pub(crate) struct SwitchBox {
    groups: Groups<Address>,
    random: Random,
    /// It forgets everything with one packet in this many; 0: never.
    forgets_one_in: u64,
    /// Packets for several receivers that it made DATA of, and how many it made.
    pub(crate) multicasts: u64,
    pub(crate) parts: u64,
}

impl SwitchBox {
    pub(crate) fn new(seed: u64, forgets_one_in: u64) -> SwitchBox {
        SwitchBox {
            groups: Groups::new(1, LEASE_S),
            random: Random::new(seed, 11),
            forgets_one_in,
            multicasts: 0,
            parts: 0,
        }
    }

    /// What leaves in place of a datagram; `None`: that is no business of a box's.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: SocketAddr,
        datagram: &[u8],
    ) -> Option<Vec<Leaving>> {
        let (header, body, _) = Header::decode(datagram).ok()?;
        if !header.kind.of_a_group() {
            return None;
        }
        if self.forgets_one_in > 0 && self.random.one_in(self.forgets_one_in) {
            self.groups = Groups::new(1, LEASE_S);
        }
        let check = match header.kind {
            Kind::Multicast | Kind::Relay => {
                multicast::split(header.credit, body).ok().map(|(_, table)| multicast::check(table))
            }
            _ => mix(body),
        };
        if check != Some(header.body_crc) || !header.flags.has(Flags::MIXED) {
            return Some(Vec::new());
        }
        let sender = Sender { address: Some((from, to)), is_six: false };
        let random = [self.random.bits(), self.random.bits()];
        let now_s = (now.0 / SECOND_NS) as u32;
        let (_, place, step) = self.groups.on_packet(now_s, &header, body, sender, random);
        let slots = 0..self.groups.at(place).slots.len() as u8;
        Some(match step {
            Step::Pass => return None,
            // There is no box above.
            Step::Nothing | Step::JoinUp(_) | Step::ArriveUp(_) | Step::LeaveUp => Vec::new(),
            Step::AnswerSender(answer) => {
                let (header, body) = seal(answer_to(&header), answer.encode());
                vec![(to, from, [&header.encode()[..], &body].concat())]
            }
            Step::Answer(slot, answer) => vec![self.notice(place, slot, &answer)],
            Step::JoinedAll => {
                slots.map(|slot| self.notice(place, slot, &self.groups.joined(place, slot))).collect()
            }
            Step::ReleaseAll(release) => slots.map(|slot| self.release(place, slot, &release)).collect(),
            Step::ReleaseTo(slot, release) => vec![self.release(place, slot, &release)],
            Step::Spread => {
                let parts = self.groups.spread(place, &header, body);
                self.multicasts += 1;
                self.parts += parts.len() as u64;
                let part = |(slot, part): &(u8, Header)| {
                    let body = &body[..usize::from(part.body_bytes)];
                    self.leaving(place, *slot, part, body)
                };
                parts.iter().map(part).collect()
            }
        })
    }

    fn notice(&self, place: usize, slot: u8, answer: &Answer) -> Leaving {
        let (header, body) = seal(self.slot(place, slot).notice(), answer.encode());
        self.leaving(place, slot, &header, &body)
    }

    fn release(&self, place: usize, slot: u8, release: &Contribution) -> Leaving {
        let (header, body) = seal(self.slot(place, slot).release(release.generation), release.encode());
        self.leaving(place, slot, &header, &body)
    }

    fn slot(&self, place: usize, slot: u8) -> &Slot<Address> {
        &self.groups.at(place).slots[usize::from(slot)]
    }

    /// A packet to whoever has a slot.
    fn leaving(&self, place: usize, slot: u8, header: &Header, body: &[u8]) -> Leaving {
        let (member, source) = self.slot(place, slot).address.expect("who joins has an address");
        (source, member, [&header.encode()[..], body].concat())
    }
}
