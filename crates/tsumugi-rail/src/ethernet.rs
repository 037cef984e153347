//! A rail with everything that an endpoint on Ethernet uses: sockets, which always work; send paths that bypass
//! them; and the XDP receive path where there is one.
//!
//! Sockets stay open beside the XDP receive path: they get what the XDP program leaves to the kernel, and everything
//! once the program is gone. They also send to peers that a send path does not reach.

mod answers;
mod attachment;

use crate::choose::Chooser;
use crate::given_up::GivenUp;
use crate::liveness::{Evidence, Listener, Presence, Question, Questions};
use crate::memory::{Memory, MemoryError};
use crate::networks::Networks;
use crate::nics::{NicAddress, NicName, Nics};
use crate::packet::{PacketError, PacketSendPath};
use crate::report::RailReport;
use crate::send_path::SendPath;
use crate::sys::{self, Epoll};
use crate::udp::{Udp, UdpError, UdpOptions};
use crate::xdp::{Attached, Claim, Pins, Wanted, XdpError};
use crate::xsk::{XskSendPathError, XskSendPaths};
use crate::{Deliver, Packet, Rail, RailError};
use attachment::Attachment;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use strum::VariantNames as _;
use tsumugi_wire::Instant;
use tsumugi_wire::memory::Geometry;
use tsumugi_wire::time::MICROSECOND_NS;

/// Time between two looks into the sockets while the XDP program deposits and no socket has had anything lately. A look
/// costs a system call, 0.3 µs in which what is deposited is not seen.
const SOCKETS_EVERY_NS: u64 = 20 * MICROSECOND_NS;
/// How long a socket that has had something is expected to have more: who exchanges messages that the program leaves to the kernel,
/// coalesced ones behind the driver (generic), say, would wait for the next look with each of them.
const SOCKETS_BUSY_NS: u64 = 200 * MICROSECOND_NS;
/// A caller that was away for so long has slept, or computed: the sockets are asked at once.
const AWAY_NS: u64 = 20 * MICROSECOND_NS;
/// Free ports that are tried until one is found that is not set aside for another user's endpoints.
const PORTS_TRIED: usize = 16;

/// What may be given up, as a user would call it.
const XDP: &str = "the XDP receive path";
const PACKET: &str = "the packet send path";
const XSK: &str = "the xsk send path";
const NEWS: &str = "news of NICs";
const PRESENCE: &str = "a sign of life while this process makes no call";
const GRACE: &str = "grace periods";

/// Which receive path is to be used.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::EnumMessage,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::VariantNames,
)]
#[strum(serialize_all = "kebab-case", parse_err_ty = ParseReceiveChoiceError, parse_err_fn = ParseReceiveChoiceError::of)]
pub enum ReceiveChoice {
    /// The XDP receive path where an endpoint memory is free, else the socket receive path.
    ///
    /// An endpoint that loses the XDP receive path continues without it.
    #[default]
    Auto,
    /// The library's socket receive path.
    Socket,
    /// The XDP receive path; an error when there is none, or none any more.
    Xdp,
}

/// A word that names no receive path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no receive path; choose from {all}", all = ReceiveChoice::VARIANTS.join(", "))]
pub struct ParseReceiveChoiceError(String);

impl ParseReceiveChoiceError {
    fn of(word: &str) -> ParseReceiveChoiceError {
        ParseReceiveChoiceError(word.to_owned())
    }
}

/// Which send path is to be used.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::EnumMessage,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::VariantNames,
)]
#[strum(serialize_all = "kebab-case", parse_err_ty = ParseSendChoiceError, parse_err_fn = ParseSendChoiceError::of)]
pub enum SendChoice {
    /// Whichever was quickest with bursts of the same kind, of those that may be used here.
    #[default]
    Auto,
    /// UDP sockets.
    Udp,
    /// Frames through a packet socket; an error when that is not permitted.
    Packet,
    /// Frames through AF_XDP sockets, each on a queue of a NIC that nobody else has; an error when that is not permitted.
    Xsk,
}

/// A word that names no send path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no send path; choose from {all}", all = SendChoice::VARIANTS.join(", "))]
pub struct ParseSendChoiceError(String);

impl ParseSendChoiceError {
    fn of(word: &str) -> ParseSendChoiceError {
        ParseSendChoiceError(word.to_owned())
    }
}

/// What to open.
#[derive(Clone, Debug)]
pub struct EthernetOptions {
    /// The sockets.
    pub udp: UdpOptions,
    /// The send path.
    pub send: SendChoice,
    /// The receive path.
    pub receive: ReceiveChoice,
    /// Sizes of the receive memory, unless it comes from the XDP receive path's pool.
    pub geometry: Geometry,
    /// Which NICs and networks may be used beside the one that a peer is named by.
    pub networks: Networks,
    /// A listener of the program's own: on the port of the endpoint's number it is the endpoint's sign of life.
    pub listener: Option<Arc<TcpListener>>,
}

/// Why an [`Ethernet`] rail did not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EthernetError {
    /// The sockets.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// The XDP receive path.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// Receive memory of our own.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The `packet` send path.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The `xsk` send path.
    #[error(transparent)]
    Xsk(#[from] XskSendPathError),
}

/// A rail on Ethernet.
pub struct Ethernet {
    sockets: Udp,
    send_paths: Vec<Box<dyn SendPath>>,
    /// Chooses the send path of a burst: the sockets are number 0, if they are among the choices.
    chooser: Chooser,
    choice: SendChoice,
    xdp: Option<XdpReceive>,
    /// `None` on the loopback interface.
    nics: Option<Nics>,
    /// For who wants to know whether this process is there; `None` where the port is somebody else's.
    presence: Option<Presence>,
    /// What is asked of peers' kernels.
    questions: Questions,
    /// What had to be done without when it was opened.
    given_up: Vec<GivenUp>,
}

/// The XDP receive path as one endpoint has it.
#[derive(Debug)]
struct XdpReceive {
    claim: Claim,
    /// The sockets and the doorbell.
    epoll: Epoll,
    /// Whether going on without it is an error.
    demanded: bool,
    /// What is known of the program.
    attachment: Attachment,
    /// When the sockets were looked into.
    sockets_at: Instant,
    /// When something came by a socket last.
    heard_at: Instant,
    /// Whether a look into the sockets runs the NIC's poll.
    busy_polling: bool,
    /// When `receive` was called last.
    received_at: Instant,
}

impl Ethernet {
    /// Opens the rail, and the receive memory that its receive path deposits into.
    ///
    /// What was not asked for by name is optional: when it is missing or forbidden, the next best is used, and
    /// [`Rail::report`] says so.
    ///
    /// # Errors
    /// Says what failed, and what to do: the sockets, an option, memory, or what was asked for by name.
    pub fn open(options: &EthernetOptions) -> Result<(Ethernet, Memory), EthernetError> {
        let listener = Listener::new(options.udp.address);
        let mut given_up = Vec::new();
        // What is said on the loopback interface goes through no NIC.
        let with_xdp = match options.receive {
            ReceiveChoice::Socket => None,
            ReceiveChoice::Auto if options.udp.address.is_loopback() => None,
            ReceiveChoice::Auto => Ethernet::with_xdp(&options.udp, false).unwrap_or_else(|error| {
                given_up.push(GivenUp::of(XDP, &error, "sudo tsumugi doctor"));
                None
            }),
            ReceiveChoice::Xdp => Some(
                Ethernet::with_xdp(&options.udp, true)?
                    .ok_or_else(|| XdpError::NoneFree(Ethernet::why_none(options.udp.port)))?,
            ),
        };
        if let Some((xdp, sockets, memory)) = with_xdp {
            if let Err(error) = sys::grace_periods() {
                let why = format!("membarrier(2): {error}: opening and closing take 0.1 s longer");
                given_up.push(GivenUp::of(GRACE, &why, "allow this program membarrier(2)"));
            }
            return Ok((Ethernet::assemble(sockets, Some(xdp), listener, options, given_up)?, memory));
        }
        let sockets = Ethernet::without_xdp(&options.udp)?;
        let optional = options.receive == ReceiveChoice::Auto && !options.udp.address.is_loopback();
        if optional && given_up.is_empty() {
            let why = Ethernet::why_none(options.udp.port);
            given_up.push(GivenUp::of(XDP, &why, "sudo tsumugi doctor"));
        }
        Ok((Ethernet::assemble(sockets, None, listener, options, given_up)?, Memory::new(options.geometry)?))
    }

    /// The XDP receive path with sockets beside it; `None`: there is none, or none free.
    fn with_xdp(
        options: &UdpOptions,
        demanded: bool,
    ) -> Result<Option<(XdpReceive, Udp, Memory)>, EthernetError> {
        let Some((claim, sockets)) = Ethernet::claim(options)? else { return Ok(None) };
        let memory = claim.memory()?;
        Ok(Some((XdpReceive::new(claim, &sockets, demanded)?, sockets, memory)))
    }

    /// Sockets alone. They get every packet of their port, unless an endpoint memory of the XDP receive path on this
    /// port belongs to another user's process that was killed: a memory that is seen to be nobody's is disowned, and of
    /// the free ports one is taken that is not another user's.
    fn without_xdp(options: &UdpOptions) -> Result<Udp, EthernetError> {
        // Kept until the end, so that the kernel gives others.
        let mut unsafe_ports = Vec::new();
        loop {
            let sockets = Udp::open_when_free(options)?;
            let port = sockets.address().port();
            if options.address.is_loopback() {
                return Ok(sockets);
            }
            match Pins::here().and_then(|pins| Claim::disown_dead(&pins, port)) {
                Err(XdpError::PortForbidden(_)) if options.port == 0 && unsafe_ports.len() < PORTS_TRIED => {
                    unsafe_ports.push(sockets);
                }
                _ => return Ok(sockets),
            }
        }
    }

    fn assemble(
        sockets: Udp,
        xdp: Option<XdpReceive>,
        listener: io::Result<Listener>,
        options: &EthernetOptions,
        mut given_up: Vec<GivenUp>,
    ) -> Result<Ethernet, EthernetError> {
        let mut send_paths: Vec<Box<dyn SendPath>> = Vec::new();
        let address = sockets.address();
        // What is said on the loopback interface goes through no NIC, and who may not send frames sends datagrams.
        let optional = options.send == SendChoice::Auto;
        let choice = if optional && address.ip().is_loopback() { SendChoice::Udp } else { options.send };
        let as_root = "run as root, or use the udp send path";
        if matches!(choice, SendChoice::Auto | SendChoice::Packet) {
            match PacketSendPath::open(address, options.udp.queue_bytes) {
                Ok(send_path) => send_paths.push(Box::new(send_path)),
                Err(error) if !optional => return Err(error.into()),
                Err(error) => given_up.push(GivenUp::of(PACKET, &error, as_root)),
            }
        }
        if matches!(choice, SendChoice::Auto | SendChoice::Xsk) {
            match XskSendPaths::open(address) {
                Ok(send_path) => send_paths.push(Box::new(send_path)),
                Err(error) if !optional => return Err(error.into()),
                Err(error) => given_up.push(GivenUp::of(XSK, &error, as_root)),
            }
        }
        let choice = if send_paths.is_empty() { SendChoice::Udp } else { choice };
        let chooser = Chooser::new(if choice == SendChoice::Auto { 1 + send_paths.len() } else { 1 });
        let nics = (!address.ip().is_loopback()).then(|| Nics::open(address.ip(), options.networks.clone()));
        if let Some(Err(error)) = nics.as_ref().map(Nics::hears) {
            let why = format!("listening over netlink: {error}: they are looked at once a second");
            given_up.push(GivenUp::of(NEWS, &why, "allow netlink sockets (AF_NETLINK)"));
        }
        given_up.extend_from_slice(sockets.given_up());
        let presence = Presence::on(address, options.listener.as_ref(), listener).map_err(|error| {
            let why = format!("listening on TCP port {}: {error}", address.port());
            let remedy =
                "leave the TCP port of the endpoint's number to it, or name its listener (Config::listener)";
            given_up.push(GivenUp::of(PRESENCE, &why, remedy));
        });
        let (presence, questions) = (presence.ok(), Questions::new(address.ip()));
        Ok(Ethernet { sockets, send_paths, chooser, choice, xdp, nics, presence, questions, given_up })
    }

    /// Claims an endpoint of the pool and opens sockets on its port.
    fn claim(options: &UdpOptions) -> Result<Option<(Claim, Udp)>, EthernetError> {
        let wanted = if options.port == 0 { Wanted::Any } else { Wanted::Port(options.port) };
        Claim::take(&Pins::here()?, wanted, |port| {
            let options = UdpOptions { port, ..options.clone() };
            match wanted {
                Wanted::Any => match Udp::open(&options) {
                    Err(UdpError::PortTaken(_)) => Ok(None),
                    opened => Ok(Some(opened?)),
                },
                Wanted::Port(_) => Ok(Some(Udp::open_when_free(&options)?)),
            }
        })
    }

    /// Why nothing could be claimed, and what to do.
    fn why_none(port: u16) -> String {
        match Pins::here().and_then(|pins| crate::xdp::status(&pins)) {
            Ok(status) if status.ports.is_empty() => match status.strangers.first() {
                None => "the program is on no NIC here; as root: `tsumugi up NIC`".to_owned(),
                Some(stranger) => format!(
                    "nothing that `tsumugi up` makes is to be seen here, but {stranger}; in a container, bind the host's /sys/fs/bpf or /run/tsumugi into it, else as root: `tsumugi up NIC`"
                ),
            },
            Ok(status) if !status.nics.iter().any(Attached::is_attached) => {
                let what = status.nics.iter().map(ToString::to_string).collect::<Vec<_>>();
                format!(
                    "the program is on no NIC here any more: {}; as root: `tsumugi up NIC`",
                    what.join(", ")
                )
            }
            Ok(status) if port != 0 && !status.ports.iter().any(|has| has.port == port) => format!(
                "there is none for UDP port {port}; take port 0 for any, or as root: `tsumugi up NIC --port {port}`"
            ),
            Ok(status) => format!(
                "all {} are taken, or other users'; `tsumugi status` shows them, `tsumugi up NIC --endpoints N` makes more",
                status.ports.len()
            ),
            Err(error) => error.to_string(),
        }
    }

    /// The sockets.
    #[must_use]
    pub const fn sockets(&self) -> &Udp {
        &self.sockets
    }
}

impl XdpReceive {
    fn new(claim: Claim, sockets: &Udp, demanded: bool) -> Result<XdpReceive, UdpError> {
        let system =
            |doing| move |source| UdpError::System { doing, on: sockets.address().to_string(), source };
        let epoll = Epoll::new().map_err(system("making an epoll descriptor"))?;
        let members = sockets.descriptor().into_iter().chain([claim.descriptor()]);
        for (token, member) in members.enumerate() {
            epoll.add(member, token as u64).map_err(system("watching the doorbell"))?;
        }
        claim.watch(true);
        Ok(XdpReceive {
            claim,
            epoll,
            demanded,
            attachment: Attachment::new(),
            sockets_at: Instant(0),
            heard_at: Instant(0),
            busy_polling: false,
            received_at: Instant(0),
        })
    }

    /// Whether the sockets are to be looked into now.
    fn wants_sockets(&mut self, now: Instant) -> Result<bool, RailError> {
        let away = now.since(self.received_at) > AWAY_NS;
        self.received_at = now;
        if away {
            // Woken by the bell, perhaps; it must not ring for ever.
            self.claim.silence();
        }
        self.attachment.look(now, &mut self.claim, self.demanded)?;
        let is_usual = away || self.busy_polling || !self.attachment.is_served();
        let is_due =
            now.since(self.sockets_at) >= SOCKETS_EVERY_NS || now.since(self.heard_at) < SOCKETS_BUSY_NS;
        Ok(is_usual || is_due)
    }
}

impl Rail for Ethernet {
    fn address(&self) -> SocketAddr {
        self.sockets.address()
    }

    fn datagram_bytes(&self) -> usize {
        self.sockets.datagram_bytes()
    }

    fn send(&mut self, now: Instant, to: SocketAddr, burst: &[Packet<'_>]) -> Result<usize, RailError> {
        let Some(first) = burst.first() else { return Ok(0) };
        if self.sockets.is_asked_beside(to) {
            return self.sockets.send(now, to, burst);
        }
        let trial = self.chooser.choose(burst.len(), first.bytes());
        let send_path = match self.choice {
            SendChoice::Udp => None,
            SendChoice::Auto => trial.send_path.checked_sub(1),
            SendChoice::Packet | SendChoice::Xsk => Some(0),
        };
        if let Some(send_path) = send_path {
            if let Some(taken) = self.send_paths[send_path].send(now, to, burst)? {
                self.chooser.sent(&trial, taken);
                return Ok(taken);
            }
            self.chooser.refused(&trial);
            return self.sockets.send(now, to, burst);
        }
        let taken = self.sockets.send(now, to, burst)?;
        self.chooser.sent(&trial, taken);
        Ok(taken)
    }

    fn receive(&mut self, now: Instant, deliver: &mut Deliver<'_>) -> Result<usize, RailError> {
        let Some(xdp) = &mut self.xdp else { return self.sockets.receive(now, deliver) };
        if !xdp.wants_sockets(now)? {
            return Ok(0);
        }
        let datagrams = self.sockets.receive(now, deliver)?;
        xdp.sockets_at = now;
        if datagrams > 0 {
            xdp.heard_at = now;
        }
        Ok(datagrams)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.xdp {
            Some(xdp) => Some(xdp.epoll.descriptor().as_fd()),
            None => self.sockets.descriptor(),
        }
    }

    fn watch(&mut self, on: bool) -> Result<(), RailError> {
        if let Some(xdp) = &self.xdp {
            xdp.claim.watch(on);
        }
        self.sockets.watch(on)
    }

    fn connect(&mut self, peer: SocketAddr) {
        self.sockets.connect(peer);
        // Frames leave from the same address as datagrams: the peer knows us by it.
        let local = self.sockets.local_to(peer);
        self.send_paths.iter_mut().for_each(|send_path| send_path.connect(peer, local));
        if let Some(nics) = &mut self.nics {
            nics.connect(peer, local);
        }
    }

    fn disconnect(&mut self, peer: SocketAddr) {
        self.questions.forget(peer);
        if let Some(nics) = &mut self.nics {
            nics.disconnect(peer);
        }
        self.sockets.disconnect(peer);
        self.send_paths.iter_mut().for_each(|send_path| send_path.disconnect(peer));
    }

    fn busy_poll(&mut self, on: bool) -> Result<(), RailError> {
        self.sockets.busy_poll(on)?;
        if let Some(xdp) = &mut self.xdp {
            xdp.busy_polling = on;
        }
        Ok(())
    }

    fn send_path(&self) -> &'static str {
        match self.choice {
            SendChoice::Auto => "auto",
            SendChoice::Udp => "udp",
            SendChoice::Packet => "packet",
            SendChoice::Xsk => "xsk",
        }
    }

    fn uses_xdp(&self) -> bool {
        self.xdp.as_ref().is_some_and(|xdp| xdp.attachment.is_served())
    }

    fn report(&self) -> RailReport {
        let all = std::iter::once("udp").chain(self.send_paths.iter().map(|send_path| send_path.name()));
        let skipped = usize::from(matches!(self.choice, SendChoice::Packet | SendChoice::Xsk));
        let mut given_up = self.given_up.clone();
        given_up.extend(self.xdp.iter().flat_map(|xdp| xdp.attachment.losses()));
        RailReport {
            send_paths: all.skip(skipped).collect(),
            nics: self.nics.as_ref().map_or_else(Vec::new, Nics::in_use),
            links_down: self.nics.as_ref().map_or_else(Vec::new, Nics::links_down),
            given_up,
        }
    }

    fn nics(&mut self, now: Instant) -> Option<Vec<NicAddress>> {
        self.nics.as_mut()?.news(now)
    }

    fn listens(&self) -> bool {
        self.presence.is_some()
    }

    fn inquire(&mut self, now: Instant, since: Instant, peer: SocketAddr, question: Question) -> Evidence {
        let said = self.sockets.inquire(now, since, peer, question);
        said.unless_known(self.questions.ask(now, since, peer, question))
    }

    fn link_down(&mut self, now: Instant, peer: SocketAddr) -> Option<NicName> {
        self.nics.as_mut()?.link_down(now, peer)
    }

    fn path_bytes(&mut self, peer: SocketAddr) -> Option<usize> {
        self.sockets.path_bytes(peer)
    }

    fn too_long(&mut self) -> Option<SocketAddr> {
        self.sockets.too_long()
    }

    fn quiesce(&mut self) {
        if let Some(xdp) = &self.xdp {
            xdp.claim.quiesce();
        }
    }
}
