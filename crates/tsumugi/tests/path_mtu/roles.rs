//! What other processes do.

use crate::process::{PATIENCE, say};
use std::time::{Duration, Instant};
use tsumugi::{Config, Endpoint};
use tsumugi_rail::xdp::{self, Access, Pins, PoolOptions};

const PORT: u16 = 7500;

/// Plays a role, given as its name and its settings.
pub(crate) fn play(role: &str) {
    let (name, settings) = role.split_once(' ').unwrap_or((role, ""));
    match name {
        "serve" => serve(settings),
        "send" => send(settings),
        "try" => attempt(settings),
        "up" => {
            let access = Access { owner: None, group: None, mode: 0o600 };
            let options = PoolOptions { endpoints: 1, first_port: PORT, access, ..PoolOptions::default() };
            let nic = word(settings, "nic").expect("a NIC").to_owned();
            let pins = Pins::here().expect("a BPF file system");
            xdp::up(&pins, &[nic], &options).expect("the program is attached");
        }
        "down" => _ = Pins::here().and_then(|pins| xdp::down(&pins, &[])).expect("it is taken away"),
        other => panic!("no role is called '{other}'"),
    }
}

fn word<'a>(settings: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = settings.split(' ').filter_map(|pair| pair.split_once('='));
    pairs.find(|(have, _)| *have == name).map(|(_, value)| value)
}

fn number(settings: &str, name: &str) -> Option<u64> {
    word(settings, name).map(|value| value.parse().expect("a number"))
}

fn open(settings: &str) -> Endpoint {
    let default = Config::default();
    let config = Config::default()
        .port(PORT)
        .bind(word(settings, "bind").map_or(default.bind, |bind| bind.parse().expect("an address")))
        .send(word(settings, "send").map_or(default.send, |word| word.parse().expect("a send path")))
        .receive(
            word(settings, "receive").map_or(default.receive, |word| word.parse().expect("a receive path")),
        )
        .datagram_bytes(number(settings, "datagram").map(|bytes| bytes as u16))
        .peer_timeout(
            number(settings, "peer_timeout_ms").map_or(default.peer_timeout, Duration::from_millis),
        );
    Endpoint::open(config).expect("an endpoint")
}

/// Says what the library logs.
struct Log;

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        say(format!("A logs {}: {}", record.level(), record.args()));
    }
    fn flush(&self) {}
}

/// What message number `number` is.
fn message(number: u64, bytes: usize) -> Vec<u8> {
    let seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut message: Vec<u8> = (0..bytes as u64).map(|at| (seed.wrapping_add(at * at) >> 7) as u8).collect();
    message[..8].copy_from_slice(&number.to_le_bytes());
    message
}

/// Receives messages, each whole and in its turn, until one says that it is the last.
fn serve(settings: &str) {
    let endpoint = open(settings);
    let channel = endpoint.channel(0).expect("it is free");
    let mut received = 0;
    loop {
        let got = channel.receive_timeout(PATIENCE).expect("it arrives");
        if got.len() == 1 {
            break;
        }
        assert_eq!(got[..8], u64::to_le_bytes(received), "message {received}");
        assert!(got[..] == message(received, got.len())[..], "message {received} is another");
        received += 1;
    }
    say(format!("B received {received}"));
    endpoint.close().expect("it closes");
}

/// Sends a message, and says what became of it and when.
fn attempt(settings: &str) {
    let endpoint = open(settings);
    let peer = endpoint.add_peer(word(settings, "to").expect("a peer")).expect("a peer");
    let channel = endpoint.channel(0).expect("it is free");
    let begun = Instant::now();
    channel
        .post(peer, &message(0, number(settings, "bytes").expect("a length") as usize))
        .expect("it is taken");
    let fate = endpoint.close().map_or_else(|error| error.to_string(), |()| "it arrived".to_owned());
    say(format!("A heard {fate}"));
    say(format!("A closed after ms {}", begun.elapsed().as_millis()));
}

/// Sends messages, so many or for so long; says how long datagrams were, and when it was done.
fn send(settings: &str) {
    log::set_logger(&Log).expect("nobody else logs");
    log::set_max_level(log::LevelFilter::Info);
    let endpoint = open(settings);
    let peer = endpoint.add_peer(word(settings, "to").expect("a peer")).expect("a peer");
    let channel = endpoint.channel(0).expect("it is free");
    let bytes = number(settings, "bytes").expect("a length") as usize;
    let (count, begun) = (number(settings, "count"), Instant::now());
    let for_long = Duration::from_millis(number(settings, "for_ms").unwrap_or(u64::MAX));
    let (mut sent, mut sizes) = (0, Vec::new());
    while count.is_none_or(|count| sent < count) && begun.elapsed() < for_long {
        channel.send(peer, &message(sent, bytes)).expect("it is sent");
        sent += 1;
        let size = endpoint.paths(peer)[0].datagram_bytes;
        // Before the first is delivered, the path need not be known.
        if !sizes.contains(&size) && sent > 100 {
            sizes.push(size);
        }
    }
    endpoint.flush().expect("all is delivered");
    say(format!("A delivered after ms {}", begun.elapsed().as_millis()));
    // What is measured of the path goes on for a moment.
    let (carries, until) =
        (number(settings, "carries").unwrap_or(0), Instant::now() + Duration::from_secs(8));
    while endpoint.paths(peer)[0].datagram_bytes < carries as usize && Instant::now() < until {
        let _ = channel.receive_timeout(Duration::from_millis(20));
    }
    say(format!("A sent {sent}"));
    say(format!("A carries {}", endpoint.paths(peer)[0].datagram_bytes));
    let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
    say(format!("A saw {}", sizes.join(" ")));
    say(format!("A reports {}", endpoint.report()));
    let closing = Instant::now();
    channel.send(peer, &[0]).expect("it is sent");
    endpoint.close().expect("it closes");
    say(format!("A closed after ms {}", closing.elapsed().as_millis()));
}
