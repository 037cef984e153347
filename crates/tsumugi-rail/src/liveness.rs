//! What kernels say of a peer whose process says nothing.
//!
//! A process that computes, is stopped or is swapped out answers no packet. Its kernel answers for it:
//!
//! | asked | answer | says |
//! |---|---|---|
//! | a TCP handshake on the socket that an endpoint has [listening](Listener) on its own port | SYN, ACK | its process is there |
//! | the same | RST | nobody has the port: its process has ended |
//! | a UDP packet | ICMP port unreachable | the same, but anyone can forge it |
//! | an ICMP echo request | the reply | its host is there |
//! | our own kernel, for any of these | an error | nothing leaves this machine |
//!
//! Nobody accepts from the listening socket. With `TCP_DEFER_ACCEPT` the kernel keeps nothing of a handshake after which no
//! data come, so that any number of them cost the process nothing and need it for nothing.

use crate::dual_stack;
use crate::nics::{self, NicName};
use crate::sys::{self, Own};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags};
use rustix::time::Timespec;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tsumugi_wire::Instant;
use tsumugi_wire::time::SECOND_NS;

/// Handshakes that may wait for their last packet at once, and data for which nobody waits, seconds.
const BACKLOG: i32 = 128;
const DEFER_SECONDS: i32 = 1;
/// How long an answer is waited for, ns: two retransmissions of a SYN.
const ANSWER_NS_MAX: u64 = 4 * SECOND_NS;
/// Questions that may wait for an answer at once; others have their turn later.
const QUESTIONS_MAX: usize = 64;
/// Errors about packets to peers that are remembered.
const ERRORS_MAX: usize = 128;

/// What is asked of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// What ours has said of packets to the peer. Nobody else is asked.
    Errors,
    /// Whether the peer's host is there, too.
    Host,
    /// Whether the peer's process is there, too, which [listens](crate::Rail::listens).
    Process,
}

/// What is known of a peer from which nothing comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// Nothing: nobody answers, or nobody can be asked.
    #[default]
    None,
    /// Nothing yet: a question is under way.
    Asked,
    /// Its kernel has a socket of its process.
    Present,
    /// Its kernel says that nobody has its port, in an answer that only a host on the path can forge.
    Gone,
    /// Its kernel seems to say that nobody has its port: an ICMP error, which anyone can forge.
    PortUnreachable,
    /// Its host answers; of its process nothing is known.
    HostAnswers,
    /// Packets to it cannot leave this machine, or are refused on the path: the system's error number.
    NoRoute(i32),
    /// The link of our own NIC that leads to it is down: its silence says nothing of it.
    LinkDown(NicName),
}

impl fmt::Display for Evidence {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Evidence::None | Evidence::Asked => to.write_str("its host does not answer either"),
            Evidence::Present => to.write_str("its host has a socket of its process"),
            Evidence::Gone | Evidence::PortUnreachable => {
                to.write_str("its host says that no process has the port")
            }
            Evidence::HostAnswers => to.write_str("its host answers"),
            Evidence::NoRoute(error) => {
                write!(to, "it cannot be reached from here: {}", io::Error::from_raw_os_error(*error))
            }
            Evidence::LinkDown(nic) => write!(to, "the link of {nic} here is down"),
        }
    }
}

impl Evidence {
    /// What is known when our own kernel has said this of packets to a peer, and the peer's kernel `asked`: that knows
    /// better than whoever sent an ICMP error; but where it says nothing, that is what there is.
    pub(crate) fn unless_known(self, asked: Evidence) -> Evidence {
        match asked {
            Evidence::None | Evidence::Asked | Evidence::HostAnswers if self != Evidence::None => self,
            asked => asked,
        }
    }

    /// What the system's error about a packet to a peer says of it; `None`: nothing.
    #[must_use]
    pub(crate) const fn of_error(error: i32) -> Option<Evidence> {
        match error {
            libc::ECONNREFUSED => Some(Evidence::PortUnreachable),
            // No route, no neighbour, no such family here, filtered, or the NIC is down or gone: it may come back, and until
            // then the peer is out of reach, as it would be were its own NIC down.
            libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN
            | libc::EPERM
            | libc::EACCES
            | libc::EADDRNOTAVAIL
            | libc::EAFNOSUPPORT
            | libc::EINVAL
            | libc::ENODEV
            | libc::ENXIO
            | libc::EPROTO
            | libc::ENOPROTOOPT
            | libc::EOPNOTSUPP
            | libc::EIO => Some(Evidence::NoRoute(error)),
            _ => None,
        }
    }
}

/// A TCP socket on an endpoint's port, for who wants to know whether its process is there.
///
/// It is made before everything else that an endpoint has. Of a process that was killed the kernel closes what has the lowest
/// number last, and closing packet sockets takes it tens of milliseconds: peers are not to hear that the process is gone while
/// it still has its port, which the next one wants.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Own<OwnedFd>,
}

impl Listener {
    /// One that has no port yet, for an endpoint with an address like this one.
    pub(crate) fn new(ip: IpAddr) -> io::Result<Listener> {
        sys::tcp_socket(SocketAddr::new(ip, 0)).map(|socket| Listener { socket })
    }

    /// Listens on the port of the endpoint.
    pub(crate) fn listen(self, address: SocketAddr) -> io::Result<Listener> {
        let socket = &self.socket;
        // Handshakes of which the other side has not heard the end must not keep the port from the next process.
        net::sockopt::set_socket_reuseaddr(socket, true)?;
        sys::set_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, DEFER_SECONDS)?;
        dual_stack::set_dual(socket.as_fd(), address)?;
        net::bind(socket, &address)?;
        net::listen(socket, BACKLOG)?;
        Ok(self)
    }
}

/// What listens on the TCP port of an endpoint's number, so that its kernel tells whether its process is there.
#[derive(Debug)]
pub(crate) enum Presence {
    /// A socket of the endpoint's own.
    Own(#[expect(dead_code, reason = "listens as long as it is held")] Listener),
    /// The program's.
    Program(#[expect(dead_code, reason = "listens as long as it is held")] Arc<TcpListener>),
}

impl Presence {
    /// That of an endpoint with this address: what the program has on that port, or else a socket of its own.
    pub(crate) fn on(
        address: SocketAddr,
        program: Option<&Arc<TcpListener>>,
        own: io::Result<Listener>,
    ) -> io::Result<Presence> {
        let is_there = |listener: &&Arc<TcpListener>| {
            listener.local_addr().is_ok_and(|theirs| theirs.port() == address.port())
        };
        match program.filter(is_there) {
            Some(listener) => Ok(Presence::Program(Arc::clone(listener))),
            None => own?.listen(address).map(Presence::Own),
        }
    }
}

/// What was said of packets to peers, the latest error of each.
#[derive(Debug, Default)]
pub(crate) struct Errors(Vec<(SocketAddr, Instant, i32)>);

impl Errors {
    /// The system said so of a packet to `peer`.
    pub(crate) fn note(&mut self, now: Instant, peer: SocketAddr, error: i32) {
        if Evidence::of_error(error).is_none() {
            return;
        }
        self.forget(peer);
        if self.0.len() >= ERRORS_MAX {
            self.0.remove(0);
        }
        self.0.push((peer, now, error));
    }

    /// What was said last of packets to `peer`, not before `since`.
    pub(crate) fn take(&mut self, since: Instant, peer: SocketAddr) -> Option<Evidence> {
        let at = self.0.iter().position(|(of, ..)| *of == peer)?;
        let (_, when, error) = self.0.swap_remove(at);
        Evidence::of_error(error).filter(|_| when >= since)
    }

    pub(crate) fn forget(&mut self, peer: SocketAddr) {
        self.0.retain(|(of, ..)| *of != peer);
    }
}

/// A question to a peer's kernel that waits for an answer.
#[derive(Debug)]
struct Pending {
    peer: SocketAddr,
    asked_at: Instant,
    /// Whether the peer has a socket listening, so that a refusal says something.
    listens: bool,
    handshake: Option<Own<TcpStream>>,
    echo: Option<Own<OwnedFd>>,
    /// The host has answered.
    is_host_there: bool,
    /// Why the handshake failed.
    error: Option<i32>,
}

/// Questions to peers' kernels.
#[derive(Debug)]
pub(crate) struct Questions {
    /// The address that they are asked from.
    from: IpAddr,
    waiting: Vec<Pending>,
}

impl Questions {
    pub(crate) const fn new(from: IpAddr) -> Questions {
        Questions { from, waiting: Vec::new() }
    }

    /// What the kernel of `peer`, which has been silent since then, says, if it has said something since it was asked;
    /// otherwise it is asked now.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        since: Instant,
        peer: SocketAddr,
        question: Question,
    ) -> Evidence {
        if question == Question::Errors {
            return Evidence::None;
        }
        let listens = question == Question::Process;
        // What was asked before the peer was last heard says nothing of today, nor does what nobody has fetched for long.
        self.waiting.retain(|question| {
            let is_fresh = now.since(question.asked_at) < 2 * ANSWER_NS_MAX;
            if question.peer == peer { question.asked_at >= since } else { is_fresh }
        });
        let at = self.waiting.iter().position(|question| question.peer == peer);
        let Some(at) = at else { return self.begin(now, peer, listens) };
        let question = &mut self.waiting[at];
        match question.answer() {
            Some(evidence) => {
                self.waiting.swap_remove(at);
                evidence
            }
            None if now.since(question.asked_at) < ANSWER_NS_MAX => Evidence::Asked,
            None => self.waiting.swap_remove(at).last_word(),
        }
    }

    pub(crate) fn forget(&mut self, peer: SocketAddr) {
        self.waiting.retain(|question| question.peer != peer);
    }

    fn begin(&mut self, now: Instant, peer: SocketAddr, listens: bool) -> Evidence {
        if self.waiting.len() >= QUESTIONS_MAX {
            return Evidence::Asked;
        }
        let mut question = Pending {
            peer,
            asked_at: now,
            listens,
            handshake: None,
            echo: echo(peer).ok(),
            is_host_there: false,
            error: None,
        };
        match shake_hands(self.from, peer) {
            Ok(handshake) => question.handshake = Some(handshake),
            Err(error) => question.error = error.raw_os_error(),
        }
        match question.answer() {
            Some(evidence) => evidence,
            None if question.handshake.is_none() && question.echo.is_none() => question.last_word(),
            None => {
                self.waiting.push(question);
                Evidence::Asked
            }
        }
    }
}

impl Pending {
    /// The answer, if nothing better will come.
    fn answer(&mut self) -> Option<Evidence> {
        if let Some(echo) = &self.echo {
            self.is_host_there |= net::recv(echo, &mut [0], RecvFlags::DONTWAIT).is_ok();
        }
        match self.handshake.as_ref().map(|handshake| ended(handshake, self.peer)) {
            None | Some(Ok(false)) => {}
            Some(Ok(true)) if self.listens => return Some(Evidence::Present),
            // Somebody else's: it says nothing of the peer, but of its host.
            Some(Ok(true)) => (self.is_host_there, self.handshake) = (true, None),
            Some(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                (self.is_host_there, self.handshake) = (true, None);
                if self.listens {
                    return Some(Evidence::Gone);
                }
            }
            Some(Err(error)) => (self.error, self.handshake) = (error.raw_os_error(), None),
        }
        (self.handshake.is_none() && (self.is_host_there || self.echo.is_none())).then(|| self.last_word())
    }

    /// What is known when no answer comes any more.
    fn last_word(&self) -> Evidence {
        match self.error.and_then(Evidence::of_error) {
            _ if self.is_host_there => Evidence::HostAnswers,
            Some(evidence @ Evidence::NoRoute(_)) => evidence,
            _ => Evidence::None,
        }
    }
}

/// Begins a TCP handshake. The connection is reset when the socket is closed, so that neither side remembers it.
fn shake_hands(from: IpAddr, peer: SocketAddr) -> io::Result<Own<TcpStream>> {
    let socket = sys::tcp_socket(peer)?;
    net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    if !from.is_unspecified() {
        net::bind(&socket, &nics::to_bind(from, 0))?;
    }
    begin_to_connect(socket.as_fd(), peer)?;
    Ok(socket.map(TcpStream::from))
}

/// Begins to connect a non-blocking socket; it can be written to when that has ended.
fn begin_to_connect(socket: BorrowedFd<'_>, to: SocketAddr) -> io::Result<()> {
    match net::connect(socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether a handshake has succeeded; `false`: not yet.
fn ended(handshake: &TcpStream, peer: SocketAddr) -> io::Result<bool> {
    if poll(&mut [PollFd::new(handshake, PollFlags::OUT)], Some(&Timespec::default()))? == 0 {
        return Ok(false);
    }
    match handshake.take_error()? {
        Some(error) => Err(error),
        // On one host the kernel may have given our end the very port that nobody has: the socket is its own peer.
        None if handshake.local_addr()? == peer => Err(io::ErrorKind::ConnectionRefused.into()),
        None => Ok(true),
    }
}

/// Sends an ICMP echo request, where the system lets this user (`net.ipv4.ping_group_range`).
fn echo(mut to: SocketAddr) -> io::Result<Own<OwnedFd>> {
    to.set_port(0);
    let socket = sys::echo_socket(to)?;
    begin_to_connect(socket.as_fd(), to)?;
    // Type, code, checksum and identifier; the kernel fills in the latter two.
    let request = if to.is_ipv4() { 8 } else { 128 };
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    net::send(&socket, &[request, 0, 0, 0, 0, 0, 0, 1], flags)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    /// Asks until there is an answer.
    fn answer(questions: &mut Questions, peer: SocketAddr, question: Question) -> Evidence {
        for _ in 0..1000 {
            match questions.ask(Instant(0), Instant(0), peer, question) {
                Evidence::Asked => std::thread::sleep(Duration::from_millis(1)),
                evidence => return evidence,
            }
        }
        panic!("no answer from {peer}");
    }

    #[test]
    fn a_process_that_never_calls_is_present_until_it_closes() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut questions = Questions::new(Ipv4Addr::UNSPECIFIED.into());
        let listen = || Listener::new(free.ip()).and_then(|listener| listener.listen(free)).unwrap();
        let listener = listen();
        // More than any backlog: nothing is kept of a handshake.
        for _ in 0..4 * BACKLOG {
            assert_eq!(answer(&mut questions, free, Question::Process), Evidence::Present);
        }
        drop(listener);
        assert_eq!(answer(&mut questions, free, Question::Process), Evidence::Gone);
        assert_eq!(
            answer(&mut questions, free, Question::Host),
            Evidence::HostAnswers,
            "it may never have listened"
        );
        // And the next process has the port at once.
        drop(listen());
    }

    #[test]
    fn who_does_not_listen_is_not_present_because_another_does() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut questions = Questions::new(Ipv4Addr::LOCALHOST.into());
        let evidence = answer(&mut questions, other.local_addr().unwrap(), Question::Host);
        assert_eq!(evidence, Evidence::HostAnswers);
    }

    #[test]
    fn errors_are_told_once_and_not_when_they_are_old() {
        let peer: SocketAddr = "192.0.2.1:7".parse().unwrap();
        let mut errors = Errors::default();
        errors.note(Instant(5), peer, libc::ENETUNREACH);
        assert_eq!(errors.take(Instant(6), peer), None);
        errors.note(Instant(5), peer, libc::ENETUNREACH);
        errors.note(Instant(7), peer, libc::EAGAIN);
        assert_eq!(errors.take(Instant(5), peer), Some(Evidence::NoRoute(libc::ENETUNREACH)));
        assert_eq!(errors.take(Instant(0), peer), None);
        for port in 0..1000 {
            errors.note(Instant(1), SocketAddr::new(peer.ip(), port), libc::ECONNREFUSED);
        }
        assert_eq!(errors.0.len(), ERRORS_MAX);
    }
}
