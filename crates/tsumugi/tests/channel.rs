//! What a channel promises, over real sockets on the loopback interface.

mod common {
    pub(crate) mod loopback;
}

use common::loopback::eventually;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;
use tsumugi::{
    Channel, ChannelError, Config, Endpoint, FaultOptions, PeerId, ReceiveError, Repeat, SendBuffer,
    SendError, TicketStatus, Wait,
};

/// One thread plays all sides: when endpoints are dropped, nobody is left to acknowledge.
const LINGER: Duration = Duration::from_millis(20);

const CHANNEL: u16 = 7;

fn open(config: Config) -> Endpoint {
    Endpoint::open(config.accept_unknown(true).linger(LINGER)).expect("an endpoint on loopback")
}

/// The payload of message `number`. Any byte out of place shows.
fn payload(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|at| (at.wrapping_mul(31) ^ number.wrapping_mul(0x9e37_79b9) ^ (at >> 8)) as u8)
        .collect()
}

/// Sends messages of `sizes` from one thread to another and checks every byte.
fn transfer(sender: Config, receiver: Config, sizes: &'static [usize], rounds: u64) -> tsumugi::Counters {
    let (port_out, port_in) = std::sync::mpsc::channel();
    let receiving = thread::spawn(move || {
        let endpoint = open(receiver);
        port_out.send(endpoint.port()).unwrap();
        let channel = endpoint.channel(CHANNEL).unwrap();
        for number in 0..rounds * sizes.len() as u64 {
            let message = channel.receive().unwrap();
            let bytes = sizes[(number % sizes.len() as u64) as usize];
            assert_eq!(message.len(), bytes, "message {number}");
            assert!(message[..] == payload(number, bytes)[..], "message {number} is altered");
        }
        channel.send(PeerId(0), b"all here").unwrap();
        endpoint.close().unwrap();
    });
    let endpoint = open(sender);
    let peer = endpoint.add_peer(format!("127.0.0.1:{}", port_in.recv().unwrap())).unwrap();
    let channel = endpoint.channel(CHANNEL).unwrap();
    for number in 0..rounds * sizes.len() as u64 {
        let data = payload(number, sizes[(number % sizes.len() as u64) as usize]);
        channel.send(peer, &data).unwrap();
    }
    assert_eq!(&channel.receive().unwrap()[..], b"all here");
    let counters = endpoint.counters();
    drop(channel);
    match endpoint.close() {
        Ok(()) | Err(SendError::Peer(_)) => {}
        Err(error) => panic!("{error}"),
    }
    receiving.join().unwrap();
    counters
}

const SIZES: &[usize] = &[0, 1, 8, 64, 1399, 1400, 1401, 5000, 70_000, 8, 8, 8, 1 << 20];

#[test]
fn messages_of_all_sizes_arrive_whole_and_in_order() {
    for wait in [Wait::Adaptive, Wait::Block] {
        let config = Config::loopback().wait(wait);
        transfer(config.clone(), config, SIZES, 4);
    }
}

#[test]
fn small_datagrams_carry_them_too() {
    let config = Config::loopback().datagram_bytes(Some(1472));
    transfer(config.clone(), config, SIZES, 4);
}

#[test]
fn faults_do_not_show() {
    for repeat in [Repeat::Selective, Repeat::GoBackN] {
        let faults: FaultOptions = "loss=3%,dup=3%,reorder=5%,corrupt=1%,seed=7".parse().unwrap();
        let config = Config::loopback().repeat(repeat).faults(Some(faults)).datagram_bytes(Some(1472));
        let counters = transfer(config.clone(), config, SIZES, 3);
        assert!(counters.get("packets_resent") > 0, "{repeat:?}: nothing was lost\n{counters}");
    }
}

#[test]
fn a_small_queue_and_a_slow_reader_stop_the_sender_and_lose_nothing() {
    let receiver = Config::loopback().queue_bytes(Config::QUEUE_BYTES_MIN).receive_bytes(64 << 10);
    transfer(Config::loopback().datagram_bytes(Some(1472)), receiver, SIZES, 4);
}

#[test]
fn a_channel_is_exclusive_until_it_is_dropped() {
    let endpoint = open(Config::loopback());
    let channel = endpoint.channel(3).unwrap();
    assert_eq!(endpoint.channel(3).err(), Some(ChannelError::Taken(3)));
    drop(channel);
    assert!(endpoint.channel(3).is_ok());
}

#[test]
fn a_peer_that_nobody_runs_is_an_error_in_time() {
    let config = Config::loopback().connect_timeout(Duration::from_millis(200));
    let endpoint = open(config);
    let peer = endpoint.add_peer("127.0.0.1:9").unwrap();
    let channel = endpoint.channel(CHANNEL).unwrap();
    let ticket = channel.post(peer, b"hello?").unwrap();
    assert_eq!(endpoint.status(ticket), TicketStatus::Pending);
    match channel.receive() {
        Err(ReceiveError::Peer(failure)) => {
            assert_eq!((failure.peer, failure.undelivered), (peer, 1));
            assert!(failure.to_string().contains("is it running"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(endpoint.status(ticket), TicketStatus::Failed);
    assert!(matches!(channel.post(peer, b"again"), Err(SendError::Peer(_))));
    endpoint.reset_peer(peer);
    assert!(channel.post(peer, b"again").is_ok());
}

#[test]
fn a_peer_that_speaks_another_version_is_told_apart_from_one_that_is_not_there() {
    const RESET: u8 = 12;
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    other.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let here = open(Config::loopback().connect_timeout(Duration::from_millis(400)));
    let peer = here.add_peer(other.local_addr().unwrap().to_string()).unwrap();
    let channel = here.channel(CHANNEL).unwrap();
    channel.post(peer, b"hello").unwrap();
    let (mut buffer, mut answers, mut hellos) = ([0u8; 2048], 0, 0);
    let failure = loop {
        here.progress().unwrap();
        if let Some(failure) = here.take_failure() {
            break failure;
        }
        let Ok((bytes, from)) = other.recv_from(&mut buffer) else { continue };
        if buffer[1] == RESET {
            assert!(bytes <= hellos, "an answer is no longer than the question");
            answers += 1;
        } else {
            hellos = bytes;
            buffer[0] += 1;
            other.send_to(&buffer[..bytes], from).unwrap();
        }
        // Answers are not answered.
        (buffer[0], buffer[1]) = (buffer[0].max(2), RESET);
        other.send_to(&buffer[..bytes], from).unwrap();
    };
    assert!(answers > 0, "the other version can know why it is not heard");
    let said = failure.to_string();
    assert!(said.contains("version 2") && said.contains("version 1"), "{said}");
    assert!(answers <= here.counters().get("malformed") / 2, "HELLOs are answered, and nothing else");
}

#[test]
fn what_was_delivered_does_not_fail_with_its_peer() {
    let there = open(Config::loopback());
    let here = open(Config::loopback());
    let peer = here.add_peer(format!("127.0.0.1:{}", there.port())).unwrap();
    let (from, to) = (here.channel(1).unwrap(), there.channel(1).unwrap());
    let early = from.post(peer, b"early").unwrap();
    while here.status(early) == TicketStatus::Pending {
        here.progress().unwrap();
        drop(to.try_receive().unwrap());
    }
    assert_eq!(here.status(early), TicketStatus::Delivered);
    let late = from.post(peer, b"late").unwrap();
    drop((to, there));
    assert!(matches!(from.receive_timeout(Duration::from_secs(60)), Err(ReceiveError::Peer(_))));
    assert_eq!((here.status(early), here.status(late)), (TicketStatus::Delivered, TicketStatus::Failed));
}

#[test]
fn wrong_use_says_what_is_wrong() {
    let endpoint = open(Config::loopback().message_bytes_max(1000));
    let channel = endpoint.channel(CHANNEL).unwrap();
    assert!(matches!(channel.post(PeerId(5), b""), Err(SendError::NoSuchPeer(PeerId(5)))));
    let peer = endpoint.add_peer("127.0.0.1:9").unwrap();
    let error = channel.post(peer, &[0; 1001]).unwrap_err();
    assert!(matches!(error, SendError::TooLong { bytes: 1001, limit: 1000 }), "{error}");
    let taken = Endpoint::open(Config::loopback().port(endpoint.port()));
    assert!(taken.is_err(), "the port is taken");
    assert!(Endpoint::open(Config::loopback().queue_bytes(1000)).is_err());
}

#[test]
fn a_reader_that_keeps_everything_is_told_that_memory_is_exhausted() {
    let there = open(Config::loopback().queue_bytes(Config::QUEUE_BYTES_MIN));
    let here = open(Config::loopback());
    let peer = here.add_peer(format!("127.0.0.1:{}", there.port())).unwrap();
    let (from, to) = (here.channel(1).unwrap(), there.channel(1).unwrap());
    let mut kept = Vec::new();
    let mut posted = 0u64;
    let error = 'full: loop {
        while posted < 2000 && from.post(peer, &payload(posted, 100)).is_ok() {
            posted += 1;
        }
        for _ in 0..50 {
            here.progress().unwrap();
            match to.receive_timeout(Duration::from_millis(1)) {
                Ok(message) => kept.push(message),
                Err(ReceiveError::TimedOut(_)) => {}
                Err(error) => break 'full error,
            }
        }
    };
    assert!(matches!(error, ReceiveError::MemoryExhausted { .. }), "{error}");
    // Released, everything else arrives.
    let mut number = 0;
    for message in kept.drain(..) {
        assert!(message[..] == payload(number, 100)[..], "message {number} of {posted}: {:?}", &message[..]);
        number += 1;
    }
    while number < posted {
        here.progress().unwrap();
        while let Some(message) = to.try_receive().unwrap() {
            assert_eq!(message[..], payload(number, 100)[..], "message {number} of {posted}");
            number += 1;
        }
    }
}

#[test]
fn buffers_are_sent_in_place_and_back_to_back_messages_share_packets() {
    let there = open(Config::loopback());
    let here = open(Config::loopback());
    let peer = here.add_peer(format!("127.0.0.1:{}", there.port())).unwrap();
    let (from, to) = (here.channel(1).unwrap(), there.channel(1).unwrap());
    for number in 0..1000u64 {
        let mut buffer = from.send_buffer(peer, 8).unwrap();
        buffer.copy_from_slice(&number.to_le_bytes());
        buffer.post().unwrap();
    }
    let mut next = 0u64;
    while next < 1000 {
        here.progress().unwrap();
        while let Some(message) = to.try_receive().unwrap() {
            assert_eq!(message[..], next.to_le_bytes());
            assert_eq!(message.source(), PeerId(0));
            next += 1;
        }
    }
    assert!(here.counters().get("packets_sent") < 200, "{}", here.counters());
}

#[test]
fn a_buffer_comes_back_when_there_is_no_room_and_two_may_be_filled_at_once() {
    let there = open(Config::loopback());
    let here = open(Config::loopback().send_bytes(10_000));
    let peer = here.add_peer(there.address()).unwrap();
    let (from, to) = (here.channel(1).unwrap(), there.channel(1).unwrap());
    let mut buffers = [1u8, 2].map(|fill| {
        let mut buffer = from.send_buffer(peer, 9000).unwrap();
        buffer.fill(fill);
        Some(buffer)
    });
    buffers[0].take().unwrap().post().unwrap();
    let mut second = buffers[1].take().unwrap();
    let mut returned = 0;
    eventually("there is room", || match second_try(&mut second, &from, peer) {
        None => true,
        Some(SendError::WouldBlock) => {
            returned += 1;
            assert!(second.iter().all(|byte| *byte == 2), "as it was");
            // One side at a time, in this thread.
            there.progress().unwrap();
            here.progress().unwrap();
            false
        }
        Some(error) => panic!("{error}"),
    });
    assert!(returned > 0, "the queue takes only one of them");
    for fill in [1u8, 2] {
        let mut message = None;
        eventually("it arrives", || {
            here.progress().unwrap();
            message = to.try_receive().unwrap();
            message.is_some()
        });
        assert_eq!(message.unwrap()[..], [fill; 9000]);
    }
    // The other makes no call, and so acknowledges nothing from here on.
    let full = (0..1000).find_map(|_| from.post_timeout(peer, &[0; 9000], Duration::ZERO).err());
    assert!(matches!(full, Some(SendError::TimedOut(Duration::ZERO))), "{full:?}");
}

/// Posts a buffer, which is there again if that failed.
fn second_try(buffer: &mut SendBuffer, channel: &Channel, peer: PeerId) -> Option<SendError> {
    let spare = channel.send_buffer(peer, 0).unwrap();
    let unsent = std::mem::replace(buffer, spare).post().err()?;
    *buffer = unsent.buffer;
    Some(unsent.error)
}

#[test]
fn random_datagrams_are_counted_and_never_delivered() {
    let endpoint = open(Config::loopback());
    let channel = endpoint.channel(CHANNEL).unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", endpoint.port())).unwrap();
    let mut state = 1u64;
    for round in 0..2000usize {
        let bytes: Vec<u8> = (0..round % 300)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        socket.send(&bytes).unwrap();
        if round % 50 == 0 {
            assert!(channel.try_receive().unwrap().is_none());
        }
    }
    while endpoint.progress().unwrap() > 0 {}
    assert!(channel.try_receive().unwrap().is_none());
    assert!(endpoint.counters().get("malformed") > 1500, "{}", endpoint.counters());
    assert_eq!(endpoint.peers(), 0);
}

#[test]
fn a_message_over_the_peers_limit_is_told_apart_from_a_broken_peer() {
    let there = open(Config::loopback().message_bytes_max(10_000));
    let here = open(Config::loopback());
    let peer = here.add_peer(format!("127.0.0.1:{}", there.port())).unwrap();
    let from = here.channel(1).unwrap();
    let to = there.channel(1).unwrap();
    // Its limit is not known yet.
    let ticket = from.post(peer, &payload(0, 10_001)).unwrap();
    let failure = loop {
        there.progress().unwrap();
        match from.try_receive() {
            Ok(_) => {}
            Err(ReceiveError::Peer(failure)) => break failure,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(failure.reason, tsumugi::Reason::TooLong(10_000));
    assert_eq!(here.status(ticket), TicketStatus::Failed);
    here.reset_peer(peer);
    assert!(matches!(from.post(peer, &payload(0, 10_001)), Err(SendError::TooLong { limit: 10_000, .. })));
    from.post(peer, &payload(1, 10_000)).unwrap();
    let message = loop {
        here.progress().unwrap();
        match to.try_receive() {
            Ok(Some(message)) => break message,
            Ok(None) | Err(ReceiveError::Peer(_)) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert!(message[..] == payload(1, 10_000)[..]);
}

/// An endpoint with a peer that was gone before it had taken what was sent to it, and the peer's number.
fn with_a_lost_peer() -> (Endpoint, PeerId) {
    let endpoint = open(Config::loopback().connect_timeout(Duration::from_millis(100)));
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let peer = endpoint.add_peer(format!("127.0.0.1:{nobody}")).unwrap();
    let ticket = endpoint.channel(1).unwrap().post(peer, b"?").unwrap();
    while endpoint.status(ticket) == TicketStatus::Pending {
        endpoint.progress().unwrap();
    }
    (endpoint, peer)
}

fn assert_is_lost(outcome: Result<(), SendError>, peer: PeerId) {
    match outcome {
        Err(SendError::Peer(failure)) => assert_eq!((failure.peer, failure.undelivered), (peer, 1)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn flushing_tells_of_a_loss_that_nobody_was_told_of_and_tells_it_once() {
    let (endpoint, peer) = with_a_lost_peer();
    assert_is_lost(endpoint.flush(), peer);
    endpoint.flush().unwrap();
    endpoint.close().unwrap();
}

#[test]
fn closing_tells_of_a_loss_that_nobody_was_told_of() {
    let (endpoint, peer) = with_a_lost_peer();
    assert_is_lost(endpoint.close(), peer);
}

#[test]
fn flushing_does_not_tell_what_was_told_otherwise() {
    let (endpoint, peer) = with_a_lost_peer();
    assert_eq!(endpoint.take_failure().unwrap().peer, peer);
    endpoint.flush().unwrap();

    let (endpoint, peer) = with_a_lost_peer();
    endpoint.reset_peer(peer);
    let channel = endpoint.channel(1).unwrap();
    channel.post(peer, b"?").unwrap();
    match channel.receive() {
        Err(ReceiveError::Peer(failure)) => assert_eq!(failure.undelivered, 1),
        other => panic!("{other:?}"),
    }
    endpoint.flush().unwrap();
    assert!(endpoint.take_failure().is_some(), "flushing took a failure that it did not tell");
}
