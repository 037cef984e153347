//! What scripts may rely on: output, exit codes and traces of `tsumugi up`, `down` and `status`. Needs root and the
//! compiled program.

mod common;

use common::with_xdp;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tsumugi_lab::testing::{Watched, copy_for_all};
use tsumugi_lab::{Lab, LabGuard, Spec};

const TSUMUGI: &str = env!("CARGO_BIN_EXE_tsumugi");

/// Two nodes with two NICs each.
struct Cluster(LabGuard, #[allow(dead_code, reason = "looks at the kernel's log in the end")] Watched);

/// What a command printed, on stdout and stderr.
type Printed = (String, String);

impl Cluster {
    /// `None`, after saying so loudly, where there can be none; never where CI=true.
    fn new(test: &str) -> Option<Cluster> {
        let watched = with_xdp(test)?;
        let lab = Lab::up(&Spec { nics: 2, ..Spec::unique("updown") }).expect("the lab is made");
        Some(Cluster(lab.guarded(), watched))
    }

    fn command(&self, node: usize, program: &str) -> Command {
        self.0.command(node, program).expect("the node can be entered")
    }

    /// Runs `tsumugi LINE` in node 0 and returns what it prints, if it ends with that code.
    fn expect(&self, line: &str, code: i32) -> Printed {
        let mut command = self.command(0, TSUMUGI);
        // Who called sudo would own the endpoints.
        command.args(line.split_whitespace()).env_remove("SUDO_UID");
        expect(command, code)
    }

    /// The answer of a command that prints JSON.
    fn json(&self, line: &str) -> Value {
        let (out, err) = self.expect(line, 0);
        // The NIC is a veth, whose other end has no program yet.
        let is_usual = |said: &&str| said.contains("drops what programs in the");
        let said: Vec<&str> = err.lines().filter(|said| !is_usual(said)).collect();
        assert!(said.is_empty(), "{line}: {err}");
        serde_json::from_str(&out).expect("one JSON object")
    }

    /// What `status` says of the pool and its NICs.
    fn pool(&self) -> Value {
        let mut status = self.json("status --json");
        for other in ["here", "processes"] {
            status.as_object_mut().and_then(|all| all.remove(other)).expect("what endpoints get and do here");
        }
        status
    }

    /// What is left of the XDP receive path in node 0.
    fn traces(&self) -> String {
        let mut shell = self.command(0, "sh");
        shell.args([
            "-c",
            "ls -d /sys/fs/bpf/tsumugi 2>&1 | grep -v 'No such'; ip -o link | grep -o prog/xdp; :",
        ]);
        expect(shell, 0).0
    }
}

fn expect(mut command: Command, code: i32) -> Printed {
    let output = command.output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints text");
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "{command:?}: {out}{err}");
    (out, err)
}

/// The endpoints of a status as (port, owner, group, mode).
fn endpoints(status: &Value) -> Vec<(u64, u64, u64, &str)> {
    let endpoints = status["endpoints"].as_array().expect("a list").iter();
    let number = |endpoint: &Value, name: &str| endpoint[name].as_u64().expect("a number");
    endpoints
        .map(|endpoint| {
            let mode = endpoint["mode"].as_str().expect("a text");
            (number(endpoint, "port"), number(endpoint, "owner"), number(endpoint, "group"), mode)
        })
        .collect()
}

/// The NICs of a status as (name, mode).
fn nics(status: &Value) -> Vec<(&str, &str)> {
    let nics = status["nics"].as_array().expect("a list").iter();
    nics.map(|nic| (nic["name"].as_str().expect("a name"), nic["xdp"].as_str().expect("a mode"))).collect()
}

#[test]
fn a_program_from_up_to_down() {
    let Some(cluster) = Cluster::new("a_program_from_up_to_down") else { return };
    assert!(cluster.expect("status", 0).0.contains("on no NIC here"));
    assert_eq!(cluster.pool(), json!({ "nics": [], "endpoints": [] }));
    assert_eq!(cluster.expect("down", 0), Printed::default(), "there is nothing to do");

    let options = "--port 7500 --endpoints 2 --flows 8 --queue 65536 --owner 65534 --group 54321 --mode 660";
    let expected = cluster.json("up nic0 --dry-run --json");
    assert_eq!(expected["nics"][0]["notes"][0], "native: its driver takes programs");
    assert!(expected["nics"][0]["notes"][1].as_str().expect("a text").starts_with("a veth: "), "{expected}");
    assert_eq!(cluster.traces(), "", "nothing was changed");
    let mut status = cluster.json(&format!("up nic0 {options} --json"));
    let costs = status.as_object_mut().and_then(|all| all.remove("costs")).expect("what it costs");
    let cost = costs[0]["costs"][0].as_str().expect("a text");
    assert!(cost.contains("nic0 is a veth") && cost.contains("--xdp generic"), "{costs}");
    assert_eq!(nics(&status), [("nic0", "native")]);
    assert_eq!(status["nics"][0]["busy_polling"], false);
    assert_eq!((&status["flows"], &status["queue_bytes"]), (&8.into(), &65536.into()));
    assert_eq!(endpoints(&status), [(7500, 65534, 54321, "660"), (7501, 65534, 54321, "660")]);
    for endpoint in status["endpoints"].as_array().expect("a list") {
        assert_eq!((&endpoint["claimed"], &endpoint["counters"]["deposited"]), (&false.into(), &0.into()));
    }
    assert_eq!(cluster.pool(), status);

    // Again: what is there stays as it is, and there is more.
    let (table, said) = cluster.expect("up nic0 nic1 --port 7600 --endpoints 3 --xdp generic", 0);
    assert!(
        said.starts_with("tsumugi: nic1: ") && said.contains("(generic)"),
        "nic0 costs nothing more: {said}"
    );
    let status = cluster.json("status --json");
    assert_eq!(nics(&status), [("nic0", "native"), ("nic1", "generic")]);
    assert_eq!((status["flows"].as_u64(), endpoints(&status).len()), (Some(8), 5));
    assert_eq!(endpoints(&status)[1..3], [(7501, 65534, 54321, "660"), (7600, 0, 0, "600")]);
    let shown = cluster.expect("status", 0).0;
    let here = shown.strip_prefix(&table).expect("the same, and what endpoints get");
    assert!(here.starts_with("Endpoints of yours send by udp") && here.contains("nic0 nic1"), "{here}");
    for part in
        ["nic0             native", "5 endpoints of 8 flows, 64 KiB of queue", "7500-7501", "7600-7602"]
    {
        assert!(table.contains(part), "{part}: {table}");
    }

    let (out, err) = cluster.expect("down nic1", 0);
    assert_eq!((out.as_str(), err.as_str()), ("", "detached from nic1\n"));
    let (_, err) = cluster.expect("down nic1", 1);
    assert!(err.contains("not on nic1"), "{err}");
    let status = cluster.json("status --json");
    assert_eq!((nics(&status), endpoints(&status).len()), (vec![("nic0", "native")], 5));
    let down = cluster.json("down --json");
    assert_eq!(down["gone"], status["nics"], "as it was");
    assert_eq!((&down["nics"], &down["endpoints"]), (&json!([]), &json!([])));
    assert_eq!(cluster.traces(), "");
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let Some(cluster) = Cluster::new("what_cannot_be_is_refused_and_leaves_nothing") else { return };
    for (line, reason) in [
        ("up", "required"),
        ("up nic0 --mode 777", "600, 660, 666"),
        ("up nic0 --xdp fast", "native, generic"),
        ("up nic0 --port 70000", "70000"),
        ("up nic0 --endpoints many", "many"),
        ("status nic0", "nic0"),
    ] {
        let (out, err) = cluster.expect(line, 2);
        assert!(out.is_empty() && err.contains(reason), "{line}: {out}{err}");
    }
    for (line, reason) in [
        ("up nic9", "no NIC is called 'nic9'"),
        ("up nic0 nic9", "no NIC is called 'nic9'"),
        ("up nic0 --port 80", "between 1024 and 65535"),
        ("up nic0 --port 65535 --endpoints 2", "between 1024 and 65535"),
        ("up nic0 --endpoints 0", "0 endpoints"),
        ("up nic0 --owner no-such-user", "no user 'no-such-user'"),
        ("up nic0 --group no-such-group", "no group 'no-such-group'"),
        ("up nic0 --queue 5000", "5000"),
        ("up nic0 --busy-poll", "leave --busy-poll away"),
        ("down nic0", "not on nic0"),
    ] {
        let (out, err) = cluster.expect(line, 1);
        assert!(out.is_empty() && err.contains(reason), "{line}: {out}{err}");
        assert_eq!(cluster.traces(), "", "{line}");
    }
    cluster.expect("up nic0 --flows 8 --queue 65536 --endpoints 1", 0);
    let (_, err) = cluster.expect("up nic1 --flows 16", 1);
    assert!(err.contains("`tsumugi down` first"), "{err}");
    assert_eq!(nics(&cluster.json("status --json")), [("nic0", "native")]);
    cluster.expect("down", 0);
    assert_eq!(cluster.traces(), "");
}

#[test]
fn another_program_is_left_alone() {
    let Some(cluster) = Cluster::new("another_program_is_left_alone") else { return };
    // Ours, but in a BPF file system that nobody else sees and that goes with the shell.
    let line = "mount -t bpf bpf /sys/fs/bpf && \"$0\" up nic0 --endpoints 1 && read -r end";
    let mut shell = cluster.command(0, "unshare");
    shell.args(["--mount", "sh", "-c", line, TSUMUGI]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = Running(shell.spawn().expect("it starts"));
    assert!(other.line().contains("nic0"), "it is attached");
    let theirs = cluster.traces();
    assert_eq!(theirs, "prog/xdp\n");
    for line in ["up nic0", "up nic0 --xdp generic", "up nic1 nic0"] {
        let (out, err) = cluster.expect(line, 1);
        assert!(out.is_empty() && err.contains("another XDP program"), "{line}: {out}{err}");
        // What takes it off: netlink cannot, for a link attaches it.
        assert!(err.contains("'receive', number ") && err.contains(", native, by link "), "{err}");
        assert!(err.contains("`bpftool link detach id "), "{err}");
        assert_eq!(cluster.traces(), theirs, "{line}");
    }
    let said = cluster.expect("status", 0).0;
    assert!(said.contains("on no NIC here") && said.contains("nic0 has another XDP program"), "{said}");
    let status = cluster.json("status --json");
    assert_eq!((&status["nics"], &status["others"][0]["nic"]), (&json!([]), &json!("nic0")));
    let said = cluster.expect("doctor", 0).0;
    assert!(said.contains("on no NIC: nic0 has another XDP program attached: 'receive'"), "{said}");
}

#[test]
fn why_a_driver_takes_no_program_is_said_in_the_kernels_words() {
    let test = "why_a_driver_takes_no_program_is_said_in_the_kernels_words";
    let Some(cluster) = Cluster::new(test) else { return };
    // One queue for what two send.
    let few =
        "ip link add few numrxqueues 1 numtxqueues 1 type veth peer name many numrxqueues 2 numtxqueues 2";
    for line in [few, "ip link set few up", "ip link set many up", "ip link add none type bridge"] {
        let mut shell = cluster.command(0, "sh");
        shell.args(["-c", line]);
        expect(shell, 0);
    }
    for (nic, words) in [
        ("few", "XDP expects number of rx queues not less than peer tx queues (No space left on device"),
        ("none", "Underlying driver does not support XDP in native mode (Operation not supported"),
    ] {
        let (out, err) = cluster.expect(&format!("up {nic} --xdp native"), 1);
        assert!(out.is_empty() && err.contains(words), "{err}");
        assert!(err.contains("; without `--xdp native` it runs behind the driver (generic)"), "{err}");
        assert_eq!(cluster.traces(), "", "{nic}");
        let (_, err) = cluster.expect(&format!("up {nic}"), 0);
        assert!(err.contains(&format!("{nic} takes no program in its driver: ")), "{err}");
        assert!(err.contains(words), "{err}");
        assert_eq!(nics(&cluster.json("status --json")), [(nic, "generic")]);
        cluster.expect("down", 0);
        assert_eq!(cluster.traces(), "", "{nic}");
    }
}

#[test]
fn a_nic_whose_other_end_drops_answers_is_found_out() {
    let Some(cluster) = Cluster::new("a_nic_whose_other_end_drops_answers_is_found_out") else { return };
    let shell = |line: &str| {
        let mut shell = cluster.command(0, "sh");
        shell.args(["-c", line]);
        expect(shell, 0);
    };
    let up = |line: &str| {
        let (_, err) = cluster.expect(line, 0);
        let status = cluster.json("status --json");
        let (nic, mode) = nics(&status)[0];
        let found = (nic.to_owned(), mode.to_owned(), err);
        cluster.expect("down", 0);
        assert_eq!(cluster.traces(), "");
        found
    };
    let dropped = "its other end (outer) drops what programs in the driver send";
    shell(
        "ip link add br9 type bridge; ip link add inner type veth peer name outer; ip link set outer master br9",
    );
    shell("for nic in br9 inner outer; do ip link set $nic up; done");
    let (nic, mode, err) = up("up inner");
    assert_eq!((nic.as_str(), mode.as_str()), ("inner", "generic"), "{err}");
    assert!(err.contains(dropped) && err.contains("`ethtool -K outer gro on`"), "{err}");
    // Who insists hears of it, too.
    let (_, mode, err) = up("up inner --xdp native");
    assert!(mode == "native" && err.contains(dropped) && err.contains("`--xdp generic`"), "{mode}: {err}");
    let price = "streams into it, TCP's too, may fall to a sixth";
    assert!(err.contains(price), "{err}");
    let (_, mode, err) = up("up inner --xdp generic");
    assert_eq!((mode.as_str(), err.lines().count()), ("generic", 1), "{err}");
    assert!(err.contains("its link stayed up") && !err.contains(price), "{err}");
    shell("ethtool -K outer gro on");
    let (_, mode, err) = up("up inner");
    assert_eq!(mode, "native");
    assert!(!err.contains(dropped) && err.contains(price), "what was said to help does: {err}");
    // By itself it may get a program soon, as those between two hosts of a lab do.
    shell("ethtool -K outer gro off; ip link set outer nomaster");
    let (_, mode, err) = up("up inner");
    assert!(mode == "native" && err.contains(dropped), "{mode}: {err}");
}

#[test]
fn what_has_lost_its_nic_is_said_and_cleared_away() {
    let Some(cluster) = Cluster::new("what_has_lost_its_nic_is_said_and_cleared_away") else { return };
    let shell = |line: &str| {
        let mut shell = cluster.command(0, "sh");
        shell.args(["-c", line]);
        expect(shell, 0);
    };
    for again in ["up nic1 --endpoints 1 --flows 16", "down"] {
        shell("ip link add short type veth peer name other");
        cluster.expect("up short --endpoints 1", 0);
        shell("ip link del short; ip link add short type veth peer name other");
        let said = cluster.expect("status", 0).0;
        assert!(said.contains("NOT ATTACHED any more: the NIC that it was on (number "), "{said}");
        let status = cluster.json("status --json");
        assert_eq!(status["nics"][0]["attached"], false, "{status}");
        assert!(
            status["nics"][0]["found"].as_str().is_some_and(|text| text.ends_with("is gone")),
            "{status}"
        );
        let said = cluster.expect("doctor", 0).0;
        assert!(said.contains("on no NIC: the NIC that it was on"), "{said}");
        let (_, err) = cluster.expect(again, 0);
        assert!(err.contains("forgot an attachment: the NIC that it was on"), "{err}");
        if again != "down" {
            assert_eq!(nics(&cluster.json("status --json")), [("nic1", "native")]);
            cluster.expect("down", 0);
        }
        assert_eq!(cluster.traces(), "");
        shell("ip link del short");
    }
}

#[test]
fn who_is_not_root_may_only_look() {
    let Some(cluster) = Cluster::new("who_is_not_root_may_only_look") else { return };
    let (_folder, copy) = copy_for_all(TSUMUGI.as_ref());
    let nobody = |line: &str, code| {
        let mut command = cluster.command(0, "setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
        command.args(line.split_whitespace());
        expect(command, code)
    };
    cluster.expect("up nic0 --endpoints 1 --owner 65534", 0);
    cluster.expect("up nic0 --port 7500 --endpoints 1", 0);
    for line in ["up nic1", "down"] {
        let (_, err) = nobody(line, 1);
        assert!(err.contains("only root can do that: `sudo tsumugi"), "{err}");
    }
    let status: Value = serde_json::from_str(&nobody("status --json", 0).0).expect("one JSON object");
    assert_eq!(nics(&status), [("nic0", "native")]);
    // And what their endpoints get.
    let here = &status["here"]["report"];
    assert!(here["send_paths"].as_array().expect("a list").contains(&"udp".into()), "{here}");
    assert!(here["given_up"].to_string().contains("CAP_NET_RAW"), "{here}");
    // Counters are shown to those who may use the endpoint.
    let counters = [0, 1].map(|endpoint: usize| status["endpoints"][endpoint].get("counters").is_some());
    assert_eq!(counters, [true, false], "{status}");
}

#[test]
fn status_shows_who_receives() {
    let Some(cluster) = Cluster::new("status_shows_who_receives") else { return };
    cluster.expect("up nic0 nic1 --endpoints 1", 0);
    let mut serve = cluster.command(0, TSUMUGI);
    // Only this side has the XDP program.
    serve.args(["perf", "serve", "--once", "--port", "0", "--receive", "xdp"]).stdout(Stdio::piped());
    let mut server = Running(serve.spawn().expect("it starts"));
    let line = server.line();
    let port = line.split_once("port ").and_then(|(_, rest)| rest.split(' ').next()).expect("a port");
    let mut client = cluster.command(1, TSUMUGI);
    client.args(["perf", "latency", &format!("10.77.0.1:{port}"), "--receive", "socket", "--json"]);
    client.args(["--rounds", "1", "--count", "1000000", "--time", "60", "--timeout", "60"]);
    let mut client = Running(client.stdout(Stdio::null()).spawn().expect("it starts"));
    let mut status = cluster.json("status --json");
    let server_pid = server.0.id();
    let delivered = |status: &Value| {
        let processes = status["processes"].as_array().map_or(&[][..], Vec::as_slice);
        let own = processes.iter().find(|process| process["pid"] == server_pid);
        let nics = own.and_then(|own| own["endpoint"]["nics"].as_array()).map_or(&[][..], Vec::as_slice);
        let on = |ip: &str, of: &str| {
            nics.iter().find(|nic| nic["ip"] == ip).map_or(0, |nic| nic[of].as_u64().unwrap_or(0))
        };
        let used = ["10.77.0.1", "10.77.1.1"].map(|ip| on(ip, "paths") - on(ip, "silent"));
        (used, on("10.77.0.1", "delivered") + on("10.77.1.1", "delivered"))
    };
    let deposited = |status: &Value| status["endpoints"][0]["counters"]["deposited"].as_u64();
    while deposited(&status) < Some(100) || delivered(&status).0 != [1, 1] || delivered(&status).1 < 100 {
        assert!(client.0.try_wait().expect("it can be asked").is_none(), "it ended: {status}");
        status = cluster.json("status --json");
    }
    assert_eq!(status["endpoints"][0]["claimed"], true);
    assert!(cluster.expect("status", 0).0.contains("through 10.77.1.1: "));
    // What the program counts is shown while the process cannot tell of it.
    kill_process(Pid::from_child(&server.0), Signal::STOP).expect("our own child");
    let is_told = |status: &Value| {
        let own =
            status["processes"].as_array().and_then(|all| all.iter().find(|it| it["pid"] == server_pid));
        own.is_some_and(|own| {
            own["doing"] == "stopped"
                && own["endpoint"]["counters"]["deposited"].as_u64() == deposited(status)
        })
    };
    let start = Instant::now();
    while !is_told(&status) {
        assert!(start.elapsed() < Duration::from_secs(30), "{status}");
        status = cluster.json("status --json");
    }
    kill_process(Pid::from_child(&server.0), Signal::CONT).expect("our own child");
    // What a process has is not given to others; what nobody has, is.
    let owners = |status: &Value| [0, 1].map(|nth: usize| status["endpoints"][nth]["owner"].as_u64());
    let (_, err) = cluster.expect("up nic0 nic1 --endpoints 2 --owner 65534", 0);
    assert!(err.contains("stay with who may use them now: 1;"), "{err}");
    let status = cluster.json("status --json");
    assert_eq!(owners(&status), [Some(0), Some(65534)], "{status}");
    assert!(deposited(&status) > Some(100), "{status}");
    let (_, err) = cluster.expect("down", 0);
    assert!(err.contains("detached from nic0\n") && err.contains("in use: 1 endpoints; they go on"), "{err}");
    assert_eq!(cluster.traces(), "");
}

#[test]
fn an_endpoint_that_is_given_to_others_gets_a_new_memory() {
    let Some(cluster) = Cluster::new("an_endpoint_that_is_given_to_others_gets_a_new_memory") else { return };
    let memory = || {
        let mut shell = cluster.command(0, "sh");
        shell.args(["-c", "stat -c %i /sys/fs/bpf/tsumugi/*/pool-*/ports/7411/memory"]);
        expect(shell, 0).0
    };
    cluster.expect("up nic0 --endpoints 1 --owner 65534", 0);
    let first = memory();
    cluster.expect("up nic0 --endpoints 1 --owner 65534", 0);
    assert_eq!(memory(), first, "the same users");
    cluster.expect("up nic0 --endpoints 1 --owner 65533", 0);
    assert_ne!(memory(), first, "other users");
}

/// Somebody claims it again and again, while it is given to him and taken from him.
#[test]
fn an_endpoint_is_claimed_whole_or_not_at_all() {
    const CLAIMS: usize = 60;
    let Some(cluster) = Cluster::new("an_endpoint_is_claimed_whole_or_not_at_all") else { return };
    let (_folder, copy) = copy_for_all(TSUMUGI.as_ref());
    let up = |owner: u32| drop(cluster.expect(&format!("up nic0 --endpoints 1 --owner {owner}"), 0));
    up(65533);
    let mut serve = cluster.command(1, TSUMUGI);
    let mut server =
        Running(serve.args(["perf", "serve"]).stdout(Stdio::piped()).spawn().expect("it starts"));
    assert!(server.line().contains("answering"));
    let mut claims = cluster.command(0, "setpriv");
    claims.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c"]);
    claims.arg(format!(
        "for n in $(seq {CLAIMS}); do \"$0\" perf latency 10.77.0.2 --size 8 --count 1 --rounds 1 >/dev/null; done"
    ));
    let claims = claims.arg(&copy).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let claims = std::thread::spawn(move || claims.wait_with_output().expect("it ends"));
    for round in 0.. {
        if claims.is_finished() {
            break;
        }
        up([65534, 65533][round % 2]);
    }
    let said = String::from_utf8(claims.join().expect("no panic").stderr).expect("it prints text");
    let notes: Vec<&str> = said.lines().filter(|line| line.contains("note: endpoint")).collect();
    assert_eq!(notes.len(), CLAIMS, "{said}");
    let (claimed, not) = notes.iter().partition::<Vec<&str>, _>(|note| note.contains("receive path xdp"));
    for note in &not {
        assert!(note.contains("all 1 are taken, or other users'"), "{note}");
    }
    assert!(!claimed.is_empty() && !not.is_empty(), "{} claimed, {} not", claimed.len(), not.len());
}

/// Another process; it ends when this is dropped.
struct Running(Child);

impl Running {
    /// Its next line on stdout.
    fn line(&mut self) -> String {
        let mut line = String::new();
        let stdout = self.0.stdout.as_mut().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        line
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_file_says_what_nics_get_when_they_appear() {
    let Some(cluster) = Cluster::new("a_file_says_what_nics_get_when_they_appear") else { return };
    // Nodes have a /tmp of their own.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = folder.path().join("up.toml");
    let config = format!("--config {}", file.display());
    let (_, err) = cluster.expect(&format!("up {config}"), 1);
    assert!(err.contains("cannot read") && err.contains("up.toml"), "{err}");
    std::fs::write(&file, "nics = ['nic0']\nport = 7500\nendpoint = 3\n").unwrap();
    let (_, err) = cluster.expect(&format!("up {config}"), 1);
    assert!(err.contains("line 3") && err.contains("unknown field `endpoint`"), "{err}");
    assert_eq!(cluster.traces(), "");

    std::fs::write(
        &file,
        "nics = ['nic0', 'nic1']\nport = 7500\nendpoints = 3\nmode = '666'\nxdp = 'generic'\n",
    )
    .unwrap();
    let (out, err) = cluster.expect(&format!("up {config} --if-listed eth7"), 0);
    assert!(out.is_empty() && err.contains("does not name eth7: nothing to do"), "{out}{err}");
    assert_eq!(cluster.traces(), "");
    // Both appear at the same time, as when a host starts.
    let starting = ["nic0", "nic1"].map(|nic| {
        let mut command = cluster.command(0, TSUMUGI);
        command.args(format!("up {config} --if-listed {nic}").split_whitespace()).env_remove("SUDO_UID");
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    });
    for child in starting {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let status = cluster.pool();
    assert_eq!(nics(&status), [("nic0", "generic"), ("nic1", "generic")]);
    let found = endpoints(&status);
    assert_eq!((found.len(), found[0].3), (3, "666"), "{status}");
    // A NIC may be called by another of its names.
    let mut name = cluster.command(0, "ip");
    name.args("link property add dev nic1 altname enp9s0".split_whitespace());
    assert!(name.status().unwrap().success());
    cluster.expect("down enp9s0", 0);
    assert_eq!(nics(&cluster.pool()), [("nic0", "generic")]);
    std::fs::write(
        &file,
        "nics = ['nic0', 'enp9s0']\nport = 7500\nendpoints = 3\nmode = '666'\nxdp = 'generic'\n",
    )
    .unwrap();
    for _ in 0..2 {
        cluster.expect(&format!("up {config} --if-listed nic1"), 0);
        assert_eq!(nics(&cluster.pool()), [("nic0", "generic"), ("nic1", "generic")]);
    }
    // What is given counts, and the file says the rest.
    cluster.expect(&format!("up {config} nic0 --port 7600 --endpoints 1"), 0);
    let status = cluster.pool();
    assert_eq!((endpoints(&status).len(), endpoints(&status)[3].3), (4, "666"), "{status}");
    cluster.expect("down", 0);
    assert_eq!(cluster.traces(), "");
}
