//! The layout of receive memory and the format's constants as Rust has them, under their names in C.

use std::mem::{align_of, offset_of, size_of};
use tsumugi_wire::group::{self, Answer, BODY_BYTES, Contribution, Join, Notice, Operation};
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::memory::{
    self, Acknowledged, Control, Counter, DirectWrites, Flow, Geometry, Received, Record, Translation,
};
use tsumugi_wire::multicast::{self, ENTRY_BYTES, Entry, RECEIVERS_MAX, TABLE_BYTES, Table};
use tsumugi_wire::piece::{PACKET_BODY_BYTES_MAX, PIECE_ALIGN};
use tsumugi_wire::remote::Opcode;
use tsumugi_wire::{Flags, Kind, Psn, ack, frame, handshake, header, limits};

/// Offset of every field of `$rust`, which begins at `$base` of the C structure `$c`. A field that is
/// not listed does not compile.
macro_rules! offsets {
    ($into:ident, $c:literal, $base:expr, $rust:ident, $($field:ident),+) => {
        const _: fn($rust) = |$rust { $($field: _),+ }| {};
        $($into.push((concat!($c, ".", stringify!($field)), ($base + offset_of!($rust, $field)) as u64));)+
    };
}

/// Size and alignment of `$rust`.
macro_rules! size {
    ($into:ident, $c:literal, $rust:ty) => {
        $into.push((concat!("sizeof=", $c), size_of::<$rust>() as u64));
        $into.push((concat!("alignof=", $c), align_of::<$rust>() as u64));
    };
}

/// Name and number of everything that `bpf/tsumugi_wire.h` has to agree about.
pub(crate) fn expected() -> Vec<(&'static str, u64)> {
    let mut all = Vec::new();
    offsets!(
        all,
        "control",
        0,
        Control,
        magic,
        version,
        flows,
        ring_bytes,
        epoch,
        checked_tick,
        checked_at,
        seal,
        answers_left,
        ring_head,
        ring_tail,
        sleeping,
        xoff,
        ring_read,
        counters,
        rails,
        owed
    );
    size!(all, "control", Control);
    offsets!(
        all,
        "flow",
        0,
        Flow,
        token,
        epoch,
        repeat,
        limit,
        peer_token,
        peer_flow,
        checked,
        received,
        acknowledged,
        bitmap,
        direct_writes
    );
    offsets!(
        all,
        "flow.received",
        offset_of!(Flow, received),
        Received,
        base,
        echo,
        xoff,
        owed,
        newest,
        ask_by_probe
    );
    offsets!(all, "flow.acknowledged", offset_of!(Flow, acknowledged), Acknowledged, ack, limit);
    offsets!(all, "flow.direct_writes", offset_of!(Flow, direct_writes), DirectWrites, started, done, held);
    size!(all, "flow", Flow);
    offsets!(all, "translation", 0, Translation, key, place, used);
    size!(all, "translation", Translation);
    let none = Record::from_words([0; 4]);
    // Behind the seal, where in the record's words what was put in comes out.
    let place = |record: Record| {
        let mut words = record.words().into_iter().zip(none.words());
        8 + 8 * words.position(|(one, other)| one != other).expect("the record is not empty") as u64
    };
    let stamp = Record::stamp_of(0xfedc_ba98_f654_3210);
    let windowed = Geometry { window_pages: 3, translations: 65, ..Geometry::plain(9, 65536) };
    all.extend([
        ("sizeof=header", header::HEADER_BYTES as u64),
        ("sizeof=whole", frame::WHOLE_BYTES as u64),
        ("sizeof=fragment", frame::FRAGMENT_BYTES as u64),
        ("sizeof=remote", frame::REMOTE_BYTES as u64),
        ("sizeof=answer", (ack::BODY_BYTES_MAX - 4 * ack::WORDS_MAX) as u64),
        ("sizeof=offer", handshake::OFFER_BYTES as u64),
        ("sizeof=challenge", handshake::CHALLENGE_BYTES as u64),
        ("sizeof=record", Record::HEADER_BYTES),
        ("VERSION", u64::from(limits::VERSION)),
        ("DEFAULT_PORT", u64::from(limits::DEFAULT_PORT)),
        ("IPV4_UDP_BYTES", limits::IPV4_UDP_BYTES as u64),
        ("IPV6_UDP_BYTES", limits::IPV6_UDP_BYTES as u64),
        ("DATAGRAM_BYTES_MIN", limits::DATAGRAM_BYTES_MIN as u64),
        ("DATAGRAM_BYTES_MAX", limits::DATAGRAM_BYTES_MAX as u64),
        ("ONE_BUFFER_BYTES", limits::ONE_BUFFER_BYTES as u64),
        ("BITMAP_PACKETS", limits::BITMAP_PACKETS),
        ("MESSAGE_BYTES_MAX", limits::MESSAGE_BYTES_MAX),
        ("RECORD_ALIGN", limits::RECORD_ALIGN),
        ("PIECE_ALIGN", PIECE_ALIGN as u64),
        ("PACKET_BODY_BYTES_MAX", PACKET_BODY_BYTES_MAX as u64),
        ("WORD_PSNS", ack::WORD_PSNS),
        ("WORDS_MAX", ack::WORDS_MAX as u64),
        ("ANSWER_BYTES_MAX", ack::BODY_BYTES_MAX as u64),
        ("MAGIC", memory::MAGIC),
        ("PAGE_BYTES", memory::PAGE_BYTES as u64),
        ("FLOWS_PER_PAGE", memory::FLOWS_PER_PAGE as u64),
        ("PAD_BYTES", memory::PAD_BYTES as u64),
        ("BITMAP_WORDS", memory::BITMAP_WORDS as u64),
        ("COUNTERS", memory::COUNTERS as u64),
        ("RING_BYTES_MIN", Geometry::RING_BYTES_MIN),
        ("TRANSLATION_WAYS", memory::TRANSLATION_WAYS as u64),
        ("FRAME_BITS", memory::FRAME_BITS.into()),
        ("ASLEEP", memory::ASLEEP.into()),
        ("RUNG", memory::RUNG.into()),
        ("PADDING", u64::from(Record::PADDING)),
        ("record_sizes", Record { bytes: 8972, flow: 7, credit: 992, ..none }.words()[0]),
        ("record_sizes_padding", Record { bytes: 40, flow: Record::PADDING, ..none }.words()[0]),
        ("record.seal", 0),
        ("record.sizes", place(Record { bytes: 1, ..none })),
        ("record.psn", place(Record { psn: 4, ..none })),
        ("record.ack", place(Record { ack: 4, ..none })),
        ("record.crc", place(Record { body_crc: 1, ..none })),
        ("record_crc", Record { body_crc: 0x89ab_cdef, stamp, ..none }.words()[3]),
        ("record_crc_checked", Record { body_crc: 0x89ab_cdef, stamp, checked: true, ..none }.words()[3]),
        ("record_crc_has_ack", Record { body_crc: 0x89ab_cdef, stamp, has_ack: true, ..none }.words()[3]),
        ("span_0", Record::span(0)),
        ("span_8", Record::span(8)),
        ("span_9", Record::span(9)),
        ("span_8972", Record::span(8972)),
        ("flow_offset_9", Geometry::flow_offset(9) as u64),
        ("ring_offset_9", Geometry::plain(9, 4096).ring_offset() as u64),
        ("memory_bytes_9_65536", Geometry::plain(9, 65536).bytes() as u64),
        ("memory_bytes_9_65536_3_64", windowed.bytes() as u64),
        ("window_offset_9_65536_64", windowed.window_offset() as u64),
        ("translation_place", Translation::place_of(0x7_fff1_2345, 0x2_fedc)),
    ]);
    all.extend([
        ("FLAG_ACK_REQUEST", u64::from(Flags::ACK_REQUEST.0)),
        ("FLAG_RESENT", u64::from(Flags::RESENT.0)),
        ("FLAG_HAS_ACK", u64::from(Flags::HAS_ACK.0)),
        ("FLAG_ASK_BY_PROBE", u64::from(Flags::ASK_BY_PROBE.0)),
        ("FLAG_AWAY", u64::from(Flags::AWAY.0)),
        ("FLAG_AT_LEISURE", u64::from(Flags::AT_LEISURE.0)),
        ("FLAG_UNCHECKED", u64::from(Flags::UNCHECKED.0)),
        ("FLAG_MIXED", u64::from(Flags::MIXED.0)),
        ("REMOTE_WRITE", Opcode::Write as u64),
        ("REMOTE_PIECE", Opcode::Piece as u64),
        ("REPEAT_SELECTIVE", Repeat::Selective as u64),
        ("REPEAT_GO_BACK_N", Repeat::GoBackN as u64),
    ]);
    let kinds: [_; Kind::ALL.len()] = [
        "DATA",
        "ACK",
        "NAK",
        "XOFF",
        "XON",
        "PROBE",
        "HELLO",
        "CHALLENGE",
        "WELCOME",
        "BYE",
        "BYE_ACK",
        "RESET",
        "PIECE",
        "SIZE_PROBE",
        "SIZE_ACK",
        "DAMAGED",
        "JOIN",
        "ARRIVE",
        "LEAVE",
        "NOTICE",
        "RELEASE",
        "MULTICAST",
        "RELAY",
    ];
    all.extend(kinds.into_iter().zip(Kind::ALL).map(|(name, kind)| (name, kind as u64)));
    all.push(("KIND_LAST", Kind::ALL.len() as u64));
    all.extend(groups());
    all.extend(multicasts());
    all.extend(Counter::ALL.map(|(counter, name)| (name, counter as u64)));
    all
}

/// The same for packets of groups, whose layout is not public: where in the bytes something is shows what it changes there.
fn groups() -> Vec<(&'static str, u64)> {
    let join =
        Join { job: 0, key: 0, group: 0, box_number: 0, first: 0, size: 0, member: 0, weight: 0, via: 0 };
    let contribution =
        Contribution { via: 0, operation: Operation::None, count: 0, generation: 0, words: [0; 8] };
    let answer = Answer {
        notice: Notice::Joined,
        via: 0,
        member: 0,
        weight: 0,
        seat: 0,
        seat_token: 0,
        generation: 0,
    };
    let first = |one: [u8; BODY_BYTES], other: [u8; BODY_BYTES]| {
        one.iter().zip(other).position(|(one, other)| *one != other).expect("a difference") as u64
    };
    let of_join = |other: Join| first(join.encode(), other.encode());
    let of_contribution = |other: Contribution| first(contribution.encode(), other.encode());
    let of_answer = |other: Answer| first(answer.encode(), other.encode());
    let mut all = vec![
        ("sizeof=join", BODY_BYTES as u64),
        ("sizeof=contribution", BODY_BYTES as u64),
        ("sizeof=group_answer", BODY_BYTES as u64),
        ("GROUP_BYTES", BODY_BYTES as u64),
        ("GROUP_WORDS", group::WORDS_MAX as u64),
        ("GROUP_SLOTS", group::SLOTS_MAX as u64),
        ("GROUP_SLOT_BITS", u64::from(group::SLOT_BITS)),
        ("join.frame", 0),
        ("join.job", of_join(Join { job: 1, ..join })),
        ("join.key", of_join(Join { key: 1, ..join })),
        ("join.group", of_join(Join { group: 1, ..join })),
        ("join.box", of_join(Join { box_number: 1, ..join })),
        ("join.first", of_join(Join { first: 1, ..join })),
        ("join.size", of_join(Join { size: 1, ..join })),
        ("join.member", of_join(Join { member: 1, ..join })),
        ("join.weight", of_join(Join { weight: 1, ..join })),
        ("join.via", of_join(Join { via: 1, ..join })),
        ("contribution.frame", 0),
        (
            "contribution.operation",
            of_contribution(Contribution { operation: Operation::Sum, ..contribution }),
        ),
        ("contribution.count", of_contribution(Contribution { count: 1, ..contribution })),
        ("contribution.via", of_contribution(Contribution { via: 1, ..contribution })),
        ("contribution.generation", of_contribution(Contribution { generation: 1, ..contribution })),
        ("contribution.words", of_contribution(Contribution { words: [1; 8], ..contribution })),
        ("group_answer.frame", 0),
        ("group_answer.notice", of_answer(Answer { notice: Notice::Waiting, ..answer })),
        ("group_answer.via", of_answer(Answer { via: 1, ..answer })),
        ("group_answer.member", of_answer(Answer { member: 1, ..answer })),
        ("group_answer.weight", of_answer(Answer { weight: 1, ..answer })),
        ("group_answer.seat", of_answer(Answer { seat: 1, ..answer })),
        ("group_answer.seat_token", of_answer(Answer { seat_token: 1, ..answer })),
        ("group_answer.generation", of_answer(Answer { generation: 1, ..answer })),
    ];
    let operations: [_; Operation::ALL.len()] = [
        "OPERATION_NONE",
        "OPERATION_SUM",
        "OPERATION_MIN",
        "OPERATION_MAX",
        "OPERATION_AND",
        "OPERATION_OR",
        "OPERATION_XOR",
    ];
    all.extend(operations.into_iter().zip(Operation::ALL).map(|(name, one)| (name, one as u64)));
    let notices: [_; Notice::ALL.len()] =
        ["JOINED", "WAITING", "LOST", "UNKNOWN", "REFUSED", "DISAGREEMENT", "NO_BOX"];
    all.extend(notices.into_iter().zip(Notice::ALL).map(|(name, one)| (name, one as u64)));
    let body: [u8; BODY_BYTES] = std::array::from_fn(|at| at as u8);
    all.push(("group_mix", u64::from(group::mix(&body).expect("the length of a group's body"))));
    all
}

/// The same for what is behind the frames of packets for several receivers.
fn multicasts() -> Vec<(&'static str, u64)> {
    let changed = |one: &[u8], other: &[u8]| {
        one.iter().zip(other).position(|(one, other)| one != other).expect("a difference") as u64
    };
    let table = Table { crc: 0, base: Psn(0), entries: &[] };
    let of_table = |other: Table<'_>| changed(&table.encode_head(), &other.encode_head());
    let bytes = |entry: Entry| Table { entries: &[entry], ..table }.entry_bytes().to_vec();
    let of_entry = |other: Entry| changed(&bytes(Entry::ABSENT), &bytes(other));
    let longest: Vec<u8> = (0..multicast::table_bytes(RECEIVERS_MAX)).map(|at| at as u8).collect();
    vec![
        ("sizeof=table", multicast::table_bytes(RECEIVERS_MAX) as u64),
        ("sizeof=entry", ENTRY_BYTES as u64),
        ("RECEIVERS_MAX", RECEIVERS_MAX as u64),
        ("table.base", of_table(Table { base: Psn(1), ..table })),
        ("table.crc", of_table(Table { crc: 1, ..table })),
        ("table.entries", TABLE_BYTES as u64),
        ("entry.tag", of_entry(Entry::new(1, Psn(0), Psn(0)))),
        ("entry.after", of_entry(Entry::new(0, Psn(0), Psn(1)))),
        ("table_bytes_1", multicast::table_bytes(1) as u64),
        ("table_bytes_63", multicast::table_bytes(63) as u64),
        ("table_check_1", u64::from(multicast::check(&longest[..multicast::table_bytes(1)]))),
        ("table_check_63", u64::from(multicast::check(&longest))),
    ]
}
