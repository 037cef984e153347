//! Groups that a switch box counts for: joining, arriving, and what a box says.

use super::Core;
use crate::PeerId;
use crate::endpoint::groups::{Seat, SeatId};
use crate::endpoint::peer::table::Tenant;
use rand::RngExt as _;
use std::net::SocketAddr;
use tsumugi_proto::group::member::{Member, Membership, seal};
use tsumugi_proto::{ReceiveMemory, receiver};
use tsumugi_rail::{Packet, Rail, RailError};
use tsumugi_wire::group::{Answer, BODY_BYTES, Contribution, Join, Notice, Operation, WORDS_MAX, mix};
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::memory::Counter;
use tsumugi_wire::{Flags, Header, Instant, Kind};

/// What group is joined, and as whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joining {
    /// What all members know.
    pub key: u64,
    /// Number of the group in the job.
    pub group: u64,
    /// Members in all.
    pub size: u16,
    /// This one's number.
    pub member: u16,
}

impl Core {
    /// Joins a group, with packets that are addressed to `to`, a member on another host (`tsumugi_proto::group::boxes` says which).
    /// `None`: there is no room for another flow.
    pub fn join_group(&mut self, now: Instant, to: PeerId, joining: Joining) -> Option<SeatId> {
        let flow = self.peers.free_flow()?;
        let id = self.groups.free();
        self.peers.set_flow(flow, Some(Tenant::Group(id.number())));
        let Joining { key, group, size, member } = joining;
        let token = self.open_group_flow(flow);
        let membership = Membership {
            job: self.options.job,
            key,
            group,
            size,
            member,
            epoch: self.incarnation.epoch,
            flow,
            token,
        };
        let member = Member::new(now, membership, 0);
        self.groups.put(id, Seat { member, flow, token, to });
        Some(id)
    }

    /// Opens a flow for releases. They come from one sender, in no order that matters, and no more than one at a time.
    fn open_group_flow(&mut self, flow: u32) -> u64 {
        let token = self.incarnation.random.random_range(1..=u64::MAX);
        if let Some(flow) = self.memory.flow(flow) {
            receiver::close(flow);
            receiver::open(flow, token, self.incarnation.epoch, Repeat::Selective, u64::MAX);
        }
        token
    }

    /// How it stands with a seat.
    #[must_use]
    pub fn seat(&self, id: SeatId) -> Option<&Member> {
        self.groups.get(id).map(|seat| &seat.member)
    }

    /// Arrives at the next generation of a group, if that is what its seat waits for.
    pub fn arrive(&mut self, now: Instant, id: SeatId, operation: Operation, words: &[u64]) {
        if let Some(seat) = self.groups.get_mut(id) {
            seat.member.arrive(now, operation, words);
        }
    }

    /// Another member has told what came of the generation that a seat has arrived at.
    pub fn learn(&mut self, now: Instant, id: SeatId, words: [u64; WORDS_MAX]) {
        let Some(flow) = self.groups.get(id).map(|seat| seat.flow) else { return };
        let token = self.open_group_flow(flow);
        if let Some(seat) = self.groups.get_mut(id) {
            seat.token = token;
            seat.member.learn(now, words, token);
        }
    }

    /// Leaves a group.
    pub fn leave_group(&mut self, id: SeatId) {
        let Some(mut seat) = self.groups.take(id) else { return };
        if let Some(flow) = self.memory.flow(seat.flow) {
            receiver::close(flow);
        }
        self.peers.set_flow(seat.flow, None);
        let to = self.address_of(seat.to);
        if let (Some((header, body)), Some(to)) = (seat.member.leave(), to) {
            self.egress.reply(to, [&header.encode()[..], &body].concat());
        }
    }

    /// Sends what seats have to say.
    pub(super) fn transmit_groups<R: Rail + ?Sized>(
        &mut self,
        now: Instant,
        rail: &mut R,
    ) -> Result<(), RailError> {
        if now < self.groups.deadline() {
            return Ok(());
        }
        for number in 0..self.groups.len() {
            let Some(seat) = self.groups.at(number) else { continue };
            let Some((header, body)) = seat.member.transmit(now) else { continue };
            let to = seat.to;
            if let Some(to) = self.address_of(to) {
                rail.send(now, to, &[Packet { head: &header.encode(), body: &body }])?;
                self.tally.packets_sent += 1;
            }
        }
        Ok(())
    }

    /// A packet of a group has come, in a datagram by itself.
    pub(super) fn on_group_packet(&mut self, now: Instant, from: SocketAddr, header: &Header, body: &[u8]) {
        match header.kind {
            Kind::Notice => match (Answer::decode(body), self.groups.meant_by(header)) {
                (Ok(answer), Some(seat)) => seat.member.on_notice(now, &answer),
                (Ok(answer), None) if self.multicasts.on_notice(now, header, &answer) => {}
                (Ok(_), None) => self.memory.count(Counter::UnknownFlow, 1),
                (Err(_), _) => self.memory.count(Counter::Violation, 1),
            },
            // Nor this, which brings nobody anything here: its sender finds that it was lost.
            Kind::Multicast => self.say_no_box(from, header.psn.0 as u32, header.ack.0, 0),
            // No box has taken it. One that joins at another will hear soon that it has all members.
            Kind::Join if Join::decode(body).is_ok_and(|join| join.box_number == 0) => {
                self.say_no_box(from, header.flow, header.token, 0);
            }
            Kind::Arrive => {
                if let Ok(arrive) = Contribution::decode(body) {
                    self.say_no_box(from, header.psn.0 as u32, header.ack.0, arrive.generation);
                }
            }
            _ => {}
        }
    }

    fn say_no_box(&mut self, to: SocketAddr, flow: u32, token: u64, generation: u64) {
        let header = Header { flow, token, ..Header::new(Kind::Notice, self.incarnation.epoch) };
        let answer = Answer {
            notice: Notice::NoBox,
            via: 0,
            member: 0,
            weight: 0,
            seat: 0,
            seat_token: 0,
            generation,
        };
        let (header, body) = seal(header, answer.encode());
        self.egress.reply(to, [&header.encode()[..], &body].concat());
    }

    /// Whether a packet is of a group, or a release.
    #[inline]
    pub(super) fn is_of_a_group(&self, header: &Header) -> bool {
        header.flags.has(Flags::MIXED)
            && (header.kind.of_a_group()
                || (header.kind == Kind::Data && self.peers.group_in_flow(header.flow).is_some()))
    }

    /// A release has come.
    pub(super) fn on_release(&mut self, number: u32, body_crc: u32, body: &[u8]) {
        if body.len() != BODY_BYTES || mix(body) != Some(body_crc) {
            self.memory.count(Counter::Corrupt, 1);
            return;
        }
        match (Contribution::decode(body), self.groups.at(number)) {
            (Ok(release), Some(seat)) => seat.member.on_release(&release),
            _ => self.memory.count(Counter::Violation, 1),
        }
    }
}
