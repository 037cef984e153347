//! What an endpoint is opened with.

use crate::peer_name::PeerName;
use crate::{Integrity, Networks, NetworksError, Policy, Replacement, Wait};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tsumugi_rail::fault::FaultOptions;
use tsumugi_rail::{ReceiveChoice, SendChoice};
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::limits::MESSAGE_BYTES_MAX;
use tsumugi_wire::memory::Geometry;

/// What an endpoint is opened with. The default serves most: any free port on every address.
///
/// Later versions may have more fields, so a configuration is not written as a literal: each field has a method of its
/// name, which sets it.
///
/// ```
/// # use std::time::Duration;
/// # use tsumugi::{Config, Wait};
/// let config = Config::loopback().wait(Wait::Block).peer_timeout(Duration::from_secs(10));
/// assert_eq!(config.wait, Wait::Block);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// UDP port; 0 takes a free one. If nobody has the TCP port of the same number, the endpoint listens there and accepts
    /// nothing: so peers can tell whether its process is there while it makes no call.
    ///
    /// Default: 0.
    pub port: u16,
    /// A listener that the program has on the TCP port of the endpoint's number: it tells peers that the process is there, instead of
    /// one of the endpoint's own. They connect to it and reset the connection without a word.
    ///
    /// Default: `None`.
    pub listener: Option<Arc<TcpListener>>,
    /// Local address to bind to, and so which peers the endpoint has. `::` is every address of this
    /// host in both families: peers of IPv4 and of IPv6 at once, and on a host without IPv6 every address of IPv4. `0.0.0.0`
    /// is every address of IPv4 alone. Any other address is itself, for peers of its family.
    ///
    /// Default: `::`.
    pub bind: IpAddr,
    /// Peers to add at once, in order: they become peers 0, 1, ….
    ///
    /// Default: none.
    pub peers: Vec<PeerName>,
    /// Number of the job. Endpoints of different jobs refuse each other.
    ///
    /// Default: 0.
    pub job: u64,
    /// Whether peers that are not on the list may come: each gets the next peer number.
    ///
    /// Default: `true`.
    pub accept_unknown: bool,
    /// Most peers that the endpoint has at once. Those beyond are refused, and told so. One that came by itself and has left
    /// keeps its place only until another needs it.
    ///
    /// Default: 1024; at most [`Config::PEERS_MAX`].
    pub peers_max: u32,
    /// How blocking calls wait.
    ///
    /// Default: [`Wait::Adaptive`].
    pub wait: Wait,
    /// How losses are repaired in what this endpoint sends.
    ///
    /// Default: [`Repeat::Selective`].
    pub repeat: Repeat,
    /// What tells that a message was altered on its way; what both sides ask for counts.
    ///
    /// Default: [`Integrity::Crc32c`].
    pub integrity: Integrity,
    /// How long a peer's host may be silent, while something is outstanding, before the peer counts as dead.
    ///
    /// This is for hosts and networks that say nothing. A process that has ended is noticed at once, and one that computes
    /// or is stopped never counts as dead, because its kernel answers for it. Time during which every link here that leads
    /// to the peer is down does not count, for ten times as long as this; then that is why the peer is given up
    /// ([`Reason::LinkDown`](crate::Reason::LinkDown)).
    ///
    /// Default: 180 s, which survives the reboot of a switch; at least [`Config::PEER_TIMEOUT_MIN`].
    pub peer_timeout: Duration,
    /// How long a peer that has never answered is waited for: it may start late.
    ///
    /// Default: 30 s; at least [`Config::PEER_TIMEOUT_MIN`].
    pub connect_timeout: Duration,
    /// How long [`Endpoint::flush`](crate::Endpoint::flush) and [`Endpoint::close`](crate::Endpoint::close) wait for a peer
    /// that is there and acknowledges nothing, because it computes with its receive memory full, say. Whatever is
    /// acknowledged meanwhile, by whomever, lets them wait as long again.
    ///
    /// Default: 600 s.
    pub flush_timeout: Duration,
    /// How long an endpoint that is dropped goes on, at most, until what it has accepted is acknowledged, as TCP does for
    /// what was written to a socket that is closed. [`Endpoint::close`](crate::Endpoint::close) waits for longer
    /// and says what became of it. Zero: what is not acknowledged is given up at once.
    ///
    /// Default: 5 s.
    pub linger: Duration,
    /// Longest message to send or take, bytes.
    ///
    /// Default: 1 GiB.
    pub message_bytes_max: u64,
    /// Bytes of the receive queue; a power of two. Best when a cache holds it.
    ///
    /// Default: 1 MiB; at least [`Config::QUEUE_BYTES_MIN`].
    pub queue_bytes: u64,
    /// Bytes that received messages outside the queue may take up before senders have to wait.
    ///
    /// Default: 256 MiB; at least `queue_bytes`.
    pub receive_bytes: u64,
    /// Bytes that may wait to be sent to one peer before [`crate::SendError::WouldBlock`]. One message of
    /// any length is always accepted.
    ///
    /// Default: 4 MiB.
    pub send_bytes: u64,
    /// The send path.
    ///
    /// Default: [`SendChoice::Auto`], whichever is quickest of those that may be used.
    pub send: SendChoice,
    /// The receive path. With `xdp` the sizes of receive memory are those of its pool.
    ///
    /// Default: [`ReceiveChoice::Auto`], the XDP receive path where it may be used.
    pub receive: ReceiveChoice,
    /// Path policy: how packets are spread over the paths to a peer where both have several NICs; `None`: they all take
    /// the path by which the connection was made. With [`Repeat::GoBackN`] those of one flow take one path, and another
    /// only when it fails.
    ///
    /// Default: [`Policy::Adaptive`].
    pub policy: Option<Policy>,
    /// Which NICs and networks peers are told of and further paths may use, and which addresses peers may be added by: names
    /// of NICs, addresses and networks, with `!` before what is not to be used ([`Networks`]). `None` takes the environment
    /// variable `TSUMUGI_NETWORKS`, and where there is none, everything but what leads to this host alone.
    ///
    /// Default: `None`.
    pub networks: Option<Networks>,
    /// Which page of the window the XDP program forgets when it cannot know all of them ([`crate::Remote::window`]).
    ///
    /// Default: [`Replacement::Clock`].
    pub replacement: Replacement,
    /// Longest datagram payload, bytes; `None` takes it from the NIC's MTU.
    ///
    /// Default: `None`.
    pub datagram_bytes: Option<u16>,
    /// Faults to inject into what this endpoint sends.
    ///
    /// Default: none.
    pub faults: Option<FaultOptions>,
    /// A pcap file to write everything to that is sent and received.
    ///
    /// Default: none.
    pub trace: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            port: 0,
            listener: None,
            bind: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            peers: Vec::new(),
            job: 0,
            accept_unknown: true,
            peers_max: 1024,
            wait: Wait::default(),
            repeat: Repeat::default(),
            integrity: Integrity::default(),
            peer_timeout: Duration::from_secs(180),
            connect_timeout: Duration::from_secs(30),
            flush_timeout: Duration::from_secs(600),
            linger: Duration::from_secs(5),
            message_bytes_max: 1 << 30,
            queue_bytes: 1 << 20,
            receive_bytes: 256 << 20,
            send_bytes: 4 << 20,
            send: SendChoice::Auto,
            receive: ReceiveChoice::Auto,
            policy: Some(Policy::Adaptive),
            networks: None,
            replacement: Replacement::default(),
            datagram_bytes: None,
            faults: None,
            trace: None,
        }
    }
}

/// Gives options that are `#[non_exhaustive]` a method for each field, which sets it and returns the options.
macro_rules! setters {
    ($options:ident { $($field:ident: $value:ty),* $(,)? }) => {
        /// Each returns the same with one field set.
        impl $options {
            $(
                #[doc = concat!("The same with [`", stringify!($field), "`](field@Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $value) -> Self {
                    self.$field = $field.into();
                    self
                }
            )*
        }
    };
}
pub(crate) use setters;

setters!(Config {
    port: u16,
    listener: impl Into<Option<Arc<TcpListener>>>,
    bind: IpAddr,
    job: u64,
    accept_unknown: bool,
    peers_max: u32,
    wait: Wait,
    repeat: Repeat,
    integrity: Integrity,
    peer_timeout: Duration,
    connect_timeout: Duration,
    flush_timeout: Duration,
    linger: Duration,
    message_bytes_max: u64,
    queue_bytes: u64,
    receive_bytes: u64,
    send_bytes: u64,
    send: SendChoice,
    receive: ReceiveChoice,
    policy: impl Into<Option<Policy>>,
    networks: impl Into<Option<Networks>>,
    replacement: Replacement,
    datagram_bytes: impl Into<Option<u16>>,
    faults: impl Into<Option<FaultOptions>>,
    trace: impl Into<Option<PathBuf>>,
});

/// A configuration that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The receive queue has a size that it cannot have.
    #[error("a receive queue of {0} bytes is not possible; give a power of two of at least {min}", min = Config::QUEUE_BYTES_MIN)]
    QueueBytes(u64),
    /// The limit on messages is over what the format can say.
    #[error("messages of {0} bytes are over the format's limit of {MESSAGE_BYTES_MAX}")]
    MessageBytes(u64),
    /// The memory for received messages is smaller than the queue that they come through.
    #[error(
        "receive memory of {receive_bytes} bytes is less than the receive queue's {queue_bytes}; raise Config::receive_bytes or lower Config::queue_bytes"
    )]
    ReceiveBytes {
        /// As configured.
        receive_bytes: u64,
        /// As configured.
        queue_bytes: u64,
    },
    /// A time-out that would kill healthy peers.
    #[error("a peer time-out of {0:?} is shorter than the longest pause between two resends; give at least {min:?}", min = Config::PEER_TIMEOUT_MIN)]
    PeerTimeout(Duration),
    /// No peers.
    #[error("an endpoint for {0} peers is not possible; give 1 to {max}", max = Config::PEERS_MAX)]
    Peers(u32),
}

impl Config {
    /// Smallest receive queue, bytes.
    pub const QUEUE_BYTES_MIN: u64 = 32 << 10;
    /// Shortest time after which a silent peer may be declared dead.
    pub const PEER_TIMEOUT_MIN: Duration = Duration::from_millis(50);
    /// Most peers of one endpoint.
    pub const PEERS_MAX: u32 = 1 << 16;

    /// An endpoint on the loopback interface, for trials and tests.
    #[must_use]
    pub fn loopback() -> Config {
        Config::default().bind(Ipv4Addr::LOCALHOST.into())
    }

    /// The same with these [`peers`](field@Config::peers), by names or addresses.
    #[must_use]
    pub fn peers<P: Into<PeerName>>(mut self, peers: impl IntoIterator<Item = P>) -> Config {
        self.peers = peers.into_iter().map(Into::into).collect();
        self
    }

    /// The list that holds.
    pub(crate) fn networks_in_force(&self) -> Result<Networks, NetworksError> {
        self.networks.clone().map_or_else(Networks::from_environment, Ok)
    }

    pub(crate) fn check(&self) -> Result<Geometry, ConfigError> {
        if !self.queue_bytes.is_power_of_two()
            || self.queue_bytes < Config::QUEUE_BYTES_MIN
            || self.queue_bytes > 1 << 40
        {
            return Err(ConfigError::QueueBytes(self.queue_bytes));
        }
        if self.message_bytes_max > MESSAGE_BYTES_MAX {
            return Err(ConfigError::MessageBytes(self.message_bytes_max));
        }
        if self.receive_bytes < self.queue_bytes {
            return Err(ConfigError::ReceiveBytes {
                receive_bytes: self.receive_bytes,
                queue_bytes: self.queue_bytes,
            });
        }
        for timeout in [self.peer_timeout, self.connect_timeout] {
            if timeout < Config::PEER_TIMEOUT_MIN {
                return Err(ConfigError::PeerTimeout(timeout));
            }
        }
        if self.peers_max == 0 || self.peers_max > Config::PEERS_MAX {
            return Err(ConfigError::Peers(self.peers_max));
        }
        Ok(Geometry::plain(self.peers_max, self.queue_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_says_its_default() {
        let (_, fields) = include_str!("config.rs").split_once("pub struct Config {").unwrap();
        let (fields, _) = fields.split_once("\n}").unwrap();
        let fields: Vec<&str> =
            fields.split_inclusive(",\n").filter(|field| field.contains("    pub ")).collect();
        assert!(fields.len() > 20, "{fields:?}");
        for field in fields {
            assert!(field.contains("/// Default: "), "{field}");
        }
    }

    #[test]
    fn a_thousand_peers_take_little_more_receive_memory_than_ten() {
        let bytes = |peers_max| Config::default().peers_max(peers_max).check().unwrap().bytes();
        assert!(bytes(1000) < 2 * bytes(10), "{} and {}", bytes(1000), bytes(10));
    }
}
