//! A bare TCP connection, blocking or spinning.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use serde::{Deserialize, Serialize};
use tsumugi_rail::copy::Staging;

use super::{Failure, Peer, Stream, Streamed, Until, Watch};
use crate::cpu::process_cpu_time;
use crate::sizes;

/// How often a blocking call looks up to see whether it should stop.
const LOOK_UP: Duration = Duration::from_millis(200);

/// Longest read of a stream: few calls, and what was just written is still in the cache.
const READ_BYTES_MAX: usize = 256 << 10;

/// What can be tuned about a TCP stream; the best of several is what TCP is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tuning {
    /// Bytes handed to the kernel by one write; a shorter message is one write.
    pub(crate) write_bytes: usize,
    /// Socket buffers in bytes; `None` leaves them to the kernel's own tuning.
    pub(crate) buffer_bytes: Option<usize>,
    /// Whether a small write leaves at once (TCP_NODELAY) or may wait for more (Nagle).
    pub(crate) no_delay: bool,
}

impl Tuning {
    /// For messages that somebody waits for.
    pub(crate) const PROMPT: Tuning = Tuning { write_bytes: 256 << 10, buffer_bytes: None, no_delay: true };

    /// What to try for a stream of messages of `message_bytes`.
    pub(crate) fn for_stream(message_bytes: u64, in_flight: Option<u64>) -> Vec<Tuning> {
        let mut writes = vec![16 << 10, 64 << 10, 256 << 10, 1 << 20];
        // Writes longer than the message would be the message: one of them is enough.
        let longer =
            writes.iter().position(|&bytes| bytes as u64 >= message_bytes).unwrap_or(writes.len() - 1);
        writes.truncate(longer + 1);
        let buffers = match in_flight {
            Some(bytes) => vec![Some(bytes as usize)],
            None => vec![None, Some(8 << 20)],
        };
        // Small writes: let the kernel gather them, or send each at once, whichever is faster.
        let delays: &[bool] = if message_bytes < 1448 { &[false, true] } else { &[true] };
        let mut tunings = Vec::new();
        for &write_bytes in &writes {
            for &buffer_bytes in &buffers {
                for &no_delay in delays {
                    tunings.push(Tuning { write_bytes, buffer_bytes, no_delay });
                }
            }
        }
        tunings
    }

    /// `write=64K buffers=8M`.
    pub(crate) fn name(self, message_bytes: u64) -> String {
        let write = sizes::show((self.write_bytes as u64).min(message_bytes));
        let buffers = self.buffer_bytes.map_or("auto".to_owned(), |bytes| sizes::show(bytes as u64));
        format!("write {write}, buffers {buffers}{}", if self.no_delay { "" } else { ", Nagle" })
    }
}

/// One end of a TCP connection.
pub(crate) struct Tcp {
    stream: TcpStream,
    spin: bool,
    tuning: Tuning,
    /// Where what arrives is put.
    buffer: Staging,
}

impl Tcp {
    /// Takes a connected stream.
    pub(crate) fn new(stream: TcpStream, spin: bool, tuning: Tuning) -> Result<Tcp, Failure> {
        let set = || -> io::Result<()> {
            stream.set_nodelay(tuning.no_delay)?;
            stream.set_nonblocking(spin)?;
            if !spin {
                stream.set_read_timeout(Some(LOOK_UP))?;
                stream.set_write_timeout(Some(LOOK_UP))?;
            }
            Ok(())
        };
        set().map_err(Failure::system("cannot set up the TCP connection"))?;
        if let Some(bytes) = tuning.buffer_bytes {
            // Past the system's limit as root, up to it otherwise.
            let _ = sockopt::set_socket_recv_buffer_size_force(&stream, bytes)
                .or_else(|_| sockopt::set_socket_recv_buffer_size(&stream, bytes));
            let _ = sockopt::set_socket_send_buffer_size_force(&stream, bytes)
                .or_else(|_| sockopt::set_socket_send_buffer_size(&stream, bytes));
        }
        Ok(Tcp { stream, spin, tuning, buffer: Staging::new(0, 0) })
    }

    /// What an unsuccessful call means: wait on, or an error.
    #[inline]
    fn not_yet(&self, error: io::Error, watch: &mut Watch<'_>) -> Result<(), Failure> {
        match error.kind() {
            ErrorKind::WouldBlock if self.spin => Ok(watch.idle()?),
            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(watch.check()?),
            _ => Err(Failure::System { what: "the TCP connection broke".into(), cause: error }),
        }
    }

    /// Reads at most `bytes` bytes to offset `at` of the buffer, but not over its end.
    fn read_some(&mut self, at: usize, bytes: usize, watch: &mut Watch<'_>) -> Result<usize, Failure> {
        let end = (at + bytes).min(self.buffer.len());
        loop {
            match self.stream.read(&mut self.buffer[at..end]) {
                Ok(0) => {
                    // Its word on the control connection may still be on its way.
                    for _ in 0..50 {
                        watch.check()?;
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    let cause = ErrorKind::UnexpectedEof.into();
                    return Err(Failure::System { what: "the peer closed the TCP connection".into(), cause });
                }
                Ok(count) => {
                    watch.progress()?;
                    return Ok(count);
                }
                Err(error) => self.not_yet(error, watch)?,
            }
        }
    }
}

impl Peer for Tcp {
    fn send(&mut self, message: &mut [u8], watch: &mut Watch<'_>) -> Result<(), Failure> {
        for mut chunk in message.chunks(self.tuning.write_bytes) {
            while !chunk.is_empty() {
                match self.stream.write(chunk) {
                    Ok(count) => {
                        watch.progress()?;
                        chunk = &chunk[count..];
                    }
                    Err(error) => self.not_yet(error, watch)?,
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self, bytes: usize, watch: &mut Watch<'_>) -> Result<bool, Failure> {
        if self.buffer.len() < bytes {
            self.buffer = Staging::new(bytes, 0);
        }
        let mut at = 0;
        while at < bytes {
            at += self.read_some(at, bytes - at, watch)?;
        }
        Ok(true)
    }

    fn stream(&mut self, stream: Stream, until: Until, watch: &mut Watch<'_>) -> Result<Streamed, Failure> {
        let mut message = Staging::new(stream.message_bytes as usize, 0x5a);
        let (start, cpu) = (Instant::now(), process_cpu_time());
        let mut batches = 0;
        while batches == 0 || start.elapsed() < until.time && batches * stream.batch_messages < until.messages
        {
            for _ in 0..stream.batch_messages {
                self.send(&mut message, watch)?;
            }
            batches += 1;
        }
        self.receive(batches as usize, watch)?;
        Ok(Streamed {
            messages: batches * stream.batch_messages,
            bytes: batches * stream.batch_bytes(),
            elapsed_ns: start.elapsed().as_nanos() as u64,
            cpu_ns: (process_cpu_time() - cpu).as_nanos() as u64,
            lost_bytes: 0,
        })
    }

    fn sink(&mut self, stream: Stream, watch: &mut Watch<'_>) -> Result<Streamed, Failure> {
        let mut done = Streamed::default();
        let mut first: Option<(Instant, Duration)> = None;
        let (mut acknowledged, mut at) = (0, 0);
        // A program wants a message whole, in one place: large ones get a buffer of their size, small ones are
        // read many at a time. Reading to the same short buffer again and again would be faster and of no use.
        let message_bytes = stream.message_bytes as usize;
        self.buffer = Staging::new(READ_BYTES_MAX.next_multiple_of(message_bytes), 0);
        loop {
            let count = match self.read_some(at, READ_BYTES_MAX, watch) {
                Ok(count) => {
                    at = (at + count) % self.buffer.len();
                    count as u64
                }
                Err(Failure::Stopped(super::StopReason::Control)) => return Ok(done),
                Err(error) => return Err(error),
            };
            let (start, cpu) = *first.get_or_insert_with(|| (Instant::now(), process_cpu_time()));
            done.bytes += count;
            let batches = done.bytes / stream.batch_bytes();
            if batches > acknowledged {
                // One byte per batch.
                self.send(&mut vec![0; (batches - acknowledged) as usize], watch)?;
                acknowledged = batches;
                done.messages = batches * stream.batch_messages;
                done.elapsed_ns = start.elapsed().as_nanos() as u64;
                done.cpu_ns = (process_cpu_time() - cpu).as_nanos() as u64;
            }
        }
    }

    /// Wakes a peer that sleeps in a read.
    fn finish(&mut self) {
        // A broken connection has woken it already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    fn idle(&mut self, time: Duration, watch: &mut Watch<'_>) -> Result<(), Failure> {
        let start = Instant::now();
        while start.elapsed() < time {
            match self.stream.read(&mut [0]) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => self.not_yet(error, watch)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_large_messages_tries_all_writes_and_buffers() {
        let tunings = Tuning::for_stream(1 << 20, None);
        assert_eq!(tunings.len(), 8);
        assert!(tunings.iter().any(|tuning| tuning.write_bytes == 1 << 20 && tuning.buffer_bytes.is_some()));
        assert!(tunings.iter().all(|tuning| tuning.no_delay));
    }

    #[test]
    fn a_small_message_is_one_write_with_and_without_nagle() {
        let tunings = Tuning::for_stream(8, Some(1 << 20));
        assert_eq!(tunings.len(), 2);
        assert_eq!(tunings[0].name(8), "write 8 B, buffers 1 MiB, Nagle");
    }
}
