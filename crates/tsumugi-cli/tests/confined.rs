//! What `up`, `status`, `doctor` and `perf` say where something is missing or forbidden. Needs root, for namespaces of
//! each test's own, and the compiled program.

mod common;

use common::with_xdp;
use std::process::Command;
use tsumugi_lab::testing::copy_for_all;

const TSUMUGI: &str = env!("CARGO_BIN_EXE_tsumugi");
/// A NIC with an address, whose other end is here, too.
const NIC: &str = "ip link set lo up; ip link add va type veth peer name vb; ip addr add 10.66.0.1/24 dev va; \
                   ip link set va up; ip link set vb up;";
/// Runs the command as a user without any rights.
const USER: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all \"$0\"";

/// What a shell script prints in network, mount and process namespaces of its own, which go with it. The command is `"$0"`,
/// where every user may run it.
fn confined(script: &str) -> String {
    let (_folder, copy) = copy_for_all(TSUMUGI.as_ref());
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]);
    command.arg(format!("exec 2>&1; mount -t tmpfs none /run; {NIC} {script}")).arg(copy);
    // Who called sudo would own the endpoints.
    let output = command.env_remove("SUDO_UID").output().expect("unshare(1) starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The line of `doctor` about something.
fn finding<'a>(said: &'a str, check: &str) -> &'a str {
    let named = |line: &&str| line.split_once("  ").is_some_and(|(_, rest)| rest.contains(check));
    let checks = said.lines().skip_while(|line| !line.starts_with("Socket receive path"));
    checks.into_iter().find(named).unwrap_or_else(|| panic!("{check} in {said}"))
}

#[test]
fn a_command_in_mounts_of_its_own_attaches_for_all() {
    let Some(_watched) = with_xdp("a_command_in_mounts_of_its_own_attaches_for_all") else { return };
    let said = confined(
        "ip netns add x; ip link set va netns x; ip -n x link set va up; ip netns exec x \"$0\" up va --endpoints 1; \
         echo = $?; ip netns exec x \"$0\" status; nsenter --net=/run/netns/x \"$0\" status; \
         ip netns exec x \"$0\" down; echo = $?; nsenter --net=/run/netns/x \"$0\" status; echo left:; ls /run/tsumugi",
    );
    assert_eq!(said.matches("NIC va").count(), 3, "{said}");
    assert_eq!(said.matches("= 0").count(), 2, "{said}");
    assert!(said.contains("detached from va") && said.contains("on no NIC here"), "{said}");
    assert!(said.trim_end().ends_with("left:"), "nothing is left below /run/tsumugi: {said}");
}

#[test]
fn who_cannot_look_at_the_first_process_attaches_for_all_where_its_parent_is() {
    let test = "who_cannot_look_at_the_first_process_attaches_for_all_where_its_parent_is";
    let Some(_watched) = with_xdp(test) else { return };
    let within = format!(
        "mount -t bpf -o mode=700 bpf /sys/fs/bpf; \"$0\" up va --endpoints 1 --mode 666; echo = $?; {USER} doctor; \
         ip netns add x; ip link set va netns x; ip netns exec x \"$0\" status; \"$0\" down; echo = $?; \
         echo left:; ls /run/tsumugi"
    );
    let said = confined(&format!("mount -t tmpfs none /proc/1; unshare --mount sh -c '{within}' \"$0\""));
    assert_eq!(said.matches("= 0").count(), 2, "{said}");
    assert!(finding(&said, "attached").contains("1 endpoints free"), "{said}");
    assert!(said.trim_end().ends_with("left:"), "nothing is left below /run/tsumugi: {said}");
}

#[test]
fn doctor_tries_what_the_user_can_reach() {
    let Some(_watched) = with_xdp("doctor_tries_what_the_user_can_reach") else { return };
    let shut = "mount -t bpf -o mode=700 bpf /sys/fs/bpf;";
    let said = confined(&format!("{shut} {USER} doctor; echo = $?"));
    assert!(finding(&said, "BPF file system").contains("/sys/fs/bpf is shut to this user"), "{said}");
    assert!(finding(&said, "attached").contains("missing"), "{said}");
    assert!(said.contains("= 0"), "{said}");
    let said = confined(&format!("{shut} \"$0\" up va; {USER} doctor; \"$0\" down"));
    assert!(finding(&said, "attached").trim_start().starts_with("missing"), "{said}");
    let said = confined(&format!("{shut} \"$0\" up va --owner 65534; {USER} doctor; \"$0\" down"));
    assert!(finding(&said, "attached").contains("16 endpoints free"), "{said}");
    assert!(
        said.contains("\n  yes  receive path xdp") && said.contains("\n  no   send path packet"),
        "{said}"
    );
    let open = "mount -t bpf bpf /sys/fs/bpf;";
    let said = confined(&format!("{open} \"$0\" up va; {USER} doctor; \"$0\" down"));
    assert!(finding(&said, "attached").contains("this user can open none: they are for root"), "{said}");
    assert!(
        said.contains("\n  no   receive path xdp") && said.contains("sudo tsumugi up va --owner"),
        "{said}"
    );
    // The same, seen by root.
    let asked =
        confined(&format!("{open} \"$0\" up va --endpoints 2; \"$0\" doctor --user 65534; \"$0\" down"));
    for line in [
        "What nobody can use here",
        "  yes  receive path socket",
        "  no   receive path xdp",
        "  yes  send path udp",
    ] {
        assert!(asked.contains(line), "{line}: {asked}");
    }
    assert!(finding(&asked, "attached").contains("of 2 endpoints this user can open none"), "{asked}");
}

#[test]
fn doctor_stays_true_without_proc_and_sys() {
    let Some(_watched) = with_xdp("doctor_stays_true_without_proc_and_sys") else { return };
    let said = confined("mount -t tmpfs none /proc; mount -t tmpfs none /sys; \"$0\" doctor; echo = $?");
    assert!(finding(&said, "attached").contains("mount -t proc proc /proc"), "{said}");
    assert!(finding(&said, "capabilities").contains("NET_ADMIN"), "{said}");
    assert!(finding(&said, "kernel").contains("Linux "), "{said}");
    assert!(finding(&said, "BPF file system").contains("none is mounted"), "{said}");
}

#[test]
fn what_a_container_does_not_see_is_said() {
    let Some(_watched) = with_xdp("what_a_container_does_not_see_is_said") else { return };
    let said = confined(
        "mount -t bpf bpf /sys/fs/bpf; \"$0\" up va --endpoints 2; \
         \"$0\" perf serve --receive socket >/dev/null 2>&1 & sleep 1; mount -t tmpfs none /sys/fs/bpf; \
         \"$0\" perf latency 10.66.0.1 --size 8 --count 1 --rounds 1; echo = $?",
    );
    assert!(said.contains("va has another XDP program") && said.contains("bind the host's"), "{said}");
    assert!(said.contains("= 0"), "{said}");
}

#[test]
fn perf_says_once_what_it_does_without() {
    let Some(_watched) = with_xdp("perf_says_once_what_it_does_without") else { return };
    let said = confined(
        "mount -t tmpfs none /proc; \"$0\" perf serve --once --receive socket >/dev/null 2>&1 & sleep 1; \
         \"$0\" perf latency 10.66.0.1 --rounds 1 --time 0.05",
    );
    let noted = said.matches("note: endpoint").count();
    assert_eq!(noted, 1, "{said}");
    assert!(said.contains("without the XDP receive path"), "{said}");
}

#[test]
fn a_namespace_with_the_number_of_one_that_is_gone_begins_anew() {
    let test = "a_namespace_with_the_number_of_one_that_is_gone_begins_anew";
    let Some(_watched) = with_xdp(test) else { return };
    // Whether a new namespace gets the number of the one that is gone is chance. So what that one has left is renamed:
    // to the new one's number, with the old one's cookie.
    let said = confined(
        "mount -t bpf bpf /sys/fs/bpf; ip link del va; inside() { nsenter --net=/run/netns/$x \"$0\" \"$@\"; }; \
         new() { x=$1; ip netns add $x; ip -n $x link add va type veth peer name vb; }; \
         new x; inside up va --endpoints 1 --flows 8 --queue 65536; ip netns del x; new y; \
         cd /sys/fs/bpf/tsumugi; left=$(ls); same=$(stat -L -c %i /run/netns/y)-${left#*-}; \
         [ $left = $same ] || mv $left $same; [ -e $same ] && echo = same; cd /; \
         inside status; inside up va --endpoints 2; echo = $(ls /sys/fs/bpf/tsumugi | wc -l); inside status; \
         inside down; [ -e /sys/fs/bpf/tsumugi ] || echo = gone",
    );
    let parts = ["1 endpoints of 8 flows", "= same", "on no NIC here", "= 1", "2 endpoints of 1024 flows"];
    let mut rest = said.as_str();
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part} in {said}"));
        rest = &rest[at + part.len()..];
    }
    assert!(said.contains("detached from va") && said.trim_end().ends_with("= gone"), "{said}");
}
