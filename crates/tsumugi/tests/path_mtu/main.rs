//! Two hosts and a router between them that carries less than both: it says so, or it does not; from the beginning, or while
//! packets are under way; and later more again. Needs root, for namespaces of each test's own.

#[path = "../common/process.rs"]
mod process;
mod roles;

use process::ROLE;
use std::process::Command;
use tsumugi_lab::testing::as_root;

/// A, the router and B: `va` and `vb` are the hosts' ends, `r0` and `r1` the router's. `X A CMD` runs a command in one of them, `play A
/// ROLE` a process that plays a role there.
const ROUTED: &str = "\
for n in A B R; do ip netns add $n; ip -n $n link set lo up; done; \
ip link add va netns A type veth peer name r0 netns R; ip link add vb netns B type veth peer name r1 netns R; \
sysctl() { for v in accept_dad accept_ra; do X $1 sh -c \"echo 0 > /proc/sys/net/ipv6/conf/$2/$v\"; done; }; \
for p in 'A va' 'R r0' 'R r1' 'B vb'; do set -- $p; sysctl $1 $2; ip -n $1 link set $2 up; done; \
ip -n A addr add 10.66.0.1/24 dev va; ip -n R addr add 10.66.0.254/24 dev r0; \
ip -n R addr add 10.67.0.254/24 dev r1; ip -n B addr add 10.67.0.2/24 dev vb; \
ip -n A addr add fd66::1/64 dev va nodad; ip -n R addr add fd66::fe/64 dev r0 nodad; \
ip -n R addr add fd67::fe/64 dev r1 nodad; ip -n B addr add fd67::2/64 dev vb nodad; \
X R sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'; \
ip -n A route add default via 10.66.0.254; ip -n B route add default via 10.67.0.254; \
ip -n A route add default via fd66::fe; ip -n B route add default via fd67::fe; ";

/// Not a test: what copies of this program do.
#[test]
fn a_role_of_another_test() {
    if let Ok(role) = std::env::var(ROLE) {
        roles::play(&role);
    }
}

/// Runs a shell script in network, mount and process namespaces of its own, which go with it. Returns what roles say.
fn play(script: &str) -> Vec<String> {
    let helpers = "X() { n=$1; shift; nsenter --net=/run/netns/$n \"$@\"; }; \
        play() { n=$1; shift; TSUMUGI_TEST_ROLE=\"$*\" X $n \"$0\" --exact a_role_of_another_test --nocapture 2>&1; };";
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]);
    command.arg(format!("set -e; mount -t tmpfs none /run; {helpers} {script}")).arg(program);
    let output = command.output().expect("unshare(1) starts");
    // The NICs are gone: what CPUs have kept of their packets goes back.
    tsumugi_lab::deferred::give_back();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().filter_map(|line| Some(line.split_once("> ")?.1.to_owned())).collect()
}

/// The line that begins so, without its beginning.
fn line<'a>(said: &'a [String], begins: &str) -> &'a str {
    let found = said.iter().find_map(|line| line.strip_prefix(begins));
    found.unwrap_or_else(|| panic!("nobody says '{begins}': {said:?}"))
}

fn number(said: &[String], begins: &str) -> u64 {
    line(said, begins).parse().unwrap_or_else(|_| panic!("'{begins}' of what: {said:?}"))
}

/// What was sent arrived, whole and in order, and everything ended in time.
fn all_arrived(said: &[String]) {
    let sent = number(said, "A sent ");
    assert!(sent > 0, "{said:?}");
    assert_eq!(number(said, "B received "), sent, "{said:?}");
    assert!(number(said, "A closed after ms ") < 3000, "{said:?}");
}

/// Both families, at ends of IPv4 only and of both: their ends, and the bytes of their headers.
const FAMILIES: [(&str, &str, u64); 3] =
    [("10.67.0.2", "0.0.0.0", 28), ("10.67.0.2", "::", 28), ("[fd67::2]", "::", 48)];

#[test]
fn a_router_with_a_smaller_mtu_is_heard() {
    let Some(_watched) = as_root("a_router_with_a_smaller_mtu_is_heard", None) else { return };
    for (b, bind, headers) in FAMILIES {
        for send_path in ["auto", "udp", "packet"] {
            let said = play(&format!(
                "{ROUTED} ip -n R link set r1 mtu 1400; play B serve bind={bind} & \
                 play A send to={b}:7500 bind={bind} send={send_path} count=40 bytes=100000; wait"
            ));
            all_arrived(&said);
            assert_eq!(number(&said, "A carries "), 1400 - headers, "{said:?}");
            assert!(number(&said, "A delivered after ms ") < 2000, "{said:?}");
            let logged: Vec<_> = said.iter().filter(|line| line.contains(" bytes at most, ")).collect();
            assert_eq!(logged.len(), 1, "{said:?}");
            let report = line(&said, "A reports ");
            assert!(report.contains("kernel says so") && report.contains("tracepath"), "{report}");
        }
    }
}

#[test]
fn a_router_that_says_nothing_is_found_out() {
    let Some(_watched) = as_root("a_router_that_says_nothing_is_found_out", None) else { return };
    // B's NIC drops what is longer than its MTU, and nobody knows: B says that it takes more. (The NIC would take what is to
    // be cut up yet: it is cut at A.)
    let hole = "ip -n A link set va gso_max_segs 1 gso_max_size 1600; ip -n B link set vb mtu 1400;";
    for (b, bind, headers) in FAMILIES {
        for (send_path, mtu) in [("auto", 1400), ("udp", 1380), ("udp", 1280)] {
            let hole = hole.replace("1400", &mtu.to_string());
            let said = play(&format!(
                "{ROUTED} {hole} play B serve bind={bind} datagram={} & \
                 play A send to={b}:7500 bind={bind} send={send_path} count=40 bytes=100000 carries={}; wait",
                1500 - headers,
                mtu - headers - 16
            ));
            all_arrived(&said);
            let carries = number(&said, "A carries ") + headers;
            // A veth's NIC takes 4 bytes more than its MTU, for a VLAN's tag.
            assert!(carries <= mtu + 4 && carries + 16 >= mtu, "{said:?}");
            assert!(number(&said, "A delivered after ms ") < 3000, "{said:?}");
            assert!(line(&said, "A reports ").contains("nobody says why"), "{said:?}");
        }
    }
}

#[test]
fn a_path_on_which_nothing_but_short_packets_arrives_is_an_error_in_time() {
    let Some(_watched) =
        as_root("a_path_on_which_nothing_but_short_packets_arrives_is_an_error_in_time", None)
    else {
        return;
    };
    let hole = "ip -n A link set va gso_max_segs 1 gso_max_size 1600; ip -n B link set vb mtu 400;";
    let said = play(&format!(
        "{ROUTED} {hole} play B serve bind=10.67.0.2 datagram=1472 & \
         play A try to=10.67.0.2:7500 bind=10.66.0.1 send=udp bytes=1000 peer_timeout_ms=1000"
    ));
    assert!(line(&said, "A heard ").contains("packets of 508 bytes do not reach it"), "{said:?}");
    let took_ms = number(&said, "A closed after ms ");
    assert!((5000..20_000).contains(&took_ms), "{said:?}");
}

#[test]
fn a_path_shrinks_and_grows_under_load() {
    let Some(_watched) = as_root("a_path_shrinks_and_grows_under_load", None) else { return };
    for (b, bind, headers) in FAMILIES {
        let said = play(&format!(
            "{ROUTED} play B serve bind={bind} & \
             (sleep 1; ip -n R link set r1 mtu 1400; sleep 1; ip -n R link set r1 mtu 1300; sleep 1; \
              ip -n R link set r1 mtu 1500)& \
             play A send to={b}:7500 bind={bind} for_ms=10500 bytes=100000; wait"
        ));
        all_arrived(&said);
        assert_eq!(number(&said, "A carries "), 1500 - headers, "{said:?}");
        // In ten seconds; if all stood still but for moments, it would be a few.
        assert!(number(&said, "A sent ") > 500, "{said:?}");
        let sizes: Vec<&str> = line(&said, "A saw ").split(' ').collect();
        for mtu in [1500, 1400, 1300] {
            assert!(sizes.contains(&(mtu - headers).to_string().as_str()), "{mtu}: {said:?}");
        }
    }
}

#[test]
fn a_path_falls_silent_for_long_packets_under_load() {
    let Some(_watched) = as_root("a_path_falls_silent_for_long_packets_under_load", None) else { return };
    let said = play(&format!(
        "{ROUTED} ip -n A link set va gso_max_segs 1 gso_max_size 1600; play B serve & \
         (sleep 1; ip -n B link set vb mtu 1300; sleep 1; ip -n B link set vb mtu 1500)& \
         play A send to=10.67.0.2:7500 for_ms=9000 bytes=30000; wait"
    ));
    all_arrived(&said);
    assert_eq!(number(&said, "A carries "), 1472, "{said:?}");
    assert!(number(&said, "A sent ") > 500, "{said:?}");
}

#[test]
fn small_messages_and_short_writes_that_are_longer_than_the_path_arrive() {
    let Some(_watched) =
        as_root("small_messages_and_short_writes_that_are_longer_than_the_path_arrive", None)
    else {
        return;
    };
    let said = play(&format!(
        "{ROUTED} ip -n R link set r1 mtu 600; play B serve & \
         play A send to=10.67.0.2:7500 count=3000 bytes=1400; wait"
    ));
    all_arrived(&said);
    assert_eq!(number(&said, "A carries "), 572, "{said:?}");
}

#[test]
fn addresses_of_the_loopback_interface_have_the_mtu_of_their_path() {
    let Some(_watched) = as_root("addresses_of_the_loopback_interface_have_the_mtu_of_their_path", None)
    else {
        return;
    };
    let said = play(
        "for n in A B; do ip netns add $n; ip -n $n link set lo up; done; \
         ip link add va netns A type veth peer name vb netns B; \
         ip -n A addr add 10.66.0.1/24 dev va; ip -n B addr add 10.66.0.2/24 dev vb; \
         ip -n A link set va up; ip -n B link set vb up; \
         ip -n A addr add 10.99.0.1/32 dev lo; ip -n B addr add 10.99.0.2/32 dev lo; \
         ip -n A route add 10.99.0.2 via 10.66.0.2 src 10.99.0.1; \
         ip -n B route add 10.99.0.1 via 10.66.0.1 src 10.99.0.2; \
         play B serve bind=10.99.0.2 & \
         play A send to=10.99.0.2:7500 bind=10.99.0.1 count=40 bytes=50000; wait",
    );
    all_arrived(&said);
    assert_eq!(number(&said, "A carries "), 1472, "{said:?}");
    assert!(number(&said, "A delivered after ms ") < 1000, "{said:?}");
}

#[test]
fn with_the_xdp_program_a_path_shrinks_under_load() {
    let missing = (!tsumugi_rail::xdp::IS_COMPILED).then_some("needs a build with the XDP program");
    let Some(_watched) = as_root("with_the_xdp_program_a_path_shrinks_under_load", missing) else {
        return;
    };
    let said = play(&format!(
        "mount -t bpf bpf /sys/fs/bpf; {ROUTED} play A up nic=va; play B up nic=vb; \
         play B serve receive=xdp & \
         (sleep 1; ip -n R link set r1 mtu 1400; sleep 1; ip -n R link set r1 mtu 1500)& \
         play A send to=10.67.0.2:7500 receive=xdp for_ms=3000 bytes=100000; wait; \
         play A down; play B down"
    ));
    all_arrived(&said);
    assert_eq!(number(&said, "A carries "), 1372, "{said:?}");
    assert!(number(&said, "A sent ") > 300, "{said:?}");
}

#[test]
fn an_ordinary_path_is_never_probed() {
    let Some(_watched) = as_root("an_ordinary_path_is_never_probed", None) else { return };
    let said = play(&format!(
        "{ROUTED} play B serve & play A send to=10.67.0.2:7500 for_ms=6000 bytes=100000; wait"
    ));
    all_arrived(&said);
    assert_eq!(line(&said, "A saw "), "1472", "{said:?}");
    assert!(!line(&said, "A reports ").contains("tracepath"), "{said:?}");
}
