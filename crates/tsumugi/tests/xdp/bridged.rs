//! NICs whose other ends are ports of a bridge, as those of containers are: what a native XDP program sends is dropped
//! there.

use crate::cluster::{Cluster, NIC, PORT, eventually, four};
use crate::remote::{Remote, conclude};
use crate::windows::{fill, pair};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// For what takes a second on a machine that has nothing else to do.
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn behind_a_bridge_the_program_answers_behind_the_driver() {
    const PAGES: usize = 20;
    let test = "behind_a_bridge_the_program_answers_behind_the_driver";
    let Some(cluster) = Cluster::bridged(test) else { return };
    for node in [0, 1] {
        cluster.up(node, "").unwrap();
        assert_eq!(cluster.status(node).nics[NIC], "generic");
    }
    let (mut writer, mut target, window) = pair(&cluster, PAGES);
    for number in 1..30 {
        fill(&mut writer, &window, PAGES, number);
    }
    assert_eq!(target.ask("holds 29"), "yes");
    drop((writer, target));
    let settings = |node: usize| format!("port={PORT} peer={} lengths=short", four(1 - node, PORT));
    let mut sender = Remote::open(&cluster, 0, &settings(0));
    let mut receiver = Remote::open(&cluster, 1, &format!("{} receive=xdp", settings(1)));
    sender.order("post 1");
    receiver.until_taken(1);
    sender.order("flush");
    // Nobody but the program can answer. One packet at a time: several that come in one piece are the owner's.
    receiver.0.signal(Signal::STOP);
    for _ in 0..50 {
        sender.order("post 1");
        sender.order("flush");
    }
    receiver.0.signal(Signal::CONT);
    receiver.until_taken(51);
}

#[test]
fn whose_answers_are_dropped_goes_on_all_the_same() {
    const PAGES: usize = 20;
    let test = "whose_answers_are_dropped_goes_on_all_the_same";
    let Some(cluster) = Cluster::bridged(test) else { return };
    for node in [0, 1] {
        cluster.up(node, "xdp=native").unwrap();
        assert_eq!(cluster.status(node).nics[NIC], "native");
    }
    let (mut writer, mut target, window) = pair(&cluster, PAGES);
    let told = |remote: &mut Remote| {
        let uses = remote.ask("uses");
        uses.contains("receive path xdp, send paths")
            && uses
                .contains(&format!("without answers by the XDP program (the other end of {NIC} drops what"))
    };
    let begun = Instant::now();
    let mut number = 0;
    // A run of the program in which every answer is dropped must have been seen.
    while !told(&mut target) {
        number += 1;
        fill(&mut writer, &window, PAGES, number);
        assert!(begun.elapsed() < PATIENCE, "{}", target.ask("uses"));
    }
    println!("noticed after {:?}", begun.elapsed());
    let begun = Instant::now();
    for number in number + 1..number + 100 {
        fill(&mut writer, &window, PAGES, number);
    }
    println!("{:?} for 99 times {PAGES} pages", begun.elapsed());
    assert_eq!(target.ask(&format!("holds {}", number + 99)), "yes");
    assert!(begun.elapsed() < PATIENCE);
    drop((writer, target));
    let mut remotes = [0, 1].map(|node| {
        let peer = four(1 - node, PORT);
        Remote::open(&cluster, node, &format!("port={PORT} peer={peer} receive=xdp"))
    });
    for remote in &mut remotes {
        remote.order("stream");
    }
    for remote in &mut remotes {
        remote.until_taken(1000);
        eventually("it to be noticed", || told(remote).then_some(()));
    }
    let [one, other] = &mut remotes;
    conclude(one, other);
}
