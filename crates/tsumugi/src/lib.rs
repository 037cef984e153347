//! Tsumugi: microsecond messages on ordinary Ethernet.
//!
//! An [`Endpoint`] is a process's attachment to the cluster. It opens channels; a [`Channel`] carries
//! reliable datagrams to the same channel of other peers. The caller sets up no connection: say whom to send
//! to and send. Messages between two endpoints arrive once, whole and in order, or their sender is told.
//!
//! ```
//! use tsumugi::{Config, Endpoint};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (port, ports) = std::sync::mpsc::channel();
//! let receiver = std::thread::spawn(move || {
//!     let there = Endpoint::open(Config::loopback()).expect("an endpoint");
//!     let mut channel = there.channel(7).expect("nobody else has it");
//!     port.send(there.port()).expect("somebody listens");
//!     let message = channel.receive().expect("a message");
//!     assert_eq!(&message[..], b"spun from plain yarn");
//! });
//!
//! let here = Endpoint::open(Config::loopback())?;
//! let peer = here.add_peer(format!("127.0.0.1:{}", ports.recv()?))?;
//! let mut channel = here.channel(7)?;
//! channel.send(peer, b"spun from plain yarn")?;
//! // Waits until it has arrived, and says so if it has not.
//! here.close()?;
//! # receiver.join().map_err(|_| "the receiver failed")?;
//! # Ok(())
//! # }
//! ```
//!
//! The package's folder `examples` has programs that fit a screen: `hello`, this as two processes; a server and its clients
//! (`request_reply`, `tokio_client`), `pipeline`, `token_ring`, `shared_counter`, `key_value`, `upload`.
//!
//! # Progress
//!
//! There is no thread behind an endpoint. Every call makes progress for the whole endpoint: it takes in what
//! has arrived, acknowledges, resends. A process that computes for long calls [`Endpoint::progress`] now and then, or
//! has the XDP receive path take in and acknowledge meanwhile.
//!
//! # Ends
//!
//! [`Endpoint::close`] waits until everything that was accepted is acknowledged, tells the peers, and says what was
//! lost. An endpoint that is dropped with the last of its channels and messages does the same for [`Config::linger`] at
//! most, but has nobody to tell; what it gives up then is a line in the log. So a program that returns from `main`
//! loses nothing as long as its peers are there. One that calls [`std::process::exit`], or panics, does not wait.
//!
//! A receive call fails when a peer is killed or falls silent, even if nothing was outstanding with it. A peer that
//! closes in good order is no error of a receive call: a server waits for the next client. Only an endpoint that has
//! added peers is told when the last of them leaves, because nothing would come any more. [`Endpoint::take_failure`]
//! tells of every end.
//!
//! # Waiting
//!
//! A call that waits for something to come has no time limit; beside it stands one whose name ends in `_timeout`
//! ([`Channel::receive_timeout`], [`message::Port::wait_any_timeout`], [`active_message::ActiveMessages::call_timeout`]). When
//! the time is over, that is an error called `TimedOut`; the `poll_timeout` of a programming model returns 0. Anything that can
//! be [awaited](#tasks) can be given a limit by [`Endpoint::block_on_timeout`], and whoever looks into memory says what to wait
//! for with [`Endpoint::wait_until`].
//!
//! # Tasks
//!
//! What waits can be awaited, too: [`Channel::receive_async`], [`Channel::send_async`], a tagged [`message::Request`], a remote
//! [`remote::Operation`], [`Endpoint::flush_async`]. A receive that is dropped before it is ready has taken no message. With the feature
//! `tokio` they have the runtime that polls them watch the endpoint (`examples/event_loop.rs`); an endpoint belongs to one
//! thread, and so its tasks run in a `LocalSet` or a runtime of one thread. A program whose tasks wait for other things as well
//! keeps the endpoint going meanwhile with [`Endpoint::drive`]. Without any runtime, [`Endpoint::block_on`] runs a future.
//!
//! # Event loops
//!
//! [`Endpoint::descriptor`] is readable when something has arrived and when a timer is due; whoever watches it calls
//! [`Endpoint::progress`], or receives without waiting, whenever it is. That wakes tasks as well.
//!
//! # Programming models
//!
//! | module | |
//! |---|---|
//! | [`Channel`] | datagrams of any length, reliable and in order; what everything else is made of |
//! | [`message`] | tagged messages, sent and received by requests; what MPI is made of |
//! | [`active_message`] | requests that run a handler where they arrive, and replies; for what is short and must never hang |
//! | [`collective`] | barriers, broadcasts, reductions, gathers and their like among a list of participants |
//! | [`multicast`] | one message to several peers, which leaves once where a switch box makes one for each out of it |
//! | [`stream`] | messages in pieces of any size, read while they arrive; for what is long and parsed as it comes |
//! | [`remote`] | reading, writing and atomically changing registered memory of another process, by key and address |
//! | [`remote_memory`] | the same by name: one process exports memory, others import it and write at a place of their choice |
//!
//! Each but [`remote`], which needs none, takes one channel of an endpoint; any number of them work beside each other.
//!
//! # What is missing
//!
//! Nothing that is optional keeps an endpoint from opening: it goes on with what the machine and the user's rights leave,
//! and [`Endpoint::report`] says what it does without, why, and what mends it. What was asked for by name is an error when
//! it cannot be had.
//!
//! # What happened
//!
//! The library emits [`tracing`] events; a program that has no `tracing` subscriber but a [`log`](https://docs.rs/log) logger
//! gets the same lines there. Nothing is emitted for a packet or a message that goes its usual way.
//!
//! | level | events |
//! |---|---|
//! | warning | a connection ends with something lost, or its peer without a word; an endpoint loses the XDP receive path; a path falls silent (for how long, with how much lost), or its NIC or address goes; a path carries shorter packets than before; a packet arrives damaged; a peer of another version, or one too many; unexpected messages fill the memory; a switch box counts no more; none makes packets for several receivers where that was asked for |
//! | information | an endpoint opens, with what it uses and does without, and ends: closed, aborted or suspended, with its messages; a peer is connected (its name, address and epoch), or closes in good order; a path is used again, and after how long; the XDP receive path is back; whether a switch box counts, where that was asked for |
//! | debug | a connection is asked for, or refused here; packets are sent again because no acknowledgement came |
//!
//! # Who owns which buffer
//!
//! | buffer | filled by | belongs to the application | goes back |
//! |---|---|---|---|
//! | [`SendBuffer`] | the application, in place | until it is sent | to the pool when acknowledged |
//! | [`Message`], short | the receive path, in the receive queue | until it is released (dropped) | to the queue |
//! | [`Message`], long | the library, from its fragments | until it is released (dropped) | to the pool |

pub mod active_message;
pub mod collective;
pub mod message;
pub mod multicast;

mod buffer;
mod channel;
mod checksum;
mod clock;
mod config;
mod context;
mod counters;
mod endpoint;
mod error;
mod integrity;
mod memory;
mod peer_name;
mod peers;
mod pool;
mod registry;
pub mod remote;
pub mod remote_memory;
mod report;
mod send_buffer;
pub mod snapshot;
pub mod stream;
mod ticket;
mod wait;

pub use channel::{Channel, Message};
pub use config::{Config, ConfigError};
pub use context::{Context, ContextError};
pub use counters::Counters;
pub use endpoint::Endpoint;
pub use endpoint::core::paths::PathReport;
pub use error::{
    ChannelError, Failure, NameError, OpenError, PeerError, PortError, Reason, ReceiveError, SendError,
    Unsent,
};
pub use integrity::{Integrity, ParseIntegrityError};
pub use peer_name::PeerName;
pub use peers::{HostFileError, parse_host_file};
pub use remote::{Remote, Rights, Target};
pub use report::{GivenUp, NicInUse, Report};
pub use send_buffer::SendBuffer;
pub use ticket::{Ticket, TicketStatus};
pub use tsumugi_proto::path_policy::{PolicyChoice as Policy, UnknownPolicy};
pub use tsumugi_proto::translation::{ReplacementChoice as Replacement, UnknownReplacement};
pub use tsumugi_rail::ethernet::{ParseReceiveChoiceError, ParseSendChoiceError, ReceiveChoice, SendChoice};
pub use tsumugi_rail::fault::FaultOptions;
pub use tsumugi_rail::{Evidence, Networks, NetworksError, NicName, OutOfRegion, PinError, Region, Slice};
pub use tsumugi_wire::handshake::{Refusal, Repeat};
pub use tsumugi_wire::limits::DEFAULT_PORT;
pub use wait::{ParseWaitError, Wait};

/// What the simulation and the fuzzers drive, an endpoint without a socket and without a clock; and what
/// measurements look through.
#[doc(hidden)]
pub mod internal {
    pub use crate::checksum::crc32c;
    pub use crate::endpoint::core::channels::Delivery;
    pub use crate::endpoint::core::inspect::PeerView;
    pub use crate::endpoint::core::{Core, EndpointOptions};
    pub use crate::endpoint::multicast::MulticastId;
    pub use crate::endpoint::peer::operations::Promise;
    pub use crate::endpoint::receive_queue::Payload;
    pub use crate::endpoint::{open_simulated, open_through};
    pub use crate::message::matching::{Matching, Posted, Wanted};
}

/// Number of a peer in an endpoint's list of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

impl std::fmt::Display for PeerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "peer {}", self.0)
    }
}
