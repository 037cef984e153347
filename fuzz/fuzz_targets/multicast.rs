//! The body of a packet for several receivers: the first two bytes are the header's `credit`, the rest is the body.
#![no_main]

#[path = "../../crates/tsumugi-wire/tests/common/exercise.rs"]
#[allow(dead_code, reason = "each target uses its own part")]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((receivers, body)) = bytes.split_first_chunk() {
        exercise::table(u16::from_le_bytes(*receivers), body);
    }
});
