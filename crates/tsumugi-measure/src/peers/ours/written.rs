//! Messages as remote writes: each side writes into the other's memory, and looks into its own.
//!
//! A region holds a message and, behind it, a word that counts them. A message is written with its word, or before it if both are
//! too long for a packet; who sees the word count up has the message. Where a word of a message of another length was is a
//! lower count, and cannot be taken for it. What leads to the memory is told over the channel first.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tsumugi::remote::Registration;
use tsumugi::{
    Channel, Endpoint, Message, PeerId, ReceiveError, Region, Remote, Report, Rights, SendError, Target,
};

use super::{CHANNEL, LOOK_UP, LOOK_UP_IDLE, close, failed, moved, paths, receive_failed};
use crate::cpu::process_cpu_time;
use crate::peers::{Failure, Peer, StopReason, Stream, Streamed, Until, Watch};
use crate::row::PathRow;
use tsumugi_lab::interrupt::interrupted;

/// Bytes that tell where a side's memory is.
const TARGET_BYTES: usize = 16;
/// Bytes of the word that counts messages.
const WORD_BYTES: usize = 8;

/// Place of the word behind a message of so many bytes.
const fn word_behind(bytes: usize) -> usize {
    bytes.next_multiple_of(WORD_BYTES)
}

/// One end: its memory, and where the other's is.
pub(crate) struct Written {
    // Before the endpoint, so that they are dropped first.
    registration: Registration,
    remote: Remote,
    channel: Channel,
    endpoint: Endpoint,
    /// The other side, if this is the client; the server learns it from the first message.
    server: Option<PeerId>,
    /// What is written from, and what is written to by the other side.
    source: Region,
    memory: Region,
    there: Option<(PeerId, Target)>,
    sent: u64,
    received: u64,
}

impl Written {
    pub(super) fn new(
        endpoint: Endpoint,
        server: Option<PeerId>,
        message_bytes_max: u64,
    ) -> Result<Written, Failure> {
        let bytes = word_behind(message_bytes_max as usize) + WORD_BYTES;
        let remote = endpoint.remote();
        let source = Region::new(bytes).map_err(failed("cannot make a region"))?;
        let memory = remote.window(bytes).map_err(failed("cannot make a region"))?;
        let registration = remote.register(&memory.all(), Rights::WRITE);
        let registration = registration.map_err(failed("cannot register a region"))?;
        let channel = endpoint.channel(CHANNEL).map_err(failed("cannot open a channel"))?;
        let (sent, received) = (0, 0);
        Ok(Written {
            registration,
            remote,
            channel,
            endpoint,
            server,
            source,
            memory,
            there: None,
            sent,
            received,
        })
    }

    /// Tells the other side where our memory is, and learns where its is.
    fn exchange_targets(&mut self, watch: &mut Watch<'_>) -> Result<(PeerId, Target), Failure> {
        if let Some(there) = self.there {
            return Ok(there);
        }
        if let Some(server) = self.server {
            self.tell(server)?;
        }
        let hello = self.hear(watch)?;
        let word =
            |at: usize| hello.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
        let (Some(key), Some(address)) = (word(0), word(8)) else {
            return Err(Failure::Refused("the other side does not say where its memory is".to_owned()));
        };
        let there = (hello.source(), Target { key, address });
        drop(hello);
        self.there = Some(there);
        if self.server.is_none() {
            self.tell(there.0)?;
        }
        Ok(there)
    }

    fn tell(&mut self, peer: PeerId) -> Result<(), Failure> {
        let Target { key, address } = self.registration.target();
        let mut word = [0; TARGET_BYTES];
        word[..8].copy_from_slice(&key.to_le_bytes());
        word[8..].copy_from_slice(&address.to_le_bytes());
        self.channel.send(peer, &word).map(drop).map_err(failed("cannot send"))
    }

    fn hear(&mut self, watch: &mut Watch<'_>) -> Result<Message, Failure> {
        loop {
            match self.channel.receive_timeout(LOOK_UP) {
                Ok(message) => return Ok(message),
                Err(ReceiveError::TimedOut(_)) => watch.check_moved(moved(&self.endpoint))?,
                Err(error) => return Err(receive_failed(failed("cannot receive")(error), watch)),
            }
        }
    }

    /// Writes as soon as there is room.
    fn write<T>(
        &self,
        watch: &mut Watch<'_>,
        mut write: impl FnMut() -> Result<T, SendError>,
    ) -> Result<(), Failure> {
        loop {
            match write() {
                Ok(_) => return Ok(()),
                Err(SendError::WouldBlock) => {
                    self.endpoint.progress().map_err(failed("cannot make progress"))?;
                    if watch.is_due() {
                        watch.check_moved(moved(&self.endpoint))?;
                    }
                }
                Err(error) => return Err(failed("cannot write")(error)),
            }
        }
    }
}

impl Peer for Written {
    fn report(&self) -> Option<Report> {
        Some(self.endpoint.report())
    }

    fn paths(&self) -> Vec<PathRow> {
        paths(&self.endpoint, self.there.map(|(peer, _)| peer))
    }

    fn send(&mut self, message: &mut [u8], watch: &mut Watch<'_>) -> Result<(), Failure> {
        let (peer, there) = self.exchange_targets(watch)?;
        self.sent += 1;
        let (word, word_at) = (self.sent.to_le_bytes(), word_behind(message.len()));
        self.source.write(word_at, &word).map_err(failed("cannot fill the region"))?;
        let is_short = word_at + WORD_BYTES <= self.remote.short_bytes(peer);
        let bytes = if is_short { word_at + WORD_BYTES } else { message.len() };
        let slice = self.source.slice(0..bytes).map_err(failed("too long a message"))?;
        self.write(watch, || self.remote.write(peer, there, &slice))?;
        if !is_short {
            let to = there.plus(word_at as u64);
            self.write(watch, || self.remote.write_bytes(peer, to, &word))?;
        }
        watch.progress()?;
        Ok(())
    }

    fn receive(&mut self, bytes: usize, watch: &mut Watch<'_>) -> Result<bool, Failure> {
        self.exchange_targets(watch)?;
        let word = self.memory.word(word_behind(bytes)).map_err(failed("no word behind the message"))?;
        let next = self.received + 1;
        loop {
            let came = || (word.load(Ordering::Acquire) >= next).then_some(());
            match self.endpoint.wait_until(LOOK_UP, came).map_err(failed("cannot receive"))? {
                Some(()) => break,
                None => watch.check_moved(moved(&self.endpoint))?,
            }
        }
        watch.progress()?;
        self.received = next;
        Ok(true)
    }

    fn stream(&mut self, stream: Stream, until: Until, watch: &mut Watch<'_>) -> Result<Streamed, Failure> {
        let (peer, there) = self.exchange_targets(watch)?;
        let slice =
            self.source.slice(0..stream.message_bytes as usize).map_err(failed("too long a message"))?;
        let (start, cpu) = (Instant::now(), process_cpu_time());
        let (mut batches, mut acknowledged) = (0, 0);
        while batches == 0 || start.elapsed() < until.time && batches * stream.batch_messages < until.messages
        {
            for _ in 0..stream.batch_messages {
                self.write(watch, || self.remote.write(peer, there, &slice))?;
            }
            // Its turn comes when all before it is in its place.
            self.channel.send(peer, &[0]).map_err(failed("cannot send"))?;
            batches += 1;
            watch.progress()?;
            while self.channel.try_receive().map_err(failed("cannot receive"))?.is_some() {
                acknowledged += 1;
            }
            if interrupted() {
                return Err(StopReason::Interrupted.into());
            }
        }
        while acknowledged < batches {
            self.hear(watch)?;
            watch.progress()?;
            acknowledged += 1;
        }
        Ok(Streamed {
            messages: batches * stream.batch_messages,
            bytes: batches * stream.batch_bytes(),
            elapsed_ns: start.elapsed().as_nanos() as u64,
            cpu_ns: (process_cpu_time() - cpu).as_nanos() as u64,
            lost_bytes: 0,
        })
    }

    fn sink(&mut self, stream: Stream, watch: &mut Watch<'_>) -> Result<Streamed, Failure> {
        let (peer, _) = self.exchange_targets(watch)?;
        let (start, cpu) = (Instant::now(), process_cpu_time());
        let mut done = Streamed::default();
        loop {
            match self.hear(watch) {
                Ok(_) => {}
                Err(Failure::Stopped(StopReason::Control)) => return Ok(done),
                Err(error) => return Err(error),
            }
            watch.progress()?;
            done.messages += stream.batch_messages;
            done.bytes += stream.batch_bytes();
            done.elapsed_ns = start.elapsed().as_nanos() as u64;
            done.cpu_ns = (process_cpu_time() - cpu).as_nanos() as u64;
            self.channel.send(peer, &[0]).map_err(failed("cannot send"))?;
        }
    }

    fn idle(&mut self, time: Duration, watch: &mut Watch<'_>) -> Result<(), Failure> {
        self.exchange_targets(watch)?;
        let start = Instant::now();
        loop {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            let never = || None::<()>;
            self.endpoint.wait_until(left.min(LOOK_UP_IDLE), never).map_err(failed("cannot wait"))?;
            watch.check()?;
        }
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        let Written { registration, remote, channel, endpoint, .. } = *self;
        drop((registration, remote, channel));
        close(endpoint)
    }
}
