//! Endpoints where something is missing or forbidden: seccomp, no /proc, no /sys, a BPF file system for root alone, NICs
//! of no use. They open all the same, and say what they do without. Needs root, for namespaces of each test's own.

#[path = "../common/process.rs"]
mod process;
mod roles;

use process::ROLE;
use std::process::Command;
use tsumugi_lab::testing::{Watched, as_root};

/// A NIC with an address, whose other end is here, too.
const NIC: &str = "ip link set lo up; ip link add va type veth peer name vb; ip addr add 10.66.0.1/24 dev va; \
                   ip link set va up; ip link set vb up;";
/// The BPF file system as systemd mounts it.
const SHUT: &str = "mount -t bpf -o nosuid,nodev,noexec,relatime,mode=700 bpf /sys/fs/bpf;";
/// A user without any rights.
const USER: u32 = 65534;

/// Not a test: what copies of this program do.
#[test]
fn a_role_of_another_test() {
    if let Ok(role) = std::env::var(ROLE) {
        roles::play(&role);
    }
}

/// `None`, after saying so loudly, where the test cannot run.
fn needs(test: &str, xdp: bool) -> Option<Watched> {
    let missing = (xdp && !tsumugi_rail::xdp::IS_COMPILED).then_some("needs a build with the XDP program");
    as_root(test, missing)
}

/// Runs a shell script in network, mount and process namespaces of its own, which go with it. `play ROLE` in it is a
/// process that plays a role. Returns what roles say.
fn confined(script: &str) -> Vec<String> {
    let play = "play() { TSUMUGI_TEST_ROLE=\"$*\" \"$0\" --exact a_role_of_another_test --nocapture 2>&1; }";
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]);
    command.arg(format!("mount -t tmpfs none /run; {NIC} {play}; {script}")).arg(program);
    let output = command.output().expect("unshare(1) starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let said: Vec<String> =
        text.lines().filter_map(|line| Some(line.split_once("> ")?.1.to_owned())).collect();
    assert!(!said.is_empty(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// The report of an endpoint that has opened and sent itself a message.
fn report(script: &str) -> String {
    let said = confined(script);
    assert_eq!(said[0], "got it", "{said:?}");
    said[1].clone()
}

fn contains(report: &str, words: &[&str]) {
    for word in words {
        assert!(report.contains(word), "'{word}' in: {report}");
    }
}

#[test]
fn without_netlink_an_endpoint_opens_and_says_so() {
    let Some(_watched) = needs("without_netlink_an_endpoint_opens_and_says_so", false) else { return };
    contains(&report("play open deny=netlink bind=127.0.0.1"), &["NICs (listing them", "AF_NETLINK"]);
    let report = report("play open deny=netlink");
    // Routes need netlink, and so frames; NICs and their MTUs are found all the same.
    contains(
        &report,
        &["send paths udp,", "NICs va;", "the packet send path", "the xsk send path", "news of NICs"],
    );
    let said = confined("play open deny=netlink send=packet");
    assert!(said[0].starts_with("refused: ") && said[0].contains("AF_NETLINK"), "{said:?}");
}

#[test]
fn without_ipv6_an_endpoint_has_the_addresses_of_ipv4() {
    let Some(_watched) = needs("without_ipv6_an_endpoint_has_the_addresses_of_ipv4", false) else { return };
    let off = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6";
    for without in ["play open deny=ipv6", &format!("{off}; play open"), &format!("{off}; play open bind=::")]
    {
        contains(&report(without), &["endpoint 0.0.0.0:", "send paths udp packet", "NICs va;"]);
    }
    contains(&report("play open"), &["endpoint [::]:", "send paths udp packet", "NICs va;"]);
}

#[test]
fn without_bpf_and_membarrier_an_endpoint_opens() {
    let Some(_watched) = needs("without_bpf_and_membarrier_an_endpoint_opens", true) else { return };
    let up = "mount -t bpf bpf /sys/fs/bpf; play up;";
    let with = confined(&format!("{up} play open; play down"));
    assert!(with[2].contains("receive path xdp"), "{with:?}");
    let without = confined(&format!("{up} play open deny=bpf; play open deny=bpf receive=xdp; play down"));
    assert_eq!(without[..2], ["done", "got it"], "{without:?}");
    contains(
        &without[2],
        &["receive path socket", "without the XDP receive path", "bpf(2) is refused", "a seccomp profile"],
    );
    assert!(without[3].starts_with("refused: ") && without[3].contains("bpf(2) is refused"), "{without:?}");
    let slow = confined(&format!("{up} play open deny=membarrier; play down"));
    assert_eq!(slow[1], "got it", "{slow:?}");
    contains(&slow[2], &["receive path xdp", "grace periods (membarrier(2): Operation not permitted"]);
}

#[test]
fn without_anything_that_is_optional_an_endpoint_opens() {
    let Some(_watched) = needs("without_anything_that_is_optional_an_endpoint_opens", false) else { return };
    let deny = "deny=netlink,bpf,membarrier,packet,xdp,epoll,interfaces,offloads";
    for bind in ["::", "0.0.0.0", "127.0.0.1", "10.66.0.1"] {
        let report = report(&format!(
            "mount -t tmpfs none /sys; mount -t tmpfs none /proc; play open {deny} user={USER} bind={bind}"
        ));
        contains(
            &report,
            &["receive path socket", "send paths udp", "nothing is known of NICs", "long datagrams"],
        );
        contains(&report, &["a socket for each peer", "UDP GSO", "UDP GRO", "long socket queues"]);
    }
}

#[test]
fn without_proc_or_sys_an_endpoint_opens() {
    let Some(_watched) = needs("without_proc_or_sys_an_endpoint_opens", false) else { return };
    contains(
        &report("mount -t tmpfs none /proc; play open"),
        &["receive path socket", "/proc", "send paths udp packet"],
    );
    contains(&report("mount -t tmpfs none /proc; play open receive=socket"), &["send paths udp packet"]);
    let said = confined("mount -t tmpfs none /proc; play open receive=xdp");
    assert!(said[0].starts_with("refused: ") && said[0].contains("/proc"), "{said:?}");
    contains(&report("mount -t tmpfs none /sys; play open"), &["receive path socket", "tsumugi up"]);
}

#[test]
fn a_bpf_file_system_for_root_alone_keeps_nobody_from_opening() {
    let Some(_watched) = needs("a_bpf_file_system_for_root_alone_keeps_nobody_from_opening", true) else {
        return;
    };
    let said = report(&format!("{SHUT} play open user={USER}"));
    contains(
        &said,
        &["receive path socket", "/sys/fs/bpf is shut to this user", "tsumugi up NIC --owner USER"],
    );
    // `up` pins what others are to use where they can reach it, and does not touch what it finds.
    let pinned = "[ -d /run/tsumugi/bpf/tsumugi ] && [ ! -e /sys/fs/bpf/tsumugi ] && echo '> there'";
    let gone = "grep -q /run/tsumugi/bpf /proc/mounts || [ -e /run/tsumugi/bpf ] || echo '> gone'";
    let open = format!("play open user={USER} receive=xdp");
    let mode = "stat -c '> %a' /sys/fs/bpf";
    for (umask, access) in [("022", format!("owner={USER}")), ("077", "mode=666".to_owned())] {
        let said = confined(&format!(
            "{SHUT} umask {umask}; play up {access}; {pinned}; {open}; play down; {gone}; {mode}"
        ));
        assert_eq!(said[..3], ["done", "there", "got it"], "{said:?}");
        contains(&said[3], &["receive path xdp"]);
        assert_eq!(said[4..], ["done", "gone", "1700"], "{said:?}");
    }
    // What is there for root stays for root until it is taken down.
    let said = confined(&format!("{SHUT} play up; play open; play up mode=666; {mode}; play down"));
    assert_eq!(said[..2], ["done", "got it"], "{said:?}");
    contains(&said[2], &["receive path xdp"]);
    assert!(said[3].contains("`tsumugi down` first"), "{said:?}");
}

#[test]
fn a_bpf_file_system_that_cannot_be_written_keeps_nobody_from_opening() {
    let test = "a_bpf_file_system_that_cannot_be_written_keeps_nobody_from_opening";
    let Some(_watched) = needs(test, true) else { return };
    let remount = |how: &str| format!("mount -o remount,{how} /sys/fs/bpf;");
    let (shut, opened) = (remount("ro"), remount("rw"));
    let said = confined(&format!(
        "mount -t bpf bpf /sys/fs/bpf; play up; {shut} play open; play open receive=xdp; {opened} play down"
    ));
    assert_eq!(said[..2], ["done", "got it"], "{said:?}");
    contains(&said[2], &["receive path socket", "without the XDP receive path", "Read-only file system"]);
    assert!(said[3].starts_with("refused: ") && said[3].contains("Read-only"), "{said:?}");
    assert_eq!(said[4], "done", "{said:?}");
    // Where nothing can be pinned, `up` pins elsewhere.
    let said = confined(&format!("mount -t bpf bpf /sys/fs/bpf; {shut} play up; play open; play down"));
    assert_eq!(said[..2], ["done", "got it"], "{said:?}");
    contains(&said[2], &["receive path xdp"]);
}

#[test]
fn memory_of_another_version_is_left_alone() {
    let Some(_watched) = needs("memory_of_another_version_is_left_alone", true) else { return };
    let rename = "(cd /sys/fs/bpf/tsumugi/* && mv pool-* $(echo pool-* | sed s/pool-[0-9]*/pool-99/));";
    let said = confined(&format!(
        "mount -t bpf bpf /sys/fs/bpf; play up; {rename} play open; play open receive=xdp; play down"
    ));
    assert_eq!(said[..2], ["done", "got it"], "{said:?}");
    contains(&said[2], &["receive path socket", "without the XDP receive path", "layout 99"]);
    assert!(said[3].starts_with("refused: ") && said[3].contains("layout 99"), "{said:?}");
    assert_eq!(said[4], "done", "{said:?}");
}

#[test]
fn without_memory_to_lock_an_endpoint_opens() {
    let Some(_watched) = needs("without_memory_to_lock_an_endpoint_opens", true) else { return };
    let said = confined(&format!(
        "ulimit -l 0; mount -t bpf bpf /sys/fs/bpf; play up mode=666; play open user={USER}; play open; play down"
    ));
    assert_eq!([0, 1, 3, 5].map(|at| &said[at][..]), ["done", "got it", "got it", "done"], "{said:?}");
    contains(&said[2], &["receive path xdp"]);
    contains(&said[4], &["receive path xdp"]);
}

#[test]
fn a_port_of_another_user_is_used_without_xdp() {
    let Some(_watched) = needs("a_port_of_another_user_is_used_without_xdp", true) else { return };
    let said = confined(&format!(
        "mount -t bpf bpf /sys/fs/bpf; play up; play open user={USER} port=7411; \
         play open user={USER} port=7411 receive=xdp; play open user={USER}; play down"
    ));
    assert_eq!(said[..2], ["done", "got it"], "{said:?}");
    contains(&said[2], &["receive path socket", "UDP port 7411 is set aside for endpoints of another user"]);
    assert!(said[3].starts_with("refused: ") && said[3].contains("another user"), "{said:?}");
    contains(&said[5], &["receive path socket", "without the XDP receive path", "other users'"]);
}

#[test]
fn what_a_command_alone_would_see_is_pinned_for_all() {
    let Some(_watched) = needs("what_a_command_alone_would_see_is_pinned_for_all", true) else { return };
    // As `ip netns exec` does: a fresh /sys in a mount namespace of the command's own. The shell goes on in the first.
    let within = "unshare --mount sh -c 'mount -t sysfs none /sys; \
                  TSUMUGI_TEST_ROLE=up \"$0\" --exact a_role_of_another_test --nocapture 2>&1' \"$0\"";
    let said =
        confined(&format!("{within}; play open receive=xdp; play down; ls /run/tsumugi | sed 's/^/> /'"));
    assert_eq!(said[..2], ["done", "got it"], "{said:?}");
    assert_eq!(said[3..], ["done"], "{said:?}");
}

#[test]
fn a_nic_of_no_use_does_not_count() {
    let Some(_watched) = needs("a_nic_of_no_use_does_not_count", false) else { return };
    let tun = "ip link add tun9 mtu 500 type veth peer name t9; ip link set tun9 up; ip link set t9 up;";
    let bare = report(&format!("{tun} play open"));
    assert!(!bare.contains("tun9"), "{bare}");
    let addressed = format!("{tun} ip addr add 10.9.0.1/24 dev tun9;");
    let said = report(&format!("{addressed} play open"));
    contains(&said, &["NICs va;", "tun9 is left out: its MTU of 500 bytes", "ip link set tun9 mtu 536"]);
    let said = confined(&format!("{addressed} play open bind=10.9.0.1"));
    assert!(said[0].starts_with("refused: tun9 has an MTU of 500"), "{said:?}");
}
