//! A host on the same network that means harm.

use crate::cluster::{Cluster, PORT, four};
use crate::remote::{Remote, conclude};
use std::collections::BTreeMap;
use std::time::Instant;

/// Frames of the attack: a second's worth, on a machine that does nothing else.
const FRAMES: u64 = 240_000;
/// Of so many strangers one goes on to the owner, who counts it once more: of 64 counted (`STRANGERS_PER_RESET`), one is
/// counted for the second time.
const STRANGERS_COUNTED_TWICE: u64 = 63;

/// What a node has counted, of endpoints and of the kernel.
fn counted(cluster: &Cluster, node: usize) -> BTreeMap<String, u64> {
    let mut counted = cluster.status(node).ports.remove(&PORT).expect("the port");
    let tables = cluster.shell(node, "cat /proc/net/snmp /proc/net/netstat");
    let lines: Vec<&str> = tables.lines().collect();
    for pair in lines
        .chunks(2)
        .filter(|pair| ["Ip:", "IpExt:", "Udp:"].iter().any(|table| pair[0].starts_with(table)))
    {
        let values = pair[0].split(' ').zip(pair[1].split(' ')).skip(1);
        // What several tables have, such as errors, is added up.
        for (name, value) in values {
            *counted.entry(name.to_owned()).or_default() += value.parse::<u64>().unwrap_or(0);
        }
    }
    counted
}

#[test]
fn an_attack_is_counted_and_harms_nobody() {
    let Some(cluster) = Cluster::with_xdp("an_attack_is_counted_and_harms_nobody", "") else { return };
    // First, because an endpoint listens on the TCP port of its number, too, if nobody has it.
    let mut echo = cluster.start(1, &format!("tcp_echo at={}", four(1, PORT)));
    assert_eq!(echo.hear(), "listening");
    let mut remotes = [0, 1].map(|node| {
        let peer = four(1 - node, PORT);
        Remote::open(&cluster, node, &format!("port={PORT} peer={peer} send=udp receive=xdp"))
    });
    for remote in &mut remotes {
        remote.order("stream");
    }
    let mut talk = cluster.start(0, &format!("tcp_talk to={}", four(1, PORT)));
    let mut exchanges = || {
        talk.tell("how many");
        talk.hear_number::<u64>()
    };
    let taken = remotes.each_mut().map(|remote| remote.until_taken(50).get("taken"));
    let (exchanged, before) = (exchanges(), counted(&cluster, 1));

    let begun = Instant::now();
    let mut attack = cluster.start(0, &format!("attack frames={FRAMES}"));
    let told = attack.hear();
    println!("{FRAMES} frames in {:?}: {told}", begun.elapsed());
    let after = counted(&cluster, 1);

    // Everybody has gone on meanwhile, and goes on.
    println!("{} exchanges by TCP", exchanges() - exchanged);
    assert!(exchanges() > exchanged);
    for (remote, taken) in remotes.iter_mut().zip(taken) {
        assert_eq!(remote.failure(), "");
        let taken = remote.report().get("taken").max(taken);
        remote.until_taken(taken + 50);
    }
    let [one, other] = &mut remotes;
    for report in conclude(one, other) {
        assert!(report.uses_xdp() && report.get("packets_by_xdp") > 0, "{report:?}");
        assert_eq!((report.get("corrupt"), report.get("violation"), report.get("peers_lost")), (0, 0, 0));
    }
    // Nothing has come by unseen.
    let sent = told.split(' ').map(|pair| pair.split_once('=').expect("a name and a value"));
    for (name, sent) in sent {
        let (sent, counted) = (sent.parse::<u64>().unwrap(), after[name] - before[name]);
        println!("{name}: {counted} counted of {sent}");
        let most = match name {
            "malformed" | "wrong_epoch" => sent,
            "wrong_token" | "unknown_flow" => sent + sent.div_ceil(STRANGERS_COUNTED_TWICE) + 1,
            // Honest packets are among them.
            _ => u64::MAX,
        };
        // What goes through the socket competes with everything else that does.
        let least = if name == "handshake_refused" { 1 } else { sent };
        assert!((least..=most).contains(&counted), "{name}: {counted} counted of {sent}");
    }
}
