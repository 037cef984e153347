//! Measurements that make labs of their own, `tsumugi perf translate` and its like, for real.

mod common;

use common::with_xdp;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tsumugi_lab::Lab;

const TSUMUGI: &str = env!("CARGO_BIN_EXE_tsumugi");

/// Runs a measurement, interrupted after a while if that is wanted; its labs are gone then.
fn perf(stem: &str, options: &[&str], interrupted_after: Option<Duration>) -> Output {
    let process = Command::new(TSUMUGI)
        .arg("perf")
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let pid = process.id();
    if let Some(after) = interrupted_after {
        std::thread::sleep(after);
        kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::INT).expect("our own child");
    }
    let output = process.wait_with_output().expect("it ends");
    let left: Vec<String> =
        Lab::list().into_iter().filter(|name| name.starts_with(&format!("{stem}-{pid}-"))).collect();
    assert!(left.is_empty(), "{left:?} are left behind");
    output
}

/// What a measurement says, which always says what was measured, too.
fn json(output: &Output) -> serde_json::Value {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let measured = &json["measured"];
    assert!(measured["rounds"] == 1 && measured["time_s"].is_f64(), "{measured}");
    let sides = measured["sides"].as_array().expect("sides");
    assert_eq!(sides.len(), 2, "{measured}");
    for side in sides {
        assert!(side["receive"][0].is_string() && side["send"][0] != "auto", "{side}");
        assert!(side["nics"][0]["driver"] == "veth" && side["nics"][0]["mtu_bytes"] == 1500, "{side}");
    }
    json
}

#[test]
fn pages_are_written_directly_as_far_as_translations_go_and_a_stopped_process_is_written() {
    let Some(_watched) =
        with_xdp("pages_are_written_directly_as_far_as_translations_go_and_a_stopped_process_is_written")
    else {
        return;
    };
    let options = ["translate", "--translations", "0,4", "--pages", "2,4,12", "--rounds", "1", "--json"];
    let report = json(&perf("translate", &options, None));
    let direct_share = |translations: u64, pages: u64| {
        let figures = report["figures"].as_array().expect("figures");
        let is = |name: &str, figure: &serde_json::Value| figure[name].as_u64();
        let figure = figures.iter().find(|figure| {
            (is("translations", figure), is("pages", figure)) == (Some(translations), Some(pages))
        });
        let figure = figure.unwrap_or_else(|| panic!("{translations}, {pages} in {report}"));
        assert!(figure["transfer_ns"].as_f64().is_some_and(|ns| ns > 0.0), "{figure}");
        figure["direct_share"].as_f64().expect("a share")
    };
    assert!([2, 4, 12].iter().all(|pages| direct_share(0, *pages) == 0.0), "{report}");
    assert_eq!((direct_share(4, 2), direct_share(4, 4)), (1.0, 1.0));
    assert!(direct_share(4, 12) < 1.0, "{report}");
    assert!(report["stopped"]["stopped_gbit_s"].as_f64().is_some_and(|rate| rate > 0.0), "{report}");
}

#[test]
fn everyone_takes_what_everyone_sends_with_either_receive_path() {
    let Some(_watched) = with_xdp("everyone_takes_what_everyone_sends_with_either_receive_path") else {
        return;
    };
    let options = ["all-to-all", "--nodes", "3", "--size", "4K", "--rounds", "1", "--time", "0.1", "--json"];
    let report = json(&perf("exchange", &options, None));
    assert_eq!(report["measured"]["sides"][0]["receive"].as_array().map(Vec::len), Some(2), "{report}");
    assert_eq!(report["figures"][0]["better"], "higher");
    for name in ["xdp_gbit_s", "socket_gbit_s", "ratio"] {
        assert!(report["figures"][0][name].as_f64().is_some_and(|value| value > 0.0), "{name}: {report}");
    }
}

#[test]
fn the_switch_is_measured_beside_the_bridge() {
    let Some(_watched) = with_xdp("the_switch_is_measured_beside_the_bridge") else { return };
    for hook in ["tc", "native"] {
        let options = ["forwarding", "--hook", hook, "--rounds", "1", "--time", "0.05", "--json"];
        let report = json(&perf("forwarding", &options, None));
        assert_eq!(report["hook"], hook);
        let figures = report["figures"].as_array().expect("figures");
        assert_eq!(figures.len(), 5, "{report}");
        for figure in figures {
            let value = |name: &str| figure[name].as_f64().expect("a number");
            assert!(value("bridge") > 0.0 && value("switch") > 0.0 && value("ratio") > 0.0, "{figure}");
        }
    }
}

#[test]
fn a_barrier_is_counted_by_the_box_and_stands_beside_messages() {
    let Some(_watched) = with_xdp("a_barrier_is_counted_by_the_box_and_stands_beside_messages") else {
        return;
    };
    for (hook, more) in [("tc", &[][..]), ("native", &[]), ("generic", &["--receive", "socket"])] {
        let options =
            ["barrier", "--nodes", "2,3", "--hook", hook, "--rounds", "1", "--time", "0.02", "--json"];
        let report = json(&perf("groups", &[&options, more].concat(), None));
        assert_eq!(report["hook"], hook);
        let receive = if more.is_empty() { "xdp" } else { "socket" };
        assert_eq!(report["measured"]["sides"][0]["receive"], serde_json::json!([receive]));
        let figures = report["figures"].as_array().expect("figures");
        let of_one: Vec<&str> =
            figures.iter().map(|figure| figure["what"].as_str().expect("a name")).collect();
        let expected = ["message", "barrier, box", "barrier, messages", "allreduce, box"];
        assert_eq!(of_one, [expected, expected].concat());
        for figure in figures {
            assert!(figure["time_ns"].as_f64().is_some_and(|ns| ns > 0.0), "{figure}");
            let is_first = figure["what"] == "message";
            assert_eq!(figure["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), !is_first, "{figure}");
        }
        assert_eq!(figures[1]["p3_ns"], 9700.0);
    }
}

#[test]
fn collective_operations_are_measured_by_size() {
    let Some(_watched) = with_xdp("collective_operations_are_measured_by_size") else { return };
    let options = ["--nodes", "3", "--size", "8,20K", "--rounds", "1", "--time", "0.02", "--json"];
    let report = json(&perf("groups", &[&["collectives"], &options[..]].concat(), None));
    let figures = report["figures"].as_array().expect("figures");
    assert_eq!(figures.len(), 1 + 7 * 2, "{report}");
    for figure in figures {
        assert!(figure["messages_ns"].as_f64().is_some_and(|ns| ns > 0.0), "{figure}");
    }
    let counted: Vec<(&str, u64)> = figures
        .iter()
        .filter(|figure| figure["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0))
        .map(|figure| (figure["operation"].as_str().unwrap(), figure["size_bytes"].as_u64().unwrap_or(0)))
        .collect();
    assert_eq!(counted, [("barrier", 0), ("allreduce", 8)]);
}

#[test]
fn a_multicast_stands_beside_a_message_to_one_and_messages_to_each() {
    let Some(_watched) = with_xdp("a_multicast_stands_beside_a_message_to_one_and_messages_to_each") else {
        return;
    };
    for hook in ["tc", "native", "generic"] {
        let options = ["--receivers", "3", "--size", "64,20K", "--rounds", "1", "--time", "0.1", "--json"];
        let report = json(&perf("groups", &[&["multicast", "--hook", hook], &options[..]].concat(), None));
        assert_eq!((&report["hook"], &report["receivers"]), (&hook.into(), &3.into()));
        let figures = report["figures"].as_array().expect("figures");
        let ways: Vec<&str> = figures.iter().map(|figure| figure["way"].as_str().expect("a name")).collect();
        assert_eq!(ways, ["one", "one-by-one", "multicast"].repeat(2));
        for figure in figures {
            let is_multicast = figure["way"] == "multicast";
            assert!(figure["cpu_ns"].as_f64().is_some_and(|ns| ns > 0.0), "{figure}");
            assert_eq!(figure["delivered_ratio"].as_f64().is_some(), is_multicast, "{figure}");
            assert_eq!(
                figure["packets"].as_f64().is_some_and(|packets| packets > 0.5),
                is_multicast,
                "{figure}"
            );
        }
    }
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let Some(_watched) = with_xdp("ctrl_c_leaves_nothing_behind") else { return };
    for (stem, name, after_ms) in [
        ("translate", "translate", 300),
        ("translate", "translate", 1500),
        ("exchange", "all-to-all", 1200),
        ("forwarding", "forwarding", 1500),
        ("groups", "barrier", 1200),
        ("groups", "collectives", 2500),
        ("groups", "multicast", 2500),
    ] {
        let output = perf(stem, &[name], Some(Duration::from_millis(after_ms)));
        assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for options in [
        &["all-to-all", "--nodes", "1"][..],
        &["barrier", "--nodes", "1"],
        &["barrier", "--hook", "everywhere"],
        &["barrier", "--time", "0"],
        &["multicast", "--rate", "200M", "--send", "packet"],
        &["multicast", "--rate", "-1"],
        &["collectives", "--size", "0"],
        &["multicast", "--receivers", "1"],
        &["translate", "--pages", "0"],
        &["translate", "--replacement", "best"],
    ] {
        let output = Command::new(TSUMUGI).arg("perf").args(options).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{options:?}");
    }
}
