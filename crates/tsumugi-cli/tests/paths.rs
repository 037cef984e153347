//! `tsumugi doctor --paths`, between namespaces. Needs root.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tsumugi_lab::testing::as_root;
use tsumugi_lab::{Lab, LabGuard, Spec};

const TSUMUGI: &str = env!("CARGO_BIN_EXE_tsumugi");

fn shell(lab: &LabGuard, node: usize, line: &str) {
    let status = lab.command(node, "/bin/sh").expect("a node").args(["-c", line]).status().expect("a shell");
    assert!(status.success(), "'{line}' in node {node}: {status}");
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn doctor_explains_which_paths_lead_to_a_host_and_which_do_not() {
    let Some(_watched) = as_root("doctor_explains_which_paths_lead_to_a_host_and_which_do_not", None) else {
        return;
    };
    let lab = Lab::up(&Spec { nics: 3, ..Spec::unique("paths") }).expect("the lab is made").guarded();
    for node in 0..2 {
        // As container runtimes do, with and without a name that says so.
        // The first NIC has addresses of both families, and a third has one of IPv6 only.
        shell(
            &lab,
            node,
            &format!(
                "ip -4 addr flush dev nic2; for nic in nic0 nic2; do cd /proc/sys/net/ipv6/conf/$nic; \
                 echo 0 > accept_dad; echo 0 > disable_ipv6; \
                 ip addr add fd77:${{nic#nic}}::{}/64 dev $nic nodad; done",
                node + 1
            ),
        );
        for (nic, network) in [("docker0", 17), ("bridge0", 18)] {
            shell(
                &lab,
                node,
                &format!(
                    "ip link add {nic} type veth peer name {nic}p && ip addr add 172.{network}.0.1/16 dev {nic} && \
                     ip link set {nic} up && ip link set {nic}p up"
                ),
            );
        }
    }
    // The kernel takes a second to say that a new NIC has a carrier.
    std::thread::sleep(Duration::from_millis(1500));
    let mut serve: Command = lab.command(1, TSUMUGI).expect("a node");
    let mut serve = serve.args(["perf", "serve"]).stdout(Stdio::piped()).spawn().expect("the command starts");
    let mut ready = String::new();
    let mut output = BufReader::new(serve.stdout.take().expect("it is piped"));
    output.read_line(&mut ready).expect("it says that it answers");
    let doctor = |arguments: &[&str]| {
        let mut command: Command = lab.command(0, TSUMUGI).expect("a node");
        command.arg("doctor").args(arguments).output().expect("the command starts")
    };
    let output = doctor(&["--paths", "10.77.0.2"]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    let line = |start: &str| text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or("none");
    let has = |start: &str, what: &str| assert!(line(start).contains(what), "{start}, {what}: {text}");
    has("-     docker0", "containers or virtual machines of this host");
    has("used  nic0", "10.77.0.1");
    has("used  10.77.0.2:7411", "the connection was made there");
    has("used  10.77.1.2:7411", "proved to be there");
    has("-     172.18.0.1:7411", "this host has the same address");
    let used = text.lines().filter(|line| line.contains("peers are told of it")).count();
    assert_eq!(used, 5, "the bridge without a telling name, and NICs in either family: {text}");
    has("used  [fd77:2::2]:7411", "proved to be there");
    has("-     [fd77::2]:7411", "no path: the path to 10.77.0.2:7411 joins the same two NICs");
    let text = said(&doctor(&["--paths", "fd77::2"]));
    let line = |start: &str| text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or("none");
    assert!(line("used  [fd77::2]:7411").contains("the connection was made there"), "{text}");
    assert!(line("used  10.77.1.2:7411").contains("proved to be there"), "{text}");
    assert!(line("-     10.77.0.2:7411").contains("joins the same two NICs"), "{text}");
    let output = doctor(&["--paths", "10.77.0.2", "--networks", "!nic1", "--json"]);
    let text = said(&output);
    assert!(text.starts_with('{') && text.contains("excluded by '!nic1'"), "{text}");
    assert!(text.contains("none of the NICs in use here is on its link"), "{text}");
    let text = said(&doctor(&["--paths", "10.77.0.2", "--networks", "!10.77.0.0/24"]));
    assert!(text.contains("10.77.0.2:7411 may not be used: it is excluded by '!10.77.0.0/24'"), "{text}");
    let output = doctor(&["--paths", "10.77.0.2", "--networks", "e*/x"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("'e*/x' in the list of networks 'e*/x' is no network"),
        "{}",
        said(&output)
    );
    // By the environment, too, and there the variable is named.
    let mut command = lab.command(0, TSUMUGI).expect("a node");
    command.args(["doctor", "--paths", "10.77.0.2"]).env("TSUMUGI_NETWORKS", "10.0.0.0/99");
    let text = said(&command.output().expect("the command starts"));
    assert!(
        text.contains("'10.0.0.0/99' in the list of networks '10.0.0.0/99' (TSUMUGI_NETWORKS)"),
        "{text}"
    );
    // Its port is a measurement's while there is one, and then for questions again.
    let mut measure = lab.command(0, TSUMUGI).expect("a node");
    let output = measure.args(["perf", "latency", "10.77.0.2", "--count", "10", "--rounds", "1"]).output();
    assert!(output.expect("the command starts").status.success());
    let output = doctor(&["--paths", "10.77.0.2"]);
    assert!(output.status.success(), "{}", said(&output));
    serve.kill().expect("it is ours");
    serve.wait().expect("it is ours");
    // Nobody is there any more: an error that says so.
    let output = doctor(&["--paths", "10.77.0.2"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("10.77.0.2"), "{}", said(&output));
}
