//! What `up` refuses, and what is left when it is interrupted.

use crate::cluster::{Cluster, NIC};
use crate::process::Process;
use std::time::{Duration, Instant};

/// Somebody else's program on the NIC: ours, but in a BPF file system that nobody else sees and that goes with the
/// process.
fn occupy(cluster: &Cluster, mode: &str) -> Process {
    let mut command = cluster.command(0, "unshare");
    command.args(["--mount", "sh", "-c", "mount -t bpf bpf /sys/fs/bpf && exec \"$@\"", "sh"]);
    command.arg(std::env::current_exe().expect("this program"));
    let mut other = Process::start_by(command, &format!("up_for_ever xdp={mode}"));
    assert_eq!(other.hear(), "done");
    other
}

#[test]
fn another_program_on_the_nic_is_left_alone() {
    let Some(cluster) = Cluster::new("another_program_on_the_nic_is_left_alone") else { return };
    for theirs in ["native", "generic"] {
        let mut other = occupy(&cluster, theirs);
        let attached = cluster.traces(0);
        assert!(attached.contains("prog/xdp"), "{attached}");
        for ours in ["native", "generic"] {
            let refused = cluster.up(0, &format!("xdp={ours}")).unwrap_err();
            let of = format!("NicTaken(Stranger {{ nic: \"{NIC}\"");
            assert!(refused.starts_with(&of), "{ours} beside {theirs}: {refused}");
            let named = ["'receive'", &format!(", {theirs}, by link "), "`bpftool link detach id "];
            assert!(named.iter().all(|words| refused.contains(words)), "{refused}");
        }
        let refused = cluster.up(0, "").unwrap_err();
        assert!(refused.starts_with("NicTaken") && refused.contains("left alone"), "{refused}");
        assert_eq!(cluster.traces(0), attached, "nothing is changed, and nothing left");
        other.kill();
        crate::cluster::eventually("their program to be gone", || cluster.traces(0).is_empty().then_some(()));
    }
    cluster.up(0, "").unwrap();
    cluster.down(0);
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let Some(cluster) = Cluster::new("what_cannot_be_is_refused_and_leaves_nothing") else { return };
    for (options, refused) in [
        ("nic=nic9", "NoSuchNic(\"nic9\")"),
        ("port=80", "Ports {"),
        ("port=65535 endpoints=2", "Ports {"),
        ("ring=5000", "Memory(RingNotPowerOfTwo(5000))"),
        ("ring=1073741824", "MemoryBytes("),
    ] {
        let told = cluster.up(0, options).unwrap_err();
        assert!(told.starts_with(refused), "{options}: {told}");
        assert_eq!(cluster.traces(0), "", "{options}");
    }
    cluster.up(0, "").unwrap();
    let told = cluster.up(0, "ring=65536").unwrap_err();
    assert!(told.starts_with("OtherPool {") && told.contains("`tsumugi down` first"), "{told}");
    assert_eq!(cluster.status(0).nics[NIC], "native", "what was there stays");
}

#[test]
fn what_a_killed_command_leaves_is_cleared_away() {
    const KILLS: u32 = 20;
    let Some(cluster) = Cluster::new("what_a_killed_command_leaves_is_cleared_away") else { return };
    let begun = Instant::now();
    cluster.up(0, "endpoints=8").unwrap();
    let whole = begun.elapsed();
    cluster.down(0);
    for kill in 0..KILLS {
        // Spread over all of what it does, in no order, so that some find what others have left.
        let moment = whole * (kill * 7 % KILLS) / KILLS;
        let mut up = cluster.start(0, "up endpoints=8");
        std::thread::sleep(moment);
        up.kill();
        if kill % 2 == 1 {
            cluster.down(0);
            assert_eq!(cluster.traces(0), "", "killed after {moment:?} of {whole:?}");
        }
    }
    // The other way round.
    for kill in 0..5 {
        cluster.up(0, "endpoints=8").unwrap();
        let mut down = cluster.start(0, "down");
        std::thread::sleep(Duration::from_millis(2 * kill));
        down.kill();
    }
    cluster.up(0, "endpoints=8").unwrap();
    assert_eq!(cluster.status(0).ports.len(), 8);
    cluster.down(0);
    assert_eq!(cluster.traces(0), "");
}
