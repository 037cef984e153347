//! The manners of the command line: help, version, and what is said of wrong usage.

use std::process::{Command, Output};

const TSUMUGI: &str = env!("CARGO_BIN_EXE_tsumugi");

fn perf(metric: &str, host: &str, options: &[&str]) -> Output {
    Command::new(TSUMUGI).args(["perf", metric, host]).args(options).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn wrong_usage_is_explained_and_exits_with_2() {
    for (options, words) in [
        (&["--send", "warp"][..], "auto, udp, packet, xsk"),
        (&["--receive", "warp"], "auto, socket, xdp"),
        (&["--size", "2G"], "over the limit of one message"),
        (&["--size", "8..4"], "ends before it begins"),
        (&["--time", "0"], "not a number of seconds"),
        (&["--cpu", "x"], "not a list of CPUs"),
        (&["--transport", "udp", "--size", "100K"], "at most 65507 bytes"),
        (&["--transport", "udp", "--faults", "loss=1%"], "--transport tsumugi"),
        (&["--transport", "udp", "--trace", "t"], "--trace has no effect with --transport udp"),
        (&["--transport", "tcp-spin", "--wait", "spin"], "--wait has no effect with --transport tcp-spin"),
        (&["--transport", "tcp-spin", "--policy", "hash"], "--policy has no effect"),
        (&["--transport", "raw-xdp", "--repeat", "go-back-n"], "--repeat has no effect"),
        (&["--transport", "udp", "--datagram", "1K"], "--datagram has no effect"),
        (&["--transport", "udp", "--model", "write"], "--model has no effect"),
        (&["--transport", "udp", "--in-flight", "1M"], "one message at a time is in flight"),
        (&["--protocol", "eager"], "it needs --model message"),
        (&["--in-place"], "unexpected argument '--in-place'"),
        (&["--size", "-1"], "`-1` is not a size"),
        (&["--size", "-1K"], "`-1K` is not a size"),
        (&["--warp", "-1K"], "unexpected argument '--warp'"),
        (&["--count", "-5"], "`-5` is not a whole number from 1 on"),
        (&["--rounds", "-1"], "-1 is not in 1..=1000"),
        (&["--time", "-1"], "`-1` is not a number of seconds"),
        (&["--datagram", "64K"], "write 508 to 65535"),
        (&["--transport", "udp", "--mode", "generic"], "--transport raw-xdp"),
        (&["--faults", "loss=2"], "between 0 and 1"),
        (&["--faults", "rain=1%"], "unknown fault"),
    ] {
        let output = perf("latency", "127.0.0.1:1", options);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(words), "{options:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
    for metric in ["bandwidth", "rate", "overhead", "idle", "overlap"] {
        let output = perf(metric, "127.0.0.1:1", &["--transport", "raw-write"]);
        assert_eq!(output.status.code(), Some(2), "{metric}: {}", text(&output.stderr));
        let said = text(&output.stderr);
        assert!(
            said.contains("round trips only") && said.contains("--transport raw-xdp"),
            "{metric}: {said}"
        );
    }
    for (options, words) in [
        (["--in-place", "--transport=udp"], "--in-place has no effect with --transport udp"),
        (["--in-place", "--model=write"], "--model message"),
    ] {
        let output = perf("bandwidth", "127.0.0.1:1", &options);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(words), "{options:?}: {}", text(&output.stderr));
    }
    let output = perf("latency", "127.0.0.1:http", &[]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_version_has_the_commit() {
    let version = Command::new(TSUMUGI).arg("--version").output().expect("it runs");
    let said = text(&version.stdout);
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(words[..2], ["tsumugi", env!("CARGO_PKG_VERSION")], "{said}");
    let git = Command::new("git").args(["rev-parse", "--is-inside-work-tree"]).output();
    if git.is_ok_and(|git| git.status.success()) {
        let commit = words[2].trim_start_matches('(');
        let is_commit = commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_commit && words[3].len() == "2026-11-29)".len(), "{said}");
    } else {
        assert_eq!(words.len(), 2, "{said}");
    }
    let of_another = Command::new(env!("CARGO_BIN_EXE_tsumugi-mpiexec")).arg("--version").output();
    let of_another = text(&of_another.expect("it runs").stdout);
    assert_eq!(of_another.split_once(' ').map(|of| of.1), said.split_once(' ').map(|of| of.1));
}

#[test]
fn help_has_examples() {
    for arguments in [&["perf", "--help"][..], &["perf", "latency", "--help"], &["compare", "--help"]] {
        let output = Command::new(TSUMUGI).args(arguments).output().expect("it runs");
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("Examples:"), "{arguments:?}");
    }
}
