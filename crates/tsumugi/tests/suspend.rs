//! A channel's context is saved by one process and goes on in another; nothing is lost.

use std::process::{Command, Stdio};
use std::time::Duration;
use tsumugi::{Config, Context, ContextError, Endpoint, FaultOptions, Node};

const CHANNEL: u16 = 5;
const ROLE: &str = "TSUMUGI_TEST_ROLE";
const MESSAGES: u64 = 400;

fn contents(number: u64) -> Vec<u8> {
    let bytes = [8, 100, 3000, 40_000][(number % 4) as usize];
    (0..bytes as u64).map(|at| (at * 7 + number * 13) as u8).collect()
}

/// Receives messages from number `from` on until `count` have come, and returns the next number.
fn receive(endpoint: &Endpoint, from: u64, count: u64) -> u64 {
    let mut channel = endpoint.channel(CHANNEL).unwrap();
    for number in from..from + count {
        let message = channel.receive_timeout(Duration::from_secs(20)).unwrap();
        assert!(message[..] == contents(number)[..], "message {number}");
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
    let config = Config { datagram_bytes: Some(1472), ..Config::loopback() };
    let endpoint = match std::fs::read(&path) {
        Ok(bytes) => Endpoint::resume(&Context::from_bytes(&bytes).unwrap(), config).unwrap(),
        Err(_) => Endpoint::open(Config { port: port as u16, ..config }).unwrap(),
    };
    let next = receive(&endpoint, from, count);
    // Something of its own is on its way when it is suspended.
    let mut channel = endpoint.channel(CHANNEL).unwrap();
    channel.post(Node(0), &next.to_le_bytes()).unwrap();
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
    let endpoint = Endpoint::open(Config {
        datagram_bytes: Some(1472),
        faults: Some(faults),
        peer_timeout: Duration::from_secs(20),
        ..Config::loopback()
    })
    .unwrap();
    let node = endpoint.add_peer(&format!("127.0.0.1:{free}")).unwrap();
    let mut channel = endpoint.channel(CHANNEL).unwrap();
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
            while posted < MESSAGES && channel.post(node, &contents(posted)).is_ok() {
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
    let node = here.add_peer(&format!("127.0.0.1:{}", there.port())).unwrap();
    let mut from = here.channel(1).unwrap();
    let mut to = there.channel(1).unwrap();
    for number in 0..100 {
        from.post(node, &contents(number)).unwrap();
    }
    let first = loop {
        here.progress().unwrap();
        if let Some(message) = to.try_receive().unwrap() {
            break message;
        }
    };
    assert!(first[..] == contents(0)[..]);
    let (error, there) = there.suspend().unwrap_err();
    assert_eq!(error, ContextError::InUse(2), "a channel and a message");
    drop(first);
    to.detach();
    let context = there.suspend().map_err(|(error, _)| error).unwrap();
    assert_eq!(Context::from_bytes(&context.to_bytes()), Ok(context.clone()));
    let there = Endpoint::resume(&context, Config::loopback()).unwrap();
    let mut to = there.channel(1).unwrap();
    let mut number = 1;
    while number < 100 {
        here.progress().unwrap();
        while let Some(message) = to.try_receive().unwrap() {
            assert!(message[..] == contents(number)[..], "message {number}");
            assert_eq!(message.source(), Node(0));
            number += 1;
        }
    }
    assert!(Endpoint::resume(&context, Config::loopback()).is_err(), "the address is in use");
}
