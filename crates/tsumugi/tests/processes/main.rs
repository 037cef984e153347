//! What is promised when processes are killed, stopped, closed, confined or idle: with real ones.

#[path = "../common/process.rs"]
mod process;

mod ending;
mod roles;

use process::{PATIENCE, Process, ROLE};
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tsumugi::{Channel, Config, Endpoint, Evidence, PeerId, Reason, ReceiveError, SendError, TicketStatus};
use tsumugi_lab::testing::{as_root, copy_for_all};

const CHANNEL: u16 = 7;
/// For peers whose hosts are silent.
const PEER_TIMEOUT: Duration = Duration::from_millis(300);
/// Above what anything takes, for a machine that has other things to do; and far below the time-outs of the default.
const MARGIN: Duration = Duration::from_secs(10);

/// Not a test: what copies of this program do.
#[test]
fn a_role_of_another_test() {
    if let Ok(role) = std::env::var(ROLE) {
        roles::play(&role);
    }
}

/// One test at a time: each has processes enough for a small machine, and some measure.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(config: Config) -> Endpoint {
    Endpoint::open(config.accept_unknown(true)).expect("an endpoint on loopback")
}

/// An endpoint with room for everything that is posted, and its channel.
fn open_roomy() -> (Endpoint, Channel) {
    let endpoint = open(Config::loopback().send_bytes(1 << 30));
    let channel = endpoint.channel(CHANNEL).unwrap();
    (endpoint, channel)
}

/// The payload of message `number`. Any byte out of place shows.
fn payload(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|at| (at.wrapping_mul(31) ^ number.wrapping_mul(0x9e37_79b9) ^ (at >> 8)) as u8)
        .collect()
}

/// Length of a message, bytes: all kinds.
fn length(number: u64) -> usize {
    [0, 8, 700, 1424, 9000, 70_000, 300_000][number as usize % 7]
}

/// A checksum that depends on the order of all words.
fn sum(data: &[u8]) -> u64 {
    data.chunks(8).fold(1, |sum: u64, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

/// Confines this process to two processors, if there are more.
fn two_processors() {
    let set = sched_getaffinity(None).unwrap();
    let mut kept = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).take(2).for_each(|two| kept.set(two));
    sched_setaffinity(None, &kept).unwrap();
}

fn progress(endpoint: &Endpoint) {
    endpoint.progress().unwrap();
}

fn peer_at(endpoint: &Endpoint, port: u16) -> PeerId {
    endpoint.add_peer(format!("127.0.0.1:{port}")).unwrap()
}

#[test]
fn a_killed_receiver_fails_every_ticket_in_time_and_may_come_back() {
    let _alone = alone();
    let (endpoint, channel) = open_roomy();
    let mut there = Process::start("take 0 8");
    let port = there.hear_number();
    let peer = peer_at(&endpoint, port);
    let tickets: Vec<_> = (0..64).map(|_| channel.post(peer, &vec![3; 1 << 20]).unwrap()).collect();
    let heard = there.hear_while(|| progress(&endpoint));
    assert_eq!(heard, "taken");
    there.kill();

    let killed = Instant::now();
    let failure = match channel.receive_timeout(PATIENCE) {
        Err(ReceiveError::Peer(failure)) => failure,
        other => panic!("{other:?}"),
    };
    let took = killed.elapsed();
    assert!(took <= MARGIN, "heard of it after {took:?}");
    assert_eq!((failure.peer, failure.reason), (peer, Reason::Gone));
    println!("after {took:?}: {failure}");
    assert!((2..=64).contains(&failure.undelivered), "{failure}");
    // Every ticket that had not been told before is told now.
    let delivered = tickets.len() - failure.undelivered as usize;
    let expected: Vec<_> = (0..64)
        .map(|it| if it < delivered { TicketStatus::Delivered } else { TicketStatus::Failed })
        .collect();
    let states = || tickets.iter().map(|ticket| endpoint.status(*ticket)).collect::<Vec<_>>();
    assert_eq!(states(), expected);
    // Nothing hangs: what waits for the peer is told too.
    assert!(matches!(channel.send(peer, b"more"), Err(SendError::Peer(_))));
    endpoint.flush().unwrap();

    let mut again = Process::start(&format!("serve {port}"));
    assert_eq!(again.hear_number::<u16>(), port);
    assert!(matches!(channel.post(peer, b"too early"), Err(SendError::Peer(_))), "it is not reset yet");
    endpoint.reset_peer(peer);
    let ticket = channel.send(peer, b"welcome back").unwrap();
    endpoint.flush().unwrap();
    assert_eq!(endpoint.status(ticket), TicketStatus::Delivered);
    assert_eq!(again.hear(), "12");
    assert_eq!(states(), expected, "what became of them is not changed by a new epoch");
}

#[test]
fn a_receiver_that_restarts_at_once_is_another() {
    let _alone = alone();
    let endpoint = open(Config::loopback().send_bytes(1 << 30).peer_timeout(PATIENCE));
    let channel = endpoint.channel(CHANNEL).unwrap();
    let mut there = Process::start("take 0 8");
    let port = there.hear_number();
    let peer = peer_at(&endpoint, port);
    for _ in 0..64 {
        channel.post(peer, &vec![3; 1 << 20]).unwrap();
    }
    assert_eq!(there.hear_while(|| progress(&endpoint)), "taken");
    there.kill();
    let mut again = Process::start(&format!("serve {port}"));
    assert_eq!(again.hear_number::<u16>(), port);
    // Long before the time-out, because the new one says that it knows nothing.
    match channel.receive_timeout(PATIENCE / 2) {
        Err(ReceiveError::Peer(failure)) => assert_eq!(failure.reason, Reason::Restarted, "{failure}"),
        other => panic!("{other:?}"),
    }
    endpoint.reset_peer(peer);
    channel.send(peer, b"welcome back").unwrap();
    endpoint.flush().unwrap();
    assert_eq!(again.hear(), "12");
}

#[test]
fn a_killed_sender_is_an_error_for_who_waits_for_the_rest() {
    let _alone = alone();
    let (endpoint, channel) = open_roomy();
    let mut there = Process::start(&format!("send_half {}", endpoint.port()));
    assert_eq!(&channel.receive_timeout(PATIENCE).unwrap()[..], b"before");
    let killing = std::thread::spawn(move || {
        assert_eq!(there.hear(), "half");
        there.kill();
        Instant::now()
    });
    match channel.receive_timeout(PATIENCE) {
        Err(ReceiveError::Peer(failure)) => {
            let took = killing.join().unwrap().elapsed();
            println!("after {took:?}: {failure}");
            assert!(took <= MARGIN, "heard of it after {took:?}");
            assert_eq!(failure.reason, Reason::Gone, "{failure}");
        }
        other => panic!("{other:?}"),
    }
}

/// A process that is stopped when it has a quarter of what it is sent, and our channel to it.
fn stopped_with_a_quarter(endpoint: &Endpoint) -> (Channel, Process) {
    let channel = endpoint.channel(CHANNEL).unwrap();
    let mut there = Process::start("verify 400 100000");
    let peer = peer_at(endpoint, there.hear_number());
    for number in 0..400 {
        channel.post(peer, &payload(number, 100_000)).unwrap();
    }
    assert_eq!(there.hear_while(|| progress(endpoint)), "a quarter");
    there.signal(Signal::STOP);
    (channel, there)
}

#[test]
fn a_peer_that_stands_still_for_many_time_outs_is_not_dead_and_loses_nothing() {
    let _alone = alone();
    let endpoint = open(Config::loopback().send_bytes(1 << 30).peer_timeout(PEER_TIMEOUT));
    let (channel, there) = stopped_with_a_quarter(&endpoint);
    // Its kernel says that it is there.
    match channel.receive_timeout(10 * PEER_TIMEOUT) {
        Err(ReceiveError::TimedOut(_)) => {}
        other => panic!("{other:?}"),
    }
    there.signal(Signal::CONT);
    assert_eq!(&channel.receive_timeout(PATIENCE).unwrap()[..], b"all here");
    assert!(endpoint.take_failure().is_none());
    there.finish_while(|| progress(&endpoint));
}

#[test]
fn a_flush_ends_though_a_peer_that_is_there_takes_nothing() {
    let _alone = alone();
    let flush_timeout = Duration::from_millis(300);
    let endpoint =
        open(Config::loopback().send_bytes(1 << 30).peer_timeout(PEER_TIMEOUT).flush_timeout(flush_timeout));
    let (channel, there) = stopped_with_a_quarter(&endpoint);
    let begun = Instant::now();
    match endpoint.flush() {
        Err(SendError::Stalled { waited, messages, .. }) => {
            assert_eq!(waited, flush_timeout);
            assert!((1..=400).contains(&messages), "{messages}");
        }
        other => panic!("{other:?}"),
    }
    assert!((flush_timeout..PATIENCE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    there.signal(Signal::CONT);
    assert_eq!(&channel.receive_timeout(PATIENCE).unwrap()[..], b"all here");
    assert!(endpoint.take_failure().is_none());
    there.finish_while(|| progress(&endpoint));
}

#[test]
fn a_peer_that_stands_still_behind_a_firewall_is_silent() {
    let _alone = alone();
    let endpoint =
        open(Config::loopback().peer_timeout(PEER_TIMEOUT).faults(Some("firewall=on".parse().unwrap())));
    let channel = endpoint.channel(CHANNEL).unwrap();
    let mut there = Process::start("take 0 1");
    let peer = peer_at(&endpoint, there.hear_number());
    channel.send(peer, b"to be taken").unwrap();
    assert_eq!(there.hear_while(|| progress(&endpoint)), "taken");
    channel.send(peer, b"to be acknowledged").unwrap();
    match channel.receive_timeout(PATIENCE) {
        Err(ReceiveError::Peer(failure)) => {
            assert_eq!(failure.reason, Reason::Silent(PEER_TIMEOUT, Evidence::None), "{failure}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_peer_that_starts_late_is_waited_for() {
    let _alone = alone();
    let endpoint = open(Config::loopback().peer_timeout(PEER_TIMEOUT));
    let channel = endpoint.channel(CHANNEL).unwrap();
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let peer = peer_at(&endpoint, port);
    let ticket = channel.post(peer, b"before there was anybody").unwrap();
    // Refused again and again: nobody has the port.
    match channel.receive_timeout(10 * PEER_TIMEOUT) {
        Err(ReceiveError::TimedOut(_)) => {}
        other => panic!("{other:?}"),
    }
    let mut there = Process::start(&format!("serve {port}"));
    assert_eq!(there.hear_while(|| progress(&endpoint)), port.to_string());
    assert_eq!(there.hear_while(|| progress(&endpoint)), "24");
    endpoint.flush().unwrap();
    assert_eq!(endpoint.status(ticket), TicketStatus::Delivered);
}

#[test]
fn a_peer_to_which_nothing_can_be_sent_is_an_error_at_once() {
    let _alone = alone();
    let endpoint = open(Config::loopback());
    let channel = endpoint.channel(CHANNEL).unwrap();
    // Nothing leaves this machine from a loopback address.
    let peer = endpoint.add_peer("192.0.2.1:7").unwrap();
    let asked = Instant::now();
    channel.post(peer, b"?").unwrap();
    match channel.receive_timeout(PATIENCE) {
        Err(ReceiveError::Peer(failure)) => {
            assert!(asked.elapsed() < MARGIN, "{:?}", asked.elapsed());
            assert!(matches!(failure.reason, Reason::NoRoute(_)), "{failure}");
            assert!(failure.to_string().contains("(os error"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_posted_before_an_orderly_close_arrives() {
    const COUNT: u64 = 700;
    let _alone = alone();
    let endpoint = open(Config::loopback());
    let channel = endpoint.channel(CHANNEL).unwrap();
    let mut there = Process::start(&format!("send_and_close {} {COUNT}", endpoint.port()));
    for number in 0..COUNT {
        let message = channel.receive_timeout(PATIENCE).unwrap();
        assert!(message[..] == payload(number, length(number))[..], "message {number} is altered");
    }
    assert_eq!(there.hear_while(|| progress(&endpoint)), "closed");
    assert!(endpoint.take_failure().expect("it has left").is_orderly());
    there.finish_while(|| ());
}

#[test]
fn a_gibibyte_arrives_whole() {
    let _alone = alone();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let available =
        meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next());
    let available_gib = available.unwrap().parse::<u64>().unwrap() >> 20;
    let bytes = if available_gib > 6 { 1 << 30 } else { 256 << 20 };
    eprintln!("a message of {} MiB, with {available_gib} GiB of memory available", bytes >> 20);
    let endpoint = open(Config::loopback());
    let channel = endpoint.channel(CHANNEL).unwrap();
    let mut there = Process::start("checksum");
    let peer = peer_at(&endpoint, there.hear_number());
    let mut buffer = channel.send_buffer(peer, bytes).unwrap();
    let mut word = 1u64;
    for chunk in buffer.chunks_mut(8) {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        chunk.copy_from_slice(&(word ^ word >> 32).to_le_bytes());
    }
    let expected = sum(&buffer);
    buffer.post().unwrap();
    let mut hear = || there.hear_while(|| progress(&endpoint));
    assert_eq!((hear(), hear()), (bytes.to_string(), expected.to_string()));
}

/// Two processes that throw a message back and forth. Says as whom, and how long the rounds took.
fn ping_pong(start: impl Fn(&str) -> Process, rounds: u64) -> (String, Duration) {
    let mut pong = start("pong");
    let port: u16 = pong.hear_number();
    let mut ping = start(&format!("ping {port} {rounds}"));
    let who = ping.hear();
    let took = Duration::from_nanos(ping.hear_number());
    ping.finish_while(|| ());
    pong.finish_while(|| ());
    (who, took)
}

#[test]
fn a_user_without_privileges_needs_none() {
    let _alone = alone();
    let Some(_watched) = as_root("a_user_without_privileges_needs_none", None) else { return };
    let (_folder, program) = copy_for_all(&std::env::current_exe().unwrap());
    let nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
        "--no-new-privs",
    ];
    let (who, _) = ping_pong(|role| Process::start_through(&nobody, &program, role), 1000);
    assert_eq!(who, "uid 65534 capabilities 0000000000000000");
    // And in a user namespace of its own, as in a container without root on the host.
    let confined = [&nobody[..], &["unshare", "-Ur"]].concat();
    let possible = std::process::Command::new(confined[0]).args(&confined[1..]).arg("true").status();
    if !possible.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "needs user namespaces for everybody");
        eprintln!("SKIPPED: the second half of a_user_without_privileges_needs_none needs unshare -Ur");
        return;
    }
    let (who, _) = ping_pong(|role| Process::start_through(&confined, &program, role), 1000);
    assert!(who.starts_with("uid 0 "), "{who}");
}

#[test]
fn an_idle_endpoint_leaves_the_processor_alone() {
    let _alone = alone();
    let idle = Duration::from_secs(2);
    let endpoint = open(Config::loopback());
    let channel = endpoint.channel(CHANNEL).unwrap();
    let mut there = Process::start(&format!("idle {}", idle.as_nanos()));
    let peer = peer_at(&endpoint, there.hear_number());
    channel.send(peer, b"the last for a while").unwrap();
    endpoint.flush().unwrap();
    let busy_us: u64 = there.hear_number();
    let percent = busy_us as f64 / idle.as_micros() as f64 * 100.0;
    println!("{busy_us} µs of processor time in {idle:?}: {percent:.2} %");
    // One per cent is promised; the rest is for a machine whose timers are poor.
    assert!(percent < 5.0, "{percent:.2} % of a processor");
}

#[test]
fn two_pairs_on_two_processors_both_make_progress() {
    const ROUNDS: u64 = 20_000;
    let _alone = alone();
    let pairs = [(); 2].map(|()| std::thread::spawn(|| ping_pong(Process::start, ROUNDS).1));
    for pair in pairs {
        // A pair that starves is one whose process says nothing for all of our patience.
        let took = pair.join().unwrap();
        println!("{:.0} round trips a second", ROUNDS as f64 / took.as_secs_f64());
    }
}
