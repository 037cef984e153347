//! What streams promise, over real sockets on the loopback interface.

#[path = "../common/loopback.rs"]
mod loopback;
mod waking;

use loopback::{connected, eventually, in_time, open, payload};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;
use tsumugi::stream::{Incoming, ReadError, StreamOptions, Streams, UNFINISHED_MAX, WaitError, WriteError};
use tsumugi::{Config, Endpoint, NameError, PeerId, Reason, SendError, TicketStatus};

const CHANNEL: u16 = 4;

fn port<S: 'static>(endpoint: &Endpoint, state: S) -> Streams<S> {
    Streams::open(endpoint, CHANNEL, StreamOptions::default(), state).unwrap()
}

/// What a handler has read, and how it ended.
#[derive(Debug, Default)]
struct Seen {
    messages: Vec<(Vec<u8>, Option<ReadError>)>,
    /// Bytes that were read so far, of all messages.
    bytes: usize,
    waiting: Vec<Waker>,
    open: bool,
}

/// Reads a message as it comes and keeps it.
async fn keep(mut incoming: Incoming<Seen>) {
    let (mut all, mut buffer) = (Vec::new(), [0; 1000]);
    loop {
        match incoming.read_some(&mut buffer).await {
            Ok(0) => return incoming.with(|seen| seen.messages.push((all, None))),
            Ok(bytes) => {
                all.extend_from_slice(&buffer[..bytes]);
                incoming.with(|seen| seen.bytes += bytes);
            }
            Err(error) => return incoming.with(|seen| seen.messages.push((all, Some(error)))),
        }
    }
}

/// Waits until it is told to go on, then reads.
async fn wait_and_keep(mut incoming: Incoming<Seen>) {
    poll_fn(|context| {
        incoming.with(|seen| {
            if seen.open {
                return Poll::Ready(());
            }
            seen.waiting.push(context.waker().clone());
            Poll::Pending
        })
    })
    .await;
    keep(incoming).await;
}

fn receiver(endpoint: &Endpoint, options: StreamOptions) -> Streams<Seen> {
    let mut port = Streams::open(endpoint, CHANNEL, options, Seen::default()).unwrap();
    port.register("keep", keep).unwrap();
    port.register("wait and keep", wait_and_keep).unwrap();
    port
}

#[test]
fn pieces_in_and_pieces_out_are_the_same_bytes() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let (mut from, mut to) = (port(&here, ()), receiver(&there, StreamOptions::default()));
    let sizes: [&[usize]; 6] = [&[], &[0], &[5], &[1, 2, 3], &[1400; 3], &[70_000, 1, 100_000]];
    let mut expected = Vec::new();
    for (number, sizes) in sizes.iter().enumerate() {
        let mut message = from.begin(peer, "keep").unwrap();
        let mut all = Vec::new();
        for bytes in *sizes {
            let piece = payload(number as u64, *bytes);
            from.piece(&mut message, &piece).unwrap();
            all.extend(piece);
        }
        let ticket = from.end(message).unwrap();
        expected.push((all, None));
        eventually("it arrives", || {
            from.poll().unwrap();
            to.poll().unwrap();
            here.status(ticket) == TicketStatus::Delivered
                && to.with(|seen| seen.messages.len()) == number + 1
        });
    }
    assert_eq!(to.with(|seen| std::mem::take(&mut seen.messages)), expected);
    assert_eq!((to.running(), to.buffered_bytes(), to.tally().broken), (0, 0, 0));
}

#[test]
fn a_handler_starts_at_the_head_and_goes_on_as_bytes_arrive() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let (mut from, mut to) = (port(&here, ()), receiver(&there, StreamOptions::default()));
    let mut message = from.begin(peer, "keep").unwrap();
    let mut sent = 0;
    for number in 0..20 {
        from.piece(&mut message, &payload(number, 3)).unwrap();
        from.run(message.flush()).unwrap().unwrap();
        sent += 3;
        eventually("the handler has read it", || {
            from.poll().unwrap();
            to.poll().unwrap();
            to.with(|seen| seen.bytes) == sent
        });
        assert_eq!((to.running(), to.with(|seen| seen.messages.len())), (1, 0));
    }
    from.end(message).unwrap();
    eventually("the handler finishes", || {
        from.poll().unwrap();
        to.poll().unwrap();
        to.running() == 0
    });
    assert_eq!(to.with(|seen| seen.messages[0].0.len()), 60);
}

#[test]
fn small_pieces_share_a_packet() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let (mut from, mut to) = (port(&here, ()), receiver(&there, StreamOptions::default()));
    let before = here.counters().get("packets_sent");
    let mut message = from.begin(peer, "keep").unwrap();
    for number in 0..1000 {
        from.piece(&mut message, &payload(number, 10)).unwrap();
    }
    from.end(message).unwrap();
    eventually("it arrives", || {
        from.poll().unwrap();
        to.poll().unwrap();
        to.with(|seen| seen.messages.len()) == 1
    });
    let packets = here.counters().get("packets_sent") - before;
    assert!(packets < 15, "{packets} packets for 10,000 bytes");
}

#[test]
fn a_handler_reads_exactly_skips_and_leaves_the_rest() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let mut to = port(&there, Vec::new());
    to.register("read", |mut incoming: Incoming<Vec<_>>| async move {
        let mut number = [0; 4];
        assert_eq!(incoming.read_exact(&mut number).await, Ok(()));
        let wanted = u32::from_le_bytes(number) as usize;
        assert_eq!(incoming.skip(10).await, Ok(10));
        let mut buffer = vec![0; wanted];
        let read = incoming.read(&mut buffer).await.unwrap();
        buffer.truncate(read);
        let after = incoming.read_exact(&mut number).await;
        let skipped = incoming.skip(usize::MAX).await;
        incoming.with(|seen| seen.push((buffer, after, skipped)));
    })
    .unwrap();
    to.register("leave", |mut incoming: Incoming<Vec<_>>| async move {
        incoming.read_exact(&mut [0; 4]).await.unwrap();
    })
    .unwrap();
    let mut from = port(&here, ());
    let data = payload(0, 50_000);
    for (wanted, handler) in [(49_986u32, "read"), (100, "leave"), (49_985, "read"), (60_000, "read")] {
        let mut message = from.begin(peer, handler).unwrap();
        from.piece(&mut message, &wanted.to_le_bytes()).unwrap();
        from.piece(&mut message, &data[4..]).unwrap();
        from.end(message).unwrap();
    }
    eventually("all are read", || {
        from.poll().unwrap();
        to.poll().unwrap();
        to.with(|seen| seen.len()) == 3
    });
    let seen = to.with(std::mem::take);
    assert_eq!(seen[0], (data[14..].to_vec(), Err(ReadError::Ended { missing: 4 }), Ok(0)));
    assert_eq!(seen[1], (data[14..49_999].to_vec(), Err(ReadError::Ended { missing: 3 }), Ok(0)));
    assert_eq!(seen[2], seen[0]);
    assert_eq!((to.running(), to.buffered_bytes()), (0, 0));
}

#[test]
fn messages_for_nobody_are_counted_and_thrown_away() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let (mut from, mut to) = (port(&here, ()), receiver(&there, StreamOptions::default()));
    for handler in ["nobody", "keep"] {
        let mut message = from.begin(peer, handler).unwrap();
        from.piece(&mut message, &payload(0, 10_000)).unwrap();
        from.end(message).unwrap();
    }
    eventually("the second arrives", || {
        from.poll().unwrap();
        to.poll().unwrap();
        to.with(|seen| seen.messages.len()) == 1
    });
    assert_eq!((to.tally().messages, to.tally().unknown, to.buffered_bytes()), (2, 1, 0));
    assert_eq!(there.counters().get("violation"), 0);
}

#[test]
fn a_message_that_is_given_up_ends_with_an_error_in_its_handler() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let (mut from, mut to) = (port(&here, ()), receiver(&there, StreamOptions::default()));
    let mut message = from.begin(peer, "keep").unwrap();
    from.piece(&mut message, b"so far").unwrap();
    from.run(message.flush()).unwrap().unwrap();
    drop(message);
    // One of which nothing has left is none.
    let mut unsent = from.begin(peer, "keep").unwrap();
    unsent.try_piece(b"nothing").unwrap();
    drop(unsent);
    eventually("the handler finishes", || {
        from.poll().unwrap();
        to.poll().unwrap();
        to.with(|seen| seen.messages.len()) == 1
    });
    assert_eq!(
        to.with(|seen| seen.messages.pop()),
        Some((b"so far".to_vec(), Some(ReadError::Broken(PeerId(0)))))
    );
    assert_eq!((to.tally().messages, to.tally().broken), (1, 1));
}

#[test]
fn a_port_that_goes_gives_up_what_it_had_begun_and_another_may_begin() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let (mut from, mut to) = (port(&here, ()), receiver(&there, StreamOptions::default()));
    let message = begun(&mut from, &mut to, peer, b"half");
    drop(from);
    let mut from = port(&here, ());
    let next = begun(&mut from, &mut to, peer, b"next");
    assert_eq!(
        to.with(|seen| seen.messages.pop()),
        Some((b"half".to_vec(), Some(ReadError::Broken(PeerId(0)))))
    );
    drop(message);
    from.end(next).unwrap();
    eventually("the second ends", || {
        from.poll().unwrap();
        to.poll().unwrap();
        to.with(|seen| seen.messages.len()) == 1
    });
    assert_eq!(to.with(|seen| seen.messages.pop()), Some((b"next".to_vec(), None)));
    assert_eq!(there.counters().get("violation"), 0);
}

/// Begins a message and waits until its handler has what was sent of it.
fn begun(
    from: &mut Streams<()>,
    to: &mut Streams<Seen>,
    peer: PeerId,
    data: &[u8],
) -> tsumugi::stream::Outgoing {
    let mut message = from.begin(peer, "keep").unwrap();
    from.piece(&mut message, data).unwrap();
    from.run(message.flush()).unwrap().unwrap();
    let expected = to.with(|seen| seen.bytes) + data.len();
    eventually("the handler has it", || {
        from.poll().unwrap();
        to.poll().unwrap();
        to.with(|seen| seen.bytes) == expected
    });
    message
}

#[test]
fn a_sender_that_goes_away_in_the_middle_is_an_error_in_the_handler() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let other = open(Config::loopback());
    let other_peer = other.add_peer(format!("127.0.0.1:{}", there.port())).unwrap();
    let mut to = receiver(&there, StreamOptions::default());
    let (mut from, mut from_other) = (port(&here, ()), port(&other, ()));
    let message = begun(&mut from, &mut to, peer, b"gone");
    let other_message = begun(&mut from_other, &mut to, other_peer, b"stays");
    drop((message, from, here));
    eventually("the handler hears of it", || {
        to.poll().unwrap();
        to.with(|seen| seen.messages.len()) == 1
    });
    let (bytes, error) = to.with(|seen| seen.messages.pop()).unwrap();
    assert_eq!(bytes, b"gone");
    assert!(matches!(error, Some(ReadError::Peer(_) | ReadError::Broken(_))), "{error:?}");
    from_other.end(other_message).unwrap();
    eventually("the other ends", || {
        from_other.poll().unwrap();
        to.poll().unwrap();
        to.with(|seen| seen.messages.len()) == 1
    });
    assert_eq!(to.with(|seen| seen.messages.pop()), Some((b"stays".to_vec(), None)));
    assert_eq!(to.tally().broken, 1);
}

#[test]
fn a_sender_that_falls_silent_in_the_middle_is_noticed() {
    let config = Config::loopback()
        .peer_timeout(Duration::from_millis(200))
        .faults(Some("firewall=on".parse().unwrap()));
    let (here, there, peer) = connected(Config::loopback(), config);
    let (mut from, mut to) = (port(&here, ()), receiver(&there, StreamOptions::default()));
    let _message = begun(&mut from, &mut to, peer, b"half");
    // From here on nobody calls `here`, as if its process hung; everything it sent is acknowledged.
    eventually("the handler hears of it", || {
        to.poll().unwrap();
        to.with(|seen| seen.messages.len()) == 1
    });
    let (_, error) = to.with(|seen| seen.messages.pop()).unwrap();
    let is_silent =
        |error: &_| matches!(error, ReadError::Peer(failure) if matches!(failure.reason, Reason::Silent(..)));
    assert!(error.as_ref().is_some_and(is_silent), "{error:?}");
}

#[test]
fn a_receiver_that_goes_away_is_an_error_at_the_next_piece() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let (mut from, mut to) = (port(&here, ()), receiver(&there, StreamOptions::default()));
    let mut message = begun(&mut from, &mut to, peer, b"x");
    drop((to, there));
    eventually("it is known", || {
        from.poll().unwrap();
        match message.try_piece(b"y") {
            Ok(_) => false,
            Err(WriteError::Send(SendError::Peer(failure))) => failure.peer == peer,
            Err(error) => panic!("{error}"),
        }
    });
    assert!(matches!(from.begin(peer, "keep").err(), Some(WriteError::Send(SendError::Peer(_)))));
    // After it is reset, the message is still one that nobody there knows of.
    here.reset_peer(peer);
    assert!(matches!(message.try_piece(b"y"), Err(WriteError::Lost(lost)) if lost == peer));
    let message = from.begin(peer, "keep").unwrap();
    drop(from);
    let mut end = std::pin::pin!(message.end());
    let mut context = std::task::Context::from_waker(Waker::noop());
    assert!(matches!(end.as_mut().poll(&mut context), Poll::Ready(Err(WriteError::Closed))));
}

#[test]
fn unread_bytes_are_bounded_and_the_sender_is_stopped() {
    let config = Config::loopback()
        .queue_bytes(Config::QUEUE_BYTES_MIN)
        .receive_bytes(Config::QUEUE_BYTES_MIN)
        .datagram_bytes(Some(1472));
    let (here, there, peer) = connected(config.clone().send_bytes(10_000), config);
    let options = StreamOptions::default().buffered_bytes(20_000);
    let (mut from, mut to) = (port(&here, ()), receiver(&there, options));
    let data = payload(0, 300_000);
    let mut message = from.begin(peer, "wait and keep").unwrap();
    let mut sent = 0;
    for _ in 0..2000 {
        sent += message.try_piece(&data[sent..]).unwrap();
        from.poll().unwrap();
        to.poll().unwrap();
    }
    assert!(sent < 120_000, "{sent} bytes are taken though nobody reads");
    assert!((20_000..22_000).contains(&to.buffered_bytes()), "{}", to.buffered_bytes());
    assert!(matches!(to.run(std::future::pending::<()>()), Err(WaitError::Stuck { limit: 20_000, .. })));
    // Told to read on, it does.
    to.with(|seen| {
        seen.open = true;
        seen.waiting.drain(..).for_each(Waker::wake);
    });
    eventually("the rest is taken", || {
        sent += message.try_piece(&data[sent..]).unwrap();
        from.poll().unwrap();
        to.poll().unwrap();
        sent == data.len()
    });
    from.spawn(async move {
        message.end().await.unwrap();
    });
    eventually("it ends", || {
        from.poll().unwrap();
        to.poll().unwrap();
        to.with(|seen| seen.messages.len()) == 1
    });
    assert!(to.with(|seen| seen.messages.pop()).unwrap() == (data, None));
    assert_eq!(to.buffered_bytes(), 0);
}

#[test]
fn handlers_that_never_finish_are_bounded_too() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let (mut from, mut to) =
        (port(&here, ()), receiver(&there, StreamOptions::default().buffered_bytes(20_000)));
    for _ in 0..100 {
        let message = from.begin(peer, "wait and keep").unwrap();
        from.end(message).unwrap();
    }
    eventually("the port is full", || {
        from.poll().unwrap();
        to.poll().unwrap();
        to.buffered_bytes() >= 20_000
    });
    for _ in 0..100 {
        from.poll().unwrap();
        to.poll().unwrap();
    }
    assert_eq!(to.running(), 20);
    to.with(|seen| {
        seen.open = true;
        seen.waiting.drain(..).for_each(Waker::wake);
    });
    eventually("all finish", || {
        to.poll().unwrap();
        to.with(|seen| seen.messages.len()) == 100
    });
    assert_eq!((to.running(), to.buffered_bytes()), (0, 0));
}

#[test]
fn extract_takes_in_what_it_is_told_to() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let (mut from, mut to) = (port(&here, ()), receiver(&there, StreamOptions::default()));
    for _ in 0..50 {
        let mut message = from.begin(peer, "keep").unwrap();
        from.piece(&mut message, &[7; 100]).unwrap();
        from.end(message).unwrap();
    }
    eventually("they arrive, and are not taken in", || {
        from.poll().unwrap();
        assert_eq!(to.extract(0).unwrap(), 0);
        there.counters().get("messages_received") > 50
    });
    for number in 1..=20 {
        assert_eq!(to.extract(101).unwrap(), 200);
        assert_eq!(to.with(|seen| seen.messages.len()), 2 * number);
    }
}

#[test]
fn messages_that_are_not_ended_are_bounded() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let (from, _to) = (port(&here, ()), receiver(&there, StreamOptions::default()));
    let mut begun: Vec<_> = (0..UNFINISHED_MAX).map(|_| from.begin(peer, "keep").unwrap()).collect();
    assert!(matches!(from.begin(peer, "keep").err(), Some(WriteError::Unfinished { .. })));
    begun.pop();
    assert!(from.begin(peer, "keep").is_ok());
}

/// A head of a message, as bytes.
fn raw_head(message: u32, flags: u8) -> Vec<u8> {
    [&[flags, 0, 0, 0][..], &message.to_le_bytes(), &[0; 8]].concat()
}

#[test]
fn a_peer_that_begins_too_much_or_goes_on_with_nothing_is_counted() {
    let (here, there, _) = connected(Config::loopback(), Config::loopback());
    let mut to = receiver(&here, StreamOptions::default());
    let hostile = there.channel(CHANNEL).unwrap();
    let count = UNFINISHED_MAX as u32 + 10;
    for message in 0..count {
        hostile.post(PeerId(0), &raw_head(message, 1)).unwrap();
    }
    hostile.post(PeerId(0), &raw_head(0, 1)).unwrap(); // twice
    hostile.post(PeerId(0), &[0, 0, 0, 0, 255, 255, 255, 255]).unwrap(); // never begun
    hostile.post(PeerId(0), &[0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    hostile.post(PeerId(0), &[]).unwrap();
    eventually("all is counted", || {
        there.progress().unwrap();
        to.poll().unwrap();
        here.counters().get("violation") == 14
    });
    assert_eq!(to.tally().messages, UNFINISHED_MAX as u64);
}

#[test]
fn garbage_is_counted_and_does_no_harm() {
    let (here, there, _) = connected(Config::loopback(), Config::loopback());
    let mut to = receiver(&here, StreamOptions::default());
    let hostile = there.channel(CHANNEL).unwrap();
    for round in 0..2000u64 {
        let mut bytes = payload(round, (round % 40) as usize);
        if bytes.len() >= 8 {
            bytes[..8].copy_from_slice(&[(round % 7) as u8, 0, 0, 0, (round % 11) as u8, 0, 0, 0]);
        }
        hostile.post(PeerId(0), &bytes).unwrap();
        there.progress().unwrap();
        to.poll().unwrap();
    }
    assert!(here.counters().get("violation") > 500, "{}", here.counters());
    drop(hostile);
    let mut from = port(&there, ());
    let mut message = from.begin(PeerId(0), "keep").unwrap();
    from.piece(&mut message, b"all is well").unwrap();
    from.end(message).unwrap();
    eventually("a message arrives", || {
        from.poll().unwrap();
        to.poll().unwrap();
        to.with(|seen| seen.messages.last().is_some_and(|(bytes, _)| bytes == b"all is well"))
    });
}

#[test]
fn wrong_use_says_what_is_wrong() {
    let endpoint = open(Config::loopback());
    let mut to = receiver(&endpoint, StreamOptions::default());
    assert_eq!(to.register("keep", keep), Err(NameError::Twice("keep".into())));
    assert!(Streams::open(&endpoint, CHANNEL, StreamOptions::default(), ()).is_err(), "taken");
    assert!(Streams::open(&endpoint, 9, StreamOptions::default().buffered_bytes(0), ()).is_err());
    assert!(matches!(
        to.begin(PeerId(3), "keep").err(),
        Some(WriteError::Send(SendError::NoSuchPeer(PeerId(3))))
    ));
}

#[test]
fn two_that_send_each_other_more_than_fits_do_not_wait_for_each_other() {
    in_time(|| {
        let config = Config::loopback()
            .queue_bytes(Config::QUEUE_BYTES_MIN)
            .receive_bytes(Config::QUEUE_BYTES_MIN)
            .send_bytes(20_000);
        let (to_main, from_other) = std::sync::mpsc::channel();
        let (to_other, from_main) = std::sync::mpsc::channel::<u16>();
        let run = |endpoint: Endpoint, port: u16| {
            let peer = endpoint.add_peer(format!("127.0.0.1:{port}")).unwrap();
            let mut streams = receiver(&endpoint, StreamOptions::default());
            let data = payload(1, 1 << 20);
            for _ in 0..3 {
                let mut message = streams.begin(peer, "keep").unwrap();
                streams.piece(&mut message, &data).unwrap();
                streams.end(message).unwrap();
            }
            while streams.with(|seen| seen.messages.len() < 3) {
                streams.poll_timeout(Duration::MAX).unwrap();
            }
            streams
                .with(|seen| assert!(seen.messages.iter().all(|message| *message == (data.clone(), None))));
            drop(streams);
            let _ = endpoint.close();
        };
        let other = {
            let config = config.clone();
            std::thread::spawn(move || {
                let endpoint = open(config);
                to_main.send(endpoint.port()).unwrap();
                run(endpoint, from_main.recv().unwrap());
            })
        };
        let endpoint = open(config);
        to_other.send(endpoint.port()).unwrap();
        run(endpoint, from_other.recv().unwrap());
        other.join().unwrap();
    });
}

#[test]
fn a_handler_may_send_what_it_reads_back() {
    let config = Config::loopback().send_bytes(5_000);
    let (here, there, peer) = connected(config.clone(), config);
    let (mut client, mut server) = (receiver(&here, StreamOptions::default()), port(&there, ()));
    server
        .register("echo", |mut incoming: Incoming<()>| async move {
            let mut answer = incoming.begin(incoming.source(), "keep").unwrap();
            let mut buffer = [0; 777];
            loop {
                match incoming.read_some(&mut buffer).await.unwrap() {
                    0 => break,
                    bytes => answer.piece(&buffer[..bytes]).await.unwrap(),
                }
            }
            answer.end().await.unwrap();
        })
        .unwrap();
    let data = payload(3, 200_000);
    let mut message = client.begin(peer, "echo").unwrap();
    let expected = data.clone();
    client.spawn(async move {
        message.piece(&data).await.unwrap();
        message.end().await.unwrap();
    });
    eventually("it comes back", || {
        server.poll().unwrap();
        client.poll().unwrap();
        client.with(|seen| seen.messages.len()) == 1
    });
    assert!(client.with(|seen| seen.messages.pop()).unwrap() == (expected, None));
}
