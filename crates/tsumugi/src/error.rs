//! What can go wrong, one enum for each thing a caller does.

use crate::PeerId;
use crate::config::ConfigError;
use crate::context::ContextError;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tsumugi_rail::{EthernetError, Evidence, NetworksError, NicName, RailError};
use tsumugi_wire::handshake::Refusal;
use tsumugi_wire::limits::VERSION;

/// An endpoint could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The list of networks in the environment means nothing.
    #[error(transparent)]
    Networks(#[from] NetworksError),
    /// A peer on the list cannot be added.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The context of a suspended endpoint cannot be used.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The rail could not be opened: its sockets, its receive memory or its receive path.
    #[error(transparent)]
    Rail(#[from] EthernetError),
    /// The NIC's poll may not be run while waiting.
    #[error(transparent)]
    BusyPoll(RailError),
    /// The trace file could not be written.
    #[error("cannot write the trace {path}")]
    Trace {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// A peer could not be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The name has no address.
    #[error(
        "unknown host '{name}': neither an address nor a name that resolves; check the spelling, /etc/hosts and DNS"
    )]
    UnknownHost {
        /// What was asked for.
        name: String,
        /// What the resolver said.
        #[source]
        source: Option<std::io::Error>,
    },
    /// Something that is not `host` or `host:port`.
    #[error("'{0}' is not a peer; write host, host:port, [IPv6 address]:port or [fe80::…%NIC]:port")]
    Syntax(String),
    /// The NIC behind the `%` of a link-local address does not exist.
    #[error("{address} is said to be on the link of '{nic}', which is no NIC here; there are: {there}")]
    NoSuchNic {
        /// The address without it.
        address: std::net::Ipv6Addr,
        /// What is behind the `%`.
        nic: String,
        /// The NICs that exist, separated by commas.
        there: String,
    },
    /// A link-local address, of which every NIC's link may have one.
    #[error(
        "{address} may be on the link of any NIC; say of which, as in [{address}%NIC]:7411; there are: {there}"
    )]
    NoScope {
        /// The address.
        address: std::net::Ipv6Addr,
        /// The NICs that exist, separated by commas.
        there: String,
    },
    /// The endpoint cannot reach addresses of this family.
    #[error(
        "{address} is an address of {theirs} and the endpoint is bound to {bound}, which is of {ours} only; bind it to :: (Config::bind, the default), which is both where the host has IPv6 (`sysctl net.ipv6.conf.all.disable_ipv6`), or to an address of {theirs}",
        theirs = family_of(.address), ours = family_of(.bound), bound = .bound.ip()
    )]
    Family {
        /// The peer.
        address: SocketAddr,
        /// Our own address.
        bound: SocketAddr,
    },
    /// The list of networks does not let it be sent to.
    #[error(
        "{address} may not be used: it is {why}; name another of the peer's addresses, or change the list (Config::networks, TSUMUGI_NETWORKS, --networks)"
    )]
    NotAllowed {
        /// The peer.
        address: SocketAddr,
        /// The entry that says so.
        why: String,
    },
    /// The list of peers is full.
    #[error("no room for another peer: the endpoint was opened for {0}; raise Config::peers_max")]
    TooMany(u32),
}

const fn family_of(address: &SocketAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// A channel could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// Somebody has it already: a channel is exclusive.
    #[error(
        "channel {0} is taken: it is open already on this endpoint; close it first or choose another number"
    )]
    Taken(u16),
}

/// Why a peer can no longer be talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Nothing came from it for [`Config::peer_timeout`](crate::Config::peer_timeout) while something was outstanding,
    /// and no kernel said that its process is there.
    #[error("nothing was heard from it for {0:?}, and {1}")]
    Silent(Duration, Evidence),
    /// It did not answer within [`Config::connect_timeout`](crate::Config::connect_timeout).
    #[error(
        "it did not answer within {0:?}, and {1}; is it running, on this port, in the same job and version?"
    )]
    Unreachable(Duration, Evidence),
    /// It did not answer within [`Config::connect_timeout`](crate::Config::connect_timeout) in words that can be read: something at
    /// its address speaks this other version of the protocol.
    #[error(
        "it speaks version {0} of the protocol, and this is version {VERSION}: install the same version of Tsumugi on both hosts"
    )]
    OtherVersion(u8),
    /// Its process has ended: its host says that nobody has its port.
    #[error("its process has ended: its host says that nobody has the port")]
    Gone,
    /// It does not want to know this endpoint, and says why.
    #[error("it refuses this endpoint: {0}")]
    Refused(Refusal),
    /// Nothing can be sent to it: the system's error number.
    #[error("there is no route to it from here: {error}; see `ip route get ADDRESS` and the packet filter", error = std::io::Error::from_raw_os_error(*.0))]
    NoRoute(i32),
    /// Every link of this host that leads to it has been down for so long, ten times
    /// [`Config::peer_timeout`](crate::Config::peer_timeout); the first of them. The peer is not to blame.
    #[error(
        "the link of {1} here, which leads to it, has been down for {0:?}; the peer may be well: see `ip link show {1}`, the cable and the switch"
    )]
    LinkDown(Duration, NicName),
    /// Packets of so many bytes, which every path should carry, do not arrive, and shorter ones do.
    #[error(
        "it answers, and packets of {0} bytes do not reach it: a link, tunnel or filter on the way drops them"
    )]
    Narrow(usize),
    /// It is a new incarnation and knows nothing of what was before.
    #[error("it has restarted")]
    Restarted,
    /// It closed in good order: everything that it sent has arrived.
    #[error("it has closed")]
    Closed,
    /// It closed without delivering all that it had sent.
    #[error("it went away in the middle of a transfer")]
    Aborted,
    /// It broke the protocol.
    #[error("it broke the protocol: {0}")]
    Violation(&'static str),
    /// A message was accepted for it before it said how long messages may be.
    #[error(
        "it takes messages of at most {0} bytes, and a longer one was waiting for it; reset it (Endpoint::reset_peer) and send shorter ones"
    )]
    TooLong(u64),
    /// A message of it could not be stored.
    #[error("there is no memory for a message of {0} bytes from it")]
    NoMemory(u64),
}

/// The end of a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{name} ({peer}, {address}) is gone: {reason}; {undelivered} messages to it were not acknowledged")]
pub struct Failure {
    /// Which peer.
    pub peer: PeerId,
    /// Its name as it was given.
    pub name: String,
    /// Its address.
    pub address: SocketAddr,
    /// Why.
    pub reason: Reason,
    /// Messages to it that were accepted and of which it is not known whether they arrived.
    pub undelivered: u64,
}

impl Failure {
    /// Whether the peer closed in good order and nothing was lost: all that it sent has arrived, and all that was sent to it.
    #[must_use]
    pub fn is_orderly(&self) -> bool {
        self.reason == Reason::Closed && self.undelivered == 0
    }
}

/// A message was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The send queue is full. Make progress and try again, or use the blocking form.
    #[error("the queue to this peer is full; make progress and try again")]
    WouldBlock,
    /// The message is longer than this endpoint or the peer takes.
    #[error(
        "a message of {bytes} bytes is over the limit of {limit}; raise Config::message_bytes_max on both sides, or send it in pieces"
    )]
    TooLong {
        /// Length of the message.
        bytes: u64,
        /// The limit that it exceeds.
        limit: u64,
    },
    /// No peer has this number.
    #[error(
        "{0} does not exist: no peer was added under this number, or it came by itself, has left, and its place was needed"
    )]
    NoSuchPeer(PeerId),
    /// The peer is gone.
    #[error(transparent)]
    Peer(Box<Failure>),
    /// Nothing was acknowledged for [`Config::flush_timeout`](crate::Config::flush_timeout), though the peer is there.
    #[error(
        "nothing was acknowledged for {waited:?}, and {messages} messages to {name} ({address}) wait: it is there and takes none of them; it may compute, or be stopped; wait again, or raise Config::flush_timeout"
    )]
    Stalled {
        /// How long.
        waited: Duration,
        /// How many messages it has not acknowledged.
        messages: u64,
        /// Its name as it was given.
        name: String,
        /// Its address.
        address: SocketAddr,
    },
    /// The time is over.
    #[error("no room in the queue to this peer within {0:?}")]
    TimedOut(Duration),
    /// There is no memory for a buffer of this length.
    #[error("no memory for a send buffer of {0} bytes")]
    NoMemory(usize),
    /// What is to be sent is not there.
    #[error(transparent)]
    Memory(tsumugi_rail::OutOfRegion),
    /// The NIC is broken.
    #[error(transparent)]
    Rail(#[from] RailError),
}

/// A message that was not sent, with the buffer that it is written in. `?` makes a [`SendError`] of it, which lets go of the
/// buffer.
#[derive(Debug)]
pub struct Unsent<B> {
    /// Why.
    pub error: SendError,
    /// The buffer, as it was; empty when the message had been accepted and only then the NIC turned out to be broken.
    pub buffer: B,
}

impl<B> From<Unsent<B>> for SendError {
    fn from(unsent: Unsent<B>) -> SendError {
        unsent.error
    }
}

impl<B> std::fmt::Display for Unsent<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl<B: std::fmt::Debug> std::error::Error for Unsent<B> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// No message was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// A peer is gone. Said once on every open channel; receiving may go on.
    ///
    /// Of one that closed in good order, with nothing lost, nothing is said here, as long as another peer may still
    /// send: an endpoint that peers connect to waits for the next, and one that has added peers
    /// ([`Endpoint::add_peer`](crate::Endpoint::add_peer)) is told when the last of them has closed.
    /// [`Endpoint::take_failure`](crate::Endpoint::take_failure) tells of each.
    #[error(transparent)]
    Peer(Box<Failure>),
    /// The time is over.
    #[error("no message within {0:?}")]
    TimedOut(Duration),
    /// Messages that the application keeps fill the receive memory, and none is left to deliver.
    #[error(
        "the receive memory is exhausted: {held} bytes of {limit} are held by messages that were received and not released, or that wait on other channels; release them, or raise Config::receive_bytes"
    )]
    MemoryExhausted {
        /// Bytes held.
        held: u64,
        /// Bytes there are.
        limit: u64,
    },
    /// The NIC is broken.
    #[error(transparent)]
    Rail(#[from] RailError),
}

/// A handler or a segment could not be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is in use.
    #[error("'{0}' is registered already; a name stands for one thing")]
    Twice(String),
    /// Another name looks the same on the wire.
    #[error(
        "'{name}' cannot be told from '{other}' on the wire, where names are 64 bits; choose another name"
    )]
    Collision {
        /// The name that was to be registered.
        name: String,
        /// The name that is registered.
        other: String,
    },
}

/// A programming model could not be set up over a channel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The channel cannot be had.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The endpoint takes shorter messages than the options ask for.
    #[error(
        "messages of {needed} bytes are needed and the endpoint takes {limit}; raise Config::message_bytes_max or lower the options' limits"
    )]
    MessageBytes {
        /// Bytes of the longest message.
        needed: u64,
        /// The endpoint's limit.
        limit: u64,
    },
    /// An option is 0, and nothing could ever be sent.
    #[error("the option {0} is 0: nothing could ever be sent; give at least 1")]
    Zero(&'static str),
}
