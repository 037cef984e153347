//! Who waits for a stream is woken by the waker that was given, whatever future or task it waits in.

use super::loopback::{connected, eventually, payload};
use super::{Seen, keep, port, receiver};
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use tsumugi::Config;
use tsumugi::stream::{Incoming, ReadError, StreamOptions, Streams, WriteError};

/// Whether a part of a future was woken.
#[derive(Default)]
struct Flag {
    is_set: AtomicBool,
    parent: Mutex<Option<Waker>>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.is_set.store(true, Ordering::Release);
        if let Some(parent) = self.parent.lock().unwrap().take() {
            parent.wake();
        }
    }
}

/// Runs a future with a waker of its own, and polls it only when that was used: as those do that join or select many.
async fn only_when_woken<T>(future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    let flag = Arc::new(Flag { is_set: AtomicBool::new(true), ..Flag::default() });
    poll_fn(move |context| {
        *flag.parent.lock().unwrap() = Some(context.waker().clone());
        if !flag.is_set.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&flag))))
    })
    .await
}

/// Has a message of three chunks read by whatever `register` makes, and broken off or ended.
fn assert_is_read(register: impl Fn(&mut Streams<Seen>)) {
    for ending in ["whole", "given up", "closed"] {
        let (here, there, peer) = connected(Config::loopback(), Config::loopback());
        let mut to = receiver(&there, StreamOptions::default());
        register(&mut to);
        let mut from = port(&here, ());
        let mut message = from.begin(peer, "combined").unwrap();
        for chunk in 1..=3 {
            from.piece(&mut message, &payload(0, 100)).unwrap();
            from.run(message.flush()).unwrap().unwrap();
            eventually("the chunk is read", || {
                from.poll().unwrap();
                to.poll().unwrap();
                to.with(|seen| seen.bytes) == chunk * 100
            });
        }
        let mut here = Some(here);
        match ending {
            "whole" => _ = from.end(message).unwrap(),
            "given up" => drop(message),
            _ => {
                // The peer is gone before its port says a word.
                here.take().expect("it is there").abort();
                drop(message);
            }
        }
        eventually(ending, || {
            if let Some(here) = &here {
                here.progress().unwrap();
            }
            to.poll().unwrap();
            to.with(|seen| seen.messages.len()) == 1
        });
        let (bytes, error) = to.with(|seen| seen.messages.pop()).unwrap();
        assert_eq!((bytes.len(), error.is_none()), (300, ending == "whole"), "{ending}: {error:?}");
        eventually("no task is left", || {
            to.poll().unwrap();
            to.running() == 0
        });
        assert_eq!(to.buffered_bytes(), 0);
    }
}

#[test]
fn a_message_is_read_through_a_future_with_a_waker_of_its_own() {
    assert_is_read(|to| to.register("combined", |incoming| only_when_woken(keep(incoming))).unwrap());
}

#[test]
fn a_message_is_read_in_another_task_than_its_handlers() {
    type Slot = Rc<RefCell<(Option<Incoming<Seen>>, Option<Waker>)>>;
    assert_is_read(|to| {
        let slot = Slot::default();
        let other = Rc::clone(&slot);
        to.register("combined", move |incoming| {
            let mut slot = slot.borrow_mut();
            slot.0 = Some(incoming);
            if let Some(waker) = slot.1.take() {
                waker.wake();
            }
            async {}
        })
        .unwrap();
        to.spawn(async move {
            let taken = poll_fn(|context| {
                let mut slot = other.borrow_mut();
                slot.1 = Some(context.waker().clone());
                slot.0.take().map_or(Poll::Pending, Poll::Ready)
            });
            let incoming = taken.await;
            keep(incoming).await;
        });
    });
}

#[test]
fn who_waits_at_a_port_that_closes_is_woken() {
    let config = Config::loopback().send_bytes(5_000);
    let (here, _there, peer) = connected(config.clone(), config);
    let from = port(&here, ());
    let mut message = from.begin(peer, "keep").unwrap();
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(Arc::clone(&flag));
    let data = payload(0, 100_000);
    let mut piece = Box::pin(message.piece(&data));
    assert!(piece.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(from);
    assert!(flag.is_set.load(Ordering::Acquire), "nobody tells who waits for room");
    let end = piece.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(matches!(end, Poll::Ready(Err(WriteError::Closed))), "{end:?}");
}

#[test]
fn who_reads_at_a_port_that_closes_is_woken() {
    let (here, there, peer) = connected(Config::loopback(), Config::loopback());
    let (mut from, mut to) = (port(&here, ()), port(&there, ()));
    let slot = Rc::new(RefCell::new(None));
    let handler = Rc::clone(&slot);
    to.register("hand out", move |incoming: Incoming<()>| {
        handler.replace(Some(incoming));
        async {}
    })
    .unwrap();
    let mut message = from.begin(peer, "hand out").unwrap();
    from.run(message.flush()).unwrap().unwrap();
    from.piece(&mut message, b"some").unwrap();
    from.run(message.flush()).unwrap().unwrap();
    eventually("it is handed out", || {
        from.poll().unwrap();
        to.poll().unwrap();
        slot.borrow().as_ref().is_some_and(|incoming| incoming.available() == 4)
    });
    let mut incoming = slot.borrow_mut().take().unwrap();
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(Arc::clone(&flag));
    let mut buffer = [0; 8];
    let mut read = Box::pin(incoming.read(&mut buffer));
    assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(to);
    assert!(flag.is_set.load(Ordering::Acquire), "nobody tells who waits for bytes");
    let end = read.as_mut().poll(&mut Context::from_waker(&waker));
    assert_eq!(end, Poll::Ready(Err(ReadError::Closed)));
}
