//! Whether what the XDP program sends back leaves the NIC.
//!
//! A veth hands what its program sends to the other end's queue for such frames, which that end has only if it has a
//! program, too, or GRO. Else they are dropped, without a word (`veth_xdp_xmit` in drivers/net/veth.c): so it is with the
//! port of a bridge, as containers and virtual machines have it. Behind the driver (generic) they are sent like all
//! other frames. Nothing reports this, so it is tried.

use super::{Mode, XdpError};
use crate::netlink::{OtherEnd, Questions};
use crate::sys;
use aya::programs::{TestRun, TestRunAttrs, TestRunOptions, Xdp};

/// The compiled program; empty when this build left it out.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bounce.bpf.o"));

/// Name of the program.
const PROGRAM: &str = "bounce";
/// Frames that are sent.
const FRAMES: u32 = 8;
/// Bytes of one: Ethernet's shortest.
const FRAME_BYTES: usize = 60;

/// A NIC whose other end drops what a program in the NIC's driver sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dropped {
    /// Whether the other end is a NIC by itself, which may get a program of its own.
    pub(super) may_change: bool,
    /// What is wrong, and what mends it.
    pub(super) why: String,
}

/// Tries whether frames that a program in the NIC's driver sends leave the NIC. `None`: they do, or that cannot be
/// found out, as with whatever is not a veth.
pub(super) fn dropped(index: u32, nic: &str) -> Option<Dropped> {
    let end = Questions::open().ok()?.other_end(index).ok()??;
    let before = sent(nic)?;
    bounce(index, nic).ok()?;
    if sent(nic)? != before {
        return None;
    }
    let (may_change, name) = match &end {
        OtherEnd::Alone(name) => (true, name.as_str()),
        OtherEnd::Port(name) => (false, name.as_str()),
        OtherEnd::Unseen => (false, "NIC"),
    };
    let why = format!(
        "its other end ({name}) drops what programs in the driver send, and so every answer; mend it there: `ethtool -K {name} gro on`"
    );
    Some(Dropped { may_change, why })
}

/// Frames that programs have sent through the NIC; `None`: its driver does not count them.
fn sent(nic: &str) -> Option<u64> {
    let counted = sys::nic_statistics(nic).ok()?;
    let sent =
        counted.iter().filter(|(name, _)| name.starts_with("tx_queue_") && name.ends_with("_xdp_xmit"));
    let sent: Vec<u64> = sent.map(|(_, value)| *value).collect();
    (!sent.is_empty()).then(|| sent.iter().sum())
}

/// What programs have sent back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SentBack {
    /// Frames that have left the NIC.
    pub(crate) sent: u64,
    /// Frames that have not.
    pub(crate) dropped: u64,
}

impl SentBack {
    /// What the driver of the NIC has counted; `None`: it does not count them.
    pub(crate) fn by(nic: &str) -> Option<SentBack> {
        let counted = sys::nic_statistics(nic).ok()?;
        let sum = |end: &str| {
            let named =
                counted.iter().filter(|(name, _)| name.starts_with("rx_queue_") && name.ends_with(end));
            let values: Vec<u64> = named.map(|(_, value)| *value).collect();
            (!values.is_empty()).then(|| values.iter().sum())
        };
        Some(SentBack { sent: sum("_xdp_tx")?, dropped: sum("_xdp_tx_errors")? })
    }
}

/// Sends frames that nobody takes: from the NIC to itself, of a kind that is set aside for experiments.
fn bounce(index: u32, nic: &str) -> Result<(), XdpError> {
    if OBJECT.is_empty() {
        return Err(XdpError::NotCompiled);
    }
    let mut program = aya::EbpfLoader::new().load(OBJECT)?;
    let failed = |doing| move |source| XdpError::Program { doing, source };
    let bounce = program
        .program_mut(PROGRAM)
        .ok_or_else(|| XdpError::Object(format!("there is no '{PROGRAM}' in it")))?;
    let bounce: &mut Xdp = bounce.try_into().map_err(failed("recognising"))?;
    bounce.load().map_err(failed("loading"))?;
    let refused = |reason: String| XdpError::Attach { nic: nic.to_owned(), mode: Mode::Native, reason };
    let own = Questions::open().and_then(|mut questions| questions.nic(index));
    let own = own.map_err(|error| refused(error.to_string()))?.mac;
    let mut frame = [0u8; FRAME_BYTES];
    frame[..6].copy_from_slice(&own);
    frame[6..12].copy_from_slice(&own);
    frame[12..14].copy_from_slice(&crate::xsk::ETHERTYPE.to_be_bytes());
    // `struct xdp_md`: where the data begin and end, no metadata, the NIC that it came by, its queue, no NIC to send by.
    let context = [0, FRAME_BYTES as u32, 0, index, 0, 0].map(u32::to_ne_bytes);
    let options = TestRunOptions {
        data_in: Some(&frame),
        ctx_in: Some(context.as_flattened()),
        repeat: FRAMES,
        attrs: TestRunAttrs::new().xdp_live_frames(FRAMES),
        ..TestRunOptions::new()
    };
    bounce.test_run(options).map(drop).map_err(failed("trying"))
}
