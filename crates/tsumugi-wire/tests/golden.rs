//! The format's golden vectors: what Rust reads and writes, and what C does.
//!
//! `TSUMUGI_BLESS=1 cargo test -p tsumugi-wire --test golden` writes the vectors anew.

#[path = "golden/cases.rs"]
mod cases;
mod common;
#[path = "golden/layout.rs"]
mod layout;

use cases::Case;
use common::Vector;
use common::describe::{describe, encode};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use tsumugi_wire::group::{BODY_BYTES, Notice, Operation};
use tsumugi_wire::multicast::RECEIVERS_MAX;
use tsumugi_wire::{Flags, Header, Kind};

fn vector(case: &Case) -> Vector {
    let mut fields = describe(&case.bytes);
    if !case.ours && fields[0].1 == "ok" {
        fields.push(("encode".to_owned(), "no".to_owned()));
    }
    Vector { name: case.name.clone(), bytes: case.bytes.clone(), fields }
}

/// The text of each file of vectors.
fn rendered() -> BTreeMap<&'static str, String> {
    let mut files = BTreeMap::new();
    for case in cases::all() {
        let text = files.entry(case.file).or_insert_with(|| {
            "# Golden vectors; README.md says how to read them. Written by tests/golden.rs.\n\n".to_owned()
        });
        text.push_str(&vector(&case).render(&case.why));
    }
    files
}

/// The directory of the vectors, written anew when that is asked for.
fn vectors_dir() -> PathBuf {
    // Once, before any test reads: tests run side by side.
    static BLESS: Once = Once::new();
    let dir = common::crate_dir().join("vectors");
    BLESS.call_once(|| {
        if std::env::var_os("TSUMUGI_BLESS").is_some() {
            for (file, text) in rendered() {
                std::fs::write(dir.join(format!("{file}.txt")), text).expect("writing vectors");
            }
        }
    });
    dir
}

fn load() -> Vec<Vector> {
    vectors_dir();
    common::load()
}

#[test]
fn vectors_are_what_the_library_reads_and_writes() {
    let rendered = rendered();
    let dir = vectors_dir();
    let files: Vec<String> = common::vector_files()
        .iter()
        .map(|path| path.file_stem().expect("a file of vectors has a name").to_string_lossy().into_owned())
        .collect();
    assert!(files.iter().eq(rendered.keys()), "files in vectors/: {files:?}");
    for (file, text) in &rendered {
        let stored = std::fs::read_to_string(dir.join(format!("{file}.txt"))).expect("reading vectors");
        if let Some((stored, now)) = stored.lines().zip(text.lines()).find(|(stored, now)| stored != now) {
            panic!(
                "{file}.txt says {stored}\nthe library {now}\nIf the format is meant to change: TSUMUGI_BLESS=1"
            );
        }
        assert_eq!(
            stored.len(),
            text.len(),
            "{file}.txt has lost or gained vectors; TSUMUGI_BLESS=1 rewrites"
        );
    }
}

#[test]
fn vectors_decode_to_their_fields_and_fields_encode_to_their_bytes() {
    let mut names = HashSet::new();
    for vector in load() {
        assert!(names.insert(vector.name.clone()), "two vectors are called {}", vector.name);
        let mut fields = describe(&vector.bytes);
        let ours = vector.all("encode").next() != Some("no");
        if !ours {
            fields.push(("encode".to_owned(), "no".to_owned()));
        }
        assert_eq!(fields, vector.fields, "{}", vector.name);
        if ours && vector.text("result") == "ok" {
            assert_eq!(encode(&vector), vector.bytes, "{} encodes to other bytes", vector.name);
        }
    }
}

#[test]
fn verdicts_are_the_expected_ones() {
    for case in cases::all() {
        let vector = vector(&case);
        let body = vector.all("body").next().unwrap_or("");
        assert_eq!((vector.text("result"), body), case.verdict, "{}", case.name);
    }
}

#[test]
fn every_kind_flag_and_refusal_is_covered() {
    let vectors = load();
    let kinds: HashSet<&str> = vectors.iter().flat_map(|vector| vector.all("kind")).collect();
    for kind in Kind::ALL {
        assert!(kinds.contains((kind as u8).to_string().as_str()), "no vector of {kind:?}");
    }
    let words = |key| -> HashSet<&str> {
        vectors
            .iter()
            .flat_map(|vector| vector.all(key))
            .filter_map(|value| value.split(' ').next())
            .collect()
    };
    assert_eq!(words("result"), HashSet::from(["ok", "truncated", "version", "check", "kind", "epoch"]));
    let bodies = [
        "ok",
        "unread",
        "frame_truncated",
        "frame_form",
        "frame_range",
        "sack",
        "offer_length",
        "offer_repeat",
        "challenge_length",
        "piece",
        "group_unmixed",
        "group_length",
        "group",
        "table",
    ];
    assert_eq!(words("body"), HashSet::from(bodies));
    assert_eq!(words("crc"), HashSet::from(["ok", "bad", "none"]));
    assert_eq!(words("frames"), HashSet::from(["ok", "bad", "none"]));
    let receivers = vectors.iter().map(|vector| vector.all("entry").count());
    assert_eq!(receivers.max(), Some(RECEIVERS_MAX));
    for operation in Operation::ALL.map(|operation| (operation as u8).to_string()) {
        assert!(words("operation").contains(operation.as_str()), "no vector of operation {operation}");
    }
    for notice in Notice::ALL.map(|notice| (notice as u8).to_string()) {
        assert!(words("notice").contains(notice.as_str()), "no vector of notice {notice}");
    }
    for bit in 0..8 {
        let with = |vector: &&Vector| vector.all("flags").any(|flags| flags.parse() == Ok(1u8 << bit));
        assert!(vectors.iter().any(|vector| with(&vector)), "no vector with flag bit {bit} alone");
    }
}

#[test]
fn the_crc_is_castagnolis_and_the_mix_the_checks() {
    // RFC 3720, B.4, and the check value of the CRC catalogue.
    assert_eq!(common::body_crc(b"123456789"), 0xe306_9283);
    assert_eq!(common::body_crc(&[0; 32]), 0x8a91_36aa);
    assert_eq!(common::body_crc(&[0xff; 32]), 0x62a8_ab43);
    assert_eq!(common::body_crc(&[]), 0);
    for case in cases::all().iter().filter(|case| case.verdict.0 == "ok") {
        let (header, body, _) = Header::decode(&case.bytes).expect("an accepted header");
        // Of one for several receivers the table is mixed, of any other packet a body of a group's length.
        let for_several = matches!(header.kind, Kind::Multicast | Kind::Relay);
        let table = 16 + 8 * usize::from(header.credit);
        let has_table = (1..=RECEIVERS_MAX).contains(&header.credit.into())
            && body.len() >= table.max(BODY_BYTES)
            && body.len().is_multiple_of(8);
        let words = if for_several { has_table.then_some(table) } else { Some(BODY_BYTES) };
        let words = words.filter(|bytes| for_several || *bytes == body.len());
        let words = words.filter(|_| header.flags.has(Flags::MIXED)).map(|bytes| &body[body.len() - bytes..]);
        let check = words.map_or_else(|| bitwise_crc32c(body), common::exercise::mix);
        let mixed = words.is_some();
        let unchecked = !mixed && header.flags.has(Flags::UNCHECKED) && header.body_crc == 0;
        assert_eq!(header.body_crc == check || unchecked, case.verdict.1 != "unread", "{}", case.name);
    }
}

/// CRC32C by its definition, a bit at a time: the other computation that the library's is held against.
fn bitwise_crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn c_reads_the_vectors_as_rust_does() {
    if !common::have("cc", "gcc") {
        return;
    }
    let program = compile_golden_c("golden_vectors");
    let vectors = load();
    let run = Command::new(&program)
        .arg("vectors")
        .args(common::vector_files())
        .output()
        .expect("running golden.c");
    let stdout = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{stdout}{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(stdout.trim(), format!("{} vectors agree", vectors.len()));
}

#[test]
fn c_notices_a_vector_that_is_wrong() {
    if !common::have("cc", "gcc") {
        return;
    }
    let program = compile_golden_c("golden_wrong");
    let lone = load().into_iter().find(|vector| vector.name == "data_lone_8_bytes").expect("the vector");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wrong.txt");
    for (index, (key, value)) in lone.fields.iter().enumerate() {
        let mut wrong = lone.clone();
        wrong.fields[index].1 = if value == "ok" { "bad".to_owned() } else { format!("1{value}") };
        std::fs::write(&file, wrong.render("wrong on purpose")).expect("writing a vector");
        let run = Command::new(&program).arg("vectors").arg(&file).output().expect("running golden.c");
        assert!(!run.status.success(), "a wrong {key} passed");
    }
}

#[test]
fn the_c_header_has_the_layout_of_rust() {
    if !common::have("cc", "gcc") {
        return;
    }
    let program = compile_golden_c("golden_layout");
    let run = Command::new(&program).arg("layout").output().expect("running golden.c");
    assert!(run.status.success());
    let stdout = String::from_utf8(run.stdout).expect("numbers are ASCII");
    let c: BTreeMap<&str, u64> = stdout
        .lines()
        .map(|line| line.split_once(' ').expect("name and number"))
        .map(|(name, number)| (name, number.parse().expect("a number")))
        .collect();
    let rust: BTreeMap<&str, u64> = layout::expected().into_iter().collect();
    for (name, number) in &rust {
        assert_eq!(c.get(name), Some(number), "{name}: left in C, right in Rust");
    }
    for name in c.keys() {
        assert!(rust.contains_key(name), "{name} is checked against nothing");
    }
}

#[test]
fn the_c_header_compiles_for_bpf() {
    if !common::have("clang", "clang") {
        return;
    }
    let source = common::crate_dir().join("tests/header.bpf.c");
    // The kernel's types.h needs an architecture's asm/types.h, which clang does not look for by itself for BPF. The second is
    // where Debian puts it on machines of another architecture.
    let arch = std::env::consts::ARCH;
    let (own, foreign) =
        (format!("-I/usr/include/{arch}-linux-gnu"), format!("-I/usr/{arch}-linux-gnu/include"));
    let arguments = ["-g", "-target", "bpf", "-mcpu=v3", &own, &foreign, "-c"];
    compile("clang", &arguments, &source, "header.bpf.o");
}

/// Compiles `source` with `compiler` and everything that warns being an error; returns the output's path.
fn compile(compiler: &str, arguments: &[&str], source: &Path, name: &str) -> PathBuf {
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let run = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-O1"])
        .args(arguments)
        .arg("-I")
        .arg(common::crate_dir().join("../../bpf"))
        .arg(source)
        .arg("-o")
        .arg(&output)
        .output()
        .unwrap_or_else(|e| panic!("running {compiler}: {e}"));
    assert!(
        run.status.success(),
        "{compiler} {}:\n{}",
        source.display(),
        String::from_utf8_lossy(&run.stderr)
    );
    output
}

fn compile_golden_c(name: &str) -> PathBuf {
    // For another architecture, `cargo xtask aarch64` says which compiler.
    let compiler = std::env::var("TARGET_CC").unwrap_or_else(|_| "cc".to_owned());
    compile(&compiler, &["-std=gnu11"], &common::crate_dir().join("tests/golden.c"), name)
}
