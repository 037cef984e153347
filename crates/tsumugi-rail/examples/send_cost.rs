//! What sending costs per burst, over a veth pair between two nodes: `cargo run --release --example send_cost`, as root.
//!
//! The receiver is a socket that nobody reads; with `--xdp`, it is the XDP program, which deposits every
//! packet. So the costs are the sender's and those of the receiving kernel, which veth runs on the sender's core.
//! `--mtu BYTES` and `--offloads off` are those of `tsumugi lab up`.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant as Clock};
use tsumugi_lab::{Lab, Spec};
use tsumugi_rail::nics::index_of;
use tsumugi_rail::xdp::{self, Claim, Pins, PoolOptions, Wanted, XdpError};
use tsumugi_rail::xsk::XskSendPath;
use tsumugi_rail::{Packet, PacketSendPath, Rail, RailError, SendPath, Udp, UdpOptions};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::memory::Counter;
use tsumugi_wire::{Flags, Header, Instant, Kind, Psn};

type Failure = Box<dyn Error>;

const ROUNDS: usize = 400;
/// Of a round, so that reading the clock costs nothing.
const ROUND_PACKETS: usize = 256;
const ROUND_BYTES: usize = 400_000;
/// Packets of a burst, as far as its bytes allow.
const PACKETS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const BURST_BYTES: usize = 65_507;
const IPV4_UDP_BYTES: usize = 28;
const NIC: &str = "nic0";
const PORT: u16 = 7411;
const TOKEN: u64 = 0x1234_5678;
const EPOCH: u32 = 7;
const FLOW: u32 = 3;
/// What the receiving process is called with.
const RECEIVE: &str = "--receive";

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
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(open())
        });
        opened.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Who gets the packets.
enum Receiver {
    Socket { _unread: UdpSocket },
    Xdp { asks: ChildStdin, answers: BufReader<ChildStdout> },
}

impl Receiver {
    fn start(lab: &Lab, to: SocketAddr, xdp: bool) -> Result<Receiver, Failure> {
        if !xdp {
            return Ok(Receiver::Socket { _unread: inside(lab, 1, || UdpSocket::bind(to))?? });
        }
        let mut command = lab.command(1, std::env::current_exe()?)?;
        let mut child = command.arg(RECEIVE).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (asks, answers) = (child.stdin.take().ok_or("no pipe")?, child.stdout.take().ok_or("no pipe")?);
        let mut receiver = Receiver::Xdp { asks, answers: BufReader::new(answers) };
        receiver.wait_for(0)?;
        Ok(receiver)
    }

    /// Has everything read, and fails unless so many packets have been deposited since the beginning.
    fn wait_for(&mut self, sent: u64) -> Result<(), Failure> {
        let Receiver::Xdp { asks, answers } = self else { return Ok(()) };
        asks.write_all(b"\n")?;
        let mut answer = String::new();
        answers.read_line(&mut answer)?;
        let deposited: u64 = answer.trim().parse()?;
        if deposited == sent {
            Ok(())
        } else {
            Err(format!("{deposited} of {sent} packets deposited").into())
        }
    }
}

/// The receiving process: attaches the program, and reads what was deposited whenever it is asked to.
fn receive() -> Result<(), Failure> {
    let pins = Pins::here()?;
    let options = PoolOptions { first_port: PORT, endpoints: 1, ..PoolOptions::default() };
    xdp::up(&pins, &[NIC.to_owned()], &options)?;
    let claimed = Claim::take(&pins, Wanted::Any, |_| Ok::<_, XdpError>(Some(())))?;
    let (claim, ()) = claimed.ok_or("the endpoint is taken")?;
    let memory = claim.memory()?;
    let flow = memory.flow(FLOW).ok_or("no such flow")?;
    flow.epoch.store(EPOCH, Ordering::Relaxed);
    flow.limit.store(u64::MAX, Ordering::Relaxed);
    flow.peer_token.store(1, Ordering::Relaxed);
    flow.token.store(TOKEN, Ordering::Release);
    let control = memory.control();
    // Nobody has the endpoint's socket, and nobody looks for it.
    control.checked_at.store(i64::MAX as u64, Ordering::Relaxed);
    control.epoch.store(9, Ordering::Release);
    for line in std::io::stdin().lines() {
        line?;
        control.ring_tail.0.store(control.ring_head.0.load(Ordering::Acquire), Ordering::Release);
        println!("{}", control.counters.0[Counter::Deposited as usize].load(Ordering::Relaxed));
    }
    Ok(())
}

/// Nanoseconds of one burst: the mean of a round.
fn round(
    send: &mut Send<'_>,
    start: Clock,
    to: SocketAddr,
    packets: &[Packet<'_>],
    burst: usize,
) -> Result<u128, RailError> {
    let began = start.elapsed();
    for burst in packets.chunks(burst) {
        let now = Instant(start.elapsed().as_nanos() as u64);
        assert_eq!(send(now, to, burst)?, Some(burst.len()), "the NIC takes everything at once");
    }
    Ok((start.elapsed() - began).as_nanos() / (packets.len() / burst) as u128)
}

/// Headers of DATA packets from PSN `first` on.
fn headers(first: u64, count: usize, body_bytes: usize) -> Vec<[u8; HEADER_BYTES]> {
    let mut header = Header::new(Kind::Data, EPOCH);
    (header.token, header.flow, header.flags) = (TOKEN, FLOW, Flags(0));
    header.body_bytes = body_bytes as u16;
    let encode = |psn| {
        header.psn = Psn(psn);
        header.encode()
    };
    (first..first + count as u64).map(encode).collect()
}

/// What to measure on; `None`: this is the receiving process.
fn options() -> Result<Option<(Spec, bool)>, Failure> {
    let (mut spec, mut xdp) = (Spec::unique("cost"), false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            RECEIVE => return Ok(None),
            "--xdp" => xdp = true,
            "--mtu" => spec.mtu = arguments.next().ok_or("--mtu of how many bytes?")?.parse()?,
            "--offloads" => spec.offloads = arguments.next().ok_or("--offloads on or off?")? != "off",
            other => return Err(format!("{other}: choose --mtu BYTES, --offloads off, --xdp").into()),
        }
    }
    Ok(Some((spec, xdp)))
}

/// Numbers and lengths of the packets of a burst: short ones, and the longest.
fn bursts(longest: usize) -> Vec<(usize, usize)> {
    let of = |bytes| PACKETS.map(|packets| (packets.min(BURST_BYTES / bytes), bytes));
    let mut bursts = [of(100), of(longest)].concat();
    bursts.dedup();
    bursts
}

fn main() -> Result<(), Failure> {
    let Some((spec, xdp)) = options()? else { return receive() };
    let lab = Lab::up(&spec)?.guarded();
    let (from, to) = (SocketAddr::from(([10, 77, 0, 1], 0)), SocketAddr::from(([10, 77, 0, 2], PORT)));
    let mut receiver = Receiver::start(&lab, to, xdp)?;
    let socket = |offloads| {
        let options = UdpOptions { address: from.ip(), port: 0, offloads, ..UdpOptions::default() };
        inside(&lab, 0, || Udp::open(&options))
    };
    let (mut segmented, mut plain) = (socket(true)??, socket(false)??);
    let local = plain.address();
    let open = || inside(&lab, 0, || PacketSendPath::open(local, 8 << 20));
    let (mut alone, mut packet) = (open()??, open()??);
    let nic = inside(&lab, 0, || index_of(NIC))?.ok_or("no NIC")?;
    let mut xsk = inside(&lab, 0, || XskSendPath::open(local, nic, 0, 256))??;
    segmented.connect(to);
    plain.connect(to);
    let start = Clock::now();
    let one = [Packet { head: &[0; HEADER_BYTES], body: &[] }];
    for send_path in [&mut alone as &mut dyn SendPath, &mut packet, &mut xsk] {
        send_path.connect(to, None);
        while send_path.send(Instant(start.elapsed().as_nanos() as u64), to, &one)?.is_none() {
            plain.send(Instant(0), to, &one)?; // makes the kernel resolve the peer
            thread::sleep(Duration::from_millis(10));
        }
    }
    let mut methods: [(&str, Box<Send<'_>>); 5] = [
        ("udp, one by one", Box::new(|now, to, burst| plain.send(now, to, burst).map(Some))),
        ("udp, segmented", Box::new(|now, to, burst| segmented.send(now, to, burst).map(Some))),
        (
            "packet, one by one",
            Box::new(|now, to, burst| burst.chunks(1).map(|one| alone.send(now, to, one)).sum()),
        ),
        ("packet", Box::new(|now, to, burst| packet.send(now, to, burst))),
        ("xsk", Box::new(|now, to, burst| xsk.send(now, to, burst))),
    ];
    println!("{:>12}  {:<18} {:>9} {:>9}", "burst", "", "p50, ns", "p10, ns");
    let mut sent = 0;
    for (packets, bytes) in bursts(spec.mtu as usize - IPV4_UDP_BYTES) {
        let body_bytes = bytes - HEADER_BYTES;
        let message = vec![0x5a; packets * body_bytes];
        let bodies = message.chunks(body_bytes).cycle();
        let count = ROUND_PACKETS.min(ROUND_BYTES / bytes) / packets * packets;
        let mut costs = vec![Vec::new(); methods.len()];
        for _ in 0..ROUNDS {
            for ((_, send), costs) in methods.iter_mut().zip(&mut costs) {
                let heads = headers(sent, count, body_bytes);
                let load = heads.iter().zip(bodies.clone()).map(|(head, body)| Packet { head, body });
                let load: Vec<Packet<'_>> = load.collect();
                costs.push(round(send.as_mut(), start, to, &load, packets)?);
                sent += count as u64;
                receiver.wait_for(sent)?;
            }
        }
        for ((name, _), costs) in methods.iter().zip(&mut costs) {
            costs.sort_unstable();
            let shown = format!("{packets} x {bytes} B");
            println!("{shown:>12}  {name:<18} {:>9} {:>9}", costs[ROUNDS / 2], costs[ROUNDS / 10]);
        }
    }
    Ok(())
}
