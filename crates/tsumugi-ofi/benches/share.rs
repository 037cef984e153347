//! What the provider itself costs a tagged message: a message through libfabric's calls beside one through the library's own.
//!
//! `cargo bench -p tsumugi-ofi` prints nanoseconds for one message of 8 B from sending to having it, both sides together, and
//! the difference, which is the provider's share. Two endpoints are joined by loopback UDP and both played by one thread, so
//! that the system calls are the same and nobody waits for anybody. There and back is one round; rounds are interleaved.

#[allow(dead_code, reason = "made for the tests")]
#[path = "../tests/provider/host.rs"]
mod host;

use host::{Pair, Side, SideOptions, context, host};
use std::ptr::null_mut;
use std::time::Instant;
use tsumugi::message::{Pattern, Port};
use tsumugi::{Config, Endpoint, PeerId, SendChoice};
use tsumugi_fi::abi::*;

const BYTES: usize = 8;
const MESSAGES: u32 = 2_000;
const ROUNDS: usize = 101;
/// So many looks in vain before it begins, as MPIs make them: an endpoint whose owner spins has its sockets wake nobody.
const IDLE_LOOKS: u32 = 10_000;
const TAG: u64 = 7;

/// One side of the library's own.
struct Own {
    port: Port,
    endpoint: Endpoint,
    to: Option<PeerId>,
}

impl Own {
    fn open() -> Own {
        let config = Config::loopback().send(SendChoice::Udp);
        let endpoint = Endpoint::open(config).expect("an endpoint");
        Own { port: Port::open(&endpoint, 1).expect("a channel"), endpoint, to: None }
    }
}

/// Sends one message of the library's own and receives it.
fn own_message(from: &mut Own, to: &mut Own) {
    let mut receive = to.port.receive(Pattern::tagged(TAG), vec![0; BYTES].into());
    from.port.send(from.to.expect("a peer"), TAG, &[1; BYTES]).expect("room");
    loop {
        to.endpoint.progress().expect("progress");
        if let Some(completion) = to.port.test(&mut receive).expect("a request") {
            completion.outcome.expect("a message");
            return;
        }
        from.endpoint.progress().expect("progress");
    }
}

/// Sends one message through libfabric's calls and receives it.
fn provided_message(from: &Side, to: &Side, number: fi_addr_t) {
    let (mut place, data) = ([0u8; BYTES], [1u8; BYTES]);
    // SAFETY: both buffers stay until their entries are read.
    unsafe {
        let recv = to.tagged().recv.expect("a function");
        let code =
            recv(to.ep, place.as_mut_ptr().cast(), BYTES, null_mut(), FI_ADDR_UNSPEC, TAG, 0, context(1));
        assert_eq!(code, 0);
        let send = from.tagged().send.expect("a function");
        while send(from.ep, data.as_ptr().cast(), BYTES, null_mut(), number, TAG, context(2)) != 0 {
            read(to);
        }
    }
    let (mut sent, mut received) = (false, false);
    while !(sent && received) {
        received |= read(to);
        sent |= read(from);
    }
}

/// Whether the queue had an entry.
fn read(side: &Side) -> bool {
    // SAFETY: there is room for an entry of the queue's format.
    unsafe {
        let mut entry: fi_cq_tagged_entry = std::mem::zeroed();
        let read = (*(*side.cq).ops).read.expect("a function");
        read(side.cq, (&raw mut entry).cast(), 1) == 1
    }
}

fn timed(mut message: impl FnMut()) -> f64 {
    let begun = Instant::now();
    (0..MESSAGES).for_each(|_| message());
    begun.elapsed().as_nanos() as f64 / f64::from(MESSAGES)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    // SAFETY: nothing else runs yet.
    unsafe { std::env::set_var("FI_TSUMUGI_SEND_PATH", "udp") };
    if host().is_none() {
        return;
    }
    let (mut here, mut there) = (Own::open(), Own::open());
    here.to = here.endpoint.add_peer(format!("127.0.0.1:{}", there.endpoint.port())).ok();
    there.to = there.endpoint.add_peer(format!("127.0.0.1:{}", here.endpoint.port())).ok();
    let pair = Pair::open(SideOptions { threading: FI_THREAD_DOMAIN, ..SideOptions::default() });
    for _ in 0..IDLE_LOOKS {
        for side in [&here, &there] {
            side.endpoint.progress().expect("progress");
        }
        for side in [&pair.here, &pair.there] {
            read(side);
        }
    }
    let (mut own, mut provided) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let mut back = false;
        let own_ns = timed(|| {
            let (from, to) = if back { (&mut there, &mut here) } else { (&mut here, &mut there) };
            own_message(from, to);
            back = !back;
        });
        let provided_ns = timed(|| {
            let sides = [(&pair.here, &pair.there, pair.to_there), (&pair.there, &pair.here, pair.to_here)];
            let (from, to, number) = sides[usize::from(back)];
            provided_message(from, to, number);
            back = !back;
        });
        // The first one connects.
        if round > 0 {
            own.push(own_ns);
            provided.push(provided_ns);
        }
    }
    let share = own.iter().zip(&provided).map(|(own, provided)| provided - own).collect();
    println!(
        "8 B tagged: library {:.0} ns, provider {:.0} ns, the provider's share {:.0} ns",
        median(own),
        median(provided),
        median(share)
    );
    pair.close();
}
