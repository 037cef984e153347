//! The process that writes.

use std::collections::VecDeque;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use tsumugi::{
    Channel, Config, Endpoint, PeerId, ReceiveChoice, Region, SendError, Target, TicketStatus, Wait,
};

use super::target::CHANNEL;
use crate::conditions::{Side, Told};
use crate::cpu::{Cpus, machine_ns, pin};
use crate::output::{self, EXIT_INTERRUPTED};
use crate::statistics::median;
use tsumugi_lab::interrupt::interrupted;

const PATIENCE: Duration = Duration::from_secs(10);
/// Writes that may be under way when it is written without a pause.
const UNDER_WAY: usize = 16;
/// How often what is acknowledged is written down, ns.
const SAMPLE_NS: u64 = 2_000_000;
/// Transfers before those that count.
const WARM_UP: u32 = 3;

/// Options of this command.
#[derive(Args)]
pub(crate) struct WriterOptions {
    #[arg(long)]
    to: SocketAddr,
    #[arg(long)]
    key: u64,
    #[arg(long)]
    address: u64,
    /// Pages of a transfer.
    #[arg(long, value_delimiter = ',')]
    pages: Vec<u32>,
    /// Seconds for each.
    #[arg(long)]
    time: f64,
    /// Write without a pause, and say what was acknowledged when.
    #[arg(long)]
    steadily: bool,
    /// Run on these CPUs only.
    #[arg(long)]
    cpu: Option<Cpus>,
}

/// Transfers of so many pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Written {
    pub(crate) pages: u32,
    /// Median time of a transfer and its fence, ns.
    pub(crate) transfer_ns: f64,
    /// Packets that were written directly, and packets for which there was no translation.
    pub(crate) direct_writes: u64,
    pub(crate) untranslated: u64,
}

/// How much was acknowledged by when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Acknowledged {
    /// Time of the machine's clock, ns, and bytes so far.
    samples: Vec<(u64, u64)>,
}

impl Acknowledged {
    /// Bytes acknowledged by a time: those of the last sample before it.
    fn by(&self, ns: u64) -> u64 {
        let at = self.samples.partition_point(|(when, _)| *when <= ns);
        at.checked_sub(1).map_or(0, |at| self.samples[at].1)
    }

    /// Bandwidth in all of these stretches of time together, Gb/s.
    pub(crate) fn bandwidth(&self, stretches: impl Iterator<Item = (u64, u64)>) -> f64 {
        let (mut bytes, mut ns) = (0, 0);
        for (from, to) in stretches {
            bytes += self.by(to) - self.by(from);
            ns += to - from;
        }
        8.0 * bytes as f64 / ns as f64
    }
}

pub(crate) fn run(options: &WriterOptions) -> crate::CommandResult {
    options.cpu.as_ref().map_or(Ok(()), pin)?;
    let config = Config::default().wait(Wait::Spin).receive(ReceiveChoice::Xdp);
    let endpoint = Endpoint::open(config)?;
    let peer = endpoint.add_peer(options.to)?;
    let channel = endpoint.channel(CHANNEL)?;
    let there = Target { key: options.key, address: options.address };
    let mut writer = Writer { channel, endpoint, peer, there };
    let time = Duration::from_secs_f64(options.time);
    let said = if options.steadily {
        let found = writer.write_steadily(options.pages[0], time)?;
        serde_json::to_string(&Told { side: Side::of(&writer.endpoint, Wait::Spin), found })?
    } else {
        let figures = options.pages.iter().map(|&pages| writer.write(pages, time));
        let found = figures.collect::<Result<Vec<Written>, _>>()?;
        serde_json::to_string(&Told { side: Side::of(&writer.endpoint, Wait::Spin), found })?
    };
    if interrupted() {
        return Ok(ExitCode::from(EXIT_INTERRUPTED));
    }
    output::line(said)?;
    Ok(ExitCode::SUCCESS)
}

struct Writer {
    channel: Channel,
    endpoint: Endpoint,
    peer: PeerId,
    there: Target,
}

impl Writer {
    /// What the target has counted: packets written directly, and packets without a translation.
    fn counters(&mut self) -> Result<[u64; 2], Box<dyn Error>> {
        self.channel.send(self.peer, &[])?;
        let answer = self.channel.receive_timeout(PATIENCE)?;
        let word = |at: usize| answer.get(at..at + 8).and_then(|word| word.try_into().ok());
        Ok([0, 8].map(|at| word(at).map_or(0, u64::from_le_bytes)))
    }

    /// Writes all of a region, and waits until it is in its place; says how long that took, ns.
    fn transfer(&self, from: &Region) -> Result<f64, Box<dyn Error>> {
        let (start, remote) = (Instant::now(), self.endpoint.remote());
        remote.write(self.peer, self.there, &from.all())?;
        let fence = remote.fence(self.peer)?;
        if let Err(error) = fence.wait_timeout(PATIENCE) {
            // Why it is gone, if it is.
            return Err(self.endpoint.take_failure().map_or(error.into(), Box::from));
        }
        Ok(start.elapsed().as_nanos() as f64)
    }

    /// Writes so many pages in their order, again and again.
    fn write(&mut self, pages: u32, time: Duration) -> Result<Written, Box<dyn Error>> {
        let from = Region::new(pages as usize * 4096)?;
        for _ in 0..WARM_UP {
            self.transfer(&from)?;
        }
        let before = self.counters()?;
        let (start, mut times) = (Instant::now(), Vec::new());
        while (start.elapsed() < time || times.is_empty()) && !interrupted() {
            times.push(self.transfer(&from)?);
        }
        let after = self.counters()?;
        let transfer_ns = median(times).unwrap_or(f64::NAN);
        let [direct_writes, untranslated] = [0, 1].map(|at| after[at] - before[at]);
        Ok(Written { pages, transfer_ns, direct_writes, untranslated })
    }

    /// Writes so many pages without a pause, and no fence: what is acknowledged is written, whatever the target does.
    fn write_steadily(&mut self, pages: u32, time: Duration) -> Result<Acknowledged, Box<dyn Error>> {
        let from = Region::new(pages as usize * 4096)?;
        let remote = self.endpoint.remote();
        self.write(pages, Duration::ZERO)?;
        output::line("writing")?;
        let (start, mut tickets) = (Instant::now(), VecDeque::new());
        let (mut bytes, mut acknowledged) = (0, Acknowledged::default());
        while start.elapsed() < time && !interrupted() {
            while tickets.len() < UNDER_WAY {
                match remote.write(self.peer, self.there, &from.all()) {
                    Ok(ticket) => tickets.push_back(ticket),
                    Err(SendError::WouldBlock) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            self.endpoint.progress()?;
            while tickets
                .front()
                .is_some_and(|&ticket| self.endpoint.status(ticket) == TicketStatus::Delivered)
            {
                tickets.pop_front();
                bytes += from.bytes() as u64;
            }
            let now = machine_ns();
            if acknowledged.samples.last().is_none_or(|(last, _)| now >= last + SAMPLE_NS) {
                acknowledged.samples.push((now, bytes));
            }
        }
        Ok(acknowledged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_is_of_the_stretches_only() {
        let acknowledged = Acknowledged { samples: vec![(10, 0), (20, 100), (30, 100), (40, 500)] };
        assert_eq!(acknowledged.bandwidth([(10, 20)].into_iter()), 80.0);
        assert_eq!(acknowledged.bandwidth([(20, 35), (40, 45)].into_iter()), 0.0);
        assert_eq!(acknowledged.bandwidth([(0, 100)].into_iter()), 40.0);
    }
}
