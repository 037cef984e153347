//! The packets of the golden vectors, and what is expected of each.

#[path = "groups.rs"]
mod groups;
#[path = "multicast.rs"]
mod multicast;
#[path = "refused.rs"]
mod refused;

use crate::common::body_check;
use tsumugi_wire::ack::{BODY_BYTES_MAX, Sack, WORDS_MAX};
use tsumugi_wire::frame::{FRAGMENT_BYTES, Fragment, REMOTE_BYTES, RemoteFrame, encode_whole};
use tsumugi_wire::handshake::{Challenge, Offer, Refusal, Repeat};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::limits::{DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN, IPV4_UDP_BYTES, MESSAGE_BYTES_MAX};
use tsumugi_wire::piece::Piece;
use tsumugi_wire::remote::Opcode;
use tsumugi_wire::{Flags, Header, Kind, Psn};

/// A packet and the verdict on it, stated independently of the decoder.
pub(crate) struct Case {
    /// File in `vectors/`, without its ending.
    pub(crate) file: &'static str,
    pub(crate) name: String,
    /// What the case is there for.
    pub(crate) why: String,
    pub(crate) bytes: Vec<u8>,
    /// The `result` of the header, and the `body` (with crc `bad`: `unread`).
    pub(crate) verdict: (&'static str, &'static str),
    /// Whether the library, given the fields, would write the same bytes.
    pub(crate) ours: bool,
}

struct Cases {
    file: &'static str,
    cases: Vec<Case>,
}

impl Cases {
    fn add(&mut self, name: &str, why: &str, bytes: Vec<u8>) -> &mut Case {
        self.cases.push(Case {
            file: self.file,
            name: name.to_owned(),
            why: why.to_owned(),
            bytes,
            verdict: ("ok", "ok"),
            ours: true,
        });
        self.cases.last_mut().expect("just pushed")
    }

    fn refuse(&mut self, name: &str, why: &str, bytes: Vec<u8>, result: &'static str) {
        let case = self.add(name, why, bytes);
        (case.verdict, case.ours) = ((result, ""), false);
    }

    fn refuse_body(&mut self, name: &str, why: &str, bytes: Vec<u8>, body: &'static str) {
        let case = self.add(name, why, bytes);
        (case.verdict, case.ours) = (("ok", body), false);
    }

    fn foreign(&mut self, name: &str, why: &str, bytes: Vec<u8>) {
        self.add(name, why, bytes).ours = false;
    }
}

/// Every case.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Cases { file: "data", cases: Vec::new() };
    data(&mut cases);
    cases.file = "answer";
    answer(&mut cases);
    cases.file = "handshake";
    handshake(&mut cases);
    cases.file = "closing";
    closing(&mut cases);
    cases.file = "sizes";
    sizes(&mut cases);
    cases.file = "group";
    groups::good(&mut cases);
    cases.file = "refused_group";
    groups::refused(&mut cases);
    cases.file = "multicast";
    multicast::good(&mut cases);
    cases.file = "refused_multicast";
    multicast::refused(&mut cases);
    cases.file = "refused_header";
    refused::headers(&mut cases);
    cases.file = "refused_body";
    refused::bodies(&mut cases);
    cases.cases
}

fn header(kind: Kind) -> Header {
    Header {
        token: 0x0123_4567_89ab_cdef,
        flow: 5,
        path: 1,
        psn: Psn(if matches!(kind, Kind::Data | Kind::Xoff | Kind::Bye) { 1234 } else { 0 }),
        ..Header::new(kind, 0xe90c_0001)
    }
}

/// The packet of `header` and `body`, with length and CRC filled in.
fn packet(mut header: Header, body: &[u8]) -> Vec<u8> {
    header.body_bytes = u16::try_from(body.len()).expect("a body fits its length field");
    header.body_crc = body_check(&header, body);
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

/// `bytes` of payload, each different from its neighbours.
fn payload(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 7 + index / 256 + 1) as u8).collect()
}

/// A body of whole messages, (channel, bytes) each, all padded.
fn wholes(messages: &[(u16, usize)]) -> Vec<u8> {
    let mut body = Vec::new();
    for &(channel, bytes) in messages {
        body.extend_from_slice(&encode_whole(channel, bytes as u32));
        body.extend_from_slice(&payload(bytes));
        body.resize(body.len().next_multiple_of(8), 0);
    }
    body
}

fn fragment(offset: u64, total: u64, bytes: usize) -> Vec<u8> {
    let mut body = Fragment { channel: 9, message: 0xffff_fffe, offset, total }.encode().to_vec();
    body.extend_from_slice(&payload(bytes));
    body
}

/// A frame about remote memory, padded.
fn remote(opcode: Opcode, bytes: usize) -> Vec<u8> {
    let (key, address, operation) = (0xfeed_5eed_0bad_f00d, 0x7f00_1234_5678, 0x1_0000_0002);
    let mut body =
        RemoteFrame { opcode: opcode as u16, key, address, operation }.encode(bytes as u32).to_vec();
    body.extend_from_slice(&payload(bytes));
    body.resize(body.len().next_multiple_of(8), 0);
    body
}

/// A body that fills a datagram of `datagram_bytes` with a fragment.
fn full_fragment(datagram_bytes: usize) -> Vec<u8> {
    fragment(2800, 1 << 30, datagram_bytes - HEADER_BYTES - FRAGMENT_BYTES)
}

fn data(cases: &mut Cases) {
    let plain = header(Kind::Data);
    cases.add(
        "data_lone_8_bytes",
        "a lone message of 8 bytes: 64 of datagram",
        packet(plain, &wholes(&[(7, 8)])),
    );
    cases.add("data_empty_message", "a message without payload", packet(plain, &wholes(&[(0, 0)])));
    cases.add("data_no_frames", "an empty body: CRC 0, no frames", packet(plain, &[]));
    cases.add("data_one_byte", "one byte, padded", packet(plain, &wholes(&[(1, 1)])));
    cases.add(
        "data_one_byte_unpadded",
        "the last frame's padding left off",
        packet(plain, &wholes(&[(1, 1)])[..9]),
    );
    cases.add(
        "data_several",
        "several messages in one packet, channels from end to end",
        packet(plain, &wholes(&[(0, 3), (65535, 8), (2, 0), (3, 17)])),
    );
    cases.add(
        "data_several_unpadded",
        "several, the last without its padding",
        packet(plain, &wholes(&[(4, 5), (4, 13)])[..16 + 8 + 13]),
    );
    cases.add(
        "data_half_padding",
        "the last frame's padding cut in its middle",
        packet(plain, &wholes(&[(4, 3)])[..13]),
    );
    for (name, flags) in [
        ("data_ack_request", Flags::ACK_REQUEST),
        ("data_resent", Flags::RESENT),
        ("data_has_ack", Flags::HAS_ACK),
        ("data_all_flags", Flags::ACK_REQUEST.with(Flags::RESENT).with(Flags::HAS_ACK)),
    ] {
        let header = Header { flags, ack: Psn(77), credit: 512, ..plain };
        cases.add(name, "flags, and what HAS_ACK gives meaning to", packet(header, &wholes(&[(7, 8)])));
    }
    let header = Header { flags: Flags(0xf0), ..plain };
    cases.add(
        "data_flags_of_later",
        "flags that mean nothing in this packet are kept",
        packet(header, &wholes(&[(7, 8)])),
    );
    let bytes = wholes(&[(7, 8)]);
    let unchecked = Header { flags: Flags::UNCHECKED, body_bytes: bytes.len() as u16, ..plain };
    cases.add(
        "data_unchecked",
        "no CRC was made, as the two sides have agreed",
        [&unchecked.encode()[..], &bytes].concat(),
    );
    cases.add("data_unchecked_crc", "made all the same, and right", packet(unchecked, &bytes));
    let header = Header { psn: Psn(0), epoch: 1, path: 0, flow: 0, token: 1, ..plain };
    cases.add("data_first", "the first packet of a flow", packet(header, &wholes(&[(7, 8)])));
    let header = Header {
        psn: Psn(u64::MAX),
        ack: Psn(u64::MAX),
        epoch: u32::MAX,
        path: u8::MAX,
        flow: u32::MAX,
        token: u64::MAX,
        credit: u16::MAX,
        flags: Flags(u8::MAX),
        ..plain
    };
    cases.add("data_maximal", "every field at its highest", packet(header, &wholes(&[(65535, 8)])));

    cases.add("fragment_first", "the first piece", packet(plain, &fragment(0, 4000, 40)));
    cases.add(
        "fragment_middle",
        "a piece at 2^32 and beyond",
        packet(plain, &fragment(1 << 32, 1 << 33, 40)),
    );
    cases.add("fragment_last", "ends exactly with its message", packet(plain, &fragment(3960, 4000, 40)));
    cases.foreign("fragment_padded", "38 bytes, then padding", packet(plain, &fragment(3962, 4000, 40)));
    cases.add(
        "fragment_edge",
        "the last byte of the longest message",
        packet(plain, &fragment(MESSAGE_BYTES_MAX - 1, MESSAGE_BYTES_MAX, 1)),
    );
    let mut after = wholes(&[(3, 5)]);
    after.extend_from_slice(&fragment(100, 4000, 11));
    cases.add("fragment_after_whole", "a whole message, then a fragment", packet(plain, &after));
    for (name, why, datagram) in [
        ("fragment_full_508", "fills the smallest datagram that a path carries", DATAGRAM_BYTES_MIN),
        ("fragment_full_1500", "fills MTU 1500 over IPv4", 1500 - IPV4_UDP_BYTES),
        ("fragment_full_9000", "fills MTU 9000 over IPv4", DATAGRAM_BYTES_MAX),
    ] {
        cases.add(name, why, packet(plain, &full_fragment(datagram)));
    }
    cases.add("remote_write", "13 bytes to be written", packet(plain, &remote(Opcode::Write, 13)));
    cases.add("remote_fence", "without data", packet(plain, &remote(Opcode::Fence, 0)));
    cases.add(
        "remote_full_1500",
        "a piece of a write that fills MTU 1500 over IPv4",
        packet(plain, &remote(Opcode::Piece, 1500 - IPV4_UDP_BYTES - HEADER_BYTES - REMOTE_BYTES)),
    );
    let mixed =
        [wholes(&[(3, 5)]), remote(Opcode::Notify, 16), remote(Opcode::Reply, 3), wholes(&[(3, 1)])].concat();
    cases.add("remote_mixed", "between messages", packet(plain, &mixed));
    cases.add(
        "remote_unknown",
        "whoever reads it judges what it is",
        packet(plain, &{
            let mut body = remote(Opcode::Write, 8);
            body[..2].copy_from_slice(&[0xff; 2]);
            body
        }),
    );
    cases.foreign(
        "remote_unpadded",
        "the last frame's padding left off",
        packet(plain, &remote(Opcode::Write, 13)[..45]),
    );
    let mut two = packet(plain, &wholes(&[(7, 8)]));
    two.extend(packet(Header { psn: Psn(1235), ..plain }, &wholes(&[(7, 9)])));
    cases.foreign("data_coalesced", "two packets that segmentation offload put together", two);
    let mut ignored = wholes(&[(7, 8)]);
    ignored[3] = 0xff;
    cases.foreign("data_reserved", "a frame's reserved byte is ignored", packet(plain, &ignored));
}

fn sack(psn: Psn, words: &[u32]) -> Vec<u8> {
    let mut sack = Sack { echo: psn, delay_ns: 1500, words: words.len(), ..Sack::EMPTY };
    sack.bitmap[..words.len()].copy_from_slice(words);
    sack.encode(&mut [0; BODY_BYTES_MAX]).to_vec()
}

fn answer(cases: &mut Cases) {
    for (name, kind, why) in [
        ("ack_empty", Kind::Ack, "nothing beyond ack"),
        ("nak_empty", Kind::Nak, "Go-back-N: begin again at ack"),
        ("xoff_empty", Kind::Xoff, "psn was refused: the queue is full"),
        ("xon_empty", Kind::Xon, "there is room again"),
    ] {
        let header = Header { flags: Flags::HAS_ACK, ack: Psn(1234), credit: 1024, ..header(kind) };
        cases.add(name, why, packet(header, &sack(Psn(1233), &[])));
    }
    let ack = |ack| Header { flags: Flags::HAS_ACK, ack: Psn(ack), credit: 1000, ..header(Kind::Ack) };
    cases.add(
        "ack_ask_by_probe",
        "long packets reach the receiver in several buffers",
        packet(
            Header { flags: Flags::HAS_ACK.with(Flags::ASK_BY_PROBE), ..ack(1234) },
            &sack(Psn(1233), &[]),
        ),
    );
    cases.add(
        "ack_only_ask_by_probe",
        "the flag alone: nothing else of the header has a meaning",
        packet(Header { flags: Flags::ASK_BY_PROBE, ..header(Kind::Ack) }, &sack(Psn(0), &[])),
    );
    cases.add(
        "ack_away",
        "another process will go on",
        packet(Header { flags: Flags::HAS_ACK.with(Flags::AWAY), ..ack(1234) }, &sack(Psn(1233), &[])),
    );
    cases.add(
        "ack_only_away",
        "the flag alone",
        packet(Header { flags: Flags::AWAY, ..header(Kind::Ack) }, &sack(Psn(0), &[])),
    );
    // ack 70 lies at bit 6 of the word that begins at 64; bits before it are set.
    cases.add(
        "ack_one_hole",
        "70 is missing, 71 to 75 arrived",
        packet(ack(70), &sack(Psn(75), &[0x0000_0fbf])),
    );
    cases.add(
        "ack_two_words",
        "holes on both sides of a word's end",
        packet(ack(70), &sack(Psn(98), &[0xc000_003f, 0x0000_0005])),
    );
    cases.add("ack_aligned", "ack at a multiple of 32", packet(ack(96), &sack(Psn(97), &[0x0000_0002])));
    cases.add(
        "ack_end_of_word",
        "ack at the last bit of its word",
        packet(ack(95), &sack(Psn(96), &[0x7fff_ffff, 0x0000_0001])),
    );
    let mut longest = [0u32; WORDS_MAX];
    longest[0] = 0x7fff_ffff;
    for (index, word) in longest.iter_mut().enumerate().skip(1) {
        *word = 0x8000_0001_u32.rotate_left(index as u32);
    }
    cases.add("ack_longest", "the longest bitmap", packet(ack(31), &sack(Psn(1054), &longest)));
    cases.add(
        "ack_full_bitmap",
        "everything arrived but ack itself",
        packet(ack(0), &sack(Psn(1023), &[&[0xffff_fffe][..], &[u32::MAX; WORDS_MAX - 2]].concat())),
    );
    cases.add(
        "ack_last_psns",
        "the bitmap runs past the last number there is",
        packet(ack(u64::MAX - 2), &sack(Psn(u64::MAX), &[0x9fff_ffff, u32::MAX])),
    );
    let mut behind = sack(Psn(75), &[0x0000_0fbf]);
    behind.extend_from_slice(&[0xaa; 7]);
    cases.foreign("ack_bytes_behind", "bytes behind the bitmap are ignored", packet(ack(70), &behind));
    cases.add(
        "probe",
        "asks for an ACK",
        packet(Header { flags: Flags::ACK_REQUEST, ..header(Kind::Probe) }, &[]),
    );
    cases.add(
        "probe_at_leisure",
        "the flag alone says nothing",
        packet(Header { flags: Flags::AT_LEISURE, ..header(Kind::Probe) }, &[]),
    );
}

fn offer() -> Offer {
    Offer {
        job: 0x1111_2222_3333_4444,
        nonce: 0x5555_6666_7777_8888,
        cookie: 0,
        token: 0xfedc_ba98_7654_3210,
        flow: 3,
        repeat: Repeat::Selective,
        listens: false,
        trusts_wire: false,
        datagram_bytes: 1472,
        message_bytes_max: 1 << 30,
    }
}

fn handshake(cases: &mut Cases) {
    let stranger = |kind| Header::new(kind, 0xe90c_0001);
    cases.add("hello_first", "no cookie yet", packet(stranger(Kind::Hello), &offer().encode()));
    let proved = Offer { cookie: 0x0c00_c1e0_0c00_c1e0, ..offer() };
    cases.add(
        "hello_cookie",
        "with the cookie of the challenge",
        packet(stranger(Kind::Hello), &proved.encode()),
    );
    let challenge = Challenge { nonce: offer().nonce, cookie: proved.cookie };
    cases.add("challenge", "here is a cookie", packet(stranger(Kind::Challenge), &challenge.encode()));
    let welcome = |offer: Offer| packet(stranger(Kind::Welcome), &offer.encode());
    cases.add("welcome", "the flow is open", welcome(offer()));
    let go_back_n = Offer { repeat: Repeat::GoBackN, ..offer() };
    cases.add("welcome_go_back_n", "will repair by Go-back-N", welcome(go_back_n));
    let listens = Offer { listens: true, ..offer() };
    cases.add("welcome_listens", "a TCP socket tells whether the process is there", welcome(listens));
    let trusts = Offer { trusts_wire: true, ..offer() };
    cases.add("welcome_trusts_wire", "takes bodies without a CRC", welcome(trusts));
    let full = Offer::refusing(offer().job, offer().nonce, Refusal::Full(1024));
    cases.add("welcome_refusing", "there is no room", welcome(full));
    let most = Offer {
        job: u64::MAX,
        nonce: u64::MAX,
        cookie: u64::MAX,
        token: u64::MAX,
        flow: u32::MAX,
        repeat: Repeat::GoBackN,
        listens: true,
        trusts_wire: true,
        datagram_bytes: u16::MAX,
        message_bytes_max: u64::MAX,
    };
    cases.add("hello_maximal", "every field at its highest", packet(stranger(Kind::Hello), &most.encode()));
    let mut later = offer().encode();
    later[37] = 0xfe;
    later[48..].fill(0xff);
    cases.foreign("hello_reserved", "reserved bytes are ignored", packet(stranger(Kind::Hello), &later));
}

/// Packets that are too long for their path, and what finds out how long they may be.
fn sizes(cases: &mut Cases) {
    let piece = |at, bytes| {
        let piece = Piece { packet_bytes: 1424, at, packet_crc: 0xc0de_cafe };
        let mut body = piece.encode().to_vec();
        body.extend((0..bytes).map(|at| at as u8));
        packet(Header { psn: Psn(7), ..header(Kind::Piece) }, &body)
    };
    cases.add("piece_first", "the beginning of a packet", piece(0, 1088));
    cases.add("piece_last", "and its end", piece(1088, 336));
    cases.refuse_body("piece_beyond", "it ends beyond its packet", piece(1088, 337), "piece 345");
    cases.refuse_body("piece_askew", "it begins within a unit", piece(8, 64), "piece 72");
    cases.refuse_body("piece_empty", "no data", piece(0, 0), "piece 8");
    let probe = Header { psn: Psn(1372), path: 1, ..header(Kind::SizeProbe) };
    cases.add("size_probe", "asks whether 1,372 bytes arrive", packet(probe, &[0; 1372 - HEADER_BYTES]));
    let ack = Header { psn: Psn(1372), path: 1, ..header(Kind::SizeAck) };
    cases.add("size_ack", "they do", packet(ack, &[]));
    let damaged = Header { psn: Psn(7), ..header(Kind::Damaged) };
    cases.add("damaged", "packet 7 is wanted again", packet(damaged, &[]));
}

fn closing(cases: &mut Cases) {
    cases.add("bye", "the endpoint closes", packet(header(Kind::Bye), &[]));
    cases.add("bye_ack", "the BYE was heard", packet(header(Kind::ByeAck), &[]));
    cases.add("reset", "the flow is not known here", packet(header(Kind::Reset), &[]));
    let body = [1, 0, 0, 0, 0, 0, 0, 0];
    cases.foreign(
        "bye_with_body",
        "a body that this version does not read",
        packet(header(Kind::Bye), &body),
    );
}
