//! A channel's context is saved by one process and goes on in another; nothing is lost.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tsumugi::remote::{Refused, RemoteError};
use tsumugi::{Config, Context, ContextError, Endpoint, FaultOptions, PeerId, Region, Rights, TicketStatus};

const CHANNEL: u16 = 5;
const ROLE: &str = "TSUMUGI_TEST_ROLE";
const MESSAGES: u64 = 400;

fn payload(number: u64) -> Vec<u8> {
    let bytes = [8, 100, 3000, 40_000][(number % 4) as usize];
    (0..bytes as u64).map(|at| (at * 7 + number * 13) as u8).collect()
}

/// Receives messages from number `from` on until `count` have come, and returns the next number.
fn receive(endpoint: &Endpoint, from: u64, count: u64) -> u64 {
    let channel = endpoint.channel(CHANNEL).unwrap();
    for number in from..from + count {
        let message = channel.receive_timeout(Duration::from_secs(20)).unwrap();
        assert!(message[..] == payload(number)[..], "message {number}");
    }
    channel.detach();
    from + count
}

/// What a child process of the test below does: go on with the context on standard input, if there is one,
/// receive some, and hand the context on.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<u64> = role.split(' ').map(|word| word.parse().unwrap()).collect();
    let [port, from, count, file] = words[..] else { panic!("{role}") };
    let path = std::env::temp_dir().join(format!("tsumugi-context-{file}"));
    let config = Config::loopback().datagram_bytes(Some(1472));
    let endpoint = match std::fs::read(&path) {
        Ok(bytes) => Endpoint::resume(&Context::from_bytes(&bytes).unwrap(), config).unwrap(),
        Err(_) => Endpoint::open(config.port(port as u16)).unwrap(),
    };
    let next = receive(&endpoint, from, count);
    // Something of its own is on its way when it is suspended.
    let channel = endpoint.channel(CHANNEL).unwrap();
    channel.post(PeerId(0), &next.to_le_bytes()).unwrap();
    channel.detach();
    if next == MESSAGES {
        endpoint.flush().unwrap();
    }
    let context = endpoint.suspend().map_err(|(error, _)| error).unwrap();
    std::fs::write(&path, context.to_bytes()).unwrap();
}

#[test]
fn four_processes_in_turn_are_one_endpoint_to_their_peer() {
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = std::process::id();
    let path = std::env::temp_dir().join(format!("tsumugi-context-{file}"));
    let _ = std::fs::remove_file(&path);
    let faults: FaultOptions = "loss=1%,reorder=5%,dup=1%,seed=3".parse().unwrap();
    let endpoint = Endpoint::open(
        Config::loopback()
            .datagram_bytes(Some(1472))
            .faults(Some(faults))
            .peer_timeout(Duration::from_secs(20)),
    )
    .unwrap();
    let peer = endpoint.add_peer(format!("127.0.0.1:{free}")).unwrap();
    let channel = endpoint.channel(CHANNEL).unwrap();
    let (mut posted, mut answers) = (0, Vec::new());
    for turn in 0..4u64 {
        let role = format!("{free} {} {} {file}", turn * MESSAGES / 4, MESSAGES / 4);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let status = loop {
            while posted < MESSAGES && channel.post(peer, &payload(posted)).is_ok() {
                posted += 1;
            }
            if let Some(message) = channel.try_receive().unwrap() {
                answers.push(u64::from_le_bytes(message[..].try_into().unwrap()));
            }
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
        };
        assert!(status.success(), "turn {turn}");
    }
    while answers.len() < 4 {
        let message = channel.receive_timeout(Duration::from_secs(5)).unwrap();
        answers.push(u64::from_le_bytes(message[..].try_into().unwrap()));
    }
    assert_eq!(answers, [100, 200, 300, 400]);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn what_was_received_and_not_taken_comes_along() {
    let here = Endpoint::open(Config::loopback()).unwrap();
    let there = Endpoint::open(Config::loopback()).unwrap();
    let peer = here.add_peer(format!("127.0.0.1:{}", there.port())).unwrap();
    let from = here.channel(1).unwrap();
    let to = there.channel(1).unwrap();
    for number in 0..100 {
        from.post(peer, &payload(number)).unwrap();
    }
    let first = loop {
        here.progress().unwrap();
        if let Some(message) = to.try_receive().unwrap() {
            break message;
        }
    };
    assert!(first[..] == payload(0)[..]);
    let (error, there) = there.suspend().unwrap_err();
    assert_eq!(error, ContextError::InUse(2), "a channel and a message");
    drop(first);
    to.detach();
    let context = there.suspend().map_err(|(error, _)| error).unwrap();
    assert_eq!(Context::from_bytes(&context.to_bytes()), Ok(context.clone()));
    let there = Endpoint::resume(&context, Config::loopback()).unwrap();
    let to = there.channel(1).unwrap();
    let mut number = 1;
    while number < 100 {
        here.progress().unwrap();
        while let Some(message) = to.try_receive().unwrap() {
            assert!(message[..] == payload(number)[..], "message {number}");
            assert_eq!(message.source(), PeerId(0));
            number += 1;
        }
    }
    assert!(Endpoint::resume(&context, Config::loopback()).is_err(), "the address is in use");
}

/// Reads memory of an endpoint that has never sent a message and is suspended in the middle of its reply, and makes
/// another request that the resumed endpoint answers. Returns how the two ended.
fn read_while_suspended(bytes: usize) -> (Vec<u8>, Result<u64, RemoteError>) {
    // One thread plays both sides: when they are dropped, nobody is left to acknowledge.
    let linger = Duration::from_millis(20);
    let config = || Config::loopback().send_bytes(64 << 10).accept_unknown(true).linger(linger);
    let here = Endpoint::open(config()).unwrap();
    let there = Endpoint::open(config()).unwrap();
    let peer = here.add_peer(format!("127.0.0.1:{}", there.port())).unwrap();
    let memory = Region::new(bytes).unwrap();
    let data: Vec<u8> = (0..bytes).map(|at| (at * 7 + (at >> 9)) as u8).collect();
    memory.write(0, &data).unwrap();
    let registration = there.remote().register(&memory.all(), Rights::ALL).unwrap();
    let target = registration.target();
    let back = Region::new(bytes).unwrap();
    let read = here.remote().read(peer, target, &back.all()).unwrap();
    let sent = || there.counters().get("packets_sent");
    let deadline = Instant::now() + Duration::from_secs(20);
    while sent() == 0 {
        assert!(Instant::now() < deadline, "no reply begins");
        here.progress().unwrap();
        there.progress().unwrap();
    }
    assert!(read.outcome().is_none(), "{bytes} bytes were no long read");
    drop(registration);
    let context = there.suspend().map_err(|(error, _)| error).unwrap();
    let context = Context::from_bytes(&context.to_bytes()).unwrap();
    let there = Endpoint::resume(&context, config()).unwrap();
    assert!(there.counters().get("packets_sent") < 100, "nothing was left to send");
    let other = here.remote().fetch_add(peer, target, 1).unwrap();
    while read.outcome().is_none() || other.outcome().is_none() {
        assert!(Instant::now() < deadline, "{:?}, {:?}", read.outcome(), other.outcome());
        here.progress().unwrap();
        there.progress().unwrap();
    }
    assert_eq!(read.outcome(), Some(Ok(0)));
    assert!(there.take_failure().is_none() && here.take_failure().is_none());
    let channel = there.channel(1).unwrap();
    let ticket = channel.post(PeerId(0), b"after it").unwrap();
    assert_eq!(there.status(ticket), TicketStatus::Pending, "delivered before it was sent");
    let mut all = vec![0; bytes];
    back.read(0, &mut all).unwrap();
    assert!(all == data, "what was read was altered");
    (all, other.outcome().unwrap())
}

#[test]
fn a_long_read_goes_on_though_who_serves_it_is_suspended() {
    for bytes in [1 << 20, 16 << 20] {
        let (_, other) = read_while_suspended(bytes);
        assert_eq!(other, Err(RemoteError::Refused(Refused::NoSuchKey)));
    }
}

#[test]
fn a_long_write_goes_on_though_its_sender_is_suspended() {
    let config = || Config::loopback().accept_unknown(true);
    let (here, there) = (Endpoint::open(config()).unwrap(), Endpoint::open(config()).unwrap());
    let peer = here.add_peer(format!("127.0.0.1:{}", there.port())).unwrap();
    let bytes = 16 << 20;
    let memory = Region::new(bytes).unwrap();
    let registration = there.remote().register(&memory.all(), Rights::ALL).unwrap();
    let data: Vec<u8> = (0..bytes).map(|at| (at * 5 + (at >> 11)) as u8).collect();
    let source = Region::new(bytes).unwrap();
    source.write(0, &data).unwrap();
    let ticket = here.remote().write_and_notify(peer, registration.target(), &source.all(), 1).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while here.counters().get("packets_sent") == 0 {
        assert!(Instant::now() < deadline);
        here.progress().unwrap();
        there.progress().unwrap();
    }
    let context = here.suspend().map_err(|(error, _)| error).unwrap();
    let here = Endpoint::resume(&Context::from_bytes(&context.to_bytes()).unwrap(), config()).unwrap();
    assert_eq!(here.status(ticket), TicketStatus::Pending);
    while registration.try_notification().unwrap().is_none() {
        assert!(Instant::now() < deadline, "{:?}", here.status(ticket));
        here.progress().unwrap();
    }
    let mut all = vec![0; bytes];
    memory.read(0, &mut all).unwrap();
    assert!(all == data, "what was written was altered");
    while here.status(ticket) == TicketStatus::Pending {
        assert!(Instant::now() < deadline, "it is never acknowledged");
        here.progress().unwrap();
        there.progress().unwrap();
    }
}

#[test]
fn peers_of_both_families_go_on() {
    let mut server = Endpoint::open(Config::default()).unwrap();
    if server.address().is_ipv4() {
        eprintln!("peers_of_both_families_go_on: not tried: this host has no IPv6");
        return;
    }
    let mut clients = ["127.0.0.1", "::1"].map(|own| {
        let client = Endpoint::open(Config::default().bind(own.parse().unwrap())).unwrap();
        let peer = client.add_peer((client.address().ip(), server.port()));
        (client.channel(CHANNEL).unwrap(), peer.unwrap(), client)
    });
    for turn in 0..3u64 {
        // What is sent while nobody is there, too.
        for (number, (channel, peer, _)) in clients.iter_mut().enumerate() {
            channel.post(*peer, &(10 * turn + number as u64).to_le_bytes()).unwrap();
        }
        if turn > 0 {
            let context = server.suspend().map_err(|(error, _)| error).unwrap();
            clients.iter().for_each(|(.., client)| _ = client.progress().unwrap());
            server = Endpoint::resume(&Context::from_bytes(&context.to_bytes()).unwrap(), Config::default())
                .unwrap();
            assert_eq!((server.address(), server.peers()), (context.address(), 2));
        }
        let channel = server.channel(CHANNEL).unwrap();
        let mut heard = Vec::new();
        let until = Instant::now() + Duration::from_secs(20);
        while heard.len() < 2 {
            assert!(Instant::now() < until, "turn {turn}: {heard:?}");
            clients.iter().for_each(|(.., client)| _ = client.progress().unwrap());
            if let Some(message) = channel.try_receive().unwrap() {
                heard.push(u64::from_le_bytes(message[..].try_into().unwrap()));
                let family = server.address_of(message.source()).unwrap().is_ipv4();
                assert_eq!(family, heard[heard.len() - 1] % 10 == 0, "plainly of its family");
                channel.post(message.source(), b"back").unwrap();
            }
        }
        heard.sort_unstable();
        assert_eq!(heard, [10 * turn, 10 * turn + 1]);
        for (client, ..) in &mut clients {
            let answer = loop {
                assert!(Instant::now() < until, "turn {turn}: no answer");
                server.progress().unwrap();
                if let Some(answer) = client.try_receive().unwrap() {
                    break answer;
                }
            };
            assert_eq!(&answer[..], b"back");
        }
        channel.detach();
    }
}
