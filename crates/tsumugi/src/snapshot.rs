//! What an endpoint is doing, for whoever looks on: `tsumugi status`, `tsumugi top`, or the program itself.
//!
//! Everything is counted from the endpoint's beginning, and goes on when a peer connects anew unless it says otherwise: rates are
//! differences between two looks.

use crate::endpoint::core::paths::PathReport;
use crate::report::Report;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Peers that an endpoint shows, at most: those with most traffic since it was looked at last.
pub const PEERS_SHOWN_MAX: usize = 64;

/// What an endpoint is doing ([`Endpoint::snapshot`]).
///
/// [`Endpoint::snapshot`]: crate::Endpoint::snapshot
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Version of the library.
    pub version: String,
    /// When this was found, `CLOCK_MONOTONIC`, ns.
    pub taken_ns: u64,
    /// The endpoint's incarnation.
    pub epoch: u32,
    /// What it uses, and what it does without.
    pub report: Report,
    /// How blocking calls wait, as [`Wait`](crate::Wait) is written.
    pub wait: String,
    /// The application watches the endpoint's descriptor in an event loop of its own.
    pub in_event_loop: bool,
    /// What has been counted, by the names of [`Endpoint::counters`](crate::Endpoint::counters).
    pub counters: BTreeMap<String, u64>,
    /// Packets sent again, by cause: `overtaken`, `timed_out`, `path_silent`, `went_back`, `refused`, `not_taken`, `suspended`,
    /// `damaged`.
    pub resent: BTreeMap<String, u64>,
    /// Time in calls that looked and found nothing, ns.
    pub idle_ns: u64,
    /// What has arrived and was not taken by the application.
    pub receive: ReceiveSnapshot,
    /// The NICs that paths to peers begin at.
    pub nics: Vec<NicSnapshot>,
    /// Peers that are known, shown or not.
    pub peers_known: u32,
    /// Those that are shown.
    pub peers: Vec<PeerSnapshot>,
}

impl Snapshot {
    /// How long ago it was taken, on this host.
    #[must_use]
    pub fn age(&self) -> Duration {
        Duration::from_nanos(now_ns().saturating_sub(self.taken_ns))
    }
}

/// The clock that snapshots say the time by: it is the same for all processes of a host.
pub(crate) fn now_ns() -> u64 {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default().as_nanos() as u64
}

/// How full an endpoint's receive side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveSnapshot {
    /// Bytes of the receive queue that are in use, and of all of it.
    pub queue_used_bytes: u64,
    /// See there.
    pub queue_bytes: u64,
    /// Bytes of messages outside it, complete or arriving, and what there may be ([`Config::receive_bytes`]).
    ///
    /// [`Config::receive_bytes`]: crate::Config::receive_bytes
    pub held_bytes: u64,
    /// See there.
    pub held_bytes_max: u64,
}

/// What the paths from one of our NICs have carried, to all peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicSnapshot {
    /// The NIC's address.
    pub ip: IpAddr,
    /// Packets that arrived over paths from this NIC.
    pub delivered: u64,
    /// Packets found lost there.
    pub lost: u64,
    /// Paths from this NIC to peers.
    pub paths: u32,
    /// Those of them that are silent, or have never been heard.
    pub silent: u32,
}

/// One peer. Counters are those of the present connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerSnapshot {
    /// By which the application knows it.
    pub number: u32,
    /// By which it was added, or its address.
    pub name: String,
    /// Where it was connected.
    pub address: SocketAddr,
    /// `strange`, `connecting`, `connected`, `leaving` or `gone`.
    pub state: String,
    /// Bytes of packets that were sent, those sent again included.
    pub bytes_sent: u64,
    /// Bytes of packets that arrived, but for direct writes of the XDP program.
    pub bytes_received: u64,
    /// Packets that arrived.
    pub packets_received: u64,
    /// Bytes of messages that wait to be sent.
    pub waiting_bytes: u64,
    /// Packets under way.
    pub outstanding: u64,
    /// Further packets that it takes.
    pub credit: u64,
    /// Packets sent again, by cause: see [`Snapshot::resent`].
    pub resent: BTreeMap<String, u64>,
    /// What keeps messages waiting now: one of the names of `held_ns`, or `nothing`.
    pub held_by: String,
    /// How long messages have waited for what, ns: `handshake`, `xoff`, `credit`, `bitmap`, `silence`, `congestion`, `nic`, `other`.
    pub held_ns: BTreeMap<String, u64>,
    /// The paths to it.
    pub paths: Vec<PathReport>,
}
