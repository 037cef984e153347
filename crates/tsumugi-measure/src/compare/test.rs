//! A test of a comparison: what is measured in each round, and of what.

use super::entry::Entry;
use crate::row::Metric;

/// What a test is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub(crate) enum Kind {
    /// A section of the table: every transport at one size.
    Main,
    /// Bandwidth with and without injected faults.
    Faults,
    /// A receiver that computes while a message arrives.
    Overlap,
    /// TCP through NICs with and without the XDP program.
    Coexistence,
    /// An endpoint that waits.
    Idle,
    /// Two pairs of processes on two cores.
    Pairs,
    /// Remote writes beside messages.
    Writes,
    /// Streams of tagged messages, from long to very long.
    Long,
    /// A point of a curve against size; in the report and the JSON, not in the table.
    Curve,
}

/// One thing to measure in each round.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub(crate) kind: Kind,
    pub(crate) metric: Metric,
    pub(crate) size_bytes: u64,
    /// Whether it runs in the lab with offloads.
    pub(crate) offloads: bool,
    /// Largest IP packet of that lab's NICs, in bytes.
    pub(crate) mtu_bytes: u32,
    /// Seconds of one measurement.
    pub(crate) time_s: f64,
    pub(crate) entries: Vec<Entry>,
}

/// Why something cannot be measured here; `None` where it can.
#[derive(Clone, Debug, Default)]
pub(crate) struct Missing {
    /// Bare frames.
    pub(crate) raw: Option<String>,
    /// The XDP receive path.
    pub(crate) xdp: Option<String>,
    /// Frames through packet and AF_XDP sockets.
    pub(crate) packet: Option<String>,
    /// How much memory there is, bytes, if that is known.
    pub(crate) memory_bytes: Option<u64>,
}
