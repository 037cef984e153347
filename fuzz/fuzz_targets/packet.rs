//! A whole packet: header, then frames, answer, offer, piece, what groups say, or frames and a table. Once as it is, once with its check made right.
#![no_main]

#[path = "../../crates/tsumugi-wire/tests/common/exercise.rs"]
#[allow(dead_code, reason = "each target uses its own part")]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    exercise::packet(bytes);
    let mut sealed = bytes.to_vec();
    exercise::seal(&mut sealed);
    exercise::packet(&sealed);
});
