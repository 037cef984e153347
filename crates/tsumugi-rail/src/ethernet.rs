//! A rail with everything that an endpoint on Ethernet uses: sockets, which always work; engines that send past
//! them; and the driver depositor where there is one.
//!
//! Sockets stay open beside the driver depositor: what the program leaves to the kernel comes through them, and
//! everything does once the program is gone. What an engine does not reach goes through them, too.

mod answers;
mod attachment;

use crate::choose::Chooser;
use crate::engine::Engine;
use crate::given_up::{GivenUp, RailReport};
use crate::liveness::{Evidence, Listener, Question, Questions};
use crate::memory::{Memory, MemoryError};
use crate::networks::Networks;
use crate::nics::{NicAddress, NicName, Nics};
use crate::packet::{PacketEngine, PacketError};
use crate::sys::{self, Epoll};
use crate::udp::{Udp, UdpError, UdpOptions};
use crate::xdp::{Attached, Claim, Pins, Wanted, XdpError};
use crate::xsk::{XskEngineError, XskEngines};
use crate::{Deliver, Packet, Rail, RailError};
use attachment::Attachment;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::str::FromStr;
use tsumugi_wire::Instant;
use tsumugi_wire::memory::Geometry;
use tsumugi_wire::time::MICROSECOND_NS;

/// Time between two looks into the sockets while the driver deposits and nothing has come by a socket lately. A look
/// costs a system call, 0.3 µs in which what is deposited is not seen.
const SOCKETS_EVERY_NS: u64 = 20 * MICROSECOND_NS;
/// A caller that was away for so long has slept, or computed: the sockets are asked at once.
const AWAY_NS: u64 = 20 * MICROSECOND_NS;
/// Free ports that are tried until one is found that is not set aside for another user's endpoints.
const PORTS_TRIED: usize = 16;

/// What may be given up, as a user would call it.
const DRIVER: &str = "the driver depositor";
const PACKET: &str = "the packet engine";
const XSK: &str = "the xsk engine";
const NEWS: &str = "news of NICs";
const PRESENCE: &str = "a sign of life while this process makes no call";
const GRACE: &str = "grace periods";

/// Who is to deposit what arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Depositor {
    /// The driver where an endpoint memory is free, else the user depositor. An endpoint whose driver depositor
    /// goes away goes on without it.
    #[default]
    Auto,
    /// The library, from sockets.
    User,
    /// The driver; it is an error when it cannot, or cannot any more.
    Driver,
}

impl fmt::Display for Depositor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Depositor::Auto => "auto",
            Depositor::User => "user",
            Depositor::Driver => "driver",
        })
    }
}

/// A word that names no depositor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no depositor; choose auto, user or driver")]
pub struct ParseDepositorError(String);

impl FromStr for Depositor {
    type Err = ParseDepositorError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "auto" => Ok(Depositor::Auto),
            "user" => Ok(Depositor::User),
            "driver" => Ok(Depositor::Driver),
            other => Err(ParseDepositorError(other.to_owned())),
        }
    }
}

/// What is to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EngineChoice {
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

impl fmt::Display for EngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EngineChoice::Auto => "auto",
            EngineChoice::Udp => "udp",
            EngineChoice::Packet => "packet",
            EngineChoice::Xsk => "xsk",
        })
    }
}

/// A word that names no engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no engine; choose auto, udp, packet or xsk")]
pub struct ParseEngineError(String);

impl FromStr for EngineChoice {
    type Err = ParseEngineError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "auto" => Ok(EngineChoice::Auto),
            "udp" => Ok(EngineChoice::Udp),
            "packet" => Ok(EngineChoice::Packet),
            "xsk" => Ok(EngineChoice::Xsk),
            other => Err(ParseEngineError(other.to_owned())),
        }
    }
}

/// What to open.
#[derive(Clone, Debug)]
pub struct EthernetOptions {
    /// The sockets.
    pub udp: UdpOptions,
    /// What is to send.
    pub engine: EngineChoice,
    /// Who is to deposit.
    pub depositor: Depositor,
    /// Sizes of the receive memory, unless it comes from the driver depositor's pool.
    pub geometry: Geometry,
    /// Which NICs and networks may be used beside the one that a peer is named by.
    pub networks: Networks,
}

/// Why an [`Ethernet`] rail did not open.
#[derive(Debug, thiserror::Error)]
pub enum EthernetError {
    /// The sockets.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// The driver depositor.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// Receive memory of our own.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The `packet` engine.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The `xsk` engine.
    #[error(transparent)]
    Xsk(#[from] XskEngineError),
}

/// A rail on Ethernet.
pub struct Ethernet {
    sockets: Udp,
    engines: Vec<Box<dyn Engine>>,
    /// Which engine sends: the sockets are number 0, if they take part.
    chooser: Chooser,
    choice: EngineChoice,
    driver: Option<Driver>,
    /// `None` on the loopback interface.
    nics: Option<Nics>,
    /// For who wants to know whether this process is there; `None` where the port is somebody else's.
    listener: Option<Listener>,
    /// What is asked of peers' kernels.
    questions: Questions,
    /// What had to be done without when it was opened.
    given_up: Vec<GivenUp>,
}

/// The driver depositor as one endpoint has it.
#[derive(Debug)]
struct Driver {
    claim: Claim,
    /// The sockets and the doorbell.
    epoll: Epoll,
    /// Whether going on without it is an error.
    demanded: bool,
    /// What is known of the program.
    attachment: Attachment,
    /// When the sockets were looked into.
    sockets_at: Instant,
    /// Whether something came by a socket then.
    busy: bool,
    /// Whether a look into the sockets runs the NIC's poll.
    reaping: bool,
    /// When `receive` was called last.
    received_at: Instant,
}

impl Ethernet {
    /// Opens the rail, and the receive memory that its depositor deposits into.
    ///
    /// What was not asked for by name is optional: when it is missing or forbidden, the next best is used, and
    /// [`Rail::report`] says so.
    ///
    /// # Errors
    /// Says what is in the way, and what to do: the sockets, an option, memory, or what was asked for by name.
    pub fn open(options: &EthernetOptions) -> Result<(Ethernet, Memory), EthernetError> {
        let listener = Listener::new(options.udp.address);
        let mut given_up = Vec::new();
        // What is said on the loopback interface goes through no NIC.
        let driven = match options.depositor {
            Depositor::User => None,
            Depositor::Auto if options.udp.address.is_loopback() => None,
            Depositor::Auto => Ethernet::driven(&options.udp, false).unwrap_or_else(|error| {
                given_up.push(GivenUp::of(DRIVER, &error, "sudo tsumugi doctor"));
                None
            }),
            Depositor::Driver => Some(
                Ethernet::driven(&options.udp, true)?
                    .ok_or_else(|| XdpError::NoneFree(Ethernet::why_none(options.udp.port)))?,
            ),
        };
        if let Some((driver, sockets, memory)) = driven {
            if let Err(error) = sys::grace_periods() {
                let why = format!("membarrier(2): {error}: opening and closing take 0.1 s longer");
                given_up.push(GivenUp::of(GRACE, &why, "allow this program membarrier(2)"));
            }
            return Ok((Ethernet::assemble(sockets, Some(driver), listener, options, given_up)?, memory));
        }
        let sockets = Ethernet::undriven(&options.udp)?;
        let optional = options.depositor == Depositor::Auto && !options.udp.address.is_loopback();
        if optional && given_up.is_empty() {
            let why = Ethernet::why_none(options.udp.port);
            given_up.push(GivenUp::of(DRIVER, &why, "sudo tsumugi doctor"));
        }
        Ok((Ethernet::assemble(sockets, None, listener, options, given_up)?, Memory::new(options.geometry)?))
    }

    /// The driver depositor with sockets beside it; `None`: there is none, or none free.
    fn driven(options: &UdpOptions, demanded: bool) -> Result<Option<(Driver, Udp, Memory)>, EthernetError> {
        let Some((claim, sockets)) = Ethernet::claim(options)? else { return Ok(None) };
        let memory = claim.memory()?;
        Ok(Some((Driver::new(claim, &sockets, demanded)?, sockets, memory)))
    }

    /// Sockets alone. Who has no part in the driver depositor gets what comes by the socket, unless a memory on this
    /// port is another user's who was killed: what can be seen to be nobody's is disowned, and of the free ports one is
    /// taken that is not another's.
    fn undriven(options: &UdpOptions) -> Result<Udp, EthernetError> {
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
        driver: Option<Driver>,
        listener: io::Result<Listener>,
        options: &EthernetOptions,
        mut given_up: Vec<GivenUp>,
    ) -> Result<Ethernet, EthernetError> {
        let mut engines: Vec<Box<dyn Engine>> = Vec::new();
        let address = sockets.address();
        // What is said on the loopback interface goes through no NIC, and who may not send frames sends datagrams.
        let optional = options.engine == EngineChoice::Auto;
        let choice = if optional && address.ip().is_loopback() { EngineChoice::Udp } else { options.engine };
        let as_root = "run as root, or use the udp engine";
        if matches!(choice, EngineChoice::Auto | EngineChoice::Packet) {
            match PacketEngine::open(address, options.udp.queue_bytes) {
                Ok(engine) => engines.push(Box::new(engine)),
                Err(error) if !optional => return Err(error.into()),
                Err(error) => given_up.push(GivenUp::of(PACKET, &error, as_root)),
            }
        }
        if matches!(choice, EngineChoice::Auto | EngineChoice::Xsk) {
            match XskEngines::open(address) {
                Ok(engine) => engines.push(Box::new(engine)),
                Err(error) if !optional => return Err(error.into()),
                Err(error) => given_up.push(GivenUp::of(XSK, &error, as_root)),
            }
        }
        let choice = if engines.is_empty() { EngineChoice::Udp } else { choice };
        let chooser = Chooser::new(if choice == EngineChoice::Auto { 1 + engines.len() } else { 1 });
        let nics = (!address.ip().is_loopback()).then(|| Nics::open(address.ip(), options.networks.clone()));
        if let Some(Err(error)) = nics.as_ref().map(Nics::hears) {
            let why = format!("listening over netlink: {error}: they are looked at once a second");
            given_up.push(GivenUp::of(NEWS, &why, "allow netlink sockets (AF_NETLINK)"));
        }
        given_up.extend_from_slice(sockets.given_up());
        let listener = match listener.and_then(|listener| listener.listen(address)) {
            Ok(listener) => Some(listener),
            Err(error) => {
                let why = format!("listening on TCP port {}: {error}", address.port());
                given_up.push(GivenUp::of(
                    PRESENCE,
                    &why,
                    "leave the TCP port of the endpoint's number to it",
                ));
                None
            }
        };
        let questions = Questions::new(address.ip());
        Ok(Ethernet { sockets, engines, chooser, choice, driver, nics, listener, questions, given_up })
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
            Ok(status) if status.ports.is_empty() => {
                "the program is on no NIC here; as root: `tsumugi up NIC`".to_owned()
            }
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

impl Driver {
    fn new(claim: Claim, sockets: &Udp, demanded: bool) -> Result<Driver, UdpError> {
        let system =
            |doing| move |source| UdpError::System { doing, on: sockets.address().to_string(), source };
        let epoll = Epoll::new().map_err(system("making an epoll descriptor"))?;
        let members = sockets.descriptor().into_iter().chain([claim.descriptor()]);
        for (token, member) in members.enumerate() {
            epoll.add(member, token as u64).map_err(system("watching the doorbell"))?;
        }
        claim.watch(true);
        Ok(Driver {
            claim,
            epoll,
            demanded,
            attachment: Attachment::new(),
            sockets_at: Instant(0),
            busy: false,
            reaping: false,
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
        let (reaping, served) = (self.reaping, self.attachment.is_served());
        Ok(away || self.busy || reaping || !served || now.since(self.sockets_at) >= SOCKETS_EVERY_NS)
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
        let engine = match self.choice {
            EngineChoice::Udp => None,
            EngineChoice::Auto => trial.engine.checked_sub(1),
            EngineChoice::Packet | EngineChoice::Xsk => Some(0),
        };
        if let Some(engine) = engine {
            if let Some(taken) = self.engines[engine].send(now, to, burst)? {
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
        let Some(driver) = &mut self.driver else { return self.sockets.receive(now, deliver) };
        if !driver.wants_sockets(now)? {
            return Ok(0);
        }
        let datagrams = self.sockets.receive(now, deliver)?;
        driver.sockets_at = now;
        driver.busy = datagrams > 0;
        Ok(datagrams)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.driver {
            Some(driver) => Some(driver.epoll.descriptor().as_fd()),
            None => self.sockets.descriptor(),
        }
    }

    fn watch(&mut self, on: bool) -> Result<(), RailError> {
        if let Some(driver) = &self.driver {
            driver.claim.watch(on);
        }
        self.sockets.watch(on)
    }

    fn meet(&mut self, peer: SocketAddr) {
        self.sockets.meet(peer);
        // Frames leave from the same address as datagrams: the peer knows us by it.
        let local = self.sockets.local_to(peer);
        self.engines.iter_mut().for_each(|engine| engine.meet(peer, local));
        if let Some(nics) = &mut self.nics {
            nics.meet(peer, local);
        }
    }

    fn part(&mut self, peer: SocketAddr) {
        self.questions.forget(peer);
        if let Some(nics) = &mut self.nics {
            nics.part(peer);
        }
        self.sockets.part(peer);
        self.engines.iter_mut().for_each(|engine| engine.part(peer));
    }

    fn reap(&mut self, on: bool) -> Result<(), RailError> {
        self.sockets.reap(on)?;
        if let Some(driver) = &mut self.driver {
            driver.reaping = on;
        }
        Ok(())
    }

    fn engine(&self) -> &'static str {
        match self.choice {
            EngineChoice::Auto => "auto",
            EngineChoice::Udp => "udp",
            EngineChoice::Packet => "packet",
            EngineChoice::Xsk => "xsk",
        }
    }

    fn is_driven(&self) -> bool {
        self.driver.as_ref().is_some_and(|driver| driver.attachment.is_served())
    }

    fn report(&self) -> RailReport {
        let all = std::iter::once("udp").chain(self.engines.iter().map(|engine| engine.name()));
        let skipped = usize::from(matches!(self.choice, EngineChoice::Packet | EngineChoice::Xsk));
        let mut given_up = self.given_up.clone();
        given_up.extend(self.driver.iter().flat_map(|driver| driver.attachment.losses()));
        RailReport {
            engines: all.skip(skipped).collect(),
            nics: self.nics.as_ref().map_or_else(Vec::new, Nics::in_use),
            links_down: self.nics.as_ref().map_or_else(Vec::new, Nics::links_down),
            given_up,
        }
    }

    fn nics(&mut self, now: Instant) -> Option<Vec<NicAddress>> {
        self.nics.as_mut()?.news(now)
    }

    fn listens(&self) -> bool {
        self.listener.is_some()
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
        if let Some(driver) = &self.driver {
            driver.claim.quiesce();
        }
    }
}
