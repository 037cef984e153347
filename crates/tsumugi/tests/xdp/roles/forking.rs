//! A process that forks in every form while it has an endpoint.

use super::Settings;
use crate::messages::{Lengths, payload};
use crate::process::{Orders, PATIENCE, say};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tsumugi::{Channel, Config, Endpoint, PeerId, ReceiveError, SendError};
use tsumugi_rail::RailError;

const CHANNEL: u16 = 7;
/// Messages that are thrown back and forth between two forks.
const ROUNDS: u64 = 200;
/// Of [`payload`], the node whose messages these are.
const NODE: u64 = 1;

fn open(settings: &Settings<'_>, port: u16) -> (Endpoint, Channel) {
    open_with(settings, Config::default().port(port))
}

fn open_with(settings: &Settings<'_>, config: Config) -> (Endpoint, Channel) {
    let endpoint = Endpoint::open(
        config
            .receive(settings.get("receive").unwrap_or_default())
            .send(settings.get("send").unwrap_or_default())
            .accept_unknown(true),
    );
    let endpoint = endpoint.unwrap_or_else(|error| panic!("{error}"));
    let channel = endpoint.channel(CHANNEL).expect("nobody else has it");
    (endpoint, channel)
}

/// Throws everything back, whoever comes and goes.
pub(super) fn echo(settings: &Settings<'_>) {
    let (endpoint, channel) = open(settings, settings.get("port").unwrap_or(0));
    say("open");
    let _orders = Orders::listen();
    loop {
        match channel.receive() {
            Ok(message) => _ = channel.send(message.source(), &message),
            Err(ReceiveError::Peer(failure)) => endpoint.reset_peer(failure.peer),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Talks to an echo, and forks in between in every form. The talk goes on as if nothing had been.
pub(super) fn forks(settings: &Settings<'_>) {
    let (endpoint, mut channel) = open(settings, settings.get("port").unwrap_or(0));
    let echo = endpoint.add_peer(settings.get::<String>("echo").expect("a peer")).unwrap();
    let mut talk = Talk { peer: echo, next: 0 };
    talk.go_on(&mut channel);
    say(format!("open {}", u8::from(endpoint.uses_xdp())));
    for form in ["inherits", "exits", "execs", "spawns", "anew", "daemon", "clone", "nested"] {
        // In the queue, held by the parent and seen by the child.
        let first = talk.post(&mut channel);
        let held = channel.receive_timeout(PATIENCE).unwrap();
        assert!(held[..] == first[..], "message {} is altered", talk.next);
        // Something for the child to take, which is not its own.
        let second = talk.post(&mut channel);
        (0..50).for_each(|_| assert!(endpoint.progress().is_ok()));
        let child = || {
            let same = held[..] == first[..];
            assert!(same || form == "clone", "the child sees what the parent holds");
            use_what_is_inherited(&endpoint, echo);
        };
        let status = match form {
            "spawns" => {
                assert!(std::process::Command::new("true").status().unwrap().success());
                0
            }
            "clone" => in_a_child(cloned, || {
                child();
                0
            }),
            "inherits" => in_a_child(forked, || {
                child();
                0
            }),
            "exits" => in_a_child(forked, || std::process::exit(0)),
            "execs" => in_a_child(forked, || {
                let name = c"true".as_ptr();
                // SAFETY: names that end in 0, and a list of them that ends in null.
                unsafe { libc::execlp(name, name, std::ptr::null::<libc::c_char>()) };
                1
            }),
            "anew" => in_a_child(forked, || {
                child();
                use_anew(settings);
                0
            }),
            // As daemon(3) does it, twice.
            "daemon" => in_a_child(forked, || {
                // SAFETY: no memory is passed.
                unsafe { libc::setsid() };
                in_a_child(forked, || {
                    child();
                    use_anew(settings);
                    0
                })
            }),
            // A child whose own endpoint is another owner's again in the grandchild.
            "nested" => in_a_child(forked, || {
                let (own, mut channel) = open(settings, 0);
                let echo = own.add_peer(settings.get::<String>("echo").expect("a peer")).unwrap();
                let mut talk = Talk { peer: echo, next: 0 };
                talk.go_on(&mut channel);
                let status = in_a_child(forked, || {
                    child();
                    use_what_is_inherited(&own, echo);
                    0
                });
                talk.go_on(&mut channel);
                drop(channel);
                own.close().unwrap();
                status
            }),
            other => unreachable!("{other}"),
        };
        assert_eq!(status, 0, "the child of the form {form}");
        drop(held);
        let message = channel.receive_timeout(PATIENCE).unwrap();
        assert!(message[..] == second[..], "the message behind is altered");
        drop(message);
        talk.go_on(&mut channel);
        say(format!("done {form}"));
    }
    drop(channel);
    endpoint.close().unwrap();
    say("closed");
}

/// Has every kind of descriptor open that an endpoint opens, and looks at what a child has of them, and a program that it becomes.
pub(super) fn descriptors(settings: &Settings<'_>) {
    let before = numbers();
    let file = tempfile::NamedTempFile::new().unwrap();
    let trace = Some(file.path().to_owned());
    let (endpoint, mut channel) = open_with(settings, Config::default().trace(trace));
    let echo = endpoint.add_peer(settings.get::<String>("echo").expect("a peer")).unwrap();
    Talk { peer: echo, next: 0 }.go_on(&mut channel);
    // Kernels are asked about a peer that says nothing, and nobody answers: that question waits.
    let silent = endpoint.add_peer(settings.get::<String>("silent").expect("an address")).unwrap();
    channel.post(silent, b"is anybody there?").unwrap();
    let is_asked = || {
        let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        // SYN_SENT
        sockets.lines().any(|line| line.split_whitespace().nth(3) == Some("02"))
    };
    let since = Instant::now();
    while !is_asked() {
        assert!(since.elapsed() < PATIENCE, "nobody asks about the silent peer");
        endpoint.progress().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let new = numbers().into_iter().filter(|number| !before.contains(number));
    // One, the folder's that was listed, is closed by now.
    let ours: Vec<_> = new.filter_map(|number| Some((number, open_as(number)?))).collect();
    let all: Vec<_> = ours.iter().map(|(_, what)| what.to_str().unwrap()).collect();
    let file = file.path().to_str().unwrap();
    let of_xdp: &[&str] = if endpoint.uses_xdp() { &["bpf-map", "/ports/"] } else { &[] };
    for kind in ["socket", "eventpoll", file].iter().chain(of_xdp) {
        assert!(all.iter().any(|what| what.contains(kind)), "no {kind} in {all:?}");
    }
    for (number, what) in &ours {
        // SAFETY: no memory is passed.
        let flags = unsafe { libc::fcntl(*number, libc::F_GETFD) };
        assert!(flags & libc::FD_CLOEXEC != 0, "descriptor {number}, {what:?}, survives exec");
    }
    let status = in_a_child(forked, || {
        let theirs: Vec<_> = ours.iter().map(|(number, _)| open_as(*number)).collect();
        for ((number, what), now) in ours.iter().zip(&theirs) {
            assert!(now.as_ref() != Some(what), "a child has descriptor {number}, {what:?}");
            // One socket, which does nothing.
            assert_eq!(*now, theirs[0], "in the place of descriptor {number}, {what:?}");
        }
        0
    });
    assert_eq!(status, 0, "the child has none of {all:?}");
    say(format!("none of {}", ours.len()));
}

/// Serves one message, forks a child that does nothing, and is killed.
pub(super) fn leaves_a_child(settings: &Settings<'_>) {
    let (endpoint, channel) = open(settings, settings.get("port").unwrap_or(0));
    say(format!("open {}", u8::from(endpoint.uses_xdp())));
    channel.receive_timeout(PATIENCE).unwrap();
    // Until it is acknowledged.
    for _ in 0..100 {
        endpoint.progress().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let (ready, mut is_ready) = std::os::unix::net::UnixStream::pair().unwrap();
    let child = forked();
    if child == 0 {
        drop((ready, is_ready));
        wait_for_the_test();
    }
    drop(ready);
    // The end of it: the child has come as far as our program.
    assert_eq!(std::io::Read::read(&mut is_ready, &mut [0]).unwrap(), 0);
    say(child);
    // SAFETY: no memory is passed.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Takes a port over as soon as its owner's kernel says that the owner is gone.
pub(super) fn next_owner(settings: &Settings<'_>) {
    let port = settings.get("port").unwrap_or(0);
    say("ready");
    let _orders = Orders::listen();
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => break,
            // That of a handshake which is under way when the socket is closed is reset.
            Ok(_) | Err(_) => std::thread::sleep(Duration::from_micros(100)),
        }
    }
    let (endpoint, _channel) = open(settings, port);
    say(format!("open {}", u8::from(endpoint.uses_xdp())));
}

/// Uses an endpoint while a timer interrupts every system call that can be interrupted.
pub(super) fn interrupted(settings: &Settings<'_>) {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: all zeroes is a valid action, without SA_RESTART; the handler does nothing; both structures outlive the calls.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()), 0);
        let every = libc::timeval { tv_sec: 0, tv_usec: 200 };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()), 0);
    }
    let (endpoint, mut channel) = open(settings, settings.get("port").unwrap_or(0));
    let echo = endpoint.add_peer(settings.get::<String>("echo").expect("a peer")).unwrap();
    for wait in [tsumugi::Wait::Block, tsumugi::Wait::Adaptive] {
        endpoint.set_wait(wait).unwrap();
        let mut talk = Talk { peer: echo, next: 0 };
        (0..5).for_each(|_| talk.go_on(&mut channel));
    }
    let waited = Instant::now();
    let nothing = channel.receive_timeout(Duration::from_millis(100));
    assert!(matches!(nothing, Err(ReceiveError::TimedOut(_))) && waited.elapsed().as_millis() >= 100);
    drop(channel);
    endpoint.close().unwrap();
    say("closed");
}

/// Two endpoints of one process, and a third that is theirs to talk to.
pub(super) fn two_endpoints(settings: &Settings<'_>) {
    let mut both = [0, 1].map(|_| open(settings, 0));
    let echo = settings.get::<String>("echo").expect("a peer");
    let peers = [0, 1].map(|at| both[at].0.add_peer(&echo).unwrap());
    let mut talks = peers.map(|peer| Talk { peer, next: 0 });
    for _ in 0..3 {
        for (talk, (_, channel)) in talks.iter_mut().zip(&mut both) {
            talk.go_on(channel);
        }
    }
    // And with each other.
    let own = settings.get::<String>("own").expect("our address");
    let other = both[0].0.add_peer(format!("{own}:{}", both[1].0.port())).unwrap();
    both[0].1.post(other, b"from one to the other").unwrap();
    let message = loop {
        both[0].0.progress().unwrap();
        if let Some(message) = both[1].1.try_receive().unwrap() {
            break message;
        }
    };
    assert_eq!(&message[..], b"from one to the other");
    say("done");
}

/// A talk with an echo.
struct Talk {
    peer: PeerId,
    next: u64,
}

impl Talk {
    fn post(&mut self, channel: &mut Channel) -> Vec<u8> {
        let message = payload(NODE, self.next, Lengths::Short.of(self.next).max(1));
        self.next += 1;
        channel.send(self.peer, &message).unwrap();
        message
    }

    fn go_on(&mut self, channel: &mut Channel) {
        for _ in 0..ROUNDS {
            let posted = self.post(channel);
            let message = channel.receive_timeout(PATIENCE).unwrap();
            assert!(message[..] == posted[..], "message {} is altered", self.next);
        }
    }
}

/// What a child makes of its parent's endpoint.
fn use_what_is_inherited(endpoint: &Endpoint, peer: PeerId) {
    let refused = |error: &RailError| matches!(error, RailError::OtherProcess { .. });
    let error = endpoint.progress().unwrap_err();
    assert!(refused(&error), "{error}");
    let told = error.to_string();
    assert!(told.contains(&std::process::id().to_string()) && told.contains("fork"), "{told}");
    let channel = endpoint.channel(CHANNEL + 1).unwrap();
    for sent in [channel.post(peer, b"from a child"), channel.send(peer, b"from a child")] {
        assert!(matches!(&sent, Err(SendError::Rail(error)) if refused(error)), "{sent:?}");
    }
    for received in [channel.receive().map(drop), channel.try_receive().map(drop)] {
        assert!(matches!(&received, Err(ReceiveError::Rail(error)) if refused(error)), "{received:?}");
    }
    assert!(matches!(endpoint.flush(), Err(SendError::Rail(_))) && endpoint.descriptor().is_none());
}

/// Opens an endpoint of one's own and talks.
fn use_anew(settings: &Settings<'_>) {
    let (endpoint, mut channel) = open(settings, 0);
    let peer = endpoint.add_peer(settings.get::<String>("echo").expect("a peer")).unwrap();
    Talk { peer, next: 0 }.go_on(&mut channel);
    drop(channel);
    endpoint.close().unwrap();
}

fn forked() -> libc::pid_t {
    // SAFETY: the only other thread of this process is the harness's, which waits.
    unsafe { libc::fork() }
}

/// As fork, but without its handlers.
fn cloned() -> libc::pid_t {
    // SAFETY: no stack is given, so the memory is copied and the child goes on where it is.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t }
}

/// How a child that does this ends.
fn in_a_child(make: impl Fn() -> libc::pid_t, child: impl FnOnce() -> i32) -> i32 {
    let process = make();
    if process == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: ends the child, whose harness is the parent's.
        unsafe { libc::_exit(done.unwrap_or(101)) };
    }
    assert!(process > 0, "{}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: our own child; the status outlives the call.
    while unsafe { libc::waitpid(process, &raw mut status, 0) } != process {}
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -status }
}

/// Waits until the test closes its end of our standard input.
fn wait_for_the_test() -> ! {
    let mut poll = libc::pollfd { fd: 0, events: 0, revents: 0 };
    // SAFETY: one pollfd, alive through the call; then the process ends.
    unsafe {
        libc::poll(&raw mut poll, 1, PATIENCE.as_millis() as i32);
        libc::_exit(0)
    }
}

/// Numbers of the descriptors of this process.
fn numbers() -> Vec<RawFd> {
    let names = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.to_str().unwrap().parse().unwrap()).collect()
}

/// What a number stands for.
fn open_as(number: RawFd) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{number}")).ok()
}
