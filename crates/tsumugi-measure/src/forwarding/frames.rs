//! Who sends the frames: a part of `perf forwarding`, run in a node of its lab.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use tsumugi_rail::ether::Mac;
use tsumugi_rail::nics;
use tsumugi_rail::packet::FrameSocket;

use super::NIC;
use crate::output;

/// Bytes of a frame: Ethernet's shortest.
const FRAME_BYTES: usize = 60;
/// The first local experimental ethertype (IEEE Std 802), which nobody takes.
const ETHERTYPE: u16 = 0x88b5;
/// Frames between two looks at the clock.
const BURST: u32 = 64;

/// Options of this part.
#[derive(Args, Clone, Debug)]
pub(crate) struct FramesOptions {
    /// Hardware address of the other NIC.
    #[arg(value_parser = mac)]
    to: Mac,
    /// Seconds.
    #[arg(long)]
    time: f64,
}

/// How long it took.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Delivered {
    pub(super) time_ns: u64,
}

fn mac(text: &str) -> Result<Mac, String> {
    let bytes: Result<Vec<u8>, _> = text.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
    let bytes = bytes.ok().and_then(|bytes| Mac::try_from(bytes).ok());
    bytes.ok_or_else(|| format!("`{text}` is no hardware address, such as 02:00:00:00:00:01"))
}

pub(crate) fn run(options: &FramesOptions) -> crate::CommandResult {
    let nic = nics::index_of(NIC).ok_or_else(|| format!("there is no {NIC} here"))?;
    let from = std::fs::read_to_string(format!("/sys/class/net/{NIC}/address"))?;
    let mut frame = [options.to, mac(from.trim())?].concat();
    frame.extend(ETHERTYPE.to_be_bytes());
    frame.resize(FRAME_BYTES, 0);
    let socket = FrameSocket::open(nic)?;
    let (begun, limit) = (Instant::now(), Duration::from_secs_f64(options.time));
    while begun.elapsed() < limit {
        for _ in 0..BURST {
            socket.send(&frame)?;
        }
    }
    let time_ns = begun.elapsed().as_nanos() as u64;
    output::line(serde_json::to_string(&Delivered { time_ns })?)?;
    Ok(ExitCode::SUCCESS)
}
