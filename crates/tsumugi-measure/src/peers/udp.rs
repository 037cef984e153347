//! A bare connected UDP socket that spins. It repeats nothing: what is lost is counted, not mended.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use tsumugi_rail::copy::Staging;
use tsumugi_rail::set_option;

use super::number::{Numbers, Role};
use super::watch::Patience;
use super::{Failure, LOST_AFTER, Peer, StopReason, Stream, Streamed, Until, Watch};
use crate::cpu::process_cpu_time;

/// The largest payload of one UDP datagram over IPv4.
pub(crate) const DATAGRAM_BYTES_MAX: u64 = 65_507;

/// Most segments of one send: the kernel's UDP_MAX_SEGMENTS (include/linux/udp.h) is 128 since 6.9 and
/// was 64 before.
const SEGMENTS_MAX: usize = 64;

/// Limits of bytes in flight to try for a stream, as far as the socket buffer allows. Few bytes stay in the cache, many
/// bridge the pauses of a receiver that is not always running; which is better depends on the machine.
pub(crate) const IN_FLIGHT_BYTES: [u64; 3] = [256 << 10, 512 << 10, 2 << 20];

/// The receiver tells how much has arrived every so many bytes, or every so many messages.
const REPORT_BYTES: u64 = 64 << 10;
const REPORT_MESSAGES: u64 = 512;

/// One end of a connected UDP socket.
pub(crate) struct Udp {
    socket: UdpSocket,
    /// Largest payload that is not cut into IP fragments.
    segment_bytes: usize,
    in_flight_bytes_max: u64,
    /// Usable part of the receive buffer.
    room_bytes: u64,
    numbers: Numbers,
    /// What the receiver had reported when the last stream ended: its count goes on over several streams.
    reported: u64,
    buffer: Staging,
}

impl Udp {
    /// Takes a connected socket. `in_flight_bytes` limits the bytes in flight in a stream.
    pub(crate) fn new(socket: UdpSocket, in_flight_bytes: Option<u64>, role: Role) -> Result<Udp, Failure> {
        let wanted = 8 << 20;
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, wanted)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, wanted));
        let _ = sockopt::set_socket_send_buffer_size_force(&socket, wanted)
            .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, wanted));
        socket.set_nonblocking(true).map_err(Failure::system("cannot make the UDP socket non-blocking"))?;
        // The kernel accounts for its own bookkeeping in the buffer too: a quarter of it is safe to fill.
        let buffer = sockopt::socket_recv_buffer_size(&socket).map_or(212_992, |bytes| bytes as u64);
        let headers = if socket.local_addr().is_ok_and(|address| address.is_ipv6()) { 48 } else { 28 };
        let mtu = sockopt::ip_mtu(&socket).map_or(1280, |bytes| bytes.max(576) as usize);
        Ok(Udp {
            socket,
            segment_bytes: (mtu - headers).min(DATAGRAM_BYTES_MAX as usize),
            in_flight_bytes_max: in_flight_bytes.unwrap_or(IN_FLIGHT_BYTES[0]),
            room_bytes: buffer / 4,
            numbers: Numbers::new(role),
            reported: 0,
            buffer: Staging::new(65_536, 0x5a),
        })
    }

    /// The largest message a datagram carries.
    pub(crate) fn check_size(bytes: u64) -> Result<(), Failure> {
        if bytes > DATAGRAM_BYTES_MAX {
            return Err(Failure::Refused(format!(
                "a bare UDP datagram carries at most {DATAGRAM_BYTES_MAX} bytes, not {bytes}: choose a smaller \
                 --size or another --transport"
            )));
        }
        Ok(())
    }

    /// One datagram if there is one. A refused connection is a peer that is not there (yet): nothing arrived.
    fn poll(&mut self) -> Result<Option<usize>, Failure> {
        match self.socket.recv(&mut self.buffer) {
            Ok(count) => Ok(Some(count)),
            Err(error) => quiet(error, "cannot receive from the UDP socket").map(|()| None),
        }
    }
}

/// Whether an error only says "not now".
#[inline]
fn quiet(error: io::Error, what: &str) -> Result<(), Failure> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionRefused => Ok(()),
        _ if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
        _ => Err(Failure::System { what: what.into(), cause: error }),
    }
}

impl Peer for Udp {
    fn send(&mut self, message: &mut [u8], watch: &mut Watch<'_>) -> Result<(), Failure> {
        self.numbers.stamp(message);
        loop {
            match self.socket.send(message) {
                Ok(_) => return Ok(()),
                Err(error) => quiet(error, "cannot send to the UDP socket")?,
            }
            watch.idle()?;
        }
    }

    fn receive(&mut self, bytes: usize, watch: &mut Watch<'_>) -> Result<bool, Failure> {
        let mut patience = Patience::new(LOST_AFTER);
        loop {
            if let Some(count) = self.poll()? {
                // Anything else is a stray of another measurement, or a late answer.
                if count == bytes && self.numbers.fits(&self.buffer[..count]) {
                    watch.progress()?;
                    return Ok(true);
                }
                continue;
            }
            watch.idle()?;
            if patience.ended() {
                return Ok(false);
            }
        }
    }

    fn stream(&mut self, stream: Stream, until: Until, watch: &mut Watch<'_>) -> Result<Streamed, Failure> {
        // A message longer than a packet is what it would be for any program: a run of full packets.
        let segment = self.segment_bytes.min(stream.message_bytes as usize);
        let segments = (DATAGRAM_BYTES_MAX as usize / segment).clamp(1, SEGMENTS_MAX);
        // Without segmentation offload in the kernel every packet is a call of its own.
        let burst = match set_option(self.socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, segment as i32) {
            Ok(()) if segments > 1 => segment * segments,
            _ => segment,
        };
        // Every packet may cost a kilobyte of bookkeeping in the receive buffer besides its payload.
        let packets = self.room_bytes / (segment as u64 + 1024);
        let in_flight_max = self.in_flight_bytes_max.min(packets * segment as u64).max(burst as u64);
        let message = Staging::new(burst, 0x5a);
        let (start, cpu) = (Instant::now(), process_cpu_time());
        let (mut sent, mut arrived, mut lost) = (0_u64, 0_u64, 0_u64);
        let mut heard = Instant::now();
        let mut sending = true;
        let mut polls = 0_u32;
        let end = loop {
            let mut report = false;
            while let Some(count) = self.poll()? {
                if let Some(total) = self.buffer[..count].first_chunk::<8>() {
                    arrived = arrived.max(u64::from_le_bytes(*total).saturating_sub(self.reported));
                    report = true;
                }
            }
            if report {
                heard = Instant::now();
                watch.progress()?;
                sending &= start.elapsed() < until.time
                    && sent < until.messages.saturating_mul(stream.message_bytes)
                    || sent == 0;
            }
            if !sending && arrived + lost >= sent {
                break heard;
            }
            if sending && sent.saturating_sub(arrived + lost) + burst as u64 <= in_flight_max {
                match self.socket.send(&message) {
                    Ok(count) => sent += count as u64,
                    Err(error) => quiet(error, "cannot send to the UDP socket")?,
                }
                continue;
            }
            watch.idle()?;
            polls = polls.wrapping_add(1);
            // A receiver that has never been heard may not run yet: then `watch` decides.
            if polls.is_multiple_of(64) && arrived > 0 && heard.elapsed() > LOST_AFTER {
                lost = sent.saturating_sub(arrived);
                heard = Instant::now();
                sending &= start.elapsed() < until.time;
            }
        };
        self.reported += arrived;
        Ok(Streamed {
            messages: arrived / stream.message_bytes,
            bytes: arrived,
            elapsed_ns: end.duration_since(start).as_nanos() as u64,
            cpu_ns: (process_cpu_time() - cpu).as_nanos() as u64,
            lost_bytes: sent.saturating_sub(arrived),
        })
    }

    fn sink(&mut self, stream: Stream, watch: &mut Watch<'_>) -> Result<Streamed, Failure> {
        // Kernels before 5.0 have no UDP_GRO: then every packet is a call of its own.
        let _ = set_option(self.socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1);
        let mut done = Streamed::default();
        let mut first: Option<(Instant, Duration)> = None;
        // As TCP does: large messages get a buffer of their size. It is longer by the longest datagram.
        let message_bytes = stream.message_bytes as usize;
        let mut buffer = Staging::new(message_bytes + DATAGRAM_BYTES_MAX as usize, 0);
        let mut at = 0;
        let report_bytes = REPORT_BYTES.min(stream.message_bytes * REPORT_MESSAGES);
        let (mut reported, mut polls) = (0, 0_u32);
        loop {
            let count = match self.socket.recv(&mut buffer[at..]) {
                Ok(count) => Some(count),
                Err(error) => quiet(error, "cannot receive from the UDP socket").map(|()| None)?,
            };
            if let Some(count) = count {
                at += count;
                if at > message_bytes {
                    at = 0;
                }
                first.get_or_insert_with(|| (Instant::now(), process_cpu_time()));
                done.bytes += count as u64;
                polls = 0;
                watch.progress()?;
            } else {
                polls += 1;
                match watch.idle() {
                    Ok(()) => {}
                    Err(StopReason::Control) => return Ok(done),
                    Err(stop) => return Err(stop.into()),
                }
            }
            // Every so often, and soon after the flow of packets stops.
            let fresh = done.bytes - reported;
            if fresh >= report_bytes || fresh > 0 && polls == 16 {
                reported = done.bytes;
                let _ = self.socket.send(&reported.to_le_bytes());
                if let Some((start, cpu)) = first {
                    done.messages = done.bytes / stream.message_bytes;
                    done.elapsed_ns = start.elapsed().as_nanos() as u64;
                    done.cpu_ns = (process_cpu_time() - cpu).as_nanos() as u64;
                }
            }
        }
    }

    fn idle(&mut self, time: Duration, watch: &mut Watch<'_>) -> Result<(), Failure> {
        let start = Instant::now();
        while start.elapsed() < time {
            self.poll()?;
            watch.idle()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (Udp, Udp) {
        let bind = || UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let (near, far) = (bind(), bind());
        near.connect(far.local_addr().expect("an address")).expect("connect");
        far.connect(near.local_addr().expect("an address")).expect("connect");
        let near = Udp::new(near, None, Role::Asks).expect("set up");
        (near, Udp::new(far, None, Role::Answers).expect("set up"))
    }

    #[test]
    fn a_late_answer_is_not_the_next_one() {
        let (mut near, mut far) = pair();
        let mut watch = Watch::new(None, Duration::from_secs(60));
        for bytes in [1, 64] {
            let mut message = vec![0; bytes];
            // The answer to the first question comes when the second has been asked.
            near.send(&mut message, &mut watch).expect("send");
            assert!(far.receive(bytes, &mut watch).expect("receive"));
            near.send(&mut message, &mut watch).expect("send");
            far.send(&mut message, &mut watch).expect("send");
            assert!(!near.receive(bytes, &mut watch).expect("receive"), "that was the first answer");
            assert!(far.receive(bytes, &mut watch).expect("receive"));
            far.send(&mut message, &mut watch).expect("send");
            assert!(near.receive(bytes, &mut watch).expect("receive"));
        }
    }

    #[test]
    fn a_stream_counts_what_arrived_in_every_part() {
        let (mut near, mut far) = pair();
        let stream = Stream::of(1000);
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let control = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (other_end, _) = listener.accept().expect("accept");
        let receiver = std::thread::spawn(move || {
            let mut watch = Watch::new(Some(&other_end), Duration::from_secs(60));
            far.sink(stream, &mut watch).expect("the end of the control connection ends it")
        });
        let until = Until { time: Duration::from_secs(60), messages: 3000 };
        let mut bytes = 0;
        for _ in 0..2 {
            let mut watch = Watch::new(None, Duration::from_secs(60));
            let part = near.stream(stream, until, &mut watch).expect("a stream");
            assert!(part.bytes + part.lost_bytes >= 3_000_000, "{part:?}");
            assert_eq!(part.messages, part.bytes / 1000);
            bytes += part.bytes;
        }
        drop(control);
        let sunk = receiver.join().expect("receiver");
        assert!(sunk.bytes >= bytes, "{} arrived, {bytes} were reported", sunk.bytes);
    }
}
