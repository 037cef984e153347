//! The body of an answer: the first eight bytes are the header's `ack`, the rest is the body.
#![no_main]

#[path = "../../crates/tsumugi-wire/tests/common/exercise.rs"]
#[allow(dead_code, reason = "each target uses its own part")]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((ack, body)) = bytes.split_first_chunk() {
        exercise::sack(tsumugi_wire::Psn(u64::from_le_bytes(*ack)), body);
    }
});
