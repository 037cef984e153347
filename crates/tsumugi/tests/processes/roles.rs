//! What other processes do.

use crate::process::{Orders, say, stand_still};
use crate::{CHANNEL, open, payload, sum};
use std::time::{Duration, Instant};
use tsumugi::active_message::{ActiveMessageOptions, ActiveMessages};
use tsumugi::{Channel, Config, Endpoint, PeerId, ReceiveError, TicketStatus, Wait};

/// Time after which who throws back looks whether anybody is there.
const LOOK_UP: Duration = Duration::from_millis(20);

/// Plays a role, given as its name and its parameters.
pub(crate) fn play(role: &str) {
    let words: Vec<&str> = role.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    match words[0] {
        "take" => take(number(1) as u16, number(2)),
        "serve" => serve(number(1) as u16),
        "verify" => verify(number(1), number(2) as usize),
        "checksum" => checksum(),
        "send_half" => send_half(number(1) as u16),
        "send_and_close" => send_and_close(number(1) as u16, number(2)),
        "idle" => idle(number(1)),
        "post_and_end" => post_and_end(number(1) as u16, number(2), words[3], false),
        "end_first" => post_and_end(number(1) as u16, number(2), words[3], true),
        "take_and_close" => take_and_close(),
        "serve_few" => serve_few(number(1) as u32),
        "send_and_stay" => send_and_stay(number(1) as u16),
        "double" => double(),
        "pong" => pong(),
        "ping" => ping(number(1) as u16, number(2)),
        other => panic!("no role is called '{other}'"),
    }
}

/// Opens an endpoint and its channel, and says its port.
fn receiver(config: Config) -> (Endpoint, Channel) {
    let endpoint = open(config);
    let channel = endpoint.channel(CHANNEL).unwrap();
    say(endpoint.port());
    (endpoint, channel)
}

fn sender(config: Config, port: u16) -> (Endpoint, Channel, PeerId) {
    let endpoint = open(config);
    let channel = endpoint.channel(CHANNEL).unwrap();
    let peer = endpoint.add_peer(format!("127.0.0.1:{port}")).unwrap();
    (endpoint, channel, peer)
}

/// Receives for ever, and says how long each message is.
fn serve(port: u16) {
    let (_endpoint, channel) = receiver(Config::loopback().port(port));
    loop {
        say(channel.receive().unwrap().len());
    }
}

/// Takes so many messages, says so, and does nothing more: it does not even acknowledge.
fn take(port: u16, count: u64) {
    let (_endpoint, channel) = receiver(Config::loopback().port(port));
    for _ in 0..count {
        channel.receive().unwrap();
    }
    say("taken");
    stand_still();
}

/// Takes so many messages and compares every byte; says when a quarter is there.
fn verify(count: u64, bytes: usize) {
    let (endpoint, channel) = receiver(Config::loopback());
    for number in 0..count {
        let message = channel.receive().unwrap();
        assert!(message[..] == payload(number, bytes)[..], "message {number} is altered");
        if number == count / 4 {
            say("a quarter");
        }
    }
    channel.send(PeerId(0), b"all here").unwrap();
    endpoint.flush().unwrap();
}

/// Takes one long message and says its length and checksum.
fn checksum() {
    let (_endpoint, channel) = receiver(Config::loopback().receive_bytes(3 << 30));
    let message = channel.receive().unwrap();
    say(message.len());
    say(sum(&message));
    stand_still();
}

/// Sends the first part of a long message and does nothing more.
fn send_half(port: u16) {
    let (endpoint, channel, peer) = sender(Config::loopback().datagram_bytes(Some(1472)), port);
    channel.send(peer, b"before").unwrap();
    let ticket = channel.post(peer, &vec![1; 64 << 20]).unwrap();
    // Of some 48,000. A call sends no more than the receive bitmap has room for, 1024.
    while endpoint.counters().get("packets_sent") < 5000 {
        endpoint.progress().unwrap();
    }
    assert_eq!(endpoint.status(ticket), TicketStatus::Pending);
    say("half");
    stand_still();
}

/// Posts so many messages of all lengths, and closes.
fn send_and_close(port: u16, count: u64) {
    let (endpoint, channel, peer) = sender(Config::loopback().send_bytes(1 << 30), port);
    for number in 0..count {
        channel.post(peer, &payload(number, crate::length(number))).unwrap();
    }
    drop(channel);
    endpoint.close().unwrap();
    say("closed");
}

/// Receives one message, then waits for one that does not come. Says how much processor time that took, µs.
fn idle(ns: u64) {
    let (_endpoint, channel) = receiver(Config::loopback().wait(Wait::Adaptive));
    channel.receive().unwrap();
    let before_us = processor_us();
    let error = channel.receive_timeout(Duration::from_nanos(ns)).unwrap_err();
    assert!(matches!(error, ReceiveError::TimedOut(_)), "{error}");
    say(processor_us() - before_us);
}

/// Processor time of this process, µs.
fn processor_us() -> u64 {
    // SAFETY: all zeroes is a value of this structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure lives through the call, which fills it in.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) }, 0);
    let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

/// Posts so many messages and ends, as a program does that returns from `main`. The endpoint goes after its channel, or
/// before it.
fn post_and_end(port: u16, count: u64, faults: &str, endpoint_first: bool) {
    let faults = Some(faults.parse().unwrap());
    let (endpoint, channel, peer) = sender(Config::loopback().faults(faults), port);
    for number in 0..count {
        channel.post(peer, &number.to_le_bytes()).unwrap();
    }
    if endpoint_first {
        drop(endpoint);
    }
}

/// Takes one message, and closes when it is told to.
fn take_and_close() {
    let orders = Orders::listen();
    let (endpoint, channel) = receiver(Config::loopback());
    channel.receive().unwrap();
    endpoint.flush().unwrap();
    while orders.try_next().is_none() {
        endpoint.progress().unwrap();
    }
    drop(channel);
    endpoint.close().unwrap();
}

/// Receives from so many peers, and says how long each message is; what it does without, when it is told to.
fn serve_few(peers_max: u32) {
    let orders = Orders::listen();
    let (endpoint, channel) = receiver(Config::loopback().peers_max(peers_max));
    loop {
        match channel.receive_timeout(LOOK_UP) {
            Ok(message) => say(message.len()),
            Err(ReceiveError::TimedOut(_)) => {}
            Err(ReceiveError::Peer(failure)) => eprintln!("{failure}"),
            Err(error) => panic!("{error}"),
        }
        if orders.try_next().is_some() {
            say(endpoint.report());
        }
    }
}

/// Sends one message, sees it acknowledged, and does nothing more.
fn send_and_stay(port: u16) {
    let (endpoint, channel, peer) = sender(Config::loopback(), port);
    channel.send(peer, b"stay").unwrap();
    endpoint.flush().unwrap();
    say("sent");
    stand_still();
}

/// Answers requests with twice their first word.
fn double() {
    let endpoint = open(Config::loopback());
    let mut port = ActiveMessages::open(&endpoint, CHANNEL, ActiveMessageOptions::default(), ()).unwrap();
    port.register("double", |(), request, reply| reply.send([2 * request.words[0], 0, 0, 0]).unwrap())
        .unwrap();
    say(endpoint.port());
    loop {
        port.poll_timeout(Duration::MAX).unwrap();
    }
}

/// Throws everything back until the peer closes.
fn pong() {
    crate::two_processors();
    let (endpoint, channel) = receiver(Config::loopback());
    while endpoint.take_failure().is_none() {
        match channel.receive_timeout(LOOK_UP) {
            Ok(message) => {
                channel.send(message.source(), &message).unwrap();
            }
            Err(ReceiveError::TimedOut(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Throws a message and waits for it, so many times. Says who it is, and how long that took, ns.
fn ping(port: u16, rounds: u64) {
    crate::two_processors();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
    say(format!("uid {} capabilities {}", line("Uid:").split_whitespace().next().unwrap(), line("CapEff:")));
    let (endpoint, channel, peer) = sender(Config::loopback(), port);
    let start = Instant::now();
    for round in 0..rounds {
        channel.send(peer, &round.to_le_bytes()).unwrap();
        assert_eq!(channel.receive().unwrap()[..], round.to_le_bytes());
    }
    say(start.elapsed().as_nanos());
    drop(channel);
    endpoint.close().unwrap();
}
