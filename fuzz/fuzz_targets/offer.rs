//! The bodies of the handshake.
#![no_main]

#[path = "../../crates/tsumugi-wire/tests/common/exercise.rs"]
#[allow(dead_code, reason = "each target uses its own part")]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    exercise::offer(bytes);
});
