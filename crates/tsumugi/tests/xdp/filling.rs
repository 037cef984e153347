//! A receive queue that is full.

use crate::cluster::{Cluster, PORT, eventually, four};
use crate::remote::Remote;

#[test]
fn a_full_queue_stops_the_sender_and_loses_nothing() {
    const MESSAGES: u64 = 2000;
    let test = "a_full_queue_stops_the_sender_and_loses_nothing";
    let Some(cluster) = Cluster::with_xdp(test, "flows=8 ring=32768") else { return };
    let settings =
        |node: usize| format!("port={PORT} peer={} lengths=short receive=xdp", four(1 - node, PORT));
    let mut sender = Remote::open(&cluster, 0, &format!("{} send_bytes=65536", settings(0)));
    let mut receiver = Remote::open(&cluster, 1, &settings(1));
    receiver.order("keep");
    sender.order(&format!("post {MESSAGES}"));
    let refused = || cluster.status(1).ports[&PORT]["queue_full"];
    eventually("the queue to be full", || (refused() > 0).then_some(()));
    // What is kept stays as it was, and the sender has to wait.
    let before = eventually("the sender to stand still", || {
        let (one, other) = (sender.report(), {
            std::thread::sleep(std::time::Duration::from_millis(100));
            sender.report()
        });
        (one.get("posted") == other.get("posted")).then_some(other)
    });
    assert!(before.get("posted") < MESSAGES && before.get("pending") == 1, "{before:?}");
    let kept = receiver.report();
    assert!(kept.get("kept") == kept.get("taken") && kept.get("kept") < MESSAGES, "{kept:?}");
    receiver.order("release");
    let report = receiver.until_taken(MESSAGES);
    assert!(report.uses_xdp() && report.get("packets_by_xdp") > 0, "{report:?}");
    sender.order("flush");
    assert_eq!(receiver.report().get("taken"), MESSAGES);
}
