//! What waits at a sender: for room in the queue of a peer that does not read, and for a NIC.

use super::{Host, address, connected, host};
use tsumugi_rail::Rail;
use tsumugi_rail::sim::{HostOptions, LinkOptions, Network};
use tsumugi_wire::memory::{Counter, Record};
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Header, Instant, Kind};

#[test]
fn a_copy_of_an_xoff_does_not_hold_what_is_sent_later() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    let mut now = Instant(MILLISECOND_NS);
    // More than fits in the queue of a peer that does not read.
    for _ in 0..60 {
        here.core.post(now, peer, 1, &[7; 1000]).unwrap();
    }
    let mut xoff = None;
    while now < Instant(20 * MILLISECOND_NS) {
        now = now.plus(MILLISECOND_NS / 10);
        let Host { core, rail } = &mut here;
        let arrive = &mut |from, bytes: &[u8]| {
            let kind = Header::decode(bytes).unwrap().0.kind;
            if kind == Kind::Xoff {
                xoff.get_or_insert_with(|| bytes.to_vec());
            }
            core.on_datagram(now, from, bytes);
        };
        rail.receive(now, arrive).unwrap();
        here.call(now);
        there.call(now);
        if xoff.is_some() {
            there.read();
        }
    }
    assert!(here.core.is_flushed());
    let xoff = xoff.expect("a queue that was full");
    here.core.on_datagram(now, address(2), &xoff);
    here.core.post(now, peer, 1, b"!").unwrap();
    here.call(now);
    now = now.plus(2000);
    there.call(now);
    assert_eq!(there.read(), [b"!"]);
}

#[test]
fn who_cannot_send_sleeps_before_trying_again() {
    let network = Network::new(1, LinkOptions::default());
    let (mut here, _there, peer) = connected(&network);
    network.set_host_options(HostOptions { short_burst: 1.0, ..HostOptions::default() });
    let nobody = here.core.add_peer("nobody", address(3)).unwrap();
    let now = Instant(MILLISECOND_NS);
    // A HELLO is due at once, behind a packet that the NIC does not take.
    here.core.post(now, nobody, 1, b"?").unwrap();
    here.core.post(now, peer, 1, b"!").unwrap();
    here.core.transmit(now, &mut here.rail).unwrap();
    assert!(here.core.deadline() > now, "a timer that is always due");
    assert!(here.core.deadline() < now.plus(MILLISECOND_NS), "not tried again");
}

#[test]
fn a_queue_that_is_full_to_the_last_byte_is_not_read_around() {
    let network = Network::new(1, LinkOptions::default());
    let (mut here, mut there) = (host(&network, 1, 1), host(&network, 2, 2));
    let peer = here.core.add_peer("there", address(2)).unwrap();
    // With its frame header and record header each takes 1024 bytes: 32 of them fill the queue.
    let bytes = 1024 - Record::HEADER_BYTES as usize - 8;
    let mut now = Instant(0);
    // The first three are read at once: before the peer has said how long a datagram may be, a message would be sent
    // in pieces, and the queue is given back in pieces of 2048 bytes.
    for number in 0..35 {
        let message = if number == 0 { Vec::new() } else { vec![number; bytes] };
        here.core.post(now, peer, 1, &message).unwrap();
        for _ in 0..20 {
            now = now.plus(10_000);
            here.call(now);
            there.call(now);
        }
        if number < 3 {
            assert_eq!(there.read().len(), 1);
        }
    }
    assert!(here.core.is_flushed());
    now = now.plus(MILLISECOND_NS);
    there.call(now);
    assert_eq!(there.core.counted(Counter::Violation), 0);
    let read = there.read();
    assert_eq!(read.len(), 32);
    assert!(read.iter().enumerate().all(|(number, message)| message[..] == vec![number as u8 + 3; bytes]));
}
