//! Bare Ethernet frames through AF_XDP sockets that spin: what the data link itself can do. Nothing is repeated, and
//! only a limit of frames in flight keeps the receiver from being overrun.
//!
//! A frame carries up to the NIC's MTU, and no more than lies in one buffer of its driver. A message longer than that
//! is a run of full frames in a stream, and cannot make a round trip.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tsumugi_rail::ether::{ETHERNET_BYTES, Mac};
use tsumugi_rail::xdp::Mode;
use tsumugi_rail::xsk::{ETHERTYPE, PushError, Redirect, Xsk, XskOptions};

use super::frames::{nic, payload_bytes_max, too_long};
use super::number::{Numbers, Role};
use super::watch::Patience;
use super::{Failure, LOST_AFTER, Peer, StopReason, Stream, Streamed, Transport, Until, Watch};
use crate::cpu::process_cpu_time;

/// Shortest frame on a wire, without its check sequence (IEEE Std 802.3): shorter ones would arrive padded.
const FRAME_BYTES_MIN: usize = 60;

/// Frames of a stream that go out in one system call, and after which the receiver tells how many have arrived.
const BATCH_FRAMES: u64 = 32;

/// Limits of frames in flight to try for a stream. Which is better depends on how long the receiver's CPU is kept from
/// running.
pub(crate) const IN_FLIGHT_FRAMES: [u64; 2] = [128, 256];

/// Room for frames in either direction: more than any stream has in flight.
const FRAMES: u32 = 512;

/// Looks into the ring of somebody who waits for an answer between two of his looks at anything else.
const LOOKS_PER_IDLE: u32 = 16;

/// Polls of a receiver that find nothing after which it tells how much has arrived, so that a stream with losses
/// goes on: some 50 µs.
const POLLS_MAX: u32 = 1024;

/// One end of a link.
pub(crate) struct Raw {
    socket: Xsk,
    /// Hands frames to the socket while it lives.
    _program: Redirect,
    /// What a frame of ours begins with.
    header: [u8; ETHERNET_BYTES],
    mac: Mac,
    /// Hardware address of the other side.
    there: Mac,
    payload_bytes_max: usize,
    in_flight_frames_max: u64,
    numbers: Numbers,
    /// What the receiver had reported when the last stream ended: its count goes on over several streams.
    reported: u64,
}

impl Raw {
    /// Takes the first queue of the NIC towards the other side.
    pub(crate) fn open(here: SocketAddr, there: SocketAddr, mode: Mode, role: Role) -> Result<Raw, Failure> {
        let nic = nic(here, there)?;
        let refused =
            |why: &dyn std::error::Error| Failure::Refused(format!("raw-xdp on {}: {why}", nic.name));
        let payload_bytes_max = payload_bytes_max(Transport::RawXdp, nic.mtu_bytes);
        let options = XskOptions {
            frame_bytes: payload_bytes_max + ETHERNET_BYTES,
            receive_frames: FRAMES,
            send_frames: FRAMES,
            ..XskOptions::new(nic.interface)
        };
        let mut program = Redirect::attach(nic.interface, mode).map_err(|error| refused(&error))?;
        let socket = Xsk::open(&options).map_err(|error| refused(&error))?;
        program.enter(&socket).map_err(|error| refused(&error))?;
        Ok(Raw {
            socket,
            _program: program,
            header: [0; ETHERNET_BYTES],
            mac: nic.mac,
            there: Mac::default(),
            payload_bytes_max,
            in_flight_frames_max: IN_FLIGHT_FRAMES[0],
            numbers: Numbers::new(role),
            reported: 0,
        })
    }

    /// Hardware address of this side's NIC.
    pub(crate) const fn mac(&self) -> Mac {
        self.mac
    }

    /// Says who the other side is.
    pub(crate) fn connect(&mut self, there: Mac) {
        self.there = there;
        self.header[..6].copy_from_slice(&there);
        self.header[6..12].copy_from_slice(&self.mac);
        self.header[12..].copy_from_slice(&ETHERTYPE.to_be_bytes());
    }

    /// Limits the frames in flight in a stream.
    pub(crate) fn limit(&mut self, frames: u64) {
        self.in_flight_frames_max = frames.clamp(BATCH_FRAMES, u64::from(FRAMES));
    }

    /// The same by payload bytes, for a stream of such messages.
    pub(crate) fn limit_bytes(&mut self, in_flight_bytes: u64, message_bytes: u64) {
        self.limit(in_flight_bytes / self.segment_bytes(message_bytes));
    }

    /// Payload of one frame of a stream.
    fn segment_bytes(&self, message_bytes: u64) -> u64 {
        message_bytes.clamp(1, self.payload_bytes_max as u64)
    }

    /// Puts a frame into the ring. `write` is handed the payload's memory.
    fn post(
        &mut self,
        bytes: usize,
        write: impl Fn(&mut [u8]),
        watch: &mut Watch<'_>,
    ) -> Result<(), Failure> {
        let header = self.header;
        loop {
            let posted = self.socket.push((ETHERNET_BYTES + bytes).max(FRAME_BYTES_MIN), |frame| {
                frame[..ETHERNET_BYTES].copy_from_slice(&header);
                write(&mut frame[ETHERNET_BYTES..ETHERNET_BYTES + bytes]);
            });
            match posted {
                Ok(()) => return Ok(()),
                Err(PushError::Full) => {}
                Err(PushError::TooLong(_)) => return Err(too_long(bytes, self.payload_bytes_max)),
            }
            self.kick()?;
            watch.idle()?;
        }
    }

    fn kick(&mut self) -> Result<(), Failure> {
        self.socket.kick().map(drop).map_err(Failure::system("cannot send through the AF_XDP socket"))
    }
}

/// The payload of a frame from `there`: its first piece, and the bytes of all.
#[inline]
fn payload<'a>(pieces: &[&'a [u8]], there: &Mac) -> Option<(&'a [u8], usize)> {
    let (header, first) = pieces.first()?.split_at_checked(ETHERNET_BYTES)?;
    let rest: usize = pieces[1..].iter().map(|piece| piece.len()).sum();
    (header[6..12] == *there).then_some((first, first.len() + rest))
}

/// Payload bytes of a frame that carries `bytes`, padding included.
fn padded(bytes: usize) -> usize {
    bytes.max(FRAME_BYTES_MIN - ETHERNET_BYTES)
}

impl Peer for Raw {
    fn send(&mut self, message: &mut [u8], watch: &mut Watch<'_>) -> Result<(), Failure> {
        self.numbers.stamp(message);
        self.post(message.len(), |payload| payload.copy_from_slice(message), watch)?;
        self.kick()
    }

    fn receive(&mut self, bytes: usize, watch: &mut Watch<'_>) -> Result<bool, Failure> {
        let Raw { socket, numbers, there, .. } = self;
        let mut patience = Patience::new(LOST_AFTER);
        let mut looks = 0_u32;
        loop {
            let mut arrived = false;
            // Anything else is a stray of another measurement, or a late answer.
            let frames = socket.receive(1, |pieces| {
                arrived = payload(pieces, there).is_some_and(|(first, total)| {
                    total == padded(bytes) && numbers.fits(&first[..bytes.min(first.len())])
                });
            });
            if arrived {
                watch.progress()?;
                return Ok(true);
            }
            if frames == 0 {
                // A look into the ring is so cheap that the pause of `idle` would be most of the loop.
                looks += 1;
                if looks.is_multiple_of(LOOKS_PER_IDLE) {
                    watch.idle()?;
                    if patience.ended() {
                        return Ok(false);
                    }
                }
            }
        }
    }

    fn stream(&mut self, stream: Stream, until: Until, watch: &mut Watch<'_>) -> Result<Streamed, Failure> {
        let segment = self.segment_bytes(stream.message_bytes);
        let frames_max = until.messages.saturating_mul(stream.message_bytes).div_ceil(segment);
        let (start, cpu) = (Instant::now(), process_cpu_time());
        let (mut sent, mut arrived, mut lost) = (0_u64, 0_u64, 0_u64);
        let mut heard = start;
        let (mut sending, mut polls) = (true, 0_u32);
        let end = loop {
            let Raw { socket, there, reported, .. } = &mut *self;
            let credits = socket.receive(BATCH_FRAMES as usize, |pieces| {
                let first = payload(pieces, there).and_then(|(first, _)| first.first_chunk::<8>());
                let total = first.map_or(0, |total| u64::from_le_bytes(*total));
                arrived = arrived.max(total.saturating_sub(*reported));
            });
            if credits > 0 {
                heard = Instant::now();
                watch.progress()?;
                sending &= start.elapsed() < until.time && sent < frames_max || sent == 0;
            }
            if !sending && arrived + lost >= sent {
                break heard;
            }
            if sending && sent.saturating_sub(arrived + lost) + BATCH_FRAMES <= self.in_flight_frames_max {
                for _ in 0..BATCH_FRAMES {
                    // As if the program had built its message where it lies.
                    self.post(segment as usize, |_| {}, watch)?;
                }
                self.kick()?;
                sent += BATCH_FRAMES;
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
            messages: arrived * segment / stream.message_bytes,
            bytes: arrived * segment,
            elapsed_ns: end.duration_since(start).as_nanos() as u64,
            cpu_ns: (process_cpu_time() - cpu).as_nanos() as u64,
            lost_bytes: sent.saturating_sub(arrived) * segment,
        })
    }

    fn sink(&mut self, stream: Stream, watch: &mut Watch<'_>) -> Result<Streamed, Failure> {
        let segment = self.segment_bytes(stream.message_bytes);
        let mut done = Streamed::default();
        let mut first: Option<(Instant, Duration)> = None;
        let (mut arrived, mut reported, mut polls) = (0_u64, 0_u64, 0_u32);
        loop {
            // Told by their length alone: who reads a frame takes its memory out of the other CPU's cache, and here
            // nobody wants to know what is in it.
            let frames = self.socket.receive(BATCH_FRAMES as usize, |pieces| {
                let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
                arrived += u64::from(bytes == ETHERNET_BYTES + padded(segment as usize));
            });
            if frames > 0 {
                first.get_or_insert_with(|| (Instant::now(), process_cpu_time()));
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
            // After every batch, and soon after the flow of frames stops.
            let fresh = arrived - reported;
            if fresh >= BATCH_FRAMES || fresh > 0 && polls == POLLS_MAX {
                reported = arrived;
                self.post(8, |payload| payload.copy_from_slice(&reported.to_le_bytes()), watch)?;
                self.kick()?;
                if let Some((start, cpu)) = first {
                    done.bytes = arrived * segment;
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
            self.socket.receive(1, |_| {});
            watch.idle()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_frames_of_the_other_side_count() {
        let there = [2, 0, 0, 0, 0, 9];
        let mut frame = vec![0; 60];
        frame[6..12].copy_from_slice(&there);
        frame[14] = 7;
        let (first, total) = payload(&[&frame, &[1, 2, 3]], &there).expect("it is theirs");
        assert_eq!((first[0], first.len(), total), (7, 46, 49));
        assert_eq!(payload(&[&frame], &[2, 0, 0, 0, 0, 8]), None, "somebody else's");
        assert_eq!(payload(&[&frame[..13]], &there), None, "shorter than a header");
        assert_eq!(payload(&[], &there), None);
    }

    #[test]
    fn short_payloads_are_padded_to_the_shortest_frame() {
        assert_eq!([1, 46, 47, 1500].map(padded), [46, 46, 47, 1500]);
    }
}
