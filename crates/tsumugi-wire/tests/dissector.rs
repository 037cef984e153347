//! The Wireshark dissector against the golden vectors and against damaged packets, with tshark.
//!
//! What tshark shows of a datagram is compared, field by field, with what the library reads from it.

mod common;

use common::describe::describe;
use common::mutate::{Random, mutant};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tsumugi_wire::Header;
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::limits::{DEFAULT_PORT, VERSION};
use tsumugi_wire::piece::PIECE_BYTES;

/// Fields asked of tshark.
const COLUMNS: [&str; 64] = [
    "version",
    "kind",
    "flags",
    "path",
    "check",
    "token",
    "flow",
    "epoch",
    "psn",
    "ack",
    "credit",
    "body_bytes",
    "body_crc",
    "check.status",
    "body_crc.status",
    "malformed",
    "frame.channel",
    "frame.form",
    "frame.bytes",
    "frame.message",
    "frame.offset",
    "frame.total",
    "frame.data",
    "remote.opcode",
    "remote.key",
    "remote.address",
    "remote.operation",
    "answer.echo",
    "answer.delay_ns",
    "answer.words",
    "answer.received",
    "offer.job",
    "offer.nonce",
    "offer.cookie",
    "offer.token",
    "offer.flow",
    "offer.repeat",
    "offer.datagram_bytes",
    "offer.message_bytes_max",
    "piece.packet_bytes",
    "piece.at",
    "piece.packet_crc",
    "piece.data",
    "group.job",
    "group.key",
    "group.number",
    "group.box",
    "group.first",
    "group.size",
    "group.member",
    "group.weight",
    "group.via",
    "group.operation",
    "group.count",
    "group.generation",
    "group.word",
    "group.notice",
    "group.seat",
    "group.seat_token",
    "multicast.base",
    "multicast.frames_crc",
    "multicast.frames_crc.status",
    "multicast.tag",
    "multicast.after",
];

/// Place and length of the header's fields, in the order of [`COLUMNS`].
const HEADER_FIELDS: [(usize, usize); 13] = [
    (0, 1),
    (1, 1),
    (2, 1),
    (3, 1),
    (4, 4),
    (8, 8),
    (16, 4),
    (20, 4),
    (24, 8),
    (32, 8),
    (40, 2),
    (42, 2),
    (44, 4),
];

/// What is shown of a datagram: field to its values, in order. Fields that are not shown are left out.
type Shown = BTreeMap<&'static str, Vec<String>>;

fn show(shown: &mut Shown, column: &str, value: impl ToString) {
    let column = COLUMNS.iter().find(|name| **name == column).expect("a known column");
    shown.entry(column).or_default().push(value.to_string());
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// What the dissector should show of a datagram on a port that is known to be ours.
fn expected(mut bytes: &[u8]) -> Shown {
    let mut shown = Shown::new();
    while !bytes.is_empty() {
        let fields = describe(bytes);
        let result = fields[0].1.as_str();
        if bytes.len() < HEADER_BYTES || bytes[0] != VERSION {
            if bytes.len() >= HEADER_BYTES {
                show(&mut shown, "version", bytes[0]);
            }
            show(&mut shown, "malformed", result);
            return shown;
        }
        for (column, (at, length)) in COLUMNS.iter().zip(HEADER_FIELDS) {
            show(&mut shown, column, little_endian(&bytes[at..at + length]));
        }
        show(&mut shown, "check.status", u8::from(result != "check"));
        if result != "ok" {
            show(&mut shown, "malformed", result);
            return shown;
        }
        let (_, body, rest) = Header::decode(bytes).expect("it was accepted");
        expect_body(&fields, body, &mut shown);
        bytes = rest;
    }
    shown
}

fn expect_body(fields: &[(String, String)], body: &[u8], shown: &mut Shown) {
    let mut received = Vec::new();
    let mut answered = false;
    for (key, value) in fields {
        let numbers: Vec<u64> = value.split(' ').filter_map(|number| number.parse().ok()).collect();
        match (key.as_str(), numbers.as_slice()) {
            ("crc", _) if value == "none" => show(shown, "body_crc.status", 2),
            ("crc", _) => show(shown, "body_crc.status", u8::from(value == "ok")),
            ("body", _) if value != "ok" && value != "unread" => show(shown, "malformed", value),
            ("whole", &[channel, at, length]) => {
                show(shown, "frame.channel", channel);
                show(shown, "frame.form", 1);
                show(shown, "frame.bytes", length);
                show_data(shown, &body[at as usize..][..length as usize]);
            }
            ("piece", &[packet_bytes, at, packet_crc, length]) => {
                show(shown, "piece.packet_bytes", packet_bytes);
                show(shown, "piece.at", at);
                show(shown, "piece.packet_crc", packet_crc);
                let data = &body[PIECE_BYTES..][..length as usize];
                show(shown, "piece.data", data.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
            }
            ("fragment", &[channel, message, offset, total, at, length]) => {
                show(shown, "frame.channel", channel);
                show(shown, "frame.form", 2);
                show(shown, "frame.message", message);
                show(shown, "frame.offset", offset);
                show(shown, "frame.total", total);
                show_data(shown, &body[at as usize..][..length as usize]);
            }
            ("remote", &[opcode, key, address, operation, at, length]) => {
                show(shown, "remote.opcode", opcode);
                show(shown, "frame.form", 3);
                show(shown, "frame.bytes", length);
                show(shown, "remote.key", key);
                show(shown, "remote.address", address);
                show(shown, "remote.operation", operation);
                show_data(shown, &body[at as usize..][..length as usize]);
            }
            ("received", &[first, last]) if first == last => received.push(first.to_string()),
            ("received", &[first, last]) => received.push(format!("{first}-{last}")),
            ("echo" | "delay_ns" | "words", _) => {
                answered = true;
                show(shown, &format!("answer.{key}"), value);
            }
            ("offer_token" | "offer_flow", _) => show(shown, &key.replace('_', "."), value),
            ("job" | "nonce" | "cookie" | "repeat" | "datagram_bytes" | "message_bytes_max", _) => {
                show(shown, &format!("offer.{key}"), value);
            }
            ("base" | "frames_crc", _) => show(shown, &format!("multicast.{key}"), value),
            ("entry", &[tag, after]) => {
                show(shown, "multicast.tag", tag);
                show(shown, "multicast.after", after);
            }
            ("frames", _) => {
                let status = ["bad", "ok", "none"].iter().position(|word| word == value);
                show(shown, "multicast.frames_crc.status", status.expect("one of the three"));
            }
            ("group_job" | "group_key", _) => show(shown, &key.replace('_', "."), value),
            ("group", _) => show(shown, "group.number", value),
            ("value", _) => show(shown, "group.word", value),
            (
                "box" | "first" | "size" | "member" | "weight" | "via" | "operation" | "count" | "generation"
                | "notice" | "seat" | "seat_token",
                _,
            ) => show(shown, &format!("group.{key}"), value),
            _ => {}
        }
    }
    if answered {
        let runs = if received.is_empty() { "none".to_owned() } else { received.join(", ") };
        show(shown, "answer.received", runs);
    }
}

fn show_data(shown: &mut Shown, data: &[u8]) {
    if !data.is_empty() {
        show(shown, "frame.data", data.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    }
}

/// A datagram in a capture.
struct Datagram<'a> {
    port: u16,
    bytes: &'a [u8],
    /// Bytes of it that the capture kept.
    kept: usize,
}

impl<'a> Datagram<'a> {
    fn whole(port: u16, bytes: &'a [u8]) -> Datagram<'a> {
        Datagram { port, bytes, kept: bytes.len() }
    }
}

/// Writes a capture of IPv4 packets (link type 228) in the oldest and simplest pcap format.
fn write_capture<'a>(name: &str, datagrams: impl Iterator<Item = Datagram<'a>>) -> PathBuf {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 1 << 17, 228] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for (index, Datagram { port, bytes, kept }) in datagrams.enumerate() {
        let length = 28 + bytes.len();
        for word in [1, index, 28 + kept, length] {
            file.extend_from_slice(&(word as u32).to_le_bytes());
        }
        let length = u16::try_from(length).expect("a datagram fits IPv4").to_be_bytes();
        file.extend_from_slice(&[0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, 17, 0, 0]);
        file.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let udp_length = (8 + bytes.len() as u16).to_be_bytes();
        for half in [port.to_be_bytes(), port.to_be_bytes(), udp_length, [0, 0]] {
            file.extend_from_slice(&half);
        }
        file.extend_from_slice(&bytes[..kept]);
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, file).unwrap_or_else(|e| panic!("writing {}: {e}", path.display()));
    path
}

fn script() -> PathBuf {
    common::crate_dir().join("../../tools/wireshark/tsumugi.lua")
}

/// What tshark prints, on both streams, with `script` loaded.
fn tshark(script: &Path, capture: &Path, arguments: &[&str]) -> (String, String) {
    let run = Command::new("tshark")
        // A home without the user's own plugins and preferences.
        .env("HOME", env!("CARGO_TARGET_TMPDIR"))
        .env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"))
        .arg("-X")
        .arg(format!("lua_script:{}", script.display()))
        .arg("-r")
        .arg(capture)
        .arg("-n")
        .args(arguments)
        .output()
        .expect("running tshark");
    let stdout = String::from_utf8_lossy(&run.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "tshark failed: {stderr}");
    (stdout, stderr)
}

fn assert_no_lua_error(output: &(String, String)) {
    for text in [&output.0, &output.1] {
        if let Some(at) = text.find("Lua Error").or_else(|| text.find("tsumugi.lua:")) {
            panic!("{}", text[at..].lines().take(3).collect::<Vec<_>>().join("\n"));
        }
    }
}

/// What tshark shows of each datagram of a capture.
fn shown(capture: &Path) -> Vec<Shown> {
    let columns = COLUMNS.map(|column| format!("tsumugi.{column}"));
    let mut arguments =
        vec!["-T", "fields", "-E", "separator=/t", "-E", "occurrence=a", "-E", "aggregator=;"];
    arguments.extend(columns.iter().flat_map(|column| ["-e", column.as_str()]));
    arguments.extend(["-e", "_ws.lua.text"]);
    let output = tshark(&script(), capture, &arguments);
    assert_no_lua_error(&output);
    let row = |line: &str| {
        let mut shown = Shown::new();
        for (column, values) in COLUMNS.iter().zip(line.split('\t')) {
            for value in values.split(';').filter(|value| !value.is_empty()) {
                let hex = value.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16).expect("hex"));
                show(&mut shown, column, hex.map_or(value.to_owned(), |number| number.to_string()));
            }
        }
        shown
    };
    output.0.lines().map(row).collect()
}

/// Packets made from the vectors, one list for ever.
fn mutants(seed: u64, count: usize) -> Vec<Vec<u8>> {
    let packets: Vec<Vec<u8>> = common::load().into_iter().map(|vector| vector.bytes).collect();
    let mut random = Random(seed);
    (0..count).map(|_| mutant(&mut random, &packets)).collect()
}

#[test]
fn vectors_are_shown_as_the_library_reads_them() {
    if !common::have("tshark", "tshark") {
        return;
    }
    let vectors = common::load();
    let datagrams = vectors.iter().map(|vector| Datagram::whole(DEFAULT_PORT, &vector.bytes));
    let shown = shown(&write_capture("vectors.pcap", datagrams));
    assert_eq!(shown.len(), vectors.len());
    for (vector, shown) in vectors.iter().zip(shown) {
        assert_eq!(shown, expected(&vector.bytes), "{}: left tshark, right the library", vector.name);
    }
}

#[test]
fn damaged_packets_are_shown_as_the_library_reads_them() {
    if !common::have("tshark", "tshark") {
        return;
    }
    let mutants = mutants(1, 6000);
    let datagrams = mutants.iter().map(|bytes| Datagram::whole(DEFAULT_PORT, bytes));
    let shown = shown(&write_capture("mutants.pcap", datagrams));
    assert_eq!(shown.len(), mutants.len());
    for (bytes, shown) in mutants.iter().zip(shown) {
        assert_eq!(shown, expected(bytes), "left tshark, right the library, of {bytes:02x?}");
    }
}

#[test]
fn packets_on_any_port_are_recognised_and_strangers_are_left_alone() {
    if !common::have("tshark", "tshark") {
        return;
    }
    let vectors = common::load();
    // A port for each, since a conversation with one packet of ours is ours.
    let port = |index| 61000 + index as u16;
    let datagrams =
        vectors.iter().enumerate().map(|(index, vector)| Datagram::whole(port(index), &vector.bytes));
    let shown = shown(&write_capture("any_port.pcap", datagrams));
    for (vector, shown) in vectors.iter().zip(shown) {
        let result = vector.text("result");
        let whole_header = vector.bytes.len() >= HEADER_BYTES && result.starts_with("truncated");
        let expected = if result == "ok" || whole_header { expected(&vector.bytes) } else { Shown::new() };
        assert_eq!(shown, expected, "{}", vector.name);
    }
}

#[test]
fn damaged_packets_of_a_recognised_conversation_are_shown() {
    if !common::have("tshark", "tshark") {
        return;
    }
    let vectors = common::load();
    let bytes =
        |name: &str| vectors.iter().find(|vector| vector.name == name).expect("the vector").bytes.as_slice();
    let datagrams = ["data_lone_8_bytes", "check_psn", "kind_24"];
    let capture =
        write_capture("conversation.pcap", datagrams.iter().map(|name| Datagram::whole(62000, bytes(name))));
    assert_eq!(shown(&capture), datagrams.map(|name| expected(bytes(name))));
}

#[test]
fn no_input_raises_a_lua_error() {
    if !common::have("tshark", "tshark") {
        return;
    }
    let mutants = mutants(2, 4000);
    let mut random = Random(3);
    let mut datagrams: Vec<Datagram<'_>> = Vec::new();
    for bytes in &mutants {
        // On our port and on others, whole and cut short by the capture.
        let port = if random.below(2) == 0 { DEFAULT_PORT } else { 61000 + random.below(4000) as u16 };
        let kept = if random.below(2) == 0 { bytes.len() } else { random.below(bytes.len() + 1) };
        datagrams.push(Datagram { port, bytes, kept });
    }
    let noise: Vec<Vec<u8>> =
        (0..1000).map(|_| (0..random.below(200)).map(|_| random.next() as u8).collect()).collect();
    datagrams.extend(noise.iter().map(|bytes| Datagram::whole(DEFAULT_PORT, bytes)));
    let count = datagrams.len();
    let output = tshark(&script(), &write_capture("noise.pcap", datagrams.into_iter()), &["-V"]);
    assert_no_lua_error(&output);
    let frames = output.0.lines().filter(|line| line.starts_with("Frame ")).count();
    assert_eq!(frames, count, "tshark did not reach the end of the capture");
}

#[test]
fn every_cut_of_every_vector_is_survived() {
    if !common::have("tshark", "tshark") {
        return;
    }
    let vectors = common::load();
    let datagrams = vectors.iter().filter(|vector| vector.bytes.len() <= 256).flat_map(|vector| {
        (0..=vector.bytes.len()).map(|kept| Datagram { port: DEFAULT_PORT, bytes: &vector.bytes, kept })
    });
    let output = tshark(&script(), &write_capture("cut.pcap", datagrams), &["-V"]);
    assert_no_lua_error(&output);
    assert!(output.0.contains("Cut short by the capture"));
}

#[test]
fn a_lua_error_would_be_noticed() {
    if !common::have("tshark", "tshark") {
        return;
    }
    let vectors = common::load();
    let text = std::fs::read_to_string(script()).expect("reading the dissector");
    let broken = text
        .replace("local function dissect_offer(tvb, body, bytes, tree)", "local function dissect_offer()");
    assert_ne!(text, broken);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("broken.lua");
    std::fs::write(&path, broken).expect("writing a broken dissector");
    let hello = vectors.iter().find(|vector| vector.name == "hello_first").expect("the vector");
    let capture = write_capture("broken.pcap", std::iter::once(Datagram::whole(DEFAULT_PORT, &hello.bytes)));
    assert!(tshark(&path, &capture, &["-V"]).0.contains("Lua Error"));
}

#[test]
fn the_crc_is_left_alone_when_told_so() {
    if !common::have("tshark", "tshark") {
        return;
    }
    let vectors = common::load();
    let damaged = vectors.iter().find(|vector| vector.name == "crc_damaged_body").expect("the vector");
    let capture =
        write_capture("no_crc.pcap", std::iter::once(Datagram::whole(DEFAULT_PORT, &damaged.bytes)));
    let arguments = ["-o", "tsumugi.verify_crc:FALSE", "-T", "fields", "-e", "tsumugi.body_crc.status"];
    assert_eq!(tshark(&script(), &capture, &arguments).0.trim(), "2");
}
