//! What a program's log shows of an endpoint: who came and went, and what was refused.

mod common {
    pub(crate) mod events;
    pub(crate) mod loopback;
}

use common::events::{count, logged};
use common::loopback::{connected, eventually, open};
use tsumugi::{Config, Endpoint};

#[test]
fn who_came_and_went_in_good_order_is_told_without_a_warning() {
    let mut ports = [0; 2];
    let lines = logged(|| {
        let (here, there, _) = connected(Config::loopback(), Config::loopback());
        ports = [here.port(), there.port()];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::select! {
                closed = here.close_async() => closed.unwrap(),
                error = there.drive() => panic!("{error}"),
            }
        });
    });
    let [here, there] = ports.map(|port| format!("127.0.0.1:{port}"));
    for at in [&here, &there] {
        assert_eq!(count(&lines, &["INFO tsumugi::report: endpoint", at]), 1, "{lines:#?}");
        assert_eq!(count(&lines, &["INFO", ": connected", at, "epoch="]), 1, "{lines:#?}");
        assert_eq!(count(&lines, &["INFO", "endpoint closed", at, "messages_sent="]), 1, "{lines:#?}");
    }
    assert_eq!(count(&lines, &["INFO", "the connection ended: it has closed", &here]), 1, "{lines:#?}");
    assert_eq!(count(&lines, &["INFO", "this endpoint has closed it", &there]), 1, "{lines:#?}");
    assert_eq!(count(&lines, &["WARN"]), 0, "{lines:#?}");
}

#[test]
fn a_peer_that_is_lost_is_a_warning_and_says_what_was_not_delivered() {
    let mut name = String::new();
    let lines = logged(|| {
        let (here, there, peer) = connected(Config::loopback(), Config::loopback());
        name = there.address().to_string();
        let channel = here.channel(1).unwrap();
        drop(there);
        for _ in 0..3 {
            channel.post(peer, b"nobody takes this").unwrap();
        }
        eventually("the end is noticed", || {
            here.progress().unwrap();
            channel.try_receive().is_err()
        });
    });
    assert_eq!(count(&lines, &["WARN", "the connection ended", &name, "undelivered=3"]), 1, "{lines:#?}");
}

#[test]
fn both_sides_of_a_refusal_tell_of_it() {
    let mut ports = [0; 2];
    let lines = logged(|| {
        let (here, there) = (open(Config::loopback().job(1)), open(Config::loopback().job(2)));
        ports = [here.port(), there.port()];
        let peer = here.add_peer(there.address()).unwrap();
        let channel = here.channel(1).unwrap();
        channel.post(peer, b"another job's").unwrap();
        eventually("it is refused", || {
            there.progress().unwrap();
            channel.try_receive().is_err()
        });
    });
    let [here, there] = ports.map(|port| format!("127.0.0.1:{port}"));
    assert!(count(&lines, &["DEBUG", "a connection was refused", &here]) >= 1, "{lines:#?}");
    assert_eq!(count(&lines, &["WARN", "it refuses this endpoint", &there]), 1, "{lines:#?}");
}

#[test]
fn an_end_that_was_asked_for_is_no_warning() {
    let mut port = 0;
    let lines = logged(|| {
        let endpoint = open(Config::loopback());
        port = endpoint.port();
        endpoint.abort();
        let endpoint = open(Config::loopback().port(port));
        drop(
            Endpoint::resume(&endpoint.suspend().map_err(|(error, _)| error).unwrap(), Config::loopback())
                .unwrap(),
        );
    });
    let at = format!("127.0.0.1:{port}");
    for end in ["endpoint aborted", "endpoint suspended", "endpoint closed"] {
        assert_eq!(count(&lines, &["INFO", end, &at]), 1, "{end}: {lines:#?}");
    }
    assert_eq!(count(&lines, &["WARN"]), 0, "{lines:#?}");
}
