//! What a page of a remote write costs the receiving side when it is translated and when it is not, without a NIC:
//! `cargo run --release --example translation_cost`, as root.
//!
//! A hit is a run of the XDP program that writes the data where they belong. A miss is a run that deposits
//! them, and the owner's work: it reads the record, compares the CRC, writes the data, and installs the page's translation in
//! the place of another. The program is run by `BPF_PROG_TEST_RUN`; what reading the clock adds to a single run is measured
//! and taken off.

#[path = "../benches/tray/mod.rs"]
mod tray;

use std::error::Error;
use std::net::SocketAddr;
use std::time::Instant as Clock;
use tray::{Tray, options};
use tsumugi::internal::Core;
use tsumugi::{PeerId, Region, Replacement, Rights, Target};
use tsumugi_rail::RailError;
use tsumugi_rail::memory::Memory;
use tsumugi_rail::xdp::{Action, Receiver};
use tsumugi_wire::Instant;
use tsumugi_wire::atomic::Ordering;
use tsumugi_wire::memory::Geometry;
use tsumugi_wire::time::{MICROSECOND_NS, MILLISECOND_NS};

const PORT: u16 = 7411;
const PAGE: u64 = 4096;
const PAGES: u32 = 64;
const TRANSLATIONS: u32 = 16;
/// Packets that a page takes.
const PACKETS: u64 = 3;
const RUNS: usize = 20_000;

struct Side {
    core: Core,
    tray: Tray,
}

impl Side {
    fn new(address: &str, memory: Memory) -> Side {
        Side { core: Core::new(options(), memory), tray: Tray::new(address) }
    }

    /// What it would send now.
    fn leaving(&mut self, now: Instant) -> Result<Vec<Vec<u8>>, RailError> {
        self.core.transmit(now, &mut self.tray)?;
        Ok(std::mem::take(&mut self.tray.datagrams))
    }

    fn take(&mut self, now: Instant, from: SocketAddr, datagrams: Vec<Vec<u8>>) {
        for datagram in datagrams {
            self.core.on_datagram(now, from, &datagram);
        }
        self.core.drain(now);
        self.core.tick(now);
    }
}

/// A frame with a packet for the endpoint: Ethernet, IPv4 and UDP, as far as the program looks at them.
fn frame(packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 42];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&(packet.len() as u16 + 28).to_be_bytes());
    frame[23] = 17;
    frame[36..38].copy_from_slice(&PORT.to_be_bytes());
    frame[38..40].copy_from_slice(&(packet.len() as u16 + 8).to_be_bytes());
    frame.extend_from_slice(packet);
    frame
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

struct Bench {
    receiver: Receiver,
    writer: Side,
    target: Side,
    peer: PeerId,
    window: Target,
    now: Instant,
    page: Region,
    out: Vec<u8>,
    /// What a single run is said to take too much, and a look at the clock here takes, ns.
    run_extra_ns: f64,
    look_ns: f64,
}

impl Bench {
    fn new(replacement: Replacement) -> Result<Bench, Box<dyn Error>> {
        let geometry =
            Geometry { window_pages: PAGES, translations: TRANSLATIONS, ..Geometry::plain(8, 1 << 20) };
        let mut receiver = Receiver::load(geometry)?;
        let mut target = Side::new("10.0.0.2:7411", receiver.endpoint(PORT)?.memory);
        target.core.set_replacement(replacement);
        // Nobody has the endpoint's socket, and nobody looks for it.
        target.core.receive_memory().control().checked_at.store(i64::MAX as u64, Ordering::Relaxed);
        let mut writer = Side::new("10.0.0.1:7411", Memory::new(Geometry::plain(8, 1 << 20))?);
        let region = target.core.lend_window(PAGES as usize * PAGE as usize).ok_or("no window")?;
        let window =
            Target { key: target.core.register(region.all(), Rights::WRITE), address: region.address() };
        let peer = writer.core.add_peer("target", target.tray.address)?;
        let mut out = vec![0; 4096];
        let other = {
            let mut other = frame(&[0; 64]);
            other[37] ^= 1;
            other
        };
        let many_ns = receiver.run(&other, &mut out, 1_000_000)?.duration.as_nanos() as f64;
        let single = (0..RUNS).map(|_| Ok(receiver.run(&other, &mut out, 1)?.duration.as_nanos() as f64));
        let run_extra_ns = median(single.collect::<Result<_, Box<dyn Error>>>()?) - many_ns;
        let look_ns = median((0..RUNS).map(|_| Clock::now().elapsed().as_nanos() as f64).collect());
        let mut now = Instant(1);
        writer.core.remote_write_bytes(now, peer, window, &[1])?;
        while !writer.core.view(peer).is_some_and(|view| view.open && view.outstanding == 0) {
            now = now.plus(MILLISECOND_NS);
            let packets = writer.leaving(now)?;
            target.take(now, writer.tray.address, packets);
            let packets = target.leaving(now)?;
            writer.take(now, target.tray.address, packets);
        }
        let page = Region::new(PAGE as usize)?;
        Ok(Bench { receiver, writer, target, peer, window, now, page, out, run_extra_ns, look_ns })
    }

    /// A write of a page, in three packets: the runs of the program and the owner's work, ns each.
    fn write(&mut self, page: u64) -> Result<(f64, f64), Box<dyn Error>> {
        self.now = self.now.plus(5 * MICROSECOND_NS);
        let now = self.now;
        self.writer.core.remote_write(now, self.peer, self.window.plus(page * PAGE), &self.page.all())?;
        let mut run_ns = 0.0;
        let mut passed = Vec::new();
        for packet in self.writer.leaving(now)? {
            let run = self.receiver.run(&frame(&packet), &mut self.out, 1)?;
            match run.action {
                Action::Pass => passed.push(packet),
                Action::Transmit => {
                    let answer = self.out[42..run.frame_bytes].to_vec();
                    self.writer.take(now, self.target.tray.address, vec![answer]);
                    run_ns += run.duration.as_nanos() as f64 - self.run_extra_ns;
                }
                _ => run_ns += run.duration.as_nanos() as f64 - self.run_extra_ns,
            }
        }
        let from = self.writer.tray.address;
        for packet in passed {
            self.target.core.on_datagram(now, from, &packet);
        }
        let start = Clock::now();
        self.target.core.drain(now);
        let drain_ns = start.elapsed().as_nanos() as f64 - self.look_ns;
        self.target.core.tick(now);
        let answers = self.target.leaving(now)?;
        self.writer.take(now, self.target.tray.address, answers);
        Ok((run_ns, drain_ns))
    }

    /// Writes pages in turn: what a page costs, ns, and how many of the packets were written directly.
    fn cost(&mut self, pages: u64) -> Result<(f64, u64), Box<dyn Error>> {
        for page in 0..2 * pages {
            self.write(page % pages)?;
        }
        let before = self.target.core.counters().get("direct_writes");
        let (mut times, mut direct_writes) = (Vec::new(), before);
        for number in 0..RUNS as u64 {
            let (run_ns, drain_ns) = self.write(number % pages)?;
            let direct_writes_before =
                std::mem::replace(&mut direct_writes, self.target.core.counters().get("direct_writes"));
            // Where everything was written directly the owner had nothing to do: it need not even run.
            times.push(if direct_writes == direct_writes_before + PACKETS {
                run_ns
            } else {
                run_ns + drain_ns
            });
        }
        Ok((median(times), direct_writes - before))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{TRANSLATIONS} translations; a page at a time, the next of so many");
    for &replacement in Replacement::ALL {
        let mut bench = Bench::new(replacement)?;
        let (hit_ns, hits) = bench.cost(u64::from(TRANSLATIONS))?;
        let (miss_ns, lucky) = bench.cost(u64::from(PAGES))?;
        println!(
            "{replacement:6} {TRANSLATIONS} pages {hit_ns:.0} ns ({hits} of {} packets written directly), {PAGES} pages {miss_ns:.0} ns ({lucky} written directly): {:.1}",
            RUNS as u64 * PACKETS,
            miss_ns / hit_ns
        );
    }
    Ok(())
}
