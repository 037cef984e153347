//! A program that comes, goes and is replaced while endpoints use it.

use crate::cluster::{Cluster, NIC, PORT, eventually};
use crate::remote::{conclude, streaming};

#[test]
fn who_loses_the_program_goes_on_without_it() {
    let Some(cluster) = Cluster::with_xdp("who_loses_the_program_goes_on_without_it", "") else { return };
    let mut remotes = streaming(&cluster, "auto");
    for node in [0, 1] {
        cluster.down(node);
        remotes[node].until("the loss to be noticed", |report| !report.uses_xdp());
        let taken = remotes.each_mut().map(|remote| remote.report().get("taken"));
        for (remote, taken) in remotes.iter_mut().zip(taken) {
            remote.until_taken(taken + 100);
        }
    }
    let by_xdp = remotes.each_mut().map(|remote| remote.report().get("packets_by_xdp"));
    let [one, other] = &mut remotes;
    let reports = conclude(one, other);
    assert_eq!(reports.map(|report| report.get("packets_by_xdp")), by_xdp, "deposited by nobody knows whom");
    assert_eq!([0, 1].map(|node| cluster.traces(node)), ["", ""]);
}

#[test]
fn who_demands_the_program_hears_that_it_is_gone() {
    let Some(cluster) = Cluster::with_xdp("who_demands_the_program_hears_that_it_is_gone", "") else {
        return;
    };
    let mut remotes = streaming(&cluster, "xdp");
    cluster.down(1);
    let failure = eventually("an error", || Some(remotes[1].failure()).filter(|it| !it.is_empty()));
    assert!(failure.contains(&format!("XdpGone {{ port: {PORT}, why: ")), "{failure}");
    assert!(failure.contains("`tsumugi down` was called"), "{failure}");
    assert!(!remotes[1].report().uses_xdp());
    assert_eq!(remotes[0].failure(), "", "the other node's program is there");
}

#[test]
fn a_program_is_replaced_under_load() {
    let Some(cluster) = Cluster::with_xdp("a_program_is_replaced_under_load", "") else { return };
    let mut remotes = streaming(&cluster, "xdp");
    let attached =
        |node| cluster.shell(node, &format!("ip -o link show {NIC} | grep -o 'prog/xdp id [0-9]*'"));
    for round in 0..3u16 {
        let before = [0, 1].map(attached);
        let by_xdp = remotes.each_mut().map(|remote| remote.report().get("packets_by_xdp"));
        for node in [0, 1] {
            // More endpoints at the same time.
            cluster.up(node, &format!("port={}", PORT + 2 * round)).unwrap();
        }
        let after = [0, 1].map(attached);
        assert!(before[0] != after[0] && before[1] != after[1], "{before:?}, {after:?}");
        for (remote, by_xdp) in remotes.iter_mut().zip(by_xdp) {
            remote.until("packets by the new program", |report| report.get("packets_by_xdp") > by_xdp + 1000);
        }
    }
    let [one, other] = &mut remotes;
    for report in conclude(one, other) {
        assert!(report.uses_xdp(), "{report:?}");
    }
    assert_eq!(cluster.status(0).ports.len(), 6);
}
