//! Streams whose pieces are of any size, between several endpoints that lose, double and reorder packets.

mod common {
    pub(crate) mod loopback;
}

use common::loopback::{cluster, eventually, payload};
use proptest::prelude::*;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use tsumugi::stream::{Incoming, StreamOptions, Streams};
use tsumugi::{Config, FaultOptions};

const CHANNEL: u16 = 4;

/// One message.
#[derive(Clone, Debug)]
struct Script {
    from: usize,
    step: usize,
    /// Lengths of the pieces in and, over and over, of the pieces out.
    pieces: Vec<usize>,
    reads: Vec<usize>,
    /// For how many calls the handler waits for something else before each read.
    pause: usize,
    /// After how many reads the handler leaves the rest, if it does.
    leaves: Option<usize>,
}

fn script() -> impl Strategy<Value = Script> {
    let piece = prop_oneof![4 => 0..50usize, 2 => 0..3000usize, 1 => 0..40_000usize];
    let reads = prop::collection::vec(prop_oneof![1..20usize, 1..5000usize], 1..5);
    let leaves = prop_oneof![5 => Just(None), 1 => (0..5usize).prop_map(Some)];
    (0..4usize, 0..3usize, prop::collection::vec(piece, 0..12), reads, 0..3usize, leaves).prop_map(
        |(from, step, pieces, reads, pause, leaves)| Script { from, step, pieces, reads, pause, leaves },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn any_pieces_in_are_the_same_bytes_in_any_pieces_out_whatever_is_lost(
        endpoints in 2..=4usize,
        scripts in prop::collection::vec(script(), 1..25),
        send_bytes in prop_oneof![Just(1u64), Just(3000), Just(1 << 20)],
        queue_bytes in prop_oneof![Just(32u64 << 10), Just(1 << 20)],
        buffered_bytes in prop_oneof![Just(1u64), Just(1 << 20)],
        limit in prop_oneof![Just(1u64), Just(10_000), Just(u64::MAX)],
        seed in any::<u64>(),
    ) {
        let faults: FaultOptions = format!("loss=3%,dup=3%,reorder=5%,seed={seed}").parse().unwrap();
        let config = Config::loopback().send_bytes(send_bytes).queue_bytes(queue_bytes).receive_bytes(queue_bytes).datagram_bytes(Some(1472)).faults(Some(faults));
        let (endpoints, peers) = cluster(endpoints, &config);
        let count = endpoints.len();
        let all = Rc::new(scripts.clone());
        // How often each message was read.
        let mut ports: Vec<Streams<Vec<u32>>> = endpoints
            .iter()
            .map(|endpoint| {
                let mut port =
                    Streams::open(endpoint, CHANNEL, StreamOptions::default().buffered_bytes(buffered_bytes), vec![0; scripts.len()]).unwrap();
                let all = Rc::clone(&all);
                port.register("check", move |incoming: Incoming<Vec<u32>>| {
                    check(incoming, Rc::clone(&all))
                })
                .unwrap();
                port
            })
            .collect();
        for (at, script) in scripts.iter().enumerate() {
            let from = script.from % count;
            let to = (from + 1 + script.step % (count - 1)) % count;
            let mut message = ports[from].begin(peers[from][to], "check").unwrap();
            let pieces = script.pieces.clone();
            ports[from].spawn(async move {
                message.piece(&(at as u32).to_le_bytes()).await.unwrap();
                let data = payload(at as u64, pieces.iter().sum());
                let mut rest = &data[..];
                for bytes in pieces {
                    let (piece, behind) = rest.split_at(bytes);
                    message.piece(piece).await.unwrap();
                    rest = behind;
                }
                message.end().await.unwrap();
            });
        }
        eventually("everything is sent and read", || {
            for port in &mut ports {
                port.extract(limit).unwrap();
            }
            ports.iter().all(|port| port.running() == 0)
                && (0..scripts.len()).all(|at| ports.iter_mut().any(|port| port.with(|read| read[at] > 0)))
        });
        for at in 0..scripts.len() {
            let read: u32 = ports.iter_mut().map(|port| port.with(|read| read[at])).sum();
            prop_assert_eq!(read, 1, "message {}", at);
        }
        for (endpoint, port) in endpoints.iter().zip(&ports) {
            prop_assert_eq!(endpoint.counters().get("violation"), 0);
            prop_assert_eq!((port.buffered_bytes(), port.tally().broken, port.tally().unknown), (0, 0, 0));
        }
    }
}

/// Reads a message as its script says.
async fn check(mut incoming: Incoming<Vec<u32>>, scripts: Rc<Vec<Script>>) {
    let mut number = [0; 4];
    incoming.read_exact(&mut number).await.unwrap();
    let at = u32::from_le_bytes(number) as usize;
    let Script { pieces, reads, pause, leaves, .. } = &scripts[at];
    let expected = payload(at as u64, pieces.iter().sum());
    let mut done = 0;
    for (turn, bytes) in reads.iter().cycle().enumerate() {
        if *leaves == Some(turn) {
            break;
        }
        let mut calls = *pause;
        poll_fn(|context| {
            if calls == 0 {
                return Poll::Ready(());
            }
            calls -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        let mut buffer = vec![0; *bytes];
        let read = match turn % 3 {
            0 => incoming.read(&mut buffer).await.unwrap(),
            1 => incoming.read_some(&mut buffer).await.unwrap(),
            _ => {
                let skipped = incoming.skip(*bytes).await.unwrap();
                buffer[..skipped].copy_from_slice(&expected[done..done + skipped]);
                skipped
            }
        };
        assert_eq!(buffer[..read], expected[done..done + read], "message {at} at {done}");
        done += read;
        assert!(read == *bytes || turn % 3 == 1 || done == expected.len(), "{read} of {bytes}");
        if read == 0 {
            assert_eq!(done, expected.len());
            break;
        }
    }
    incoming.with(|read| read[at] += 1);
}
