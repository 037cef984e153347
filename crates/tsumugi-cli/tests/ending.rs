//! How commands end that are told to, or whose output nobody takes.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tsumugi_lab::testing::as_root;

const TSUMUGI: &str = env!("CARGO_BIN_EXE_tsumugi");
/// A command ends within this after a signal: on a machine that is busy with other tests.
const AT_ONCE: Duration = Duration::from_secs(5);
/// Held for writing while only one test may start commands: every command removes the labs of those that were killed.
static COMMANDS: RwLock<()> = RwLock::new(());

fn start(arguments: &[&str], stdout: Stdio) -> Child {
    let mut command = Command::new(TSUMUGI);
    command.args(arguments).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

fn signal(process: &Child, signal: Signal) {
    kill_process(Pid::from_child(process), signal).expect("our own child");
}

/// Waits for its end, which comes soon.
fn wait_for(process: &mut Child, what: &str) -> ExitStatus {
    let told = Instant::now();
    loop {
        if let Some(status) = process.try_wait().expect("our own child") {
            return status;
        }
        if told.elapsed() > AT_ONCE {
            let _ = process.kill();
            panic!("{what} goes on after {:?}", told.elapsed());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn end(mut process: Child, what: &str) -> Output {
    wait_for(&mut process, what);
    process.wait_with_output().expect("it has ended")
}

/// A server, and its address.
fn serve() -> (Child, String) {
    let mut server = start(&["perf", "serve", "--port", "0"], Stdio::piped());
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    let port = line.split_once("port ").and_then(|(_, rest)| rest.split(' ').next()).expect("a port");
    (server, format!("127.0.0.1:{port}"))
}

/// Waits until a process has used so much processor time: it is in the midst of its measurement.
fn wait_until_busy(process: &Child) {
    let ticks = || -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).ok()?;
        let mut times = stat.rsplit_once(')')?.1.split_whitespace().skip(11).map(str::parse::<u64>);
        Some(times.next()?.ok()? + times.next()?.ok()?)
    };
    let start = Instant::now();
    while ticks().is_some_and(|ticks| ticks < 20) && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn labs_of(process: u32) -> Vec<String> {
    let made_by = |name: &String| name.contains(&format!("-{process}-"));
    tsumugi_lab::Lab::list().into_iter().filter(made_by).collect()
}

#[test]
fn measurements_and_servers_end_at_once() {
    let _beside_others = COMMANDS.read().unwrap_or_else(PoisonError::into_inner);
    let transports = ["tsumugi", "tcp-spin", "tcp-block", "udp"];
    let mut cases: Vec<Vec<&str>> = Vec::new();
    for transport in transports {
        for metric in ["latency", "overhead", "overlap", "bandwidth"] {
            // A datagram of its usual size would be too long.
            let size: &[&str] = if metric == "overlap" { &["--size", "4K"] } else { &[] };
            cases.push([&[metric, "--transport", transport][..], size].concat());
        }
    }
    cases.extend(
        ["write", "message", "active-message", "stream"].map(|model| vec!["latency", "--model", model]),
    );
    cases.push(vec!["models"]);
    for (number, case) in cases.iter().enumerate() {
        let (server, address) = serve();
        let mut arguments = vec!["perf", case[0], &address, "--time", "60", "--timeout", "60"];
        arguments.extend(&case[1..]);
        let mut client = start(&arguments, Stdio::piped());
        wait_until_busy(&client);
        let how = [Signal::INT, Signal::TERM, Signal::HUP][number % 3];
        // Each is the first to be told in turn; the other notices that it has gone.
        if number % 2 == 0 {
            signal(&client, how);
            let status = wait_for(&mut client, &format!("the client of {case:?}"));
            assert_eq!(status.code(), Some(130), "{case:?}");
            signal(&server, how);
        } else {
            signal(&server, how);
            wait_for(&mut client, &format!("the client of {case:?}, whose server has gone,"));
        }
        let server = end(server, &format!("the server of {case:?}"));
        assert_eq!(server.status.code(), Some(130), "{case:?}: {}", text(&server.stderr));
    }
}

#[test]
fn a_terminal_that_hangs_up_leaves_no_lab() {
    let _beside_others = COMMANDS.read().unwrap_or_else(PoisonError::into_inner);
    let test = "a_terminal_that_hangs_up_leaves_no_lab";
    let Some(_watched) = as_root(test, None) else { return };
    for arguments in [
        &["perf", "all-to-all", "--time", "60"][..],
        &["compare", "--rounds", "100", "--transports", "tcp-block", "--json"],
    ] {
        let process = start(arguments, Stdio::null());
        let id = process.id();
        let begun = Instant::now();
        while labs_of(id).is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(60), "no lab of {arguments:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        // In the midst of making it, or soon after.
        std::thread::sleep(Duration::from_millis(300));
        signal(&process, Signal::HUP);
        let output = process.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(130), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(labs_of(id), Vec::<String>::new());
    }
}

#[test]
fn the_next_command_removes_the_labs_of_one_that_was_killed() {
    let _alone = COMMANDS.write().unwrap_or_else(PoisonError::into_inner);
    let test = "the_next_command_removes_the_labs_of_one_that_was_killed";
    let Some(_watched) = as_root(test, None) else { return };
    // What others have made on purpose stays.
    let kept = format!("kept-{}", std::process::id());
    let lab = tsumugi_lab::Lab::up(&tsumugi_lab::Spec::new(&kept)).expect("a lab").guarded();
    let own = tsumugi_lab::Lab::up(&tsumugi_lab::Spec::unique("own")).expect("a lab").guarded();
    let mut process = start(&["perf", "all-to-all", "--time", "60"], Stdio::null());
    let id = process.id();
    while labs_of(id).is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    process.kill().expect("our own child");
    process.wait().expect("it ends");
    let left = labs_of(id);
    assert!(!left.is_empty(), "it was killed before it could");
    let output = start(&["lab", "status"], Stdio::piped()).wait_with_output().expect("it ends");
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && left.iter().all(|lab| told.contains(lab)), "{told}");
    assert_eq!(labs_of(id), Vec::<String>::new());
    assert!(said.contains(lab.name()) && said.contains(own.name()), "{said}");
}

#[test]
fn output_that_nobody_takes_is_an_error_and_no_panic() {
    let _beside_others = COMMANDS.read().unwrap_or_else(PoisonError::into_inner);
    let (server, address) = serve();
    let measure = ["perf", "latency", &address, "--time", "0.02", "--rounds", "1", "--timeout", "60"];
    for arguments in [
        &["doctor"][..],
        &["doctor", "--json"],
        &["doctor", "--paths", "127.0.0.1:9"],
        &["status"],
        &["lab", "status"],
        &["lab", "status", "--json"],
        &measure,
    ] {
        let full = std::fs::File::create("/dev/full").expect("it is there");
        let output = start(arguments, full.into()).wait_with_output().expect("it ends");
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {told}");
        assert!(told.contains("standard output") && told.contains("No space"), "{arguments:?}: {told}");

        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = start(arguments, OwnedFd::from(writer).into()).wait_with_output().expect("it ends");
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {told}");
        assert!(!told.contains("panicked") && !told.contains("pipe"), "{arguments:?}: {told}");
    }
    // Standard error, too.
    let full = std::fs::File::create("/dev/full").expect("it is there");
    let mut command = Command::new(TSUMUGI);
    let status = command.args(["lab", "exec", "--name", "none", "n0", "--", "true"]).stderr(full).status();
    assert_eq!(status.expect("it runs").code(), Some(1));
    signal(&server, Signal::INT);
    end(server, "the server");
}

fn text(bytes: &[u8]) -> String {
    let mut text = String::new();
    let _ = { bytes }.read_to_string(&mut text);
    text
}
