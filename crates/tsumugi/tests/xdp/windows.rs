//! Windows: memory that the XDP program writes, whatever its process does.

use crate::cluster::{Cluster, PORT, four};
use crate::remote::Remote;
use rustix::process::Signal;

/// A writer, and a process with a window of so many pages; and what names the window.
pub(crate) fn pair(cluster: &Cluster, pages: usize) -> (Remote, Remote, String) {
    let settings = |node: usize| format!("port={PORT} peer={}", four(1 - node, PORT));
    let mut writer = Remote::open(cluster, 0, &settings(0));
    let mut target = Remote::open(cluster, 1, &format!("{} receive=xdp", settings(1)));
    let said = target.ask(&format!("lend {pages}"));
    let (window, is_window) = said.rsplit_once(' ').expect("where it is");
    assert_eq!(is_window, "1", "it does not lie in the window");
    writer.order("post 1");
    target.until_taken(1);
    (writer, target, window.to_owned())
}

/// Has the window written, and returns when everything is acknowledged.
pub(crate) fn fill(writer: &mut Remote, window: &str, pages: usize, number: u64) {
    writer.order(&format!("fill {window} {pages} {number}"));
    writer.order("flush");
}

fn a_stopped_process_is_written(test: &str, mtu: u64) {
    const PAGES: usize = 20;
    let Some(cluster) = Cluster::with_xdp_and_mtu(test, mtu, "") else { return };
    let (mut writer, mut target, window) = pair(&cluster, PAGES);
    fill(&mut writer, &window, PAGES, 1);
    assert_eq!(target.ask("holds 1"), "yes");
    let before = target.report();
    target.0.signal(Signal::STOP);
    for number in 2..30 {
        fill(&mut writer, &window, PAGES, number);
    }
    target.0.signal(Signal::CONT);
    assert_eq!(target.ask("holds 29"), "yes");
    let after = target.report();
    let grown = |name| after.get(name) - before.get(name);
    assert!(grown("direct_writes") >= 28 * (PAGES as u64 * 4096 / mtu), "{before:?}, {after:?}");
    assert_eq!((grown("untranslated"), grown("deposited")), (0, 0));
    // And messages go on where they were.
    writer.order("post 100");
    target.until_taken(101);
    assert_eq!(target.failure() + &writer.failure(), "");
}

#[test]
fn a_process_that_is_stopped_is_written() {
    a_stopped_process_is_written("a_process_that_is_stopped_is_written", 1500);
}

/// Such frames lie in several buffers of the NIC's driver. The XDP program acknowledges them all the same.
#[test]
fn a_process_that_is_stopped_is_written_by_long_packets() {
    a_stopped_process_is_written("a_process_that_is_stopped_is_written_by_long_packets", 9000);
}

#[test]
fn more_pages_than_translations_lose_nothing() {
    const PAGES: usize = 20;
    let Some(cluster) = Cluster::with_xdp("more_pages_than_translations_lose_nothing", "translations=4")
    else {
        return;
    };
    let (mut writer, mut target, window) = pair(&cluster, PAGES);
    for number in 1..50 {
        fill(&mut writer, &window, PAGES, number);
        writer.order("post 1");
        // Everything before the message is in its place.
        let report = target.until_taken(1 + number);
        assert_eq!(target.ask(&format!("holds {number}")), "yes", "{report:?}");
    }
    let report = target.report();
    assert!(report.get("direct_writes") > 0 && report.get("untranslated") > 0, "{report:?}");
}

#[test]
fn a_window_that_is_revoked_is_written_no_more() {
    let Some(cluster) = Cluster::with_xdp("a_window_that_is_revoked_is_written_no_more", "") else { return };
    let (mut writer, mut target, window) = pair(&cluster, 3);
    fill(&mut writer, &window, 3, 1);
    fill(&mut writer, &window, 3, 2);
    assert_eq!(target.ask("holds 2"), "yes");
    let direct_writes = target.report().get("direct_writes");
    target.order("revoke");
    fill(&mut writer, &window, 3, 3);
    writer.order("post 1");
    let report = target.until_taken(2);
    assert_eq!(
        (report.get("direct_writes"), target.ask("holds 2").as_str()),
        (direct_writes, "yes"),
        "{report:?}"
    );
    assert!(report.get("remote_refused") >= 3 && report.get("untranslated") >= 3, "{report:?}");
    assert_eq!(writer.ask("refusals"), "3", "one for each write");
}
