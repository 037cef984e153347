//! Notifications of what was written: when they come, in which order, and what they name.

use super::*;

#[test]
fn a_notification_names_the_handler_and_what_was_written_and_comes_last() {
    let pair = Pair::open(faulty());
    let (memory, registration) = registered(&pair.there, 100_000, Rights::WRITE);
    for (round, bytes) in [8usize, 50_000, 1000].into_iter().enumerate() {
        let data = payload(round as u64, bytes);
        let from = region_of(&data).slice(0..bytes).unwrap();
        let to = registration.target().plus(16);
        pair.here.remote().write_and_notify(pair.peer, to, &from, 40 + round as u64).unwrap();
        let mut notification = None;
        pair.until("the notification", || {
            notification = registration.try_notification().unwrap();
            notification.is_some()
        });
        let notification = notification.unwrap();
        assert_eq!(notification.handler, 40 + round as u64);
        assert_eq!((notification.slice.at(), notification.slice.bytes()), (16, bytes));
        assert!(bytes_of(&memory, 16, bytes) == data, "notified before it was there");
    }
}

#[test]
fn a_write_and_its_notification_are_accepted_together_or_not_at_all() {
    const SEND_BYTES: u64 = 32 << 10;
    for bytes in [8, 1000, 20_000, 1 << 20] {
        let pair = Pair::open(Config::loopback().send_bytes(SEND_BYTES));
        let (memory, registration) = registered(&pair.there, 1 << 20, Rights::WRITE);
        pair.fence();
        let data = payload(3, bytes);
        let source = region_of(&data);
        let sent = || pair.here.counters().get("messages_sent");
        let before = sent();
        let mut accepted = 0;
        // Nobody makes progress meanwhile, so that the queue fills up.
        loop {
            match pair.here.remote().write_and_notify(pair.peer, registration.target(), &source.all(), 7) {
                Ok(_) => accepted += 1,
                Err(SendError::WouldBlock) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(accepted > 0, "{bytes} bytes are refused though nothing waits");
        assert_eq!(sent() - before, 2 * accepted, "half of a refused call was sent");
        for number in 0..accepted {
            pair.until("a notification", || registration.try_notification().unwrap().is_some());
            assert!(bytes_of(&memory, 0, bytes) == data, "notification {number} came before the data");
        }
        pair.fence();
        assert!(registration.try_notification().unwrap().is_none());
    }
}

#[test]
fn notifications_of_whatever_was_registered_come_in_their_order() {
    let pair = Pair::open(Config::loopback());
    let memory = Region::new(40_000).unwrap();
    let remote = pair.there.remote();
    let [_first, second, third] = [1, 2, 3]
        .map(|key| remote.register_as(&memory.all(), Rights::WRITE, Target { key, address: 0 }).unwrap());
    for (number, bytes) in [(0u64, 8), (1, 0), (2, 30_000), (3, 100), (4, 1)] {
        let target = Target { key: number % 3 + 1, address: number };
        let data = payload(number, bytes);
        pair.post(|| pair.here.remote().write_bytes_and_notify(pair.peer, target, &data, 100 + number));
    }
    pair.fence();
    // One that is asked for by its registration is told of once.
    let told = second.try_notification().unwrap().unwrap();
    assert_eq!((told.handler, told.slice.bytes()), (101, 0));
    drop(third);
    let told: Vec<_> = std::iter::from_fn(|| remote.take_notification())
        .map(|(key, told)| (key, told.handler, told.slice.at(), told.slice.bytes()))
        .collect();
    assert_eq!(told, [(1, 100, 0, 8), (1, 103, 3, 100), (2, 104, 4, 1)]);
    let mut there = vec![0; 100];
    memory.read(3, &mut there).unwrap();
    assert_eq!(there[0], payload(3, 100)[0]);
}
