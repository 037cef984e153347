//! What an endpoint says of itself: to its own program, and to other processes by its status page.

mod common {
    pub(crate) mod loopback;
}

use common::loopback::open;
use std::time::{Duration, Instant};
use tsumugi::snapshot::{PeerSnapshot, Snapshot};
use tsumugi::{Config, Endpoint, PeerId, Wait};
use tsumugi_rail::status_page::{self, Watched};

const CHANNEL: u16 = 1;

fn pair(config: Config) -> (Endpoint, Endpoint, PeerId) {
    let (here, there) = (open(config.clone()), open(config));
    let peer = here.add_peer(there.address()).unwrap();
    (here, there, peer)
}

/// Has both make progress until the snapshot of the first is as wanted.
fn until(here: &Endpoint, there: &Endpoint, is_so: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let patience = Instant::now() + Duration::from_secs(30);
    loop {
        here.progress().unwrap();
        there.progress().unwrap();
        let snapshot = here.snapshot();
        if is_so(&snapshot) {
            return snapshot;
        }
        assert!(Instant::now() < patience, "{snapshot:#?}");
    }
}

fn only_peer(snapshot: &Snapshot) -> &PeerSnapshot {
    assert_eq!((snapshot.peers.len(), snapshot.peers_known), (1, 1));
    &snapshot.peers[0]
}

#[test]
fn traffic_is_counted_by_peer_and_path() {
    let (here, there, peer) = pair(Config::loopback());
    let (out, into) = (here.channel(CHANNEL).unwrap(), there.channel(CHANNEL).unwrap());
    let bytes = 100_000;
    out.post(peer, &vec![7; bytes]).unwrap();
    let snapshot = until(&here, &there, |it| it.peers[0].outstanding == 0 && it.peers[0].bytes_sent > 0);
    assert_eq!(into.receive().unwrap().len(), bytes);
    let its = only_peer(&snapshot);
    assert_eq!((its.state.as_str(), its.address), ("connected", there.address()));
    assert!((bytes as u64..2 * bytes as u64).contains(&its.bytes_sent), "{its:#?}");
    assert_eq!(snapshot.counters["bytes_sent"], its.bytes_sent);
    let [path] = its.paths[..] else { panic!("{its:#?}") };
    assert_eq!((path.bytes_sent, path.in_flight), (its.bytes_sent, 0));
    assert!(path.delivered > 0 && path.rtt_ns_min.is_some_and(|ns| ns <= path.srtt_ns));
    // A loaded machine may stop this thread until a time-out sends a packet again: only that the other does not count.
    let resent: u64 = its.resent.values().sum();
    assert_eq!(path.lost, resent, "{its:#?}");
    let theirs = there.snapshot();
    let received = only_peer(&theirs).bytes_received;
    assert!(received <= its.bytes_sent, "{its:#?} {theirs:#?}");
    assert!(received + resent * path.datagram_bytes as u64 >= its.bytes_sent, "{its:#?} {theirs:#?}");
    assert_eq!(theirs.counters["bytes_received"], received);
}

#[test]
fn what_messages_wait_for_is_told_and_timed() {
    let config = Config::loopback().queue_bytes(32 << 10).receive_bytes(64 << 10);
    let (here, there, peer) = pair(config);
    let (out, _into) = (here.channel(CHANNEL).unwrap(), there.channel(CHANNEL).unwrap());
    // Nobody receives, so that the other side is full at last.
    while out.post(peer, &[7; 1000]).is_ok() {
        here.progress().unwrap();
        there.progress().unwrap();
    }
    let is_full = |it: &Snapshot| {
        let its = &it.peers[0];
        ["xoff", "credit"].contains(&its.held_by.as_str())
            && its.held_ns["xoff"] + its.held_ns["credit"] > 1_000_000
    };
    let snapshot = until(&here, &there, is_full);
    assert!(only_peer(&snapshot).waiting_bytes > 0);
    let receive = there.snapshot().receive;
    assert!(
        receive.queue_used_bytes > receive.queue_bytes / 2 || receive.held_bytes > receive.held_bytes_max / 2,
        "{receive:?}"
    );
}

#[test]
fn packets_sent_again_have_causes() {
    let faults = Some("loss=10%,seed=5".parse().unwrap());
    let (here, there, peer) = pair(Config::loopback().faults(faults));
    let (out, into) = (here.channel(CHANNEL).unwrap(), there.channel(CHANNEL).unwrap());
    for _ in 0..50 {
        out.post(peer, &vec![7; 50_000]).unwrap();
        until(&here, &there, |it| it.peers[0].waiting_bytes == 0);
        while into.try_receive().unwrap().is_some() {}
    }
    let snapshot = until(&here, &there, |it| it.peers[0].outstanding == 0);
    let by_cause: u64 = snapshot.resent.values().sum();
    assert!(snapshot.resent["overtaken"] > 0, "{:?}", snapshot.resent);
    assert_eq!(by_cause, snapshot.counters["packets_resent"], "{:?}", snapshot.resent);
    assert_eq!(by_cause, only_peer(&snapshot).resent.values().sum::<u64>());
}

/// The page of an endpoint, as another process finds it.
fn page_of(endpoint: &Endpoint) -> Watched {
    let epoch = endpoint.snapshot().epoch;
    let shows = |page: &Watched| {
        let text = page.read().map(|reading| reading.text).unwrap_or_default();
        serde_json::from_slice::<Snapshot>(&text).is_ok_and(|snapshot| snapshot.epoch == epoch)
    };
    status_page::find().into_iter().find(shows).expect("it has shown something")
}

#[test]
fn whoever_asks_is_answered_by_the_next_call_and_a_sleeper_has_told_all() {
    let (here, there, peer) = pair(Config::loopback());
    let (out, into) = (here.channel(CHANNEL).unwrap(), there.channel(CHANNEL).unwrap());
    here.progress().unwrap();
    let mut page = page_of(&here);
    page.ask();
    std::thread::sleep(Duration::from_millis(20));
    assert!(!page.read().unwrap().is_fresh, "nobody has called");
    here.progress().unwrap();
    assert!(page.read().unwrap().is_fresh);
    // It sleeps after it has received: the message is in what it has shown.
    there.set_wait(Wait::Block).unwrap();
    out.post(peer, b"one").unwrap();
    let watcher = std::thread::spawn({
        there.progress().unwrap();
        let page = page_of(&there);
        move || {
            let patience = Instant::now() + Duration::from_secs(10);
            loop {
                let reading = page.read().unwrap();
                let snapshot: Snapshot = serde_json::from_slice(&reading.text).unwrap();
                if reading.is_asleep && snapshot.counters["messages_received"] == 1 {
                    return;
                }
                assert!(Instant::now() < patience, "{snapshot:#?}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    while into.receive_timeout(Duration::from_millis(200)).is_ok() || !watcher.is_finished() {
        here.progress().unwrap();
    }
    watcher.join().unwrap();
    drop((here, out));
    assert!(page.read().is_some(), "a watcher outlives what it watches");
}
