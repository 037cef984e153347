//! Futures of the library: under tokio, in an event loop of another kind, and without any.

mod common {
    pub(crate) mod loopback;
}

use common::loopback::{eventually, open};
use std::cell::Cell;
use std::future::{Future, pending};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::task::LocalSet;
use tokio::time::timeout;
use tsumugi::message::{Pattern, Port};
use tsumugi::{Config, Endpoint, Reason, ReceiveError, Region, Rights, SendError};

const CHANNEL: u16 = 1;
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a future under tokio, in one thread.
fn in_tokio<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let within = async { timeout(PATIENCE, future).await.expect("nothing happens any more") };
    LocalSet::new().block_on(&runtime, within)
}

/// Runs a future, and both endpoints meanwhile, whatever the future waits for.
async fn driven<T>(endpoints: [&Endpoint; 2], work: impl Future<Output = T>) -> T {
    tokio::select! {
        error = endpoints[0].drive() => panic!("{error}"),
        error = endpoints[1].drive() => panic!("{error}"),
        result = work => result,
    }
}

fn lossy() -> Config {
    Config::loopback().faults(Some("loss=10%,dup=5%,reorder=10%,seed=3".parse().unwrap()))
}

#[test]
fn many_tasks_of_one_endpoint_wait_each_for_its_own() {
    in_tokio(async {
        let (here, there) = (open(lossy()), open(lossy()));
        let peer = here.add_peer(there.address()).unwrap();
        let (there, done) = (Rc::new(there), Rc::new(Cell::new(0)));
        let mut servers = Vec::new();
        for number in 0..20 {
            let there = Rc::clone(&there);
            servers.push(tokio::task::spawn_local(async move {
                let channel = there.channel(number).unwrap();
                for _ in 0..20 {
                    let message = channel.receive_async().await.unwrap();
                    channel.send_async(message.source(), &message).await.unwrap();
                }
                there.flush_async().await.unwrap();
            }));
        }
        let here = Rc::new(here);
        let mut clients = Vec::new();
        for number in 0..20 {
            let (here, done) = (Rc::clone(&here), Rc::clone(&done));
            clients.push(tokio::task::spawn_local(async move {
                let channel = here.channel(number).unwrap();
                for round in 0..20u16 {
                    // Both ways at once, through one channel.
                    let data =
                        [number, round].map(u16::to_le_bytes).concat().repeat(1 + 100 * round as usize);
                    let (sent, answer) =
                        tokio::join!(channel.send_async(peer, &data), channel.receive_async());
                    sent.unwrap();
                    assert_eq!(answer.unwrap()[..], data);
                    done.set(done.get() + 1);
                }
            }));
        }
        driven([&here, &there], async {
            for task in servers.into_iter().chain(clients) {
                task.await.unwrap();
            }
        })
        .await;
        assert_eq!(done.get(), 400);
    });
}

#[test]
fn requests_and_operations_are_awaited() {
    in_tokio(async {
        let (here, there) = (open(lossy()), open(lossy()));
        let peer = here.add_peer(there.address()).unwrap();
        let (from, to) = (Port::open(&here, CHANNEL).unwrap(), Port::open(&there, CHANNEL).unwrap());
        let region = Region::new(4096).unwrap();
        let registration = there.remote().register(&region.all(), Rights::ALL).unwrap();
        let take = async {
            // Tags in the opposite order: short ones, and ones that are offered.
            for tag in (0..6u64).rev() {
                let mut receive = to.receive(Pattern::tagged(tag), vec![0; 3 << 20].into());
                // Given up, it goes on.
                let early = timeout(Duration::from_micros(10), &mut receive).await;
                let received = match early {
                    Ok(received) => received.unwrap(),
                    Err(_) => receive.await.unwrap(),
                };
                let bytes = received.outcome.as_ref().unwrap().bytes as usize;
                assert_eq!(bytes, if tag % 2 == 0 { 8 } else { 2 << 20 });
                assert!(received.data().iter().all(|byte| *byte == tag as u8));
            }
            let notification = registration.notification_async().await.unwrap();
            assert_eq!((notification.handler, notification.slice.bytes()), (7, 8));
            there.flush_async().await.unwrap();
        };
        let give = async {
            let sends: Vec<_> = (0..6u64)
                .map(|tag| {
                    let bytes = if tag % 2 == 0 { 8 } else { 2 << 20 };
                    loop {
                        match from.send(peer, tag, &vec![tag as u8; bytes]) {
                            Err(SendError::WouldBlock) => {
                                from.progress().unwrap();
                                there.progress().unwrap();
                            }
                            sent => break sent.unwrap(),
                        }
                    }
                })
                .collect();
            for send in sends {
                send.await.unwrap().outcome.unwrap();
            }
            let remote = here.remote();
            assert_eq!(remote.fetch_add(peer, registration.target(), 5).unwrap().await.unwrap(), 0);
            assert_eq!(remote.fetch_add(peer, registration.target(), 5).unwrap().await.unwrap(), 5);
            let wrong = tsumugi::Target { key: 1, address: 0 };
            assert!(remote.fetch_add(peer, wrong, 5).unwrap().await.is_err());
            remote.write_bytes_and_notify(peer, registration.target(), &[1; 8], 7).unwrap();
            here.flush_async().await.unwrap();
        };
        driven([&here, &there], async { tokio::join!(take, give) }).await;
    });
}

#[test]
fn a_receive_that_is_given_up_loses_nothing() {
    in_tokio(async {
        let (here, there) = (open(Config::loopback()), open(Config::loopback()));
        let peer = here.add_peer(there.address()).unwrap();
        let (from, to) = (here.channel(CHANNEL).unwrap(), there.channel(CHANNEL).unwrap());
        let send = async {
            for number in 0..200u64 {
                from.send_async(peer, &number.to_le_bytes()).await.unwrap();
                tokio::time::sleep(Duration::from_micros(number % 40)).await;
            }
        };
        let receive = async {
            let (mut next, mut given_up) = (0u64, 0);
            while next < 200 {
                match timeout(Duration::from_micros(next % 40), to.receive_async()).await {
                    Ok(message) => {
                        assert_eq!(message.unwrap()[..], next.to_le_bytes());
                        next += 1;
                    }
                    Err(_) => given_up += 1,
                }
            }
            assert!(given_up > 0, "tried nothing");
        };
        driven([&here, &there], async { tokio::join!(send, receive) }).await;
    });
}

#[test]
fn the_end_of_a_peer_wakes_who_waits() {
    in_tokio(async {
        let (here, there) = (open(Config::loopback()), open(Config::loopback()));
        let peer = here.add_peer(there.address()).unwrap();
        // So that it is told when nothing more can come.
        there.add_peer(here.address()).unwrap();
        let (from, to) = (here.channel(CHANNEL).unwrap(), there.channel(CHANNEL).unwrap());
        let (sent, message) = tokio::join!(from.send_async(peer, b"hello"), to.receive_async());
        sent.unwrap();
        assert_eq!(message.unwrap()[..], *b"hello");
        let wait = async {
            match to.receive_async().await {
                Err(ReceiveError::Peer(failure)) => assert_eq!(failure.reason, Reason::Closed),
                other => panic!("{other:?}"),
            }
        };
        let end = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            here.abort();
        };
        tokio::join!(wait, end);
    });
}

/// Also where the runtime has several threads, of which another than ours may see the descriptor first.
#[test]
fn an_endpoint_outlives_the_runtime_that_watched_it() {
    let (here, there) = (open(Config::loopback()), open(Config::loopback()));
    let peer = here.add_peer(there.address()).unwrap();
    let (from, to) = (here.channel(CHANNEL).unwrap(), there.channel(CHANNEL).unwrap());
    for threads in [1, 2, 1] {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            for number in 0..50u8 {
                let data = [number];
                let (sent, message) = tokio::join!(from.send_async(peer, &data), to.receive_async());
                sent.unwrap();
                assert_eq!(message.unwrap()[..], [number]);
            }
        });
    }
}

#[test]
fn without_a_runtime_the_endpoint_runs_what_waits_for_it() {
    let (port, ports) = std::sync::mpsc::channel();
    let echo = std::thread::spawn(move || {
        let there = open(Config::loopback());
        port.send(there.address()).unwrap();
        let channel = there.channel(CHANNEL).unwrap();
        for _ in 0..100 {
            let message = channel.receive().unwrap();
            channel.send(message.source(), &message).unwrap();
        }
        drop(channel);
        there.close().unwrap();
    });
    let here = open(Config::loopback());
    let peer = here.add_peer(ports.recv().unwrap()).unwrap();
    let channel = here.channel(CHANNEL).unwrap();
    let talk = async {
        for number in 0..100u8 {
            channel.send_async(peer, &[number]).await.unwrap();
            assert_eq!(channel.receive_async().await.unwrap()[..], [number]);
        }
    };
    here.block_on(talk).unwrap();
    let start = Instant::now();
    let nothing = here.block_on_timeout(pending::<()>(), Duration::from_millis(20)).unwrap();
    assert!(nothing.is_none() && start.elapsed() >= Duration::from_millis(20));
    echo.join().unwrap();
}

#[test]
fn what_a_push_takes_in_wakes_who_waits_for_it() {
    let (here, there) = (open(Config::loopback()), open(Config::loopback()));
    let peer = here.add_peer(there.address()).unwrap();
    let (from, to) = (here.channel(CHANNEL).unwrap(), there.channel(CHANNEL).unwrap());
    from.post(peer, b"hello").unwrap();
    let mut source = None;
    eventually("they are connected", || {
        here.progress().unwrap();
        source = source.or(to.try_receive().unwrap().map(|message| message.source()));
        source.is_some() && here.is_flushed()
    });
    let source = source.unwrap();
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&flag));
    let mut receive = pin!(to.receive_async());
    assert!(receive.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // So much is in flight that a push looks for what was acknowledged, and finds a message.
    while to.post(source, &[1; 1000]).is_ok() {}
    assert!(!there.is_handed_over(source), "nothing waits");
    from.post(peer, b"for the task").unwrap();
    eventually("it has arrived", || {
        there.push(source).unwrap();
        flag.0.load(Ordering::Acquire)
    });
    match receive.as_mut().poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(message) => assert_eq!(message.unwrap()[..], *b"for the task"),
        Poll::Pending => panic!("woken for nothing"),
    }
}

/// Set when its task was woken.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn an_event_loop_of_another_kind_wakes_tasks_by_making_progress() {
    let (here, there) = (open(Config::loopback()), open(Config::loopback()));
    let peer = here.add_peer(there.address()).unwrap();
    let (from, to) = (here.channel(CHANNEL).unwrap(), there.channel(CHANNEL).unwrap());
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&flag));
    let mut receive = pin!(to.receive_async());
    let mut poll = || receive.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(poll().is_pending());
    for _ in 0..100 {
        there.progress().unwrap();
    }
    assert!(!flag.0.load(Ordering::Acquire), "nothing has arrived");
    from.post(peer, b"hello").unwrap();
    let start = Instant::now();
    while !flag.0.load(Ordering::Acquire) {
        here.progress().unwrap();
        there.progress().unwrap();
        assert!(start.elapsed() < PATIENCE);
    }
    // It may have been woken by what came before the message.
    let message = loop {
        match poll() {
            Poll::Ready(message) => break message.unwrap(),
            Poll::Pending => {
                here.progress().unwrap();
                assert!(start.elapsed() < PATIENCE);
            }
        }
    };
    assert_eq!(message[..], *b"hello");
}
