//! One of the processes that send to each other.

use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use tsumugi::{Channel, Config, Endpoint, PeerId, ReceiveChoice, SendError};

use crate::conditions::{Side, Told};
use crate::cpu::{Cpus, machine_ns, pin, process_cpu_time};
use crate::output::{self, EXIT_INTERRUPTED};
use tsumugi_lab::interrupt::interrupted;

/// The UDP port of all of them.
pub(super) const PORT: u16 = 7411;
const CHANNEL: u16 = 1;
/// Messages that may be posted, or taken, before it is the others' turn.
const TURN: u32 = 32;
/// How long a process goes on answering when its time is over: others end a little later.
const AFTER_NS: u64 = 100_000_000;
/// How long to wait where nothing can be done.
const PAUSE: Duration = Duration::from_millis(1);

/// Options of this command.
#[derive(Args)]
pub(crate) struct MemberOptions {
    /// The others.
    #[arg(long = "to", required = true)]
    to: Vec<IpAddr>,
    #[arg(long)]
    receive: ReceiveChoice,
    /// Bytes of a message.
    #[arg(long)]
    size: usize,
    /// When to begin, by the machine's clock.
    #[arg(long)]
    start_ns: u64,
    /// Seconds.
    #[arg(long)]
    time: f64,
    /// Run on these CPUs only.
    #[arg(long)]
    cpu: Option<Cpus>,
}

/// What a process took in its time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
    pub(crate) cpu_ns: u64,
}

pub(crate) fn run(options: &MemberOptions) -> crate::CommandResult {
    options.cpu.as_ref().map_or(Ok(()), pin)?;
    let config = Config::default().port(PORT).receive(options.receive);
    let wait = config.wait;
    let endpoint = Endpoint::open(config)?;
    let peers = options.to.iter().map(|to| endpoint.add_peer(format!("{to}:{PORT}")));
    let peers = peers.collect::<Result<Vec<PeerId>, _>>()?;
    let channel = endpoint.channel(CHANNEL)?;
    let mut member = Member { channel, peers, message: vec![7; options.size], bytes: 0 };
    // Everyone is connected when the time begins.
    for &peer in &member.peers {
        member.channel.post(peer, &[])?;
    }
    while machine_ns() < options.start_ns && !interrupted() {
        member.take(PAUSE)?;
    }
    (member.bytes, member.message) = (0, vec![7; options.size]);
    let (end_ns, cpu) = (options.start_ns + (options.time * 1e9) as u64, process_cpu_time());
    while machine_ns() < end_ns && !interrupted() {
        let posted = member.post()?;
        // Nobody has room: whatever comes next makes some, or brings something.
        member.take(if posted { Duration::ZERO } else { PAUSE })?;
    }
    let received = Received { bytes: member.bytes, cpu_ns: (process_cpu_time() - cpu).as_nanos() as u64 };
    // That somebody has left by then is no failure.
    while machine_ns() < end_ns + AFTER_NS && !interrupted() && member.take(PAUSE).is_ok() {}
    if interrupted() {
        return Ok(ExitCode::from(EXIT_INTERRUPTED));
    }
    output::line(serde_json::to_string(&Told { side: Side::of(&endpoint, wait), found: received })?)?;
    Ok(ExitCode::SUCCESS)
}

struct Member {
    channel: Channel,
    peers: Vec<PeerId>,
    message: Vec<u8>,
    bytes: u64,
}

impl Member {
    /// Posts to each of the others what it has room for. Whether anybody had.
    fn post(&mut self) -> Result<bool, SendError> {
        let mut posted = false;
        for &peer in &self.peers {
            for _ in 0..TURN {
                match self.channel.post(peer, &self.message) {
                    Ok(_) => posted = true,
                    Err(SendError::WouldBlock) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(posted)
    }

    /// Takes what has arrived, and waits for the first.
    fn take(&mut self, patience: Duration) -> Result<(), Box<dyn std::error::Error>> {
        let mut message = match self.channel.receive_timeout(patience) {
            Ok(message) => Some(message),
            Err(tsumugi::ReceiveError::TimedOut(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let mut taken = 0;
        while let Some(found) = message.take() {
            self.bytes += found.len() as u64;
            drop(found);
            taken += 1;
            if taken < TURN * self.peers.len() as u32 {
                message = self.channel.try_receive()?;
            }
        }
        Ok(())
    }
}
