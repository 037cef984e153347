//! Measuring: two threads, each in a node of its own and on a CPU of its own, that do the same things in the same order.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use tsumugi::PeerId;
use tsumugi_lab::Lab;
use tsumugi_lab::interrupt::interrupted;
use tsumugi_rail::copy::{self, Staging};

use super::super::bare::{Link, PORT, connected};
use super::super::timing::{clock_ns, median_ns, paced};
use super::super::wires::{MTU_BYTES, lab};
use super::bare::Bare;
use super::parts::{LongCosts, Round};
use super::talk::{Sample, Talker};
use super::{CostsError, PATIENCE, Sides};
use crate::cpu::{Cpus, allowed, pin};

/// Round trips of one conversation.
const ROUND_TRIPS: usize = 1500;
/// Copies and checksums of a round.
const TIMES: usize = 300;
/// Bytes of a message in a packet, as the library cuts them for such NICs.
const PACKET_BYTES: usize = 1400;

/// What node 1 tells node 0.
enum Word {
    /// UDP port of its endpoint for the size at hand.
    Port(u16),
    /// It accepts TCP connections.
    Listening,
    /// What it noted in a conversation.
    Noted(Vec<Sample>),
}

/// Costs of each size.
pub(super) fn measure(
    rounds: u32,
    sizes: &[u64],
    sides: &Sides,
    mut progress: impl FnMut(u32, &str) + Send,
) -> Result<Vec<LongCosts>, CostsError> {
    let [first, second, ..] = allowed().0[..] else { return Err(CostsError::OneCpu) };
    let lab = lab(1)?;
    let lab: &Lab = &lab;
    let (words, said) = channel();
    thread::scope(|scope| {
        // Each has its end of the channel for itself: when one ends, the other notices.
        let there = scope.spawn(move || answer(lab, second, rounds, sizes, sides, &words));
        let progress = &mut progress;
        let here = scope.spawn(move || ask(lab, first, rounds, sizes, sides, &said, progress));
        let asked = here.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let answered = there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (asked, answered) {
            // Node 1's own words are the better explanation.
            (Err(CostsError::Gone), Err(error)) => Err(error),
            (asked, _) => asked,
        }
    })
}

/// Moves this thread to a CPU and into a node; the addresses of this node and of the other.
fn enter(lab: &Lab, node: usize, cpu: usize) -> Result<[IpAddr; 2], CostsError> {
    pin(&Cpus(vec![cpu])).map_err(CostsError::failed("choosing a CPU"))?;
    lab.enter(node)?;
    let address = |node: usize| lab.nodes()[node].nics[0].address.into();
    Ok([address(node), address(1 - node)])
}

fn udp([here, there]: [IpAddr; 2]) -> Result<Bare, CostsError> {
    let on = |address| SocketAddr::new(address, PORT);
    let link = Link { nic: 0, mtu_bytes: MTU_BYTES as usize, here: on(here), there: on(there) };
    let socket = connected(&link).map_err(CostsError::failed("opening a UDP socket"))?;
    Bare::udp(socket, MTU_BYTES as usize)
}

/// The thread in node 1.
fn answer(
    lab: &Lab,
    cpu: usize,
    rounds: u32,
    sizes: &[u64],
    sides: &Sides,
    words: &Sender<Word>,
) -> Result<(), CostsError> {
    let addresses = enter(lab, 1, cpu)?;
    let say = |word| words.send(word).map_err(|_| CostsError::Gone);
    let mut udp = udp(addresses)?;
    let failed = || CostsError::failed("accepting a TCP connection");
    let listener = TcpListener::bind(SocketAddr::new(addresses[0], PORT)).map_err(failed())?;
    say(Word::Listening)?;
    let (stream, _) = listener.accept().map_err(failed())?;
    let mut tcp = Bare::tcp(stream)?;
    let mut talkers = Vec::new();
    for size in sizes {
        let talker = Talker::open(addresses[0], *size as usize)?;
        sides.add(1, talker.endpoint());
        say(Word::Port(talker.port()))?;
        talker.answer(ROUND_TRIPS)?;
        talkers.push(talker);
    }
    for _ in 0..rounds {
        for (talker, size) in talkers.iter().zip(sizes) {
            let mut message = Staging::new(*size as usize, 0x5a);
            udp.answer(&mut message, ROUND_TRIPS)?;
            talker.answer(ROUND_TRIPS)?;
            talker.note(true);
            say(Word::Noted(talker.answer(ROUND_TRIPS)?))?;
            tcp.answer(&mut message, ROUND_TRIPS)?;
        }
    }
    Ok(())
}

/// The thread in node 0.
fn ask(
    lab: &Lab,
    cpu: usize,
    rounds: u32,
    sizes: &[u64],
    sides: &Sides,
    said: &Receiver<Word>,
    progress: &mut (impl FnMut(u32, &str) + Send),
) -> Result<Vec<LongCosts>, CostsError> {
    let addresses = enter(lab, 0, cpu)?;
    let hear = || said.recv().map_err(|_| CostsError::Gone);
    let mut udp = udp(addresses)?;
    let Word::Listening = hear()? else { return Err(CostsError::Gone) };
    let stream = TcpStream::connect_timeout(&SocketAddr::new(addresses[1], PORT), PATIENCE);
    let mut tcp = Bare::tcp(stream.map_err(CostsError::failed("connecting by TCP"))?)?;
    let mut talkers: Vec<(Talker, PeerId, Vec<Round>)> = Vec::new();
    for size in sizes {
        let Word::Port(port) = hear()? else { return Err(CostsError::Gone) };
        let talker = Talker::open(addresses[0], *size as usize)?;
        sides.add(0, talker.endpoint());
        let peer = talker.add_peer(SocketAddr::new(addresses[1], port))?;
        // The first conversation warms everything up, and opens the window.
        talker.ask(peer, ROUND_TRIPS)?;
        talkers.push((talker, peer, Vec::new()));
    }
    let clock_ns = clock_ns();
    for round in 0..rounds {
        for ((talker, peer, measured), size) in talkers.iter_mut().zip(sizes) {
            if interrupted() {
                return Err(CostsError::Interrupted);
            }
            progress(round, &crate::sizes::show(*size));
            let mut message = Staging::new(*size as usize, 0x5a);
            let mut udp_times = udp.ask(&mut message, ROUND_TRIPS)?;
            let samples = talker.ask(*peer, ROUND_TRIPS)?;
            let mut round_trips: Vec<u64> =
                samples.windows(2).map(|two| (two[1].posted - two[0].posted).as_nanos() as u64).collect();
            talker.note(true);
            let here = talker.ask(*peer, ROUND_TRIPS)?;
            let Word::Noted(there) = hear()? else { return Err(CostsError::Gone) };
            let mut tcp_times = tcp.ask(&mut message, ROUND_TRIPS)?;
            measured.push(Round {
                round_trip: median_ns(&mut round_trips),
                udp: median_ns(&mut udp_times),
                tcp: median_ns(&mut tcp_times),
                copy: copied(&message, clock_ns),
                crc: summed(&message, clock_ns),
                ..Round::of(&here, &there)
            });
        }
    }
    let costs = talkers.iter().zip(sizes);
    Ok(costs.map(|((.., measured), size)| LongCosts::of(*size, measured)).collect())
}

/// Copying the bytes once, as the library does, ns.
fn copied(message: &[u8], clock_ns: f64) -> f64 {
    let mut to = Staging::new(message.len(), 0);
    paced(TIMES, clock_ns, &mut to, |_| {}, |to| copy::fill(message, to))
}

/// The CRC32C of the bytes, packet by packet, ns.
fn summed(message: &[u8], clock_ns: f64) -> f64 {
    let crc = |sum: &mut u32| {
        *sum ^= message.chunks(PACKET_BYTES).fold(0, |sum, packet| sum ^ tsumugi::internal::crc32c(packet));
    };
    let mut sum = Instant::now().elapsed().subsec_nanos(); // nothing that a compiler knows
    let ns = paced(TIMES, clock_ns, &mut sum, |_| {}, crc);
    std::hint::black_box(sum);
    ns
}
