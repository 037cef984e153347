//! Those who use the NIC for something else, and those who mean harm.

use super::Settings;
use crate::cluster::{NIC, PORT};
use crate::process::{Orders, PATIENCE, say};
use crc_fast::CrcAlgorithm;
use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;
use tsumugi_wire::handshake::{Offer, Repeat};
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::{Header, Kind, Psn};

/// Bytes of a TCP exchange.
const BLOCK_BYTES: usize = 16 << 10;

/// Sends back what it receives by TCP.
pub(super) fn tcp_echo(settings: &Settings<'_>) {
    let listener = TcpListener::bind(settings.get::<SocketAddr>("at").unwrap()).unwrap();
    say("listening");
    let (mut stream, _) = listener.accept().unwrap();
    let mut block = vec![0; BLOCK_BYTES];
    while stream.read_exact(&mut block).is_ok() {
        stream.write_all(&block).unwrap();
    }
}

/// Sends by TCP and compares what comes back. Says after how many exchanges when asked.
pub(super) fn tcp_talk(settings: &Settings<'_>) {
    let mut stream = TcpStream::connect(settings.get::<SocketAddr>("to").unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let orders = Orders::listen();
    let mut block = vec![0; BLOCK_BYTES];
    for number in 0u64.. {
        let sent = crate::messages::payload(0, number, BLOCK_BYTES);
        stream.write_all(&sent).unwrap();
        stream.read_exact(&mut block).unwrap();
        assert!(block == sent, "exchange {number} is altered");
        if orders.try_next().is_some() {
            say(number);
        }
    }
}

/// Where the IPv4 header begins in a frame, then UDP's, then what that carries.
const IP: usize = 14;
const UDP: usize = 34;
const PAYLOAD: usize = 42;

/// What is done to a packet that was overheard.
#[derive(Clone, Copy, Debug)]
enum Harm {
    WrongToken,
    WrongEpoch,
    UnknownFlow,
    /// Less than it says.
    Truncated,
    /// Anything at all.
    Random,
    /// One bit of the header is another.
    Damaged,
    /// Sent again.
    Replayed,
    /// Far ahead of its turn.
    Beyond,
    /// One fragment of a datagram, and none of the others.
    Fragment,
    /// UDP says more than there is, or less than its own header.
    UdpLength,
    /// IP says more than there is.
    IpLength,
    /// A HELLO from nobody.
    Hello,
}

impl Harm {
    const ALL: [Harm; 12] = [
        Harm::WrongToken,
        Harm::WrongEpoch,
        Harm::UnknownFlow,
        Harm::Truncated,
        Harm::Random,
        Harm::Damaged,
        Harm::Replayed,
        Harm::Beyond,
        Harm::Fragment,
        Harm::UdpLength,
        Harm::IpLength,
        Harm::Hello,
    ];

    /// What counts it: the receive memory, or the kernel.
    const fn counter(self) -> &'static str {
        match self {
            Harm::WrongToken => "wrong_token",
            Harm::WrongEpoch => "wrong_epoch",
            Harm::UnknownFlow => "unknown_flow",
            Harm::Truncated | Harm::Random | Harm::Damaged => "malformed",
            Harm::Replayed => "duplicate",
            Harm::Beyond => "beyond_bitmap",
            Harm::Fragment => "ReasmReqds",
            Harm::UdpLength => "InErrors",
            Harm::IpLength => "InTruncatedPkts",
            Harm::Hello => "handshake_refused",
        }
    }

    /// The frame that does it, made from one that was overheard.
    fn done_to(self, overheard: &[u8], random: &mut Random) -> Vec<u8> {
        let payload = &overheard[PAYLOAD..];
        let (header, body, _) = Header::decode(payload).expect("a packet");
        let made = |change: &dyn Fn(&mut Header)| {
            let mut header = header;
            change(&mut header);
            frame(overheard, &[&header.encode(), body].concat())
        };
        let number = random.next();
        match self {
            Harm::WrongToken => made(&|header| header.token ^= number | 1),
            Harm::WrongEpoch => made(&|header| header.epoch = header.epoch.wrapping_add(1).max(1)),
            // With the right token it would be believed: the packet that was overheard is as good as a secret that
            // was betrayed.
            Harm::UnknownFlow => made(&|header| {
                header.token ^= number | 1;
                header.flow = 1024 + (number % 1000) as u32 * 999;
            }),
            Harm::Truncated => frame(overheard, &payload[..number as usize % payload.len()]),
            Harm::Random => loop {
                let bytes: Vec<u8> = (0..number % 1400).map(|_| random.next() as u8).collect();
                // What may be another version's HELLO goes on to the owner's socket, where there need not be room.
                if !matches!(Header::kind_in_any_version(&bytes), Some(Kind::Hello | Kind::Reset)) {
                    break frame(overheard, &bytes);
                }
            },
            Harm::Damaged => {
                let mut damaged = payload.to_vec();
                damaged[number as usize % HEADER_BYTES] ^= 1 << (number >> 32 & 7);
                frame(overheard, &damaged)
            }
            Harm::Replayed => overheard.to_vec(),
            Harm::Beyond => made(&|header| header.psn = Psn(header.psn.0 + (1 << 40) + (number >> 40))),
            Harm::Fragment => {
                let mut fragment = frame(overheard, payload);
                fragment[IP + 4..IP + 6].copy_from_slice(&(number as u16).to_be_bytes());
                // Its offset, and that more follow.
                let place = [0x2000, 0x0080, 0x2080][number as usize % 3];
                fragment[IP + 6..IP + 8].copy_from_slice(&u16::to_be_bytes(place));
                checked(fragment)
            }
            Harm::UdpLength => {
                let mut frame = frame(overheard, payload);
                let length = if number & 1 == 0 { number as u16 % 8 } else { 60_000 };
                frame[UDP + 4..UDP + 6].copy_from_slice(&length.to_be_bytes());
                frame
            }
            Harm::IpLength => {
                let mut frame = frame(overheard, payload);
                frame[IP + 2..IP + 4].copy_from_slice(&(2000 + (number as u16 & 0x7fff)).to_be_bytes());
                checked(frame)
            }
            Harm::Hello => frame(overheard, &hello(number)),
        }
    }
}

/// A HELLO of another job, with a cookie that nobody has given.
fn hello(number: u64) -> Vec<u8> {
    let offer = Offer {
        job: number | 1,
        nonce: number,
        cookie: number,
        token: number,
        flow: 0,
        repeat: Repeat::Selective,
        listens: false,
        trusts_wire: false,
        datagram_bytes: 1472,
        message_bytes_max: 1 << 20,
    };
    let body = offer.encode();
    let body_crc = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, &body) as u32;
    let header = Header::new(Kind::Hello, (number | 1) as u32);
    let header = Header { body_bytes: body.len() as u16, body_crc, ..header };
    [&header.encode()[..], &body].concat()
}

/// The frame that was overheard with another payload.
fn frame(overheard: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut frame = [&overheard[..PAYLOAD], payload].concat();
    let bytes = |from: usize| ((PAYLOAD - from + payload.len()) as u16).to_be_bytes();
    frame[IP + 2..IP + 4].copy_from_slice(&bytes(IP));
    frame[UDP + 4..UDP + 6].copy_from_slice(&bytes(UDP));
    // UDP over IPv4 needs none.
    frame[UDP + 6..UDP + 8].fill(0);
    checked(frame)
}

/// The frame with the right checksum in its IPv4 header.
fn checked(mut frame: Vec<u8>) -> Vec<u8> {
    frame[IP + 10..IP + 12].fill(0);
    let words = frame[IP..UDP].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Numbers as by chance (xorshift64, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Overhears a packet to the other node and floods that node with what can be made of it. Says how many frames the
/// NIC has taken of what each counter counts.
pub(super) fn attack(settings: &Settings<'_>) {
    let frames: usize = settings.get("frames").unwrap();
    let socket = packet_socket();
    let overheard = overhear(&socket);
    // If it was refused for want of room, it has arrived by then, and is a duplicate when it comes again.
    std::thread::sleep(Duration::from_millis(300));
    let mut random = Random(0x7375_6d75_6769);
    let crafted: Vec<(Harm, Vec<u8>)> = (0..4096)
        .map(|nth| Harm::ALL[nth % Harm::ALL.len()])
        .map(|harm| (harm, harm.done_to(&overheard, &mut random)))
        .collect();
    let mut taken = BTreeMap::<&str, u64>::new();
    for (harm, frame) in crafted.iter().cycle().take(frames) {
        // The NIC's queue is full: it says so, and has not taken the frame.
        while let Err(error) = socket.send(frame) {
            assert!(
                error.raw_os_error() == Some(libc::ENOBUFS) || error.kind() == ErrorKind::WouldBlock,
                "{error}"
            );
            std::thread::yield_now();
        }
        *taken.entry(harm.counter()).or_default() += 1;
    }
    let told: Vec<String> = taken.iter().map(|(counter, frames)| format!("{counter}={frames}")).collect();
    say(told.join(" "));
}

/// A packet to the other node's endpoint.
fn overhear(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 2048];
    loop {
        let bytes = socket.recv(&mut buffer).unwrap();
        let frame = &buffer[..bytes];
        let is_udp = bytes > PAYLOAD && frame[12..14] == [8, 0] && frame[IP + 9] == 17;
        if is_udp && frame[UDP + 2..UDP + 4] == PORT.to_be_bytes() {
            match Header::decode(&frame[PAYLOAD..]) {
                Ok((header, ..)) if header.kind == Kind::Data && header.body_bytes > 100 => {
                    return frame.to_vec();
                }
                _ => {}
            }
        }
    }
}

/// A socket that sends and receives whole frames on the NIC. Its type is another's, who knows no address either once
/// it is bound.
fn packet_socket() -> UdpSocket {
    let socket =
        socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, Some(eth::ALL)).unwrap();
    let index = std::fs::read_to_string(format!("/sys/class/net/{NIC}/ifindex")).unwrap();
    // SAFETY: all zeroes is a value of this structure of integers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index.trim().parse().unwrap();
    let bytes = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address lives through the call and is as long as said.
    assert_eq!(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) }, 0);
    UdpSocket::from(socket)
}
