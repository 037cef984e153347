//! What the XDP receive path is for: a receiver that computes. And one that sleeps.

use crate::cluster::{Cluster, PORT, four};
use crate::remote::Remote;

/// A sender, and a receiver that computes when the sender has got to know it.
fn pair(cluster: &Cluster, receive_path: &str) -> (Remote, Remote) {
    let settings = |node: usize| format!("port={PORT} peer={} lengths=short", four(1 - node, PORT));
    let mut sender = Remote::open(cluster, 0, &settings(0));
    let mut receiver = Remote::open(cluster, 1, &format!("{} receive={receive_path}", settings(1)));
    sender.order("post 10");
    receiver.until_taken(10);
    sender.order("flush");
    receiver.order("compute");
    (sender, receiver)
}

#[test]
fn a_receiver_that_computes_is_no_obstacle() {
    /// Within the credit.
    const MESSAGES: u64 = 200;
    let Some(cluster) = Cluster::with_xdp("a_receiver_that_computes_is_no_obstacle", "") else { return };
    let (mut sender, mut receiver) = pair(&cluster, "xdp");
    sender.order(&format!("post {MESSAGES}"));
    // Would not be answered if the receiver had to do anything.
    sender.order("flush");
    assert_eq!(sender.report().get("pending"), 0);
    assert!(receiver.is_silent(), "it computes still");
    receiver.order("go on");
    let report = receiver.until_taken(10 + MESSAGES);
    assert!(report.uses_xdp() && report.get("packets_by_xdp") >= MESSAGES / 4, "{report:?}");

    // The same with nobody but the receiver to deposit.
    drop((sender, receiver));
    let (mut sender, mut receiver) = pair(&cluster, "socket");
    sender.order(&format!("post {MESSAGES}"));
    sender.0.tell("flush");
    assert!(sender.is_silent(), "acknowledged by nobody");
    receiver.order("go on");
    assert_eq!(sender.0.hear(), "yes");
    let report = receiver.until_taken(10 + MESSAGES);
    assert!(!report.uses_xdp() && report.get("packets_by_xdp") == 0, "{report:?}");
}

#[test]
fn a_receiver_that_sleeps_is_woken() {
    const ROUNDS: u32 = 300;
    let Some(cluster) = Cluster::with_xdp("a_receiver_that_sleeps_is_woken", "") else { return };
    let [mut one, mut other] = [0, 1].map(|node| {
        let peer = four(1 - node, PORT);
        Remote::open(&cluster, node, &format!("port={PORT} peer={peer} wait=block receive=xdp send=udp"))
    });
    // An endpoint that is not woken sleeps for seconds, and this goes on for longer than anybody waits.
    assert_eq!(other.ask(&format!("throw_back {ROUNDS}")), "ready");
    one.0.tell(&format!("throw {ROUNDS}"));
    for remote in [&mut one, &mut other] {
        assert_eq!(remote.0.hear(), "yes");
        assert_eq!(remote.report().get("packets_by_xdp"), u64::from(ROUNDS));
    }
}
