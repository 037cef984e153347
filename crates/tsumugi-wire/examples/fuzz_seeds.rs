//! Writes the golden vectors as seeds for the fuzz targets, into `fuzz/corpus/` (docs/fuzzing.md).

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;
use tsumugi_wire::handshake::{Offer, Repeat};
use tsumugi_wire::header::HEADER_BYTES;

fn main() {
    let corpus = common::crate_dir().join("../../fuzz/corpus");
    let mut written = 0;
    let mut write = |target: &str, name: &str, bytes: &[u8]| {
        let dir = corpus.join(target);
        let path = dir.join(format!("golden-{name}"));
        std::fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("making {}: {e}", dir.display()));
        std::fs::write(&path, bytes).unwrap_or_else(|e| panic!("writing {}: {e}", path.display()));
        written += 1;
    };
    for vector in common::load() {
        write("packet", &vector.name, &vector.bytes);
        let Some(body) = vector.bytes.get(HEADER_BYTES..) else { continue };
        write("endpoint", &vector.name, &connected_then(&vector.bytes));
        match vector.all("kind").next() {
            // The target takes the header's `ack` in front of the body.
            Some("2" | "3" | "4" | "5") => {
                write("sack", &vector.name, &[&vector.bytes[32..40], body].concat());
            }
            Some("7" | "8" | "9") => write("offer", &vector.name, body),
            // And this one its `credit`.
            Some("22" | "23") => {
                write("multicast", &vector.name, &[&vector.bytes[40..42], body].concat());
            }
            _ => {}
        }
    }
    println!("{written} seeds in {}", Path::new(&corpus).display());
}

/// Steps of the endpoint target: the endpoint connects to its peer, the peer answers and then sends `packet`.
fn connected_then(packet: &[u8]) -> Vec<u8> {
    let offer = Offer {
        job: 0,
        nonce: 0,
        cookie: 0,
        token: 0xfedc,
        flow: 3,
        repeat: Repeat::Selective,
        listens: false,
        trusts_wire: false,
        datagram_bytes: 1472,
        message_bytes_max: 1 << 30,
    };
    let mut packet = packet.to_vec();
    packet[1] = packet[1].wrapping_sub(1); // the target counts kinds from 0
    packet[24..40].fill(0); // PSN and ack of a flow that has just begun
    let mut steps = Vec::new();
    for (step, bytes) in [(4, &b"a message"[..]), (7, &[]), (6, &offer.encode()), (2, &packet)] {
        steps.push(step);
        steps.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        steps.extend_from_slice(bytes);
    }
    steps
}
