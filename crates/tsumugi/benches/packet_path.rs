//! What the library itself costs a message, without sockets: two endpoints joined by a pair of vectors.
//!
//! `cargo bench -p tsumugi` prints nanoseconds for one message from `post` to release, both sides together. How many instructions
//! those are, `tests/instructions.rs` counts.

mod conversation;
mod tray;

use conversation::Conversation;
use std::time::Instant as Clock;

fn main() {
    let mut conversation = Conversation::begin();
    let only: Option<usize> = std::env::var("PACKET_PATH_BYTES").ok().and_then(|word| word.parse().ok());
    for (bytes, count) in
        [(8usize, 2_000_000u32), (64, 2_000_000), (1400, 500_000), (16 << 10, 100_000), (1 << 20, 2_000)]
    {
        if only.is_some_and(|only| only != bytes) {
            continue;
        }
        let data = vec![3u8; bytes];
        let mut best_ns = f64::MAX;
        for _ in 0..5 {
            let start = Clock::now();
            for _ in 0..count / 5 {
                conversation.exchange(&data);
            }
            best_ns = best_ns.min(start.elapsed().as_nanos() as f64 / f64::from(count / 5 * 2));
        }
        println!("{bytes:>8} B: {best_ns:>9.0} ns a message");
    }
}
