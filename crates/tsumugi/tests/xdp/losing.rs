//! A program that is taken off its NICs past `tsumugi down`: what is pinned stays, and stands for nothing.

use crate::cluster::{Cluster, NIC, PORT, eventually, four};
use crate::remote::{Remote, conclude, streaming};
use std::time::{Duration, Instant};

/// As documented, 100 ms; and for a machine that has other things to do.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);

/// Sees that messages go on in both directions.
fn go_on(remotes: &mut [Remote; 2]) {
    let taken = remotes.each_mut().map(|remote| remote.report().get("taken"));
    for (remote, taken) in remotes.iter_mut().zip(taken) {
        remote.until_taken(taken + 100);
    }
}

/// Sees that an endpoint notices that the program is gone, and says why.
fn notice(remote: &mut Remote, why: &str) {
    let begun = Instant::now();
    remote.until("the loss to be noticed", |report| !report.uses_xdp());
    let took = begun.elapsed();
    assert!(took < NOTICED_WITHIN, "noticed after {took:?}");
    // What it has seen first need not be how it ended.
    let uses = eventually(why, || Some(remote.ask("uses")).filter(|uses| uses.contains(why)));
    println!("after {took:?}: {uses}");
    assert!(uses.contains("receive path socket"), "{uses}");
    assert!(uses.contains("`tsumugi up NIC` attaches it again"), "{uses}");
}

/// Sees that the program deposits for an endpoint again.
fn come_back(remote: &mut Remote) {
    let before = remote.report().get("packets_by_xdp");
    let report = remote.until("the program to be back", |report| {
        report.uses_xdp() && report.get("packets_by_xdp") > before + 100
    });
    assert!(report.uses_xdp());
    let uses = remote.ask("uses");
    assert!(uses.contains("receive path xdp") && !uses.contains("without the XDP receive path"), "{uses}");
}

/// Ends the endpoints, and sees that nothing is left of the program.
fn finish(cluster: &Cluster, [one, other]: &mut [Remote; 2]) {
    conclude(one, other);
    for node in [0, 1] {
        cluster.down(node);
        assert_eq!(cluster.traces(node), "");
    }
}

/// Deletes the wire between the nodes and joins them anew, by NICs of the same names.
fn make_anew(cluster: &Cluster, indices: [u32; 2]) {
    let [near, far] = indices;
    let pid = cluster.process(1);
    cluster.shell(
        0,
        &format!(
            "ip link del {NIC}; ip link add {NIC} index {near} type veth peer name {NIC} index {far} netns {pid}"
        ),
    );
    for node in [0, 1] {
        let ip = four(node, 0).ip();
        cluster.shell(node, &format!("ip addr add {ip}/24 dev {NIC}; ip link set {NIC} up"));
    }
}

fn index(cluster: &Cluster, node: usize) -> u32 {
    cluster.shell(node, &format!("cat /sys/class/net/{NIC}/ifindex")).parse().expect("a number")
}

#[test]
fn a_link_that_is_detached_is_noticed_and_attached_anew() {
    let test = "a_link_that_is_detached_is_noticed_and_attached_anew";
    let Some(cluster) = Cluster::with_xdp(test, "") else { return };
    let mut remotes = streaming(&cluster, "auto");
    cluster.detach(0);
    notice(&mut remotes[0], &format!("it was detached from {NIC}"));
    assert!(remotes[1].report().uses_xdp(), "the other node's program is there");
    assert_eq!(cluster.status(0).nics[NIC], "lost");
    go_on(&mut remotes);
    let refused = Remote::try_open(cluster.start(0, "endpoint receive=xdp")).err().expect("it is gone");
    assert!(refused.contains("NoneFree") && refused.contains(&format!("detached from {NIC}")), "{refused}");
    let mut other = Remote::open(&cluster, 0, "receive=auto");
    assert!(!other.report().uses_xdp(), "nothing would be deposited");
    other.end();
    cluster.up(0, "").unwrap();
    assert_eq!(cluster.status(0).nics[NIC], "native");
    come_back(&mut remotes[0]);
    finish(&cluster, &mut remotes);
}

#[test]
fn a_nic_that_is_made_anew_is_another() {
    let Some(cluster) = Cluster::with_xdp("a_nic_that_is_made_anew_is_another", "") else { return };
    let mut remotes = streaming(&cluster, "auto");
    let before = [0, 1].map(|node| index(&cluster, node));
    for (indices, why) in [(before.map(|index| index + 100), "is gone"), (before, "is gone")] {
        make_anew(&cluster, indices);
        for remote in &mut remotes {
            notice(remote, why);
        }
        go_on(&mut remotes);
        for node in [0, 1] {
            assert_eq!(cluster.status(node).nics.values().collect::<Vec<_>>(), ["lost"]);
            cluster.up(node, "").unwrap();
            assert_eq!(cluster.status(node).nics[NIC], "native");
        }
        remotes.iter_mut().for_each(come_back);
    }
    // The same name and the same number, too.
    make_anew(&cluster, before);
    for remote in &mut remotes {
        notice(remote, &format!("it was detached from {NIC}"));
    }
    go_on(&mut remotes);
    finish(&cluster, &mut remotes);
}

#[test]
fn who_demands_the_program_hears_that_its_nic_is_gone() {
    let test = "who_demands_the_program_hears_that_its_nic_is_gone";
    let Some(cluster) = Cluster::with_xdp(test, "") else { return };
    let mut remotes = streaming(&cluster, "xdp");
    make_anew(&cluster, [200, 201]);
    for remote in &mut remotes {
        let failure = eventually("an error", || Some(remote.failure()).filter(|it| !it.is_empty()));
        assert!(failure.contains(&format!("XdpGone {{ port: {PORT}, why: ")), "{failure}");
        assert!(failure.contains("is gone; `tsumugi up NIC` and open the endpoint anew"), "{failure}");
    }
}

#[test]
fn another_program_in_its_place_is_named() {
    let Some(cluster) = Cluster::with_xdp("another_program_in_its_place_is_named", "") else { return };
    let mut remotes = streaming(&cluster, "auto");
    let folder = tempfile::tempdir().expect("a folder");
    let object = folder.path().join("pass.o");
    let object = object.to_str().expect("a name");
    let source = "__attribute__((section(\"xdp\"), used)) int pass(void *context) { return 2; }";
    cluster.shell(0, &format!("echo '{source}' | clang -O2 -target bpf -x c -c -o {object} -"));
    for (mode, off) in [("xdpdrv", "native"), ("xdpgeneric", "generic")] {
        cluster.detach(0);
        cluster.shell(0, &format!("ip link set dev {NIC} {mode} obj {object} sec xdp"));
        notice(&mut remotes[0], &format!("{NIC} has another XDP program attached: number "));
        go_on(&mut remotes);
        assert_eq!(cluster.status(0).nics[NIC], "lost");
        let refused = cluster.up(0, "").unwrap_err();
        let named = [format!("{off}, by netlink"), format!("`ip link set dev {NIC} {mode} off`")];
        assert!(refused.starts_with("NicTaken") && refused.contains("'pass'"), "{refused}");
        assert!(named.iter().all(|words| refused.contains(words)), "{refused}");
        cluster.shell(0, &format!("ip link set dev {NIC} {mode} off"));
        cluster.up(0, "").unwrap();
        come_back(&mut remotes[0]);
    }
    let [one, other] = &mut remotes;
    conclude(one, other);
}
