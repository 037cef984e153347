//! Frames with packets of groups in them, and what a box is to send and to remember, said once more in Rust.

use etherparse::PacketBuilder;
use tsumugi_proto::group::boxes::{Group, Step};
use tsumugi_proto::group::headers::answer_to;
use tsumugi_proto::group::member::seal;
use tsumugi_rail::switch::groups::{AddressEntry, GroupEntry, SlotEntry};
use tsumugi_wire::group::{Answer, BODY_BYTES, Contribution, Notice, SLOT_BITS};
use tsumugi_wire::{Header, Kind};

/// How a host's packets travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Four,
    Six,
}

/// A host that sends, and to whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    pub(crate) number: u8,
    pub(crate) port: u32,
    pub(crate) family: Family,
}

/// How to send to a host: what the model keeps of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) number: u8,
    pub(crate) port: u32,
}

/// A frame between two hosts.
fn frame(from: u8, to: u8, family: Family, header: &Header, body: &[u8]) -> Vec<u8> {
    let ports = |number: u8| 7000 + u16::from(number);
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 1, from], [2, 0, 0, 0, 1, to]);
    let payload = [&header.encode()[..], body].concat();
    let mut frame = Vec::new();
    match family {
        Family::Four => {
            let builder = builder.ipv4([10, 0, 0, from], [10, 0, 0, to], 64).udp(ports(from), ports(to));
            builder.write(&mut frame, &payload).expect("a frame");
            // Over IPv4 there is no checksum of UDP's.
            frame[40..42].fill(0);
        }
        Family::Six => {
            let address = |number| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number];
            let builder = builder.ipv6(address(from), address(to), 64).udp(ports(from), ports(to));
            builder.write(&mut frame, &payload).expect("a frame");
        }
    }
    frame
}

impl Host {
    pub(crate) fn new(number: u8, port: u32, family: Family) -> Host {
        Host { number, port, family }
    }

    /// Whom all packets are addressed to.
    const fn sends_to(&self) -> u8 {
        if self.number == 0 { 1 } else { 0 }
    }

    pub(crate) fn back(&self) -> Port {
        Port { number: self.number, port: self.port }
    }
}

/// The frame in which a host sends a packet.
pub(crate) fn frame_of(host: &Host, header: &Header, body: &[u8]) -> Vec<u8> {
    frame(host.number, host.sends_to(), host.family, header, body)
}

/// The frame that a box's program is to leave: the one that is sent, or the last of several. `None`: nothing is said of it.
pub(crate) fn sent(
    step: &Step,
    group: &Group<Port>,
    place: usize,
    host: &Host,
    header: &Header,
    came: &[u8],
) -> Option<Vec<u8>> {
    let back = |to: &Port, header, body| {
        let (header, body) = seal(header, body);
        let its = Host::new(to.number, to.port, host.family);
        frame(its.sends_to(), its.number, host.family, &header, &body)
    };
    let notice = |number: usize, answer: &Answer| {
        let slot = &group.slots[number];
        back(&slot.address, slot.notice(), answer.encode())
    };
    let release = |number: usize, release: &Contribution| {
        let slot = &group.slots[number];
        back(&slot.address, slot.release(release.generation), release.encode())
    };
    let last = group.slots.len().wrapping_sub(1);
    let up = |kind, body| {
        let (up, body) = seal(group.up(place, kind), body);
        Some(frame_of(host, &up, &body))
    };
    match step {
        Step::Nothing | Step::Pass => {
            let _ = came;
            None
        }
        Step::AnswerSender(answer) => Some(back(&host.back(), answer_to(header), answer.encode())),
        Step::Answer(slot, answer) => Some(notice(usize::from(*slot), answer)),
        Step::ReleaseTo(slot, of) => Some(release(usize::from(*slot), of)),
        Step::JoinedAll => {
            let slot = &group.slots[last];
            let answer = Answer {
                notice: Notice::Joined,
                via: 0,
                member: 0,
                weight: slot.weight,
                seat: (place as u32) << SLOT_BITS | last as u32,
                seat_token: slot.token,
                generation: group.generation,
            };
            Some(notice(last, &answer))
        }
        Step::ReleaseAll(of) => Some(release(last, of)),
        Step::JoinUp(join) => up(Kind::Join, join.encode()),
        Step::ArriveUp(arrive) => up(Kind::Arrive, arrive.encode()),
        Step::LeaveUp => up(Kind::Leave, [0; BODY_BYTES]),
        // What each slot gets: `part`.
        Step::Spread => None,
    }
}

/// The frame in which a slot gets its part of a packet for several: this header, and of the body as much as it says.
pub(crate) fn part(group: &Group<Port>, slot: u8, header: &Header, body: &[u8]) -> Vec<u8> {
    let to = group.slots[usize::from(slot)].address;
    let family = if group.is_six { Family::Six } else { Family::Four };
    let its = Host::new(to.number, to.port, family);
    frame(its.sends_to(), its.number, family, header, &body[..usize::from(header.body_bytes)])
}

/// Whether a box can send to all members, but not member 0 without `with_first`, by a frame for each port, none of them that of `from`.
/// Behind the driver it can send no others.
pub(crate) fn is_one_at_each_port(group: &Group<Port>, from: Option<&Host>, with_first: bool) -> bool {
    let slots = group.slots.iter().filter(|slot| (slot.member != 0 || with_first) && !slot.has_left);
    let mut ports: Vec<u32> = from.map(|from| from.port).into_iter().collect();
    ports.extend(slots.map(|slot| slot.address.port));
    let all = ports.len();
    ports.sort_unstable();
    ports.dedup();
    ports.len() == all
}

/// What the program is to know of a group. Of slots that are not in use it may know anything: `known`.
pub(crate) fn entry_of(group: &Group<Port>, known: &GroupEntry) -> GroupEntry {
    let mut slots = known.slots;
    for (entry, slot) in slots.iter_mut().zip(&group.slots) {
        let Port { number, port } = slot.address;
        let its = Host::new(number, port, if group.is_six { Family::Six } else { Family::Four });
        *entry = SlotEntry {
            member: slot.member,
            token: slot.token,
            arrived: slot.arrived,
            first: slot.first,
            peer_token: slot.peer_token,
            peer_flow: slot.peer_flow,
            epoch: slot.epoch,
            rank: slot.rank,
            weight: slot.weight,
            has_left: slot.has_left.into(),
            address: address_of(&its),
        };
    }
    GroupEntry {
        lock: 0,
        seen_s: group.seen_s,
        job: group.job,
        key: group.key,
        number: group.number,
        size: group.size,
        weight: group.weight,
        arrived: group.arrived,
        slots_used: group.slots.len() as u16,
        is_six: group.is_six.into(),
        is_root: group.is_root.into(),
        is_formed: group.is_formed.into(),
        is_up: group.is_up.into(),
        has_result: group.has_result.into(),
        operation: group.operation,
        count: group.count,
        result_operation: group.result_operation,
        result_count: group.result_count,
        reserved: [0; 7],
        generation: group.generation,
        words: group.words,
        result: group.result,
        up_token: group.up_token,
        up_seat_token: group.up_seat_token,
        up_seat: group.up_seat,
        reserved_2: 0,
        slots,
    }
}

/// What a frame to a host has where, out of one.
fn address_of(host: &Host) -> AddressEntry {
    let header = Header::new(Kind::Notice, 1);
    let frame = frame(host.sends_to(), host.number, host.family, &header, &[]);
    let word = |at: usize| u64::from_ne_bytes(frame[at..at + 8].try_into().expect("eight bytes"));
    let half = |at: usize| u16::from_ne_bytes([frame[at], frame[at + 1]]);
    let six = host.family == Family::Six;
    AddressEntry {
        port: host.port,
        six: six.into(),
        ethernet: frame[..12].try_into().expect("twelve bytes"),
        udp: if six { [half(54), half(56)] } else { [half(34), half(36)] },
        ip: if six { [word(22), word(30), word(38), word(46)] } else { [word(26), 0, 0, 0] },
    }
}
