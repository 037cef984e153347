//! From bytes to the text of a vector, and from the text back to bytes.

use super::exercise::is_release;
use super::{Vector, body_check, body_crc};
use tsumugi_wire::ack::{self, Sack};
use tsumugi_wire::frame::{self, Fragment, Frame, Frames, MalformedFrame, RemoteFrame};
use tsumugi_wire::group::{Answer, BODY_BYTES, Contribution, Join, MalformedGroup, Notice, Operation};
use tsumugi_wire::handshake::{Challenge, MalformedOffer, Offer, Repeat};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::limits::VERSION;
use tsumugi_wire::multicast::{ENTRY_BYTES, Entry, MalformedTable, Table};
use tsumugi_wire::piece::{MalformedPiece, PIECE_BYTES, Piece};
use tsumugi_wire::{Flags, Header, Kind, MalformedHeader, Psn};

type Fields = Vec<(String, String)>;

fn put(fields: &mut Fields, key: &str, value: impl ToString) {
    fields.push((key.to_owned(), value.to_string()));
}

/// What `bytes` mean, as the fields of a vector.
pub(crate) fn describe(bytes: &[u8]) -> Fields {
    let mut fields = Fields::new();
    let (header, body, rest) = match Header::decode(bytes) {
        Ok(parts) => parts,
        Err(error) => {
            let result = match error {
                MalformedHeader::Truncated { have, need } => format!("truncated {have} {need}"),
                MalformedHeader::Version(version) => format!("version {version}"),
                MalformedHeader::Check => "check".to_owned(),
                MalformedHeader::Kind(kind) => format!("kind {kind}"),
                MalformedHeader::Epoch => "epoch".to_owned(),
            };
            put(&mut fields, "result", result);
            return fields;
        }
    };
    put(&mut fields, "result", "ok");
    put(&mut fields, "version", VERSION);
    put(&mut fields, "kind", header.kind as u8);
    put(&mut fields, "flags", header.flags.0);
    put(&mut fields, "path", header.path);
    put(&mut fields, "token", header.token);
    put(&mut fields, "flow", header.flow);
    put(&mut fields, "epoch", header.epoch);
    put(&mut fields, "psn", header.psn);
    put(&mut fields, "ack", header.ack);
    put(&mut fields, "credit", header.credit);
    put(&mut fields, "body_bytes", header.body_bytes);
    put(&mut fields, "body_crc", header.body_crc);
    put(&mut fields, "rest", rest.len());
    if header.body_crc == body_check(&header, body) {
        put(&mut fields, "crc", "ok");
        describe_body(&header, body, &mut fields);
    } else if is_unchecked(&header) {
        put(&mut fields, "crc", "none");
        describe_body(&header, body, &mut fields);
    } else {
        put(&mut fields, "crc", "bad");
        put(&mut fields, "body", "unread");
    }
    fields
}

/// Whether the packet says that its body's CRC was not made. Only its receiver knows whether that was agreed on.
fn is_unchecked(header: &Header) -> bool {
    let mixed = header.flags.has(Flags::MIXED) && usize::from(header.body_bytes) == BODY_BYTES;
    header.kind == Kind::Data && header.flags.has(Flags::UNCHECKED) && header.body_crc == 0 && !mixed
}

fn describe_body(header: &Header, body: &[u8], fields: &mut Fields) {
    let verdict = match header.kind {
        Kind::Data if is_release(header.flags, body) => {
            describe_group(header, body, fields, describe_contribution)
        }
        Kind::Data => describe_frames(body, fields),
        Kind::Ack | Kind::Nak | Kind::Xoff | Kind::Xon => match Sack::decode(body) {
            Ok(sack) => {
                describe_sack(header.ack, &sack, fields);
                "ok".to_owned()
            }
            Err(_) => "sack".to_owned(),
        },
        Kind::Hello | Kind::Welcome => match Offer::decode(body) {
            Ok(offer) => {
                describe_offer(&offer, fields);
                "ok".to_owned()
            }
            Err(MalformedOffer::Length(bytes)) => format!("offer_length {bytes}"),
            Err(MalformedOffer::Repeat(mode)) => format!("offer_repeat {mode}"),
        },
        Kind::Challenge => match Challenge::decode(body) {
            Ok(challenge) => {
                put(fields, "nonce", challenge.nonce);
                put(fields, "cookie", challenge.cookie);
                "ok".to_owned()
            }
            Err(_) => format!("challenge_length {}", body.len()),
        },
        Kind::Piece => match Piece::decode(body) {
            Ok((Piece { packet_bytes, at, packet_crc }, data)) => {
                put(fields, "piece", format!("{packet_bytes} {at} {packet_crc} {}", data.len()));
                "ok".to_owned()
            }
            Err(MalformedPiece { bytes }) => format!("piece {bytes}"),
        },
        Kind::Join => describe_group(header, body, fields, describe_join),
        Kind::Arrive | Kind::Release => describe_group(header, body, fields, describe_contribution),
        Kind::Leave => describe_group(header, body, fields, |_, _| Ok(())),
        Kind::Notice => describe_group(header, body, fields, describe_group_answer),
        Kind::Multicast | Kind::Relay => describe_multicast(header, body, fields),
        Kind::Probe
        | Kind::Bye
        | Kind::ByeAck
        | Kind::Reset
        | Kind::SizeProbe
        | Kind::SizeAck
        | Kind::Damaged => "ok".to_owned(),
    };
    put(fields, "body", verdict);
}

fn describe_group(
    header: &Header,
    body: &[u8],
    fields: &mut Fields,
    describe: fn(&[u8], &mut Fields) -> Result<(), MalformedGroup>,
) -> String {
    if !header.flags.has(Flags::MIXED) {
        return "group_unmixed".to_owned();
    }
    if body.len() != BODY_BYTES {
        return format!("group_length {}", body.len());
    }
    describe(body, fields).map_or("group", |()| "ok").to_owned()
}

fn describe_join(body: &[u8], fields: &mut Fields) -> Result<(), MalformedGroup> {
    let join = Join::decode(body)?;
    put(fields, "group_job", join.job);
    put(fields, "group_key", join.key);
    put(fields, "group", join.group);
    put(fields, "box", join.box_number);
    put(fields, "first", join.first);
    put(fields, "size", join.size);
    put(fields, "member", join.member);
    put(fields, "weight", join.weight);
    put(fields, "via", join.via);
    Ok(())
}

fn describe_contribution(body: &[u8], fields: &mut Fields) -> Result<(), MalformedGroup> {
    let contribution = Contribution::decode(body)?;
    put(fields, "operation", contribution.operation as u8);
    put(fields, "count", contribution.count);
    put(fields, "via", contribution.via);
    put(fields, "generation", contribution.generation);
    for word in contribution.words {
        put(fields, "value", word);
    }
    Ok(())
}

fn describe_group_answer(body: &[u8], fields: &mut Fields) -> Result<(), MalformedGroup> {
    let answer = Answer::decode(body)?;
    put(fields, "notice", answer.notice as u8);
    put(fields, "via", answer.via);
    put(fields, "member", answer.member);
    put(fields, "weight", answer.weight);
    put(fields, "seat", answer.seat);
    put(fields, "seat_token", answer.seat_token);
    put(fields, "generation", answer.generation);
    Ok(())
}

/// What a box reads, and then the frames, as the receivers of the DATA that is made of them do.
fn describe_multicast(header: &Header, body: &[u8], fields: &mut Fields) -> String {
    if !header.flags.has(Flags::MIXED) {
        return "group_unmixed".to_owned();
    }
    let (frames, table) = match Table::decode(header.credit, body) {
        Ok(parts) => parts,
        Err(MalformedTable { bytes, receivers }) => return format!("table {bytes} {receivers}"),
    };
    put(fields, "base", table.base);
    put(fields, "frames_crc", table.crc);
    for entry in table.entry_bytes().chunks_exact(ENTRY_BYTES) {
        let half = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("half of a word"));
        put(fields, "entry", format!("{} {}", half(0), half(4)));
    }
    if table.crc == body_crc(frames) {
        put(fields, "frames", "ok");
    } else if header.flags.has(Flags::UNCHECKED) && table.crc == 0 {
        put(fields, "frames", "none");
    } else {
        put(fields, "frames", "bad");
        return "ok".to_owned();
    }
    describe_frames(frames, fields)
}

fn describe_frames(body: &[u8], fields: &mut Fields) -> String {
    for frame in Frames::new(body) {
        match frame {
            Ok(Frame::Whole { channel, at, data }) => {
                put(fields, "whole", format!("{channel} {at} {}", data.len()));
            }
            Ok(Frame::Fragment(Fragment { channel, message, offset, total }, data)) => {
                let at = data.as_ptr() as usize - body.as_ptr() as usize;
                put(fields, "fragment", format!("{channel} {message} {offset} {total} {at} {}", data.len()));
            }
            Ok(Frame::Remote(RemoteFrame { opcode, key, address, operation }, data)) => {
                let at = data.as_ptr() as usize - body.as_ptr() as usize;
                put(fields, "remote", format!("{opcode} {key} {address} {operation} {at} {}", data.len()));
            }
            Err(MalformedFrame::Truncated { at, .. }) => return format!("frame_truncated {at}"),
            Err(MalformedFrame::Form(form)) => return format!("frame_form {form}"),
            Err(MalformedFrame::Range { offset, total }) => return format!("frame_range {offset} {total}"),
        }
    }
    "ok".to_owned()
}

fn describe_sack(ack: Psn, sack: &Sack, fields: &mut Fields) {
    put(fields, "echo", sack.echo);
    put(fields, "delay_ns", sack.delay_ns);
    put(fields, "words", sack.words);
    for word in &sack.bitmap[..sack.words] {
        put(fields, "word", word);
    }
    for (first, last) in received(ack, sack) {
        put(fields, "received", format!("{first} {last}"));
    }
}

/// The runs of PSNs from `ack` on that the bitmap says arrived, first and last of each.
pub(crate) fn received(ack: Psn, sack: &Sack) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    // 34 words cover the bitmap wherever in its first word `ack` lies.
    for psn in (0..34 * ack::WORD_PSNS).map_while(|distance| ack.0.checked_add(distance)) {
        if sack.has(ack, Psn(psn)) {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == psn => *last = psn,
                _ => runs.push((psn, psn)),
            }
        }
    }
    runs
}

fn describe_offer(offer: &Offer, fields: &mut Fields) {
    put(fields, "job", offer.job);
    put(fields, "nonce", offer.nonce);
    put(fields, "cookie", offer.cookie);
    put(fields, "offer_token", offer.token);
    put(fields, "offer_flow", offer.flow);
    put(fields, "repeat", offer.repeat as u8);
    put(fields, "listens", u8::from(offer.listens));
    put(fields, "trusts_wire", u8::from(offer.trusts_wire));
    put(fields, "datagram_bytes", offer.datagram_bytes);
    put(fields, "message_bytes_max", offer.message_bytes_max);
}

/// The bytes that the library writes for the fields of an accepted vector. The messages' payload,
/// which the fields do not repeat, is taken from the vector's own bytes.
pub(crate) fn encode(vector: &Vector) -> Vec<u8> {
    let kind = Kind::from_number(vector.number("kind")).expect("an accepted vector has a known kind");
    let mut body = match kind {
        Kind::Data if vector.all("operation").next().is_some() => encode_contribution(vector).to_vec(),
        Kind::Data => encode_frames(vector),
        Kind::Ack | Kind::Nak | Kind::Xoff | Kind::Xon => encode_sack(vector),
        Kind::Hello | Kind::Welcome => encode_offer(vector).to_vec(),
        Kind::Challenge => {
            Challenge { nonce: vector.number("nonce"), cookie: vector.number("cookie") }.encode().to_vec()
        }
        Kind::Piece => encode_piece(vector),
        Kind::Join => encode_join(vector).to_vec(),
        Kind::Arrive | Kind::Release => encode_contribution(vector).to_vec(),
        Kind::Notice => encode_group_answer(vector).to_vec(),
        Kind::Multicast | Kind::Relay => encode_multicast(vector),
        // Nothing is said in it.
        Kind::Leave => vec![0; BODY_BYTES],
        // Padding is of zeros.
        Kind::SizeProbe => vec![0; usize::from(vector.number::<u16>("body_bytes"))],
        Kind::Probe | Kind::Bye | Kind::ByeAck | Kind::Reset | Kind::SizeAck | Kind::Damaged => Vec::new(),
    };
    let body_bytes: u16 = vector.number("body_bytes");
    // The last frame's padding may have been left off.
    body.truncate(usize::from(body_bytes));
    let mut header = Header {
        kind,
        flags: Flags(vector.number("flags")),
        path: vector.number("path"),
        token: vector.number("token"),
        flow: vector.number("flow"),
        epoch: vector.number("epoch"),
        psn: Psn(vector.number("psn")),
        ack: Psn(vector.number("ack")),
        credit: vector.number("credit"),
        body_bytes,
        body_crc: 0,
    };
    if vector.text("crc") != "none" {
        header.body_crc = body_check(&header, &body);
    }
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(&body);
    bytes
}

fn encode_frames(vector: &Vector) -> Vec<u8> {
    let data = |at: u64, bytes: u64| {
        let at = HEADER_BYTES + at as usize;
        &vector.bytes[at..at + bytes as usize]
    };
    let mut body = Vec::new();
    for (key, value) in &vector.fields {
        let numbers: Vec<u64> = value.split(' ').filter_map(|number| number.parse().ok()).collect();
        match (key.as_str(), numbers.as_slice()) {
            ("whole", &[channel, at, bytes]) => {
                body.extend_from_slice(&frame::encode_whole(channel as u16, bytes as u32));
                body.extend_from_slice(data(at, bytes));
                body.resize(body.len().next_multiple_of(8), 0);
            }
            ("fragment", &[channel, message, offset, total, at, bytes]) => {
                let fragment = Fragment { channel: channel as u16, message: message as u32, offset, total };
                body.extend_from_slice(&fragment.encode());
                body.extend_from_slice(data(at, bytes));
            }
            ("remote", &[opcode, key, address, operation, at, bytes]) => {
                let remote = RemoteFrame { opcode: opcode as u16, key, address, operation };
                body.extend_from_slice(&remote.encode(bytes as u32));
                body.extend_from_slice(data(at, bytes));
                body.resize(body.len().next_multiple_of(8), 0);
            }
            ("whole" | "fragment" | "remote", _) => panic!("{}: {key}={value}", vector.name),
            _ => {}
        }
    }
    body
}

fn encode_piece(vector: &Vector) -> Vec<u8> {
    let numbers: Vec<u64> =
        vector.text("piece").split(' ').filter_map(|number| number.parse().ok()).collect();
    let &[packet_bytes, at, packet_crc, bytes] = numbers.as_slice() else {
        panic!("{}: piece={}", vector.name, vector.text("piece"))
    };
    let piece = Piece { packet_bytes: packet_bytes as u16, at: at as u16, packet_crc: packet_crc as u32 };
    let mut body = piece.encode().to_vec();
    body.extend_from_slice(&vector.bytes[HEADER_BYTES + PIECE_BYTES..][..bytes as usize]);
    body
}

fn encode_join(vector: &Vector) -> [u8; BODY_BYTES] {
    Join {
        job: vector.number("group_job"),
        key: vector.number("group_key"),
        group: vector.number("group"),
        box_number: vector.number("box"),
        first: vector.number("first"),
        size: vector.number("size"),
        member: vector.number("member"),
        weight: vector.number("weight"),
        via: vector.number("via"),
    }
    .encode()
}

fn encode_contribution(vector: &Vector) -> [u8; BODY_BYTES] {
    let mut words = [0; tsumugi_wire::group::WORDS_MAX];
    for (word, text) in words.iter_mut().zip(vector.all("value")) {
        *word = text.parse().expect("a word is a number");
    }
    Contribution {
        via: vector.number("via"),
        operation: Operation::from_number(vector.number("operation")).expect("a known operation"),
        count: vector.number("count"),
        generation: vector.number("generation"),
        words,
    }
    .encode()
}

fn encode_group_answer(vector: &Vector) -> [u8; BODY_BYTES] {
    Answer {
        notice: Notice::from_number(vector.number("notice")).expect("a known notice"),
        via: vector.number("via"),
        member: vector.number("member"),
        weight: vector.number("weight"),
        seat: vector.number("seat"),
        seat_token: vector.number("seat_token"),
        generation: vector.number("generation"),
    }
    .encode()
}

fn encode_multicast(vector: &Vector) -> Vec<u8> {
    let base = Psn(vector.number("base"));
    let entry = |text: &str| {
        let (tag, after) = text.split_once(' ').expect("two numbers");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        Entry::new(number(tag), base, base.plus(number(after)))
    };
    let entries: Vec<Entry> = vector.all("entry").map(entry).collect();
    let table = Table { crc: vector.number("frames_crc"), base, entries: &entries };
    let mut body = encode_frames(vector);
    body.extend_from_slice(&table.encode_head());
    body.extend_from_slice(table.entry_bytes());
    body
}

fn encode_sack(vector: &Vector) -> Vec<u8> {
    let mut sack = Sack {
        echo: Psn(vector.number("echo")),
        delay_ns: vector.number("delay_ns"),
        words: vector.number("words"),
        ..Sack::EMPTY
    };
    for (word, text) in sack.bitmap.iter_mut().zip(vector.all("word")) {
        *word = text.parse().expect("a word is a number");
    }
    sack.encode(&mut [0; ack::BODY_BYTES_MAX]).to_vec()
}

fn encode_offer(vector: &Vector) -> [u8; tsumugi_wire::handshake::OFFER_BYTES] {
    let repeat = match vector.number::<u8>("repeat") {
        0 => Repeat::Selective,
        1 => Repeat::GoBackN,
        other => panic!("{}: repeat={other}", vector.name),
    };
    Offer {
        job: vector.number("job"),
        nonce: vector.number("nonce"),
        cookie: vector.number("cookie"),
        token: vector.number("offer_token"),
        flow: vector.number("offer_flow"),
        repeat,
        listens: vector.number::<u8>("listens") != 0,
        trusts_wire: vector.number::<u8>("trusts_wire") != 0,
        datagram_bytes: vector.number("datagram_bytes"),
        message_bytes_max: vector.number("message_bytes_max"),
    }
    .encode()
}
