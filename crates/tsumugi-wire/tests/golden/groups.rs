//! The cases between members of groups and switch boxes.

use super::{Cases, header, packet, payload, wholes};
use crate::common::body_crc;
use crate::common::exercise::mix;
use tsumugi_wire::group::{Answer, BODY_BYTES, Contribution, Join, Notice, Operation};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::{Flags, Header, Kind, Psn};

fn mixed(kind: Kind) -> Header {
    Header { flags: Flags::MIXED, ..header(kind) }
}

fn join() -> Join {
    Join {
        job: 0x1111_2222_3333_4444,
        key: 0x9999_aaaa_bbbb_cccc,
        group: 12,
        box_number: 0,
        first: 1,
        size: 100,
        member: 99,
        weight: 1,
        via: 0,
    }
}

fn contribution(operation: Operation) -> Contribution {
    let mut words = [0; 8];
    let count = if operation == Operation::None { 0 } else { 3 };
    for (word, value) in words[..count].iter_mut().zip([1, u64::MAX, 0x0123_4567_89ab_cdef]) {
        *word = value;
    }
    Contribution { via: 0, operation, count: count as u8, generation: 7, words }
}

fn notice(notice: Notice) -> Answer {
    Answer { notice, via: 0, member: 0, weight: 0, seat: 0, seat_token: 0, generation: 0 }
}

pub(super) fn good(cases: &mut Cases) {
    let join_packet = |join: Join| packet(mixed(Kind::Join), &join.encode());
    cases.add("join", "the last of 100 members", join_packet(join()));
    let of_a_box = Join { box_number: 0x0b0c_0d0e_0f10_1112, member: 0, weight: 63, via: 5, ..join() };
    cases.add("join_box", "a box, for 63 members", join_packet(of_a_box));
    let alone = Join { size: 1, member: 0, ..join() };
    cases.add("join_alone", "the only member", join_packet(alone));
    let most = Join {
        job: u64::MAX,
        key: u64::MAX,
        group: u64::MAX,
        box_number: u64::MAX,
        first: u64::MAX,
        size: u16::MAX,
        member: u16::MAX - 1,
        weight: u16::MAX,
        via: u8::MAX,
    };
    cases.add("join_maximal", "every field at its highest", join_packet(most));

    let of_a_seat = |kind| Header { flow: 3 << 6 | 17, ..mixed(kind) };
    for operation in Operation::ALL {
        let name = if operation == Operation::None {
            "arrive_barrier".to_owned()
        } else {
            format!("arrive_{operation:?}").to_lowercase()
        };
        let why = if operation == Operation::None { "at a barrier" } else { "three words to be combined" };
        cases.add(&name, why, packet(of_a_seat(Kind::Arrive), &contribution(operation).encode()));
    }
    let of_a_box = Contribution { via: 63, ..contribution(Operation::Sum) };
    cases.add(
        "arrive_box",
        "a box, with what its members have",
        packet(of_a_seat(Kind::Arrive), &of_a_box.encode()),
    );
    let most = Contribution {
        via: u8::MAX,
        operation: Operation::Xor,
        count: 8,
        generation: u64::MAX,
        words: [u64::MAX; 8],
    };
    cases.add(
        "arrive_maximal",
        "every field at its highest",
        packet(of_a_seat(Kind::Arrive), &most.encode()),
    );
    let mut ignored = contribution(Operation::Sum).encode();
    ignored[..8].fill(0xff);
    ignored[11..16].fill(0xff);
    cases.foreign(
        "arrive_reserved",
        "what lies where DATA has a frame, and reserved bytes, are ignored",
        packet(of_a_seat(Kind::Arrive), &ignored),
    );

    cases.add("leave", "the seat is free", packet(of_a_seat(Kind::Leave), &[0; BODY_BYTES]));
    let body = payload(BODY_BYTES);
    cases.foreign("leave_with_body", "the body is not read", packet(of_a_seat(Kind::Leave), &body));

    let said = |answer: Answer| packet(mixed(Kind::Notice), &answer.encode());
    let joined =
        Answer { weight: 1, seat: 3 << 6 | 17, seat_token: 0xfedc_ba98_7654_3210, ..notice(Notice::Joined) };
    cases.add("notice_joined", "here is a seat", said(joined));
    let of_a_box = Answer { weight: 63, via: 5, ..joined };
    cases.add("notice_joined_box", "a seat for a box, and its slot that asked", said(of_a_box));
    let waiting = Answer { member: 42, generation: 7, ..notice(Notice::Waiting) };
    cases.add("notice_waiting", "member 42 has not arrived", said(waiting));
    for (name, why, of) in [
        ("notice_lost", "others have the result", Notice::Lost),
        ("notice_unknown", "there is no such seat", Notice::Unknown),
        ("notice_refused", "there is no room", Notice::Refused),
        ("notice_disagreement", "another operation than the others", Notice::Disagreement),
        ("notice_no_box", "a member says that it got the packet", Notice::NoBox),
    ] {
        cases.add(name, why, said(Answer { generation: 7, ..notice(of) }));
    }
    let most = Answer {
        notice: Notice::NoBox,
        via: u8::MAX,
        member: u16::MAX,
        weight: u16::MAX,
        seat: u32::MAX,
        seat_token: u64::MAX,
        generation: u64::MAX,
    };
    cases.add("notice_maximal", "every field at its highest", said(most));
    let mut ignored = joined.encode();
    for reserved in [0..8, 14..16, 20..24, 40..88] {
        ignored[reserved].fill(0xff);
    }
    cases.foreign("notice_reserved", "reserved bytes are ignored", packet(mixed(Kind::Notice), &ignored));

    let sum = contribution(Operation::Sum).encode();
    cases.add(
        "release_between_boxes",
        "the sum, to a box below",
        packet(Header { psn: Psn(6), ..mixed(Kind::Release) }, &sum),
    );
    let release = Header { psn: Psn(6), ..mixed(Kind::Data) };
    cases.add("release_sum", "the sum, to a member: DATA", packet(release, &sum));
    let barrier = contribution(Operation::None).encode();
    cases.add("release_barrier", "all have arrived, to a member", packet(release, &barrier));
    let mut ignored = sum;
    ignored[..2].fill(0xff);
    ignored[3..8].fill(0xff);
    cases.foreign(
        "release_form_0",
        "of the place of a frame only the form says that none is there",
        packet(release, &ignored),
    );
    // Nobody sends these, and everyone reads them alike.
    cases.add("data_mixed", "frames, 88 bytes of them", packet(release, &wholes(&[(7, 8), (7, 64)])));
    cases.add(
        "data_mixed_short",
        "of no group's length: the flag means nothing, and there is a CRC",
        packet(release, &wholes(&[(7, 8)])),
    );
    let unchecked = Header { flags: Flags::MIXED.with(Flags::UNCHECKED), ..release };
    cases.add("release_unchecked", "compared all the same", packet(unchecked, &sum));
}

pub(super) fn refused(cases: &mut Cases) {
    let arrive = mixed(Kind::Arrive);
    let sum = contribution(Operation::Sum);
    for kind in [Kind::Join, Kind::Arrive, Kind::Leave, Kind::Notice, Kind::Release] {
        let body = match kind {
            Kind::Join => join().encode(),
            Kind::Notice => notice(Notice::Waiting).encode(),
            _ => sum.encode(),
        };
        let name = format!("{kind:?}").to_lowercase();
        let none = packet(mixed(kind), &[]);
        cases.refuse_body(&format!("{name}_without_body"), "there must be one", none, "group_length 0");
        let short = packet(mixed(kind), &body[..87]);
        cases.refuse_body(&format!("{name}_short"), "one byte short", short, "group_length 87");
        let long = packet(mixed(kind), &[&body[..], &[0]].concat());
        cases.refuse_body(&format!("{name}_long"), "one byte too long", long, "group_length 89");
        let unmixed = packet(header(kind), &body);
        cases.refuse_body(&format!("{name}_unmixed"), "with a CRC instead", unmixed, "group_unmixed");
        let mut damaged = packet(mixed(kind), &body);
        damaged[HEADER_BYTES + 87] ^= 0x80;
        cases.refuse_body(&format!("{name}_damaged"), "the last bit of the body", damaged, "unread");
    }
    let crc = Header { body_crc: body_crc(&sum.encode()), body_bytes: 88, ..arrive };
    let crc = [&crc.encode()[..], &sum.encode()].concat();
    cases.refuse_body("arrive_crc", "a CRC where the flag says that there is none", crc, "unread");
    let unmixed = Header { body_crc: mix(&sum.encode()), body_bytes: 88, flags: Flags(0), ..arrive };
    let unmixed = [&unmixed.encode()[..], &sum.encode()].concat();
    cases.refuse_body("arrive_no_flag", "the other way round", unmixed, "unread");
    let release = Header { body_bytes: 88, ..mixed(Kind::Data) };
    let zero = [&release.encode()[..], &sum.encode()].concat();
    cases.refuse_body("release_zero", "0 does not mean unchecked", zero, "unread");
    let unchecked = Header { flags: Flags::MIXED.with(Flags::UNCHECKED), ..release };
    let zero = [&unchecked.encode()[..], &sum.encode()].concat();
    cases.refuse_body("release_unchecked_zero", "not even here", zero, "unread");
    let no_flag = packet(header(Kind::Data), &sum.encode());
    cases.refuse_body("release_no_flag", "a release without its flag is no release", no_flag, "frame_form 0");

    for (name, why, join) in [
        ("join_member", "member 100 of 100", Join { member: 100, ..join() }),
        ("join_size_0", "of no members", Join { size: 0, member: 0, ..join() }),
        ("join_weight_0", "for nobody", Join { box_number: 1, weight: 0, ..join() }),
        ("join_weight_101", "for more than there are", Join { box_number: 1, weight: 101, ..join() }),
        ("join_weight_2", "an endpoint stands for itself", Join { weight: 2, ..join() }),
        ("join_weight_none", "and not for nobody", Join { weight: 0, ..join() }),
    ] {
        cases.refuse_body(name, why, packet(mixed(Kind::Join), &join.encode()), "group");
    }
    let mut operation = sum.encode();
    operation[8] = 7;
    let release = mixed(Kind::Data);
    for (to, header) in [("arrive", arrive), ("between_boxes", mixed(Kind::Release)), ("release", release)] {
        for (name, why, body) in [
            ("operation_7", "unknown", operation),
            ("count_9", "more words than there are", Contribution { count: 9, ..sum }.encode()),
            ("generation_0", "they count from 1", Contribution { generation: 0, ..sum }.encode()),
        ] {
            cases.refuse_body(&format!("{to}_{name}"), why, packet(header, &body), "group");
        }
    }
    let mut answer = notice(Notice::Waiting).encode();
    for number in [0, 8, 255] {
        answer[8] = number;
        let name = format!("notice_{number}");
        cases.refuse_body(&name, "unknown", packet(mixed(Kind::Notice), &answer), "group");
    }
}
