//! `tsumugi perf costs` for real, in its own lab.

use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tsumugi_lab::Lab;
use tsumugi_lab::testing::{Watched, as_root};

const TSUMUGI: &str = env!("CARGO_BIN_EXE_tsumugi");

/// Lets a test run where costs can be measured; see [`as_root`].
fn can_measure(test: &str) -> Option<Watched> {
    let missing = match () {
        () if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) => "needs two CPUs",
        () if !tsumugi_rail::xdp::IS_COMPILED => "needs a build with the XDP program (clang and libbpf-dev)",
        () => return as_root(test, None),
    };
    as_root(test, Some(missing))
}

fn labs_of(pid: u32) -> Vec<String> {
    Lab::list().into_iter().filter(|name| name.starts_with(&format!("costs-{pid}-"))).collect()
}

#[test]
fn every_part_costs_something_with_every_send_path() {
    let Some(_watched) = can_measure("every_part_costs_something_with_every_send_path") else { return };
    let process = Command::new(TSUMUGI)
        .args(["perf", "costs", "--rounds", "3", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let pid = process.id();
    let output = process.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let send_paths = json["send_paths"].as_array().expect("send_paths");
    let names: Vec<&str> = send_paths.iter().filter_map(|costs| costs["send"].as_str()).collect();
    assert_eq!(names, ["udp", "packet", "xsk"]);
    for costs in send_paths {
        let parts = costs["parts"].as_array().expect("parts");
        assert_eq!(parts.len(), 7, "{costs}");
        // Parts are differences of medians, and on a machine with other work anything.
        assert!(parts.iter().all(|part| part["ns"].is_number()), "{costs}");
        for figure in [&costs["call"], &costs["round_trip"]] {
            assert!(figure["ns"].as_f64().is_some_and(|ns| ns > 0.0), "{figure} in {costs}");
        }
        assert!(costs["adds_up"].is_boolean() && costs["difference"].is_number(), "{costs}");
        assert_eq!(costs["rounds"], 3);
    }
    for side in json["measured"]["sides"].as_array().expect("sides") {
        assert_eq!((&side["receive"][0], &side["wait"][0]), (&"xdp".into(), &"spin".into()), "{side}");
        assert_eq!(side["send"].as_array().map(Vec::len), Some(3), "{side}");
    }
    let bare = &json["bare_udp"];
    assert!(bare["round_trip"]["ns"].as_f64().is_some_and(|ns| ns > 0.0), "{bare}");
    assert_eq!(labs_of(pid), Vec::<String>::new());
}

#[test]
fn every_part_of_longer_messages_costs_something() {
    let Some(_watched) = can_measure("every_part_of_longer_messages_costs_something") else { return };
    let process = Command::new(TSUMUGI)
        .args(["perf", "costs", "--size", "1K,64K", "--rounds", "2", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let pid = process.id();
    let output = process.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let sizes = json["sizes"].as_array().expect("sizes");
    let bytes: Vec<u64> = sizes.iter().filter_map(|costs| costs["size_bytes"].as_u64()).collect();
    assert_eq!(bytes, [1024, 65_536]);
    for costs in sizes {
        let part = |name: &str| {
            let parts = costs["parts"].as_array().expect("parts");
            let cost =
                parts.iter().find(|cost| cost["part"] == name).unwrap_or_else(|| panic!("{name} in {costs}"));
            cost["ns"].as_f64().expect("a number")
        };
        for name in ["library_send", "kernel_send", "kernel_receive", "library_receive"] {
            assert!(part(name) > 0.0, "{name} in {costs}");
        }
        assert!(part("unseen") >= 0.0 && part("waiting") >= 0.0, "{costs}");
        for figure in ["copy", "crc", "round_trip", "udp", "tcp"] {
            assert!(costs[figure]["ns"].as_f64().is_some_and(|ns| ns > 0.0), "{figure} in {costs}");
        }
        assert_eq!(costs["rounds"], 2);
    }
    assert_eq!(labs_of(pid), Vec::<String>::new());
}

#[test]
fn sizes_that_cannot_be_taken_apart_are_refused() {
    for size in ["64", "1M"] {
        let output =
            Command::new(TSUMUGI).args(["perf", "costs", "--size", size]).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("cannot be taken apart; choose sizes from 256 to 65536"), "{said}");
    }
    let arguments = ["perf", "costs", "--size", "1K", "--send", "udp"];
    assert_eq!(Command::new(TSUMUGI).args(arguments).output().expect("it starts").status.code(), Some(2));
}

#[test]
fn an_interrupted_measurement_leaves_nothing_behind() {
    let Some(_watched) = can_measure("an_interrupted_measurement_leaves_nothing_behind") else { return };
    let mut process = Command::new(TSUMUGI)
        .args(["perf", "costs", "--rounds", "1000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    while labs_of(process.id()).is_empty() {
        assert!(process.try_wait().expect("it can be asked").is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&process), Signal::INT).expect("our own child");
    assert_eq!(process.wait().expect("it ends").code(), Some(130));
    assert_eq!(labs_of(process.id()), Vec::<String>::new());
}
