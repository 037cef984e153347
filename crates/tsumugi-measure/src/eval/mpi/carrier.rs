//! What carries the messages of a job.

use serde::{Deserialize, Serialize};
use tsumugi_lab::mpi::Mpi;
use tsumugi_mpi::settings::Transport;

/// What carries the messages between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// libfabric's tcp provider.
    Tcp,
    /// UCX over TCP.
    Ucx,
    /// Tsumugi, whose packets arrive through a socket.
    TsumugiSocket,
    /// Tsumugi, whose packets the XDP program receives.
    TsumugiXdp,
    /// Two UDP sockets, and no MPI: the floor of what is built on sockets.
    BareUdp,
    /// The same sockets on NICs that have the XDP program, where a veth pair segments what is sent before it crosses.
    BareUdpXdp,
}

impl Carrier {
    /// What no MPI uses.
    pub(super) const FLOORS: [Carrier; 2] = [Carrier::BareUdp, Carrier::BareUdpXdp];

    /// What an MPI can use; what the others are compared with comes first.
    pub(super) fn of(mpi: Mpi) -> Vec<Carrier> {
        let ucx = (mpi == Mpi::Mpich).then_some(Carrier::Ucx);
        [Carrier::Tcp].into_iter().chain(ucx).chain([Carrier::TsumugiSocket, Carrier::TsumugiXdp]).collect()
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Carrier::Tcp => "tcp",
            Carrier::Ucx => "UCX/tcp",
            Carrier::TsumugiSocket => "tsumugi, sockets",
            Carrier::TsumugiXdp => "tsumugi, XDP",
            Carrier::BareUdp => "bare UDP",
            Carrier::BareUdpXdp => "bare UDP beside XDP",
        }
    }

    /// What gives it its colour in a report.
    pub(super) fn class(self) -> &'static str {
        match self {
            Carrier::Tcp => "tcp",
            Carrier::Ucx => "ucx",
            Carrier::TsumugiSocket => "socket",
            Carrier::TsumugiXdp => "xdp",
            Carrier::BareUdp => "udp",
            Carrier::BareUdpXdp => "udp-xdp",
        }
    }

    pub(super) fn is_floor(self) -> bool {
        Carrier::FLOORS.contains(&self)
    }

    /// Whether its NICs have the XDP program.
    pub(super) fn has_xdp(self) -> bool {
        matches!(self, Carrier::TsumugiXdp | Carrier::BareUdpXdp)
    }

    pub(super) fn is_ours(self) -> bool {
        matches!(self, Carrier::TsumugiSocket | Carrier::TsumugiXdp)
    }

    /// How a job is told to use it: what, and the environment of its ranks.
    pub(super) fn settings(self) -> (Transport, &'static [(&'static str, &'static str)]) {
        match self {
            // Without MPI the transport only says where the sockets are.
            Carrier::Tcp | Carrier::BareUdp | Carrier::BareUdpXdp => (Transport::Tcp, &[]),
            Carrier::Ucx => (Transport::Ucx, &[]),
            // What a user gets who is not root.
            Carrier::TsumugiSocket => (
                Transport::Tsumugi,
                &[("FI_TSUMUGI_RECEIVE_PATH", "socket"), ("FI_TSUMUGI_SEND_PATH", "udp")],
            ),
            Carrier::TsumugiXdp => (Transport::Tsumugi, &[("FI_TSUMUGI_RECEIVE_PATH", "xdp")]),
        }
    }
}
