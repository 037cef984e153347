//! What tagged messages cost against a bare channel, and active zero-copy against eager and rendezvous.
//!
//! ```text
//! taskset -c 0,1 cargo run --release --example azc [ROUNDS]
//! ```
//!
//! Pinned to two CPUs, one for each of the two threads that spin. State the load average beside the figures.
//!
//! Two threads, an endpoint each, packets as on Ethernet over the loopback interface. Everything is measured in turn in
//! each round; what counts are the ratios, of which the medians and the middle halves are printed. `auto` does the same as
//! active zero-copy up to 1 MiB: how far that ratio is from 1 says how quiet the machine is.

use std::time::Instant;
use tsumugi::message::{MessageOptions, Pattern, Port, Protocol};
use tsumugi::{Channel, Config, Endpoint, PeerId, Wait};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Round trips of a round, of each kind.
const TRIPS: u64 = 2_000;
/// Messages of a round, of each kind.
const MESSAGES: u64 = 1_000;
/// Receives that are posted ahead.
const AHEAD: usize = 16;

/// How messages travel, and how it is called.
fn contenders() -> Vec<(&'static str, MessageOptions)> {
    let options =
        |protocol, eager_bytes| MessageOptions::default().protocol(protocol).eager_bytes(eager_bytes);
    vec![
        ("active zero-copy", options(Protocol::ActiveZeroCopy, 0)),
        ("eager to 1 KiB, rendezvous", options(Protocol::Rendezvous, 1 << 10)),
        ("eager to 8 KiB, rendezvous", options(Protocol::Rendezvous, 8 << 10)),
        ("eager", options(Protocol::Eager, 0)),
        ("auto", MessageOptions::default()),
    ]
}

/// Longest message of a random mix, or the length of all; and whether each is sent only after the one before was
/// answered for.
const MIXES: [(&str, usize, bool, bool); 8] = [
    ("random to 1 KiB", 1 << 10, true, false),
    ("random to 64 KiB", 64 << 10, true, false),
    ("random to 64 KiB, one by one", 64 << 10, true, true),
    ("4 KiB", 4 << 10, false, false),
    ("64 KiB", 64 << 10, false, false),
    ("64 KiB, one by one", 64 << 10, false, true),
    ("1 MiB, one by one", 1 << 20, false, true),
    ("8 MiB, one by one", 8 << 20, false, true),
];

fn config() -> Config {
    Config::loopback().datagram_bytes(Some(1472)).wait(Wait::Spin)
}

/// The lengths of a mix, the same on both sides.
fn sizes(most: usize, random: bool) -> impl Iterator<Item = usize> {
    let mut state = 7u64;
    let count = (MESSAGES as usize * (64 << 10) / most.max(64 << 10)).max(8);
    (0..count).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if random { (state >> 33) as usize % (most + 1) } else { most }
    })
}

fn main() -> Outcome<()> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(15), |word| word.parse())?;
    let (tell, told) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || -> Outcome<()> {
        let endpoint = Endpoint::open(config())?;
        let channel = endpoint.channel(0)?;
        let mut ports = ports(&endpoint)?;
        tell.send(endpoint.port())?;
        for round in 0..=rounds {
            for _ in 0..TRIPS {
                let message = channel.receive()?;
                channel.send(message.source(), &message)?;
            }
            let port = &mut ports[0].1;
            for _ in 0..TRIPS {
                let mut request = port.receive(Pattern::tagged(1), vec![0; 8].into());
                let message = port.wait(&mut request)?;
                port.send(message.outcome.clone()?.peer, 2, message.data())?;
            }
            for (_, most, random, one_by_one) in MIXES {
                for at in order(round, ports.len()) {
                    take(&mut ports[at].1, most, random, one_by_one)?;
                }
            }
        }
        Ok(endpoint.flush()?)
    });
    let endpoint = Endpoint::open(config())?;
    let peer = endpoint.add_peer(format!("127.0.0.1:{}", told.recv()?))?;
    let mut channel = endpoint.channel(0)?;
    let mut ports = ports(&endpoint)?;
    let mut trips = Vec::new();
    let mut times = vec![vec![Vec::new(); ports.len()]; MIXES.len()];
    for round in 0..=rounds {
        // In the order in which the other side expects them.
        let bare = bare_trips(&mut channel, peer)?;
        let tagged = tagged_trips(&mut ports[0].1, peer)?;
        if round > 0 {
            trips.push(tagged / bare);
        }
        for (mix, (_, most, random, one_by_one)) in MIXES.into_iter().enumerate() {
            for at in order(round, ports.len()) {
                let time = give(&mut ports[at].1, peer, most, random, one_by_one)?;
                // The first round is for caches and congestion windows.
                if round > 0 {
                    times[mix][at].push(time);
                }
            }
        }
    }
    drop(channel);
    println!("tagged round trip of 8 B / the channel's: {}", spread(trips));
    println!("messages per second, active zero-copy / other:");
    for ((name, ..), times) in MIXES.iter().zip(&times) {
        for ((other, _), others) in ports.iter().zip(times).skip(1) {
            let ratios = others.iter().zip(&times[0]).map(|(other, ours)| other / ours).collect();
            println!("  {name:<30} / {other:<28} {}", spread(ratios));
        }
    }
    while !other.is_finished() {
        endpoint.progress()?;
    }
    other.join().map_err(|_| "the other thread panicked")?
}

/// Who has its turn when in a round: everybody is first as often as the others.
fn order(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |at| (at + round) % count)
}

/// A port for each contender.
fn ports(endpoint: &Endpoint) -> Outcome<Vec<(&'static str, Port)>> {
    let open = |(at, (name, options))| Ok((name, Port::open_with(endpoint, at, options)?));
    (1..).zip(contenders()).map(open).collect()
}

fn bare_trips(channel: &mut Channel, peer: PeerId) -> Outcome<f64> {
    let started = Instant::now();
    for _ in 0..TRIPS {
        channel.send(peer, &[7; 8])?;
        channel.receive()?;
    }
    Ok(started.elapsed().as_secs_f64())
}

fn tagged_trips(port: &mut Port, peer: PeerId) -> Outcome<f64> {
    let started = Instant::now();
    for _ in 0..TRIPS {
        let mut answer = port.receive(Pattern::of(peer, 2), vec![0; 8].into());
        port.send(peer, 1, &[7; 8])?;
        port.wait(&mut answer)?.outcome?;
    }
    Ok(started.elapsed().as_secs_f64())
}

/// Sends a mix and returns the time until the last message was received, s.
fn give(port: &mut Port, peer: PeerId, most: usize, random: bool, one_by_one: bool) -> Outcome<f64> {
    let data = vec![7; most];
    let mut ready = port.receive(Pattern::of(peer, 9), vec![0; 1].into());
    port.wait(&mut ready)?.outcome?;
    let mut done = port.receive(Pattern::of(peer, 10), vec![0; 1].into());
    let started = Instant::now();
    let mut under_way = std::collections::VecDeque::new();
    for bytes in sizes(most, random) {
        if under_way.len() == AHEAD {
            let mut first = under_way.pop_front().ok_or("nothing is under way")?;
            port.wait(&mut first)?.outcome?;
        }
        port.wait_for_room(peer, bytes)?;
        let answer = one_by_one.then(|| port.receive(Pattern::of(peer, 4), vec![0; 1].into()));
        under_way.push_back(port.send(peer, 3, &data[..bytes])?);
        if let Some(mut answer) = answer {
            port.wait(&mut answer)?.outcome?;
        }
    }
    for mut request in under_way {
        port.wait(&mut request)?.outcome?;
    }
    port.wait(&mut done)?.outcome?;
    Ok(started.elapsed().as_secs_f64())
}

/// Receives a mix.
fn take(port: &mut Port, most: usize, random: bool, one_by_one: bool) -> Outcome<()> {
    let count = sizes(most, random).count();
    let post = |port: &mut Port, buffer| port.receive(Pattern::tagged(3), buffer);
    let mut posted: std::collections::VecDeque<_> =
        (0..AHEAD.min(count)).map(|_| post(port, vec![0; most].into())).collect();
    let peer = PeerId(0);
    port.send(peer, 9, b"!")?;
    let mut left = count - posted.len();
    while let Some(mut request) = posted.pop_front() {
        let message = port.wait(&mut request)?;
        message.outcome?;
        if one_by_one {
            port.send(peer, 4, b"!")?;
        }
        if left > 0 {
            left -= 1;
            posted.push_back(post(port, message.buffer.ok_or("a receive has a buffer")?));
        }
    }
    port.send(peer, 10, b"!")?;
    Ok(())
}

/// The median, and the middle half.
fn spread(mut ratios: Vec<f64>) -> String {
    ratios.sort_unstable_by(f64::total_cmp);
    let at = |share: usize| ratios[(ratios.len() - 1) * share / 4];
    format!("{:.2} ({:.2} to {:.2})", at(2), at(1), at(3))
}
