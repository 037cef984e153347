//! `tsumugi eval` for real: what it prints, and that nothing is left behind however it ends.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tsumugi_lab::testing::as_root;

const TSUMUGI: &str = env!("CARGO_BIN_EXE_tsumugi");

fn bonding(options: &[&str]) -> Output {
    Command::new(TSUMUGI).args(["eval", "bonding"]).args(options).output().expect("it runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn labs_of(pid: u32) -> Vec<String> {
    let of = format!("evalbond-{pid}-");
    tsumugi_lab::Lab::list().into_iter().filter(|name| name.starts_with(&of)).collect()
}

/// The row of a case with a policy.
fn row<'a>(json: &'a serde_json::Value, case: &str, policy: &str) -> &'a serde_json::Value {
    let rows = json["rows"].as_array().expect("rows");
    let found = rows.iter().find(|row| row["case"] == case && row["policy"] == policy);
    found.unwrap_or_else(|| panic!("no row of {case} with {policy} in {json}"))
}

#[test]
fn a_simulation_is_rows_and_a_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report.html");
    let html = report.to_str().expect("a name");
    let options =
        ["--simulated", "--case", "2x4@100M", "--policy", "tlb,adaptive", "--time", "0.5", "--json"];
    let output = bonding(&[&options[..], &["--html", html]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(2));
    let tlb = row(&json, "2x4@100M", "tlb");
    assert_eq!(
        (&tlb["metric"], &tlb["simulated"], &tlb["senders"]),
        (&"bandwidth".into(), &true.into(), &2.into())
    );
    // Two senders use two of four NICs, as P2 found.
    let gbit_s = tlb["gbit_s"].as_f64().expect("a throughput");
    assert!((0.15..0.2).contains(&gbit_s), "{tlb}");
    assert!(row(&json, "2x4@100M", "adaptive")["gbit_s"].as_f64() > Some(1.5 * gbit_s), "{json}");
    assert!(json.get("targets").is_none(), "{json}");
    assert!(json["paper"].as_array().is_some_and(|figures| figures.len() == 12));
    let page = std::fs::read_to_string(&report).expect("the report");
    assert!(page.contains("Figure 8") && page.contains("P2, balance-rr") && page.contains("<svg"));
}

#[test]
fn a_simulation_is_a_table() {
    let output =
        bonding(&["--simulated", "--case", "4x2@100M", "--policy", "hash,kernel-rr", "--time", "0.3"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in ["4x2@100M: 4 senders, 2 NICs of 100 Mb/s; in simulated time", "hash ", "P2, balance-tlb"] {
        assert!(page.contains(line), "{line} is missing in\n{page}");
    }
    assert!(!page.contains("kernel-rr"), "{page}");
    assert!(said(&output).contains("left out: kernel-rr"), "{}", said(&output));
}

#[test]
fn help_teaches() {
    let output = bonding(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    for words in
        ["minutes", "root", "--simulated", "kernel-rr", "2x4@100M", "uneven", "Examples", "Exit codes"]
    {
        assert!(page.contains(words), "{words} is missing in\n{page}");
    }
    let output = Command::new(TSUMUGI).args(["eval", "--help"]).output().expect("it runs");
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(page.contains("bonding") && !page.contains("sink"), "{page}");
}

#[test]
fn wrong_usage_exits_with_2_and_says_what_is_wrong() {
    for (options, words) in [
        (["--policy", "fastest"], "there is no policy `fastest`; choose from adaptive"),
        (["--policy", ""], "there is no policy"),
        (["--case", "2x9@100M"], "there is no case `2x9@100M`; write SENDERSxNICS@RATE"),
        (["--case", "uneven,odd"], "there is no case `odd`"),
        (["--time", "0"], "`0` is not a number of seconds"),
        (["--time", "-1"], "`-1` is not a number of seconds from 0.2 to 600"),
        (["--html", "/nonexistent/report.html"], "cannot write /nonexistent/report.html"),
    ] {
        let output = bonding(&[&options[..], &["--simulated"]].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(said(&output).contains(words), "{options:?}: {}", said(&output));
        assert!(output.stdout.is_empty(), "{options:?}");
    }
}

#[test]
fn nothing_left_is_an_error() {
    let output = bonding(&["--simulated", "--policy", "kernel-tlb"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("nothing is left to evaluate"), "{}", said(&output));
}

#[test]
fn a_lab_is_measured_and_goes() {
    let Some(_watched) = as_root("a_lab_is_measured_and_goes", None) else { return };
    let options = ["--case", "2x2@100M", "--policy", "hash", "--time", "0.5", "--json"];
    let mut command = Command::new(TSUMUGI);
    let process = command.args(["eval", "bonding"]).args(options);
    let process = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let pid = process.id();
    let output = process.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(labs_of(pid), Vec::<String>::new());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let row = row(&json, "2x2@100M", "hash");
    assert_eq!((&row["simulated"], &row["receive"]), (&false.into(), &"socket".into()));
    // How much was carried depends on the machine, but the NICs limit it.
    assert!(row["gbit_s"].as_f64().is_some_and(|gbit_s| gbit_s > 0.0 && gbit_s < 0.25), "{row}");
    assert!(row["send_cpu"].as_f64() > Some(0.0) && row["receive_cpu"].as_f64() > Some(0.0), "{row}");
    assert!(row["cpu_ns_per_kib"].as_f64() > Some(0.0), "{row}");
    assert_eq!(row["flows_gbit_s"].as_array().map(Vec::len), Some(2));
    // Each flow has a NIC of its own; a packet that found the paths may be counted, too.
    let packets = |flow: usize, nic: usize| row["packets"][flow][nic].as_u64().expect("packets");
    assert!(packets(0, 0) > 10 * packets(0, 1) && packets(1, 1) > 10 * packets(1, 0), "{row}");
    assert!(json["machine"]["wire"].as_str().is_some_and(|wire| wire.contains("lab")));
    for side in json["measured"]["sides"].as_array().expect("sides") {
        assert_eq!((&side["receive"][0], side["nics"].as_array().map(Vec::len)), (&"socket".into(), Some(2)));
    }
}

#[test]
fn an_interrupted_evaluation_leaves_nothing_behind() {
    let Some(_watched) = as_root("an_interrupted_evaluation_leaves_nothing_behind", None) else { return };
    let options = ["--case", "2x2@100M", "--policy", "hash", "--time", "600"];
    let mut process = Command::new(TSUMUGI)
        .args(["eval", "bonding"])
        .args(options)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let pid = process.id();
    let running = || {
        let lab = tsumugi_lab::Lab::open(labs_of(pid).first()?).ok()?;
        // Its sender is the last to start.
        (!lab.processes(0).is_empty()).then(|| [lab.processes(0), lab.processes(1)].concat())
    };
    let children = loop {
        if let Some(children) = running() {
            break children;
        }
        assert!(process.try_wait().expect("our own child").is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(children.len(), 3);
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::INT).expect("our own child");
    assert_eq!(process.wait().expect("it ends").code(), Some(130));
    assert_eq!(labs_of(pid), Vec::<String>::new());
    // Reaped by us, or gone with the lab.
    while children.iter().any(|&child| Pid::from_raw(child).is_some_and(|pid| test_kill_process(pid).is_ok()))
    {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_interrupted_simulation_says_so() {
    let mut process = Command::new(TSUMUGI)
        .args(["eval", "bonding", "--simulated", "--case", "4x4@1G", "--time", "600"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    std::thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&process), Signal::INT).expect("our own child");
    assert_eq!(process.wait().expect("it ends").code(), Some(130));
}

/// A receiver, and the port that it tells of.
fn sink() -> (Child, BufReader<ChildStdout>, u16) {
    let mut sink =
        Command::new(TSUMUGI).args(["eval", "sink"]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut told = BufReader::new(sink.stdout.take().expect("its output"));
    let mut line = String::new();
    told.read_line(&mut line).expect("a line");
    let port = line.trim_end().strip_prefix("port ").and_then(|port| port.parse().ok()).expect("a port");
    (sink, told, port)
}

#[test]
fn the_processes_of_a_kernel_bond_talk_tcp() {
    let mut sinks = [sink(), sink()];
    let to = sinks.iter().map(|(_, _, port)| format!("--to=127.0.0.1:{port}"));
    let output =
        Command::new(TSUMUGI).args(["eval", "source", "--alone=0.2", "--time=0.3"]).args(to).output();
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let sent: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(sent["cpu_ns"].as_u64() > Some(0), "{sent}");
    let mut received = Vec::new();
    for (flow, (sink, told, _)) in sinks.iter_mut().enumerate() {
        let mut text = String::new();
        told.read_to_string(&mut text).expect("what it received");
        assert!(sink.wait().expect("our own child").success());
        let json: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
        let bytes: u64 =
            json["bytes"].as_array().expect("bytes").iter().filter_map(|bytes| bytes.as_u64()).sum();
        let messages = sent["flows"][flow]["messages"].as_u64().expect("messages");
        assert!(messages > 0 && bytes >= 1024 * messages && bytes.is_multiple_of(1024), "{sent} {json}");
        received.push(json["begin"].as_u64().expect("a beginning"));
    }
    assert!(received[1] > received[0], "the second flow begins later: {received:?}");
}
