//! What sending costs per burst, over a veth pair between two nodes: `cargo run --release --example send_cost`, as root.
//!
//! The receiver is a socket that nobody reads, so that the costs are the sender's, and those of the
//! receiving kernel, which veth runs on the sender's core.

use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, setns};
use std::error::Error;
use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant as Clock};
use tsumugi_lab::{Lab, Spec};
use tsumugi_rail::xsk::XskEngine;
use tsumugi_rail::{Engine, Packet, PacketEngine, Rail, RailError, Udp, UdpOptions};
use tsumugi_wire::Instant;

const ROUNDS: usize = 400;
/// Packets of a round, so that reading the clock costs nothing.
const ROUND_PACKETS: usize = 256;
const BURSTS: [(usize, usize); 6] = [(1, 100), (1, 1472), (2, 1472), (4, 1472), (16, 1472), (32, 1472)];

type Send<'a> = dyn FnMut(Instant, SocketAddr, &[Packet<'_>]) -> Result<Option<usize>, RailError> + 'a;

/// What `open` returns in a node's network; sockets that it opens stay there.
fn inside<T: std::marker::Send>(
    lab: &Lab,
    node: usize,
    open: impl FnOnce() -> T + std::marker::Send,
) -> std::io::Result<T> {
    let namespace = File::open(format!("/run/netns/tsu-{}-n{node}", lab.name()))?;
    thread::scope(|scope| {
        let opened = scope.spawn(|| {
            setns(&namespace, CloneFlags::CLONE_NEWNET)?;
            Ok(open())
        });
        opened.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Nanoseconds of one burst: the mean of a round.
fn round(send: &mut Send<'_>, start: Clock, to: SocketAddr, burst: &[Packet<'_>]) -> Result<u128, RailError> {
    let bursts = ROUND_PACKETS / burst.len();
    let began = start.elapsed();
    for _ in 0..bursts {
        let now = Instant(start.elapsed().as_nanos() as u64);
        assert_eq!(send(now, to, burst)?, Some(burst.len()), "the NIC takes everything at once");
    }
    Ok((start.elapsed() - began).as_nanos() / bursts as u128)
}

fn main() -> Result<(), Box<dyn Error>> {
    let lab = Lab::up(&Spec::unique("cost"))?.guarded();
    let (from, to) = (SocketAddr::from(([10, 77, 0, 1], 0)), SocketAddr::from(([10, 77, 0, 2], 7411)));
    let _receiver = inside(&lab, 1, || UdpSocket::bind(to))??;
    let open = |offloads| {
        let options = UdpOptions { address: from.ip(), port: 0, offloads, ..UdpOptions::default() };
        inside(&lab, 0, || Udp::open(&options))
    };
    let (mut segmented, mut plain) = (open(true)??, open(false)??);
    let local = plain.address();
    let mut packet = inside(&lab, 0, || PacketEngine::open(local, 8 << 20))??;
    let nic = inside(&lab, 0, || if_nametoindex("nic0"))??;
    let mut xsk = inside(&lab, 0, || XskEngine::open(local, nic, 0, 256))??;
    xsk.meet(to);
    segmented.meet(to);
    plain.meet(to);
    packet.meet(to);
    let start = Clock::now();
    let one = Packet { head: &[0; 48], body: &[] };
    while packet.send(Instant(start.elapsed().as_nanos() as u64), to, &[one])?.is_none() {
        plain.send(Instant(0), to, &[one])?; // makes the kernel resolve the peer
        thread::sleep(Duration::from_millis(10));
    }
    let mut ways: [(&str, Box<Send<'_>>); 4] = [
        ("udp, one by one", Box::new(|now, to, burst| plain.send(now, to, burst).map(Some))),
        ("udp, segmented", Box::new(|now, to, burst| segmented.send(now, to, burst).map(Some))),
        ("packet", Box::new(|now, to, burst| packet.send(now, to, burst))),
        ("xsk", Box::new(|now, to, burst| xsk.send(now, to, burst))),
    ];
    println!("{:>10}  {:<16} {:>9} {:>9}", "burst", "", "p50, ns", "p10, ns");
    for (packets, bytes) in BURSTS {
        let body = vec![0; bytes - one.head.len()];
        let burst = vec![Packet { head: one.head, body: &body }; packets];
        let mut costs = vec![Vec::new(); ways.len()];
        for _ in 0..ROUNDS {
            for ((_, send), costs) in ways.iter_mut().zip(&mut costs) {
                costs.push(round(send.as_mut(), start, to, &burst)?);
            }
        }
        for ((name, _), costs) in ways.iter().zip(&mut costs) {
            costs.sort_unstable();
            let shown = format!("{packets} x {bytes} B");
            println!("{shown:>10}  {name:<16} {:>9} {:>9}", costs[ROUNDS / 2], costs[ROUNDS / 10]);
        }
    }
    Ok(())
}
