//! What the tests of the format share: golden vectors as text, and the tools they call.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod describe;
pub(crate) mod exercise;
pub(crate) mod mutate;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use tsumugi_wire::{Flags, Header, Kind, group, multicast};

/// Bytes to a `hex=` line.
const HEX_LINE_BYTES: usize = 32;

/// One golden vector: bytes, and what they mean as `key=value` lines in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) fields: Vec<(String, String)>,
}

impl Vector {
    /// Every value of `key`, in order.
    pub(crate) fn all<'a, 'k>(&'a self, key: &'k str) -> impl Iterator<Item = &'a str> + use<'a, 'k> {
        self.fields.iter().filter(move |(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// The value of `key`, which must be there.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.all(key).next().unwrap_or_else(|| panic!("vector {} has no {key}", self.name))
    }

    /// The value of `key` as a number, which must be there.
    pub(crate) fn number<T: TryFrom<u64>>(&self, key: &str) -> T {
        let number: u64 = self.text(key).parse().unwrap_or_else(|e| panic!("{}: {key}: {e}", self.name));
        T::try_from(number).unwrap_or_else(|_| panic!("{}: {key} out of range", self.name))
    }

    /// The vector as it stands in a file.
    pub(crate) fn render(&self, why: &str) -> String {
        let mut text = format!("# {why}\nname={}\n", self.name);
        for line in self.bytes.chunks(HEX_LINE_BYTES) {
            text.push_str("hex=");
            for byte in line {
                write!(text, "{byte:02x}").expect("writing to a string");
            }
            text.push('\n');
        }
        for (key, value) in &self.fields {
            writeln!(text, "{key}={value}").expect("writing to a string");
        }
        text.push('\n');
        text
    }
}

/// The vectors in a file's text.
pub(crate) fn parse(text: &str) -> Vec<Vector> {
    let mut vectors: Vec<Vector> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("not key=value: {line}"));
        if key == "name" {
            vectors.push(Vector { name: value.to_owned(), bytes: Vec::new(), fields: Vec::new() });
            continue;
        }
        let vector = vectors.last_mut().expect("a vector begins with its name");
        if key == "hex" {
            vector.bytes.extend(value.as_bytes().chunks(2).map(|pair| {
                let pair = std::str::from_utf8(pair).expect("hex is ASCII");
                u8::from_str_radix(pair, 16).unwrap_or_else(|e| panic!("{}: hex {pair}: {e}", vector.name))
            }));
        } else {
            vector.fields.push((key.to_owned(), value.to_owned()));
        }
    }
    vectors
}

/// The crate's own directory.
pub(crate) fn crate_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The files of vectors, sorted by name.
pub(crate) fn vector_files() -> Vec<PathBuf> {
    let dir = crate_dir().join("vectors");
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("listing {}: {e}", dir.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("reading a directory entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    files
}

/// Every golden vector.
pub(crate) fn load() -> Vec<Vector> {
    let read = |path: &PathBuf| {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|e| panic!("reading {}: {e}", path.display()));
        parse(&text)
    };
    let vectors: Vec<Vector> = vector_files().iter().flat_map(read).collect();
    assert!(!vectors.is_empty(), "no golden vectors; run this test with TSUMUGI_BLESS=1 to write them");
    vectors
}

/// CRC32C (Castagnoli) of a body, as the library computes it; 0 for an empty one.
pub(crate) fn body_crc(body: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, body) as u32
}

/// What `body_crc` has to be in a packet with this header.
pub(crate) fn body_check(header: &Header, body: &[u8]) -> u32 {
    let mixed = header.flags.has(Flags::MIXED).then(|| match header.kind {
        Kind::Multicast | Kind::Relay => {
            multicast::split(header.credit, body).ok().map(|(_, table)| multicast::check(table))
        }
        _ => group::mix(body),
    });
    mixed.flatten().unwrap_or_else(|| body_crc(body))
}

/// Whether `program` can be run. Under `CI=true` it must; elsewhere its absence is said aloud.
pub(crate) fn have(program: &str, package: &str) -> bool {
    if Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success()) {
        return true;
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{program} cannot be run, and CI skips nothing: apt-get install {package}"
    );
    // Not eprintln!: the test harness would keep that to itself, since the test passes.
    let said = writeln!(std::io::stderr(), "SKIPPED: {program} cannot be run; apt-get install {package}");
    said.expect("writing to stderr");
    false
}
