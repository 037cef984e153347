//! The cases of packets that are refused, by their header or by their body.

use super::{Cases, fragment, header, offer, packet, remote, sack, wholes};
use crate::common::exercise::seal;
use tsumugi_wire::ack::{BODY_BYTES_MAX, WORDS_MAX};
use tsumugi_wire::frame::encode_whole;
use tsumugi_wire::handshake::OFFER_BYTES;
use tsumugi_wire::limits::MESSAGE_BYTES_MAX;
use tsumugi_wire::remote::Opcode;
use tsumugi_wire::{Header, Kind, Psn};

/// `bytes` with one byte changed and the header check made right again.
fn resealed(mut bytes: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    bytes[at] = byte;
    seal(&mut bytes);
    bytes
}

pub(super) fn headers(cases: &mut Cases) {
    let good = packet(header(Kind::Data), &wholes(&[(7, 8)]));
    cases.refuse("truncated_nothing", "no bytes at all", Vec::new(), "truncated 0 48");
    cases.refuse("truncated_one", "one byte", good[..1].to_vec(), "truncated 1 48");
    cases.refuse("truncated_header", "one byte short of a header", good[..47].to_vec(), "truncated 47 48");
    cases.refuse("truncated_body", "one byte short of its body", good[..63].to_vec(), "truncated 63 64");
    cases.refuse("truncated_no_body", "the body is missing", good[..48].to_vec(), "truncated 48 64");
    let longest = resealed(resealed(good.clone(), 42, 0xff), 43, 0xff);
    cases.refuse("truncated_longest", "announces 65535 bytes of body", longest, "truncated 64 65583");
    for (version, result) in [(0, "version 0"), (2, "version 2"), (255, "version 255")] {
        let name = format!("version_{version}");
        cases.refuse(&name, "another version, its check right", resealed(good.clone(), 0, version), result);
    }
    let mut both = good.clone();
    both[0] = 2;
    cases.refuse("version_before_check", "the version is judged before the check", both, "version 2");
    // One vector for each field that the check protects.
    for (field, at) in [
        ("kind", 1),
        ("flags", 2),
        ("path", 3),
        ("check", 7),
        ("token", 8),
        ("flow", 16),
        ("epoch", 20),
        ("psn", 24),
        ("ack", 39),
        ("credit", 40),
        ("body_bytes", 42),
        ("body_crc", 47),
    ] {
        let mut damaged = good.clone();
        damaged[at] ^= 0x80;
        cases.refuse(&format!("check_{field}"), "one bit of this field is damaged", damaged, "check");
    }
    cases.refuse("check_zeros", "version 1 and nothing but zeros", [&[1][..], &[0; 63]].concat(), "check");
    for (kind, result) in [(0, "kind 0"), (24, "kind 24"), (255, "kind 255")] {
        cases.refuse(
            &format!("kind_{kind}"),
            "unknown, its check right",
            resealed(good.clone(), 1, kind),
            result,
        );
    }
    let no_epoch = Header { epoch: 0, ..header(Kind::Data) };
    cases.refuse("epoch_0", "never handed out", packet(no_epoch, &wholes(&[(7, 8)])), "epoch");
}

pub(super) fn bodies(cases: &mut Cases) {
    let plain = header(Kind::Data);
    let mut damaged = packet(plain, &wholes(&[(7, 8)]));
    damaged[60] ^= 1;
    cases.refuse_body("crc_damaged_body", "one bit of the body is damaged", damaged, "unread");
    let mut wrong = Header { body_crc: 1, ..plain };
    cases.refuse_body("crc_of_nothing", "an empty body has CRC 0", wrong.encode().to_vec(), "unread");
    wrong = Header { body_crc: 0, body_bytes: 16, ..plain };
    let unchecked = [&wrong.encode()[..], &wholes(&[(7, 8)])].concat();
    cases.refuse_body("crc_zero", "0 does not mean unchecked", unchecked, "unread");

    for (name, why, body, verdict) in [
        ("frame_short", "7 bytes are no frame", wholes(&[(7, 8)])[..7].to_vec(), "frame_truncated 0"),
        (
            "frame_past_end",
            "one byte more than there is",
            wholes(&[(7, 8)])[..15].to_vec(),
            "frame_truncated 0",
        ),
        (
            "frame_second_past_end",
            "the first message is good, the second runs past the end",
            wholes(&[(7, 8), (7, 8)])[..30].to_vec(),
            "frame_truncated 16",
        ),
        (
            "frame_longest",
            "announces 2^32 - 1 bytes",
            encode_whole(7, u32::MAX).to_vec(),
            "frame_truncated 0",
        ),
        ("frame_form_0", "no form", vec![0; 16], "frame_form 0"),
        ("frame_form_4", "unknown form", [7, 0, 4, 0, 0, 0, 0, 0].to_vec(), "frame_form 4"),
        (
            "remote_short",
            "31 bytes are no header",
            remote(Opcode::Write, 8)[..31].to_vec(),
            "frame_truncated 0",
        ),
        (
            "remote_past_end",
            "one byte more than there is",
            remote(Opcode::Write, 8)[..39].to_vec(),
            "frame_truncated 0",
        ),
        (
            "frame_second_form",
            "the first message is good, the second of unknown form",
            [wholes(&[(7, 1)]), vec![0xff; 8]].concat(),
            "frame_form 255",
        ),
        (
            "fragment_short",
            "23 bytes are no fragment",
            fragment(0, 40, 0)[..23].to_vec(),
            "frame_truncated 0",
        ),
        ("fragment_empty", "without payload", fragment(0, 40, 0), "frame_range 0 40"),
        (
            "fragment_past_end",
            "begins where its message ends",
            fragment(4000, 4000, 40),
            "frame_range 4000 4000",
        ),
        (
            "fragment_wraps",
            "offset and length run past 2^64",
            fragment(u64::MAX - 2, 4000, 40),
            "frame_range 18446744073709551613 4000",
        ),
        (
            "fragment_over_limit",
            "a message longer than the format's limit",
            fragment(0, MESSAGE_BYTES_MAX + 1, 40),
            "frame_range 0 1099511627777",
        ),
    ] {
        cases.refuse_body(name, why, packet(plain, &body), verdict);
    }

    for kind in [Kind::Ack, Kind::Nak, Kind::Xoff, Kind::Xon] {
        let name = format!("sack_none_{}", kind as u8);
        cases.refuse_body(&name, "an answer without its body", packet(header(kind), &[]), "sack");
    }
    let words = [u32::MAX; WORDS_MAX];
    let answer = header(Kind::Ack);
    cases.refuse_body("sack_head_short", "15 bytes", packet(answer, &sack(Psn(1), &words)[..15]), "sack");
    cases.refuse_body(
        "sack_word_short",
        "the last word lacks a byte",
        packet(answer, &sack(Psn(1), &words)[..BODY_BYTES_MAX - 1]),
        "sack",
    );
    let mut long = sack(Psn(1), &words);
    long[12] += 1;
    long.extend_from_slice(&[0xff; 4]);
    cases.refuse_body("sack_too_long", "one word more than a bitmap has", packet(answer, &long), "sack");
    let mut huge = sack(Psn(1), &[]);
    huge[12..16].fill(0xff);
    cases.refuse_body("sack_huge", "announces 2^32 - 1 words", packet(answer, &huge), "sack");

    let hello = Header::new(Kind::Hello, 0xe90c_0001);
    let encoded = offer().encode();
    cases.refuse_body("offer_none", "HELLO without a body", packet(hello, &[]), "offer_length 0");
    cases.refuse_body(
        "offer_short",
        "one byte short",
        packet(hello, &encoded[..OFFER_BYTES - 1]),
        "offer_length 55",
    );
    let long = [&encoded[..], &[0]].concat();
    cases.refuse_body("offer_long", "one byte too long", packet(hello, &long), "offer_length 57");
    let welcome = Header::new(Kind::Welcome, 0xe90c_0001);
    let mut mode = encoded;
    mode[36] = 2;
    cases.refuse_body("offer_repeat_2", "an unknown repair mode", packet(welcome, &mode), "offer_repeat 2");
    let challenge = Header::new(Kind::Challenge, 0xe90c_0001);
    cases.refuse_body(
        "challenge_short",
        "15 bytes",
        packet(challenge, &encoded[..15]),
        "challenge_length 15",
    );
    cases.refuse_body("challenge_long", "17 bytes", packet(challenge, &encoded[..17]), "challenge_length 17");
}
