//! The endpoint without a socket and without a clock: what the simulation found, each as a small case.

#[path = "common/options.rs"]
mod options;

use options::options;
use std::net::SocketAddr;
use tsumugi::internal::{Core, Delivery, EndpointOptions};
use tsumugi::{PeerId, Reason};
use tsumugi_proto::xdp::{self, Fate};
use tsumugi_rail::memory::Memory;
use tsumugi_rail::sim::{HostOptions, LinkOptions, Network, SimRail};
use tsumugi_rail::{Packet, Rail};
use tsumugi_wire::limits::ONE_BUFFER_BYTES;
use tsumugi_wire::memory::{Counter, Geometry, Record};
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Header, Instant, Kind};

const TIMEOUT_NS: u64 = 500 * MILLISECOND_NS;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 7411))
}

struct Host {
    core: Core,
    rail: SimRail,
}

fn host_options(seed: u64, datagram_bytes: usize) -> EndpointOptions {
    EndpointOptions {
        peers_max: 4,
        peer_timeout_ns: TIMEOUT_NS,
        connect_timeout_ns: TIMEOUT_NS,
        datagram_bytes,
        ..options(seed)
    }
}

fn host(network: &Network, number: u8, seed: u64) -> Host {
    host_with_datagrams(network, number, seed, 1472)
}

fn host_with_datagrams(network: &Network, number: u8, seed: u64, datagram_bytes: usize) -> Host {
    let memory = Memory::new(Geometry::plain(4, 32 << 10)).unwrap();
    let mut core = Core::new(host_options(seed, datagram_bytes), memory);
    assert!(core.open_channel(1));
    Host { core, rail: network.rail(address(number), datagram_bytes) }
}

impl Host {
    fn call(&mut self, now: Instant) {
        let Host { core, rail } = self;
        rail.receive(now, &mut |from, bytes| core.on_datagram(now, from, bytes)).unwrap();
        core.drain(now);
        core.tick(now);
        core.transmit(now, rail).unwrap();
        core.audit_all(0).unwrap();
    }

    /// The XDP program takes what arrived, after `damage` was done to it; the rest goes on.
    fn run_xdp(&mut self, now: Instant, damage: impl Fn(&mut Vec<u8>)) {
        let Host { core, rail } = self;
        let mut arrived = Vec::new();
        rail.receive(now, &mut |from, bytes| arrived.push((from, bytes.to_vec()))).unwrap();
        for (from, mut bytes) in arrived {
            damage(&mut bytes);
            let crc32c = |body: &[u8]| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, body) as u32;
            let scattered = bytes.len() > ONE_BUFFER_BYTES;
            match xdp::receive(core.receive_memory(), &bytes, scattered, crc32c).0 {
                Fate::Pass => core.on_datagram(now, from, &bytes),
                Fate::Drop => {}
                Fate::Answer(answer) => {
                    _ = rail.send(now, from, &[Packet { head: &answer, body: &[] }]).unwrap();
                }
            }
        }
    }

    /// Takes what arrived, and gives it back at once.
    fn read(&mut self) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        while let Some(delivery) = self.core.take(1) {
            if let Delivery::Message { payload, .. } = delivery {
                messages.push(self.core.bytes_of(&payload).to_vec());
                self.core.release_message(payload);
            }
        }
        messages
    }
}

#[test]
fn who_connects_in_vain_sleeps_between_two_hellos() {
    let network = Network::new(1, LinkOptions::default());
    let mut here = host(&network, 1, 1);
    let peer = here.core.add_peer("nobody", address(2)).unwrap();
    here.core.post(Instant(0), peer, 1, b"?").unwrap();
    let (mut now, mut calls) = (Instant(0), 0);
    while now < Instant(TIMEOUT_NS) {
        here.call(now);
        calls += 1;
        assert!(calls < 100, "the timer of {now:?} is always due");
        now = here.core.deadline().max(now);
    }
    here.call(now);
    assert!(matches!(here.core.take_failure().unwrap().reason, Reason::Unreachable(..)));
}

/// Two hosts that know each other, and the number of the second with the first.
fn connected(network: &Network) -> (Host, Host, PeerId) {
    connected_with_datagrams(network, 1472)
}

fn connected_with_datagrams(network: &Network, bytes: usize) -> (Host, Host, PeerId) {
    let [mut here, mut there] =
        [1, 2].map(|number| host_with_datagrams(network, number, number.into(), bytes));
    let peer = here.core.add_peer("there", address(2)).unwrap();
    here.core.post(Instant(0), peer, 1, b"hello").unwrap();
    for step in 0..40 {
        here.call(Instant(step * 10_000));
        there.call(Instant(step * 10_000));
    }
    assert!(here.core.is_flushed());
    (here, there, peer)
}

#[test]
fn an_answer_tells_no_more_credit_than_there_is_though_not_all_is_read() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    let now = Instant(MILLISECOND_NS);
    // The answer to a packet that the socket brought, which waits.
    here.core.post(now, peer, 1, b"one").unwrap();
    here.core.transmit(now, &mut here.rail).unwrap();
    let later = now.plus(2000);
    let there_rail = &mut there.rail;
    there_rail.receive(later, &mut |from, bytes| there.core.on_datagram(later, from, bytes)).unwrap();
    there.core.flush_acks();
    // And meanwhile others are deposited.
    for _ in 0..5 {
        here.core.post(later, peer, 1, &[0; 1400]).unwrap();
        here.core.transmit(later, &mut here.rail).unwrap();
    }
    there.run_xdp(later.plus(2000), |_| {});
    there.core.transmit(later.plus(2000), &mut there.rail).unwrap();
    let limit = there.core.view(PeerId(0)).unwrap().limit;
    let mut told = 0;
    here.rail
        .receive(later.plus(4000), &mut |_, bytes| {
            let header = Header::decode(bytes).unwrap().0;
            told = told.max(header.ack.0 + u64::from(header.credit));
        })
        .unwrap();
    assert!(told > 0 && told <= limit, "told of credit up to {told}, takes {limit}");
}

#[test]
fn the_acknowledgement_of_what_nobody_asks_about_rides_along_with_the_reply_and_xdp_gives_it_at_once() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    let answered = |host: &Host| host.core.counters().get("answers_sent");
    let (before, mut now) = ((answered(&here), answered(&there)), Instant(MILLISECOND_NS));
    for _ in 0..20 {
        here.core.unwatched(|core| core.post(now, peer, 1, &[5; 5000])).unwrap();
        here.call(now);
        now = now.plus(2000);
        there.call(now);
        assert_eq!(there.read().pop(), Some(vec![5; 5000]));
        there.core.unwatched(|core| core.post(now, PeerId(0), 1, &[6; 5000])).unwrap();
        there.call(now);
        now = now.plus(2000);
        here.call(now);
        assert_eq!(here.read().pop(), Some(vec![6; 5000]));
    }
    assert_eq!((answered(&here), answered(&there)), before, "every reply has brought it");
    here.core.unwatched(|core| core.post(now, peer, 1, &[7; 5000])).unwrap();
    here.call(now);
    assert!(!here.core.is_flushed());
    there.run_xdp(now.plus(2000), |_| {});
    here.call(now.plus(4000));
    assert!(here.core.is_flushed(), "nobody has called there");
    // What somebody may ask about is acknowledged by the call that takes it in, which may be the last for long.
    here.core.post(now.plus(4000), peer, 1, &[8; 5000]).unwrap();
    here.call(now.plus(4000));
    there.call(now.plus(6000));
    here.call(now.plus(8000));
    assert!(here.core.is_flushed(), "it was asked for at once");
}

/// Two hosts of which the second has a program, for as long as it takes; what the second takes. Everything is damaged that
/// `harm` says.
fn run_xdp_until(
    (here, there): (&mut Host, &mut Host),
    mut now: Instant,
    harm: impl Fn(&Header) -> bool,
    done: impl Fn(&Host, &Host) -> bool,
) -> (Instant, Vec<Vec<u8>>) {
    let (end, mut taken) = (now.plus(4 * TIMEOUT_NS), there.read());
    while !done(here, there) {
        assert!(now < end, "it does not come to an end");
        here.call(now);
        now = now.plus(2000);
        there.run_xdp(now, |bytes| {
            if Header::decode(bytes).is_ok_and(|(header, ..)| harm(&header)) {
                *bytes.last_mut().unwrap() ^= 1;
            }
        });
        there.call(now);
        taken.append(&mut there.read());
        now = now.plus(2000);
    }
    (now, taken)
}

#[test]
fn a_packet_that_was_damaged_and_acknowledged_comes_again() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    assert_eq!(there.read(), [b"hello"]);
    let mut now = Instant(MILLISECOND_NS);
    // Short messages, a long one, and one behind it that waits for its turn.
    let messages: Vec<Vec<u8>> = vec![vec![7; 100], vec![8; 1300], vec![9; 20_000], vec![10; 60]];
    for message in &messages {
        here.core.post(now, peer, 1, message).unwrap();
    }
    here.core.transmit(now, &mut here.rail).unwrap();
    now = now.plus(2000);
    there.run_xdp(now, |bytes| *bytes.last_mut().unwrap() ^= 1);
    // The program has acknowledged all of it, and the process has not run.
    here.call(now.plus(2000));
    assert!(here.core.is_flushed(), "acknowledged by the program");
    let done = |_: &Host, there: &Host| there.core.counters().get("messages_received") == 5;
    let (now, taken) = run_xdp_until((&mut here, &mut there), now.plus(2000), |_| false, done);
    assert_eq!(taken, messages);
    let counters = there.core.counters();
    assert_eq!(counters.get("packets_repaired"), counters.get("corrupt"));
    assert!(counters.get("packets_repaired") > 15 && counters.get("packets_unrepaired") == 0);
    assert!(here.core.take_failure().is_none() && there.core.take_failure().is_none());
    // And what it has compared the sender does not keep.
    let kept = |here: &Host, _: &Host| here.core.unchecked() == 0;
    run_xdp_until((&mut here, &mut there), now, |_| false, kept);
}

/// The question and the answer may be lost, or damaged in their turn.
#[test]
fn a_damaged_packet_is_asked_for_until_it_comes() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, loss: 0.3, ..LinkOptions::default() });
    let (mut here, mut there) = (host(&network, 1, 1), host(&network, 2, 2));
    let peer = here.core.add_peer("there", address(2)).unwrap();
    let messages: Vec<Vec<u8>> = (0..200u8).map(|number| vec![number; 1 + 7 * number as usize]).collect();
    for message in &messages {
        here.core.post(Instant(0), peer, 1, message).unwrap();
    }
    let damaged = std::cell::Cell::new(0);
    let harm = |header: &Header| {
        let harms = header.body_bytes > 0 && header.psn.0.is_multiple_of(3) && damaged.get() < 120;
        damaged.set(damaged.get() + u32::from(harms));
        harms && matches!(header.kind, Kind::Data | Kind::Piece)
    };
    let done = |_: &Host, there: &Host| there.core.counters().get("messages_received") == 200;
    let (_, taken) = run_xdp_until((&mut here, &mut there), Instant(0), harm, done);
    assert_eq!(taken, messages);
    assert!(there.core.counters().get("packets_repaired") > 10);
}

#[test]
fn who_says_good_bye_stays_for_what_was_damaged() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    there.read();
    let now = Instant(MILLISECOND_NS);
    for number in 0..3 {
        here.core.post(now, peer, 1, &[number; 1400]).unwrap();
    }
    here.core.transmit(now, &mut here.rail).unwrap();
    there.run_xdp(now.plus(2000), |bytes| *bytes.last_mut().unwrap() ^= 1);
    here.call(now.plus(4000));
    assert!(here.core.is_flushed(), "acknowledged by the program");
    here.core.leave(now.plus(4000));
    let left = |here: &Host, _: &Host| here.core.has_left();
    let (_, taken) = run_xdp_until((&mut here, &mut there), now.plus(4000), |_| false, left);
    assert_eq!(taken, [[0; 1400], [1; 1400], [2; 1400]]);
    assert_eq!(there.core.take_failure().unwrap().reason, Reason::Closed);
}

/// The XDP program answers PROBEs for a process that computes, which hears nothing of the peer meanwhile.
#[test]
fn nobody_is_silent_who_was_not_asked() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    let mut now = Instant(MILLISECOND_NS);
    network.cut(address(1), address(2));
    here.core.post(now, peer, 1, b"?").unwrap();
    here.call(now);
    network.heal(address(1), address(2));
    // `here` computes for longer than the time-out.
    now = now.plus(2 * TIMEOUT_NS);
    let end = now.plus(TIMEOUT_NS);
    here.call(now);
    assert!(here.core.take_failure().is_none(), "it was not even asked");
    while now < end {
        now = now.plus(MILLISECOND_NS);
        there.call(now);
        here.call(now);
    }
    assert!(here.core.take_failure().is_none() && here.core.is_flushed());
    // Nobody answers any more, and it asks in time.
    network.cut(address(1), address(2));
    here.core.post(now, peer, 1, b"?").unwrap();
    while now < end.plus(TIMEOUT_NS) {
        assert!(here.core.take_failure().is_none(), "given up too early");
        here.call(now);
        now = here.core.deadline().max(now.plus(1000));
    }
    here.call(now);
    here.call(now.plus(MILLISECOND_NS));
    assert!(matches!(here.core.take_failure().unwrap().reason, Reason::Silent(..)));
}

#[test]
fn what_is_sent_to_a_peer_that_gave_up_connecting_is_not_lost() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there) = (host(&network, 1, 1), host(&network, 2, 2));
    let peer = here.core.add_peer("there", address(2)).unwrap();
    here.core.post(Instant(0), peer, 1, b"hello").unwrap();
    here.call(Instant(0));
    there.call(Instant(2000)); // CHALLENGE
    here.call(Instant(4000)); // HELLO, which lies in a socket for long
    let mut now = Instant(TIMEOUT_NS + MILLISECOND_NS);
    network.cut(address(1), address(2));
    here.call(now);
    assert!(matches!(here.core.take_failure().unwrap().reason, Reason::Unreachable(..)));
    network.heal(address(1), address(2));
    there.call(now);
    there.core.post(now, PeerId(0), 1, b"news").unwrap();
    for _ in 0..40 {
        now = now.plus(10_000);
        there.call(now);
        here.call(now);
    }
    assert!(there.core.take_failure().is_none(), "it neither restarted nor is it gone");
    here.core.take(1).expect("the failure of its handshake");
    assert_eq!(here.read(), [b"news"]);
}

#[test]
fn who_leaves_hears_of_what_it_posted_afterwards_and_the_peer_did_not_wait_for() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    let now = Instant(MILLISECOND_NS);
    here.core.leave(now);
    here.call(now);
    here.core.post(now, peer, 1, b"wait!").unwrap();
    there.call(now.plus(2000));
    here.call(now.plus(4000));
    let failure = here.core.take_failure().unwrap();
    assert_eq!((failure.reason, failure.undelivered), (Reason::Closed, 1));
    assert!(here.core.has_left());
}

#[test]
fn a_bye_that_arrives_after_later_data_is_an_orderly_close() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    there.read();
    let now = Instant(MILLISECOND_NS);
    here.core.leave(now);
    here.call(now);
    here.core.post(now, peer, 1, b"and this").unwrap();
    here.call(now);
    let mut arrived = Vec::new();
    there.rail.receive(now.plus(2000), &mut |from, bytes| arrived.push((from, bytes.to_vec()))).unwrap();
    let kinds = arrived.iter().map(|(_, bytes)| Header::decode(bytes).unwrap().0.kind);
    assert_eq!(kinds.collect::<Vec<_>>(), [Kind::Bye, Kind::Data]);
    for (from, bytes) in arrived.iter().rev() {
        there.core.on_datagram(now.plus(2000), *from, bytes);
    }
    assert_eq!(there.read(), [b"and this"]);
    assert_eq!(there.core.take_failure().unwrap().reason, Reason::Closed);
    there.call(now.plus(2000));
    here.call(now.plus(4000));
    assert!(here.core.has_left() && here.core.take_failure().is_none());
    assert!(here.core.was_delivered(peer, 2), "BYE_ACK acknowledged it");
}

#[test]
fn who_leaves_sends_again_what_is_lost() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected(&network);
    there.read();
    let mut now = Instant(MILLISECOND_NS);
    network.cut(address(1), address(2));
    here.core.leave(now);
    here.call(now);
    here.core.post(now, peer, 1, b"and this").unwrap();
    here.call(now);
    network.heal(address(1), address(2));
    // Sooner than BYE is said again.
    while now < Instant(15 * MILLISECOND_NS) {
        now = now.plus(MILLISECOND_NS / 10);
        here.call(now);
        there.call(now);
    }
    assert_eq!(there.read(), [b"and this"]);
    while now < Instant(50 * MILLISECOND_NS) {
        now = now.plus(MILLISECOND_NS / 10);
        here.call(now);
        there.call(now);
    }
    assert!(here.core.has_left() && here.core.take_failure().is_none());
}

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

#[test]
fn a_packet_of_a_former_incarnation_is_answered_by_nothing() {
    let network = Network::new(1, LinkOptions::default());
    let (mut here, mut there) = (host(&network, 1, 1), host(&network, 2, 2));
    let peer = here.core.add_peer("there", address(2)).unwrap();
    here.core.post(Instant(0), peer, 1, b"hello").unwrap();
    for step in 0..20 {
        here.call(Instant(step * 10_000));
        there.call(Instant(step * 10_000));
    }
    assert_eq!(there.read(), [b"hello"]);
    let view = there.core.view(PeerId(0)).unwrap();
    let mut header = Header::new(Kind::Probe, view.epoch ^ 1);
    (header.token, header.flow) = (view.local_token, 0);
    there.core.on_datagram(Instant(MILLISECOND_NS), address(1), &header.encode());
    assert_eq!(there.core.counted(Counter::WrongEpoch), 1);
    let before = network.statistics().sent;
    there.core.transmit(Instant(MILLISECOND_NS), &mut there.rail).unwrap();
    assert_eq!(network.statistics().sent, before, "a RESET would end the present connection");
}

/// The peer accepted what a HELLO offered, sent in that flow, and gave up before its WELCOME arrived. What it sends
/// after the next HELLO must not count as a repetition of what it sent before.
#[test]
fn a_flow_is_begun_once_though_a_welcome_is_lost() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there) = (host(&network, 1, 1), host(&network, 2, 2));
    let to_there = here.core.add_peer("there", address(2)).unwrap();
    let to_here = there.core.add_peer("here", address(1)).unwrap();
    here.core.post(Instant(0), to_there, 1, b"from here").unwrap();
    here.call(Instant(0));
    there.call(Instant(2_000)); // CHALLENGE
    here.call(Instant(4_000)); // HELLO with the cookie
    there.call(Instant(6_000)); // WELCOME: is lost
    let mut lost = 0;
    here.rail.receive(Instant(8_000), &mut |_, _| lost += 1).unwrap();
    assert_eq!(lost, 1);
    network.cut_one_way(address(1), address(2));
    there.core.post(Instant(8_000), to_here, 1, b"first, that arrives").unwrap();
    let mut now = Instant(8_000);
    while there.core.take_failure().is_none() {
        there.call(now);
        if now < Instant(MILLISECOND_NS) {
            here.call(now);
        }
        now = now.plus(MILLISECOND_NS / 10);
    }
    network.heal(address(1), address(2));
    there.core.reset_peer(to_here.0);
    there.core.post(now, to_here, 1, b"second").unwrap();
    let mut arrived = Vec::new();
    for _ in 0..30_000 {
        now = now.plus(MILLISECOND_NS / 10);
        here.call(now);
        there.call(now);
        arrived.extend(here.read());
        if there.core.take_failure().is_some() {
            // Told; it may be sent once more.
            there.core.reset_peer(to_here.0);
            there.core.post(now, to_here, 1, b"second").unwrap();
        }
    }
    assert!(there.core.is_flushed());
    assert_eq!(arrived.last().map(Vec::as_slice), Some(&b"second"[..]), "{arrived:?}");
}

/// The NIC's driver of `there` receives long packets in several buffers. The XDP program may not send such a frame
/// back.
#[test]
fn long_packets_to_a_process_that_computes_are_acknowledged_by_xdp() {
    // Several packets: a lone one asks for nothing.
    for bytes in [20_000, 26_000] {
        let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
        let (mut here, mut there, peer) = connected_with_datagrams(&network, 8972);
        there.read();
        let mut now = Instant(MILLISECOND_NS);
        let mut took = [0; 3];
        for took_ns in &mut took {
            let begun = now;
            here.core.post(now, peer, 1, &vec![7; bytes]).unwrap();
            while !here.core.is_flushed() {
                here.call(now);
                there.run_xdp(now, |_| {});
                now = now.plus(500);
                assert!(now.since(begun) < 20 * MILLISECOND_NS, "it is never acknowledged");
            }
            *took_ns = now.since(begun);
            there.call(now);
            assert_eq!(there.read().len(), 1);
            now = now.plus(MILLISECOND_NS);
        }
        // The first time it is asked in vain, and then told how to ask.
        assert!(took[1..].iter().all(|ns| *ns <= 5000), "{took:?} ns");
    }
}

#[test]
fn a_process_that_runs_answers_the_long_packets_that_xdp_could_not() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, peer) = connected_with_datagrams(&network, 8972);
    let mut now = Instant(MILLISECOND_NS);
    here.core.post(now, peer, 1, &[7; 20_000]).unwrap();
    here.call(now);
    now = now.plus(1500);
    there.run_xdp(now, |_| {});
    assert!(there.core.has_news());
    there.call(now);
    now = now.plus(1500);
    here.call(now);
    assert!(here.core.is_flushed(), "it waits for a time-out");
}

#[test]
fn an_endpoint_shows_the_descriptor_that_its_rail_has_or_none() {
    let network = Network::new(1, LinkOptions::default());
    let memory = Memory::new(Geometry::plain(4, 32 << 10)).unwrap();
    let rail = Box::new(network.rail(address(1), 1472));
    let endpoint = tsumugi::internal::open_simulated(options(1), memory, rail, Default::default());
    assert!(endpoint.descriptor().is_none());
    let endpoint = tsumugi::Endpoint::open(tsumugi::Config::loopback()).unwrap();
    assert!(endpoint.descriptor().is_some_and(|descriptor| descriptor.try_clone_to_owned().is_ok()));
}

/// It may have acknowledged all that was sent to it, and owe nothing but an answer that nobody knows of.
#[test]
fn who_receives_hears_of_a_peer_that_falls_silent_though_nothing_is_outstanding() {
    let network = Network::new(1, LinkOptions { latency_ns: 1000, ..LinkOptions::default() });
    let (mut here, mut there, _) = connected(&network);
    let mut now = Instant(MILLISECOND_NS);
    here.read();
    // As long as it is there, nothing is said, and nobody is busy with it.
    let mut calls = 0;
    while now < Instant(10 * TIMEOUT_NS) {
        here.call(now);
        there.call(now.plus(2000));
        here.call(now.plus(4000));
        now = here.core.deadline().min(there.core.deadline()).max(now.plus(5000));
        calls += 1;
    }
    assert!(here.core.take_failure().is_none());
    assert!(calls < 1000, "{calls} calls in {} ms", 10 * TIMEOUT_NS / MILLISECOND_NS);
    network.cut(address(1), address(2));
    let end = now.plus(2 * TIMEOUT_NS);
    let failure = loop {
        assert!(now < end, "nobody says that it is silent");
        here.call(now);
        if let Some(failure) = here.core.take_failure() {
            break failure;
        }
        now = here.core.deadline().max(now.plus(1000));
    };
    assert!(matches!(failure.reason, Reason::Silent(..)), "{failure}");
}

/// More than there is room for, one after the other, over a network that loses packets.
#[test]
fn peers_that_come_and_leave_never_fill_an_endpoint_and_are_never_mistaken_for_each_other() {
    let options = LinkOptions { latency_ns: 1000, loss: 0.1, ..LinkOptions::default() };
    let network = Network::new(7, options);
    let mut server = host(&network, 1, 1);
    let (mut now, mut seen) = (Instant(0), Vec::new());
    for number in 2..32 {
        let mut client = host(&network, number, number.into());
        let peer = client.core.add_peer("server", address(1)).unwrap();
        client.core.post(now, peer, 1, &[number]).unwrap();
        let (mut source, mut leaving) = (None, false);
        let end = now.plus(10 * TIMEOUT_NS);
        while !leaving || !client.core.has_left() {
            assert!(now < end, "client {number} does not come to an end");
            client.call(now);
            server.call(now);
            while let Some(delivery) = server.core.take(1) {
                let Delivery::Message { source: from, payload } = delivery else { continue };
                assert_eq!(server.core.bytes_of(&payload), [number], "somebody else's message");
                server.core.release_message(payload);
                assert_eq!(server.core.address_of(PeerId(from)), Some(address(number)));
                source = Some(from);
            }
            if !leaving && client.core.is_flushed() {
                client.core.leave(now);
                leaving = true;
            }
            now = now.plus(MILLISECOND_NS / 10);
        }
        assert!(client.core.take_failure().is_none(), "client {number} was not served");
        let source = source.expect("its message has come");
        assert!(!seen.contains(&source), "number {source} was given twice");
        seen.push(source);
        assert!(server.core.peers() <= 4);
    }
    // An answer to the first is one to nobody.
    assert!(server.core.post(now, PeerId(seen[0]), 1, b"?").is_err());
}
