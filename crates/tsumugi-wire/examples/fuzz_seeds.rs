//! Writes the golden vectors as seeds for the fuzz targets, into `fuzz/corpus/` (docs/fuzzing.md).

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;
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
        match vector.all("kind").next() {
            // The target takes the header's `ack` in front of the body.
            Some("2" | "3" | "4" | "5") => {
                write("sack", &vector.name, &[&vector.bytes[32..40], body].concat());
            }
            Some("7" | "8" | "9") => write("offer", &vector.name, body),
            _ => {}
        }
    }
    println!("{written} seeds in {}", Path::new(&corpus).display());
}
