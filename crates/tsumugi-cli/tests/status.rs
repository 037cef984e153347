//! `tsumugi status` and `tsumugi top` of processes that talk, over loopback: nobody need be root.

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const TSUMUGI: &str = env!("CARGO_BIN_EXE_tsumugi");
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("our own child");
    }
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(TSUMUGI);
    command.args(words).stdin(Stdio::null());
    command
}

/// A server and a client that exchange messages until they are ended.
fn pair() -> (Running, Running) {
    let serve =
        command(&["perf", "serve", "--port", "0"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut server = Running(serve.expect("it starts"));
    let mut line = String::new();
    BufReader::new(server.0.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    let port = line.split_once("port ").and_then(|(_, rest)| rest.split(' ').next()).expect("a port");
    let address = format!("127.0.0.1:{port}");
    let words = ["perf", "latency", &address, "--time", "600", "--timeout", "600", "--rounds", "1"];
    let client = command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    (server, Running(client.expect("it starts")))
}

fn run(words: &[&str]) -> Output {
    command(words).output().expect("it starts")
}

/// What `status --json` says of a process that exchanges messages.
fn of_process(process: &Running) -> Option<Value> {
    let output = run(&["status", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let processes = status["processes"].as_array().expect("a list").clone();
    processes.into_iter().find(|it| it["pid"] == process.0.id())
}

/// Asks until it is so.
fn eventually(process: &Running, is_so: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let found = of_process(process).unwrap_or_default();
        if is_so(&found) {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{found:#}");
    }
}

#[test]
fn processes_are_shown_with_what_they_do() {
    let (server, client) = pair();
    let talks = |it: &Value| it["endpoint"]["counters"]["messages_received"].as_u64() > Some(1000);
    let seen = eventually(&client, talks);
    eventually(&server, talks);
    assert!(
        seen["command"].as_str().is_some_and(|command| command.contains("perf latency 127.0.0.1:")),
        "{seen:#}"
    );
    assert_eq!(seen["endpoint"]["report"]["receive_path"], "socket");
    assert_eq!(seen["endpoint"]["peers"][0]["paths"][0]["is_usable"], true);
    // One that waits for a CPU answers late, and is taken for one that computes.
    eventually(&client, |it| ["calling", "asleep"].contains(&it["doing"].as_str().unwrap_or_default()));
    // One that is stopped is told from one that computes.
    client.signal(Signal::STOP);
    let stopped = eventually(&client, |it| it["doing"] == "stopped");
    assert!(
        stopped["limit"]
            .as_str()
            .is_some_and(|limit| limit.starts_with("nobody calls: the process is stopped"))
    );
    client.signal(Signal::CONT);
    eventually(&client, |it| it["doing"] != "stopped");
    let text = String::from_utf8(run(&["status"]).stdout).expect("text");
    let line = text.lines().find(|line| line.starts_with(&format!("{} ", client.0.id()))).expect("its line");
    assert!(line.contains("port ") && line.contains("receive path socket"), "{text}");
    let metrics = String::from_utf8(run(&["status", "--prometheus"]).stdout).expect("text");
    let sample = format!("tsumugi_peer_bytes_sent_total{{pid=\"{}\"", client.0.id());
    assert!(metrics.lines().any(|line| line.starts_with(&sample) && !line.ends_with(" 0")), "{metrics}");
    // Nothing is left of one that was killed.
    let pid = client.0.id();
    drop(client);
    let output = run(&["status", "--json"]);
    assert!(!String::from_utf8_lossy(&output.stdout).contains(&format!("\"pid\":{pid},")));
}

#[test]
fn who_watches_sees_rates() {
    let (server, client) = pair();
    let mut watch = command(&["status", "--watch", "0.2", "--json"]);
    let mut watch = Running(watch.stdout(Stdio::piped()).spawn().expect("it starts"));
    let lines = BufReader::new(watch.0.stdout.take().expect("a pipe")).lines();
    let start = Instant::now();
    for line in lines {
        let line: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        let processes = line["processes"].as_array().expect("a list");
        let of = |process: &Running| processes.iter().find(|it| it["pid"] == process.0.id());
        let talks = |it: &Value| {
            it["rates"]["messages_sent"].as_f64() > Some(1.0)
                && it["rates"]["peers"][0]["bytes_sent"].as_f64() > Some(1.0)
        };
        if of(&server).is_some_and(talks) && of(&client).is_some_and(talks) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{line:#}");
    }
    watch.signal(Signal::INT);
    assert_eq!(watch.0.wait().expect("our own child").code(), Some(0));
    let refused = run(&["status", "--watch", "-1"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// A terminal of 80 × 24: our side, and what a program has of it.
fn terminal() -> (File, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&ours).expect("ours");
    unlockpt(&ours).expect("ours");
    let name = ptsname(&ours, Vec::new()).expect("a name").into_string().expect("a path");
    tcsetwinsize(&ours, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).expect("a terminal");
    let theirs = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(name)
        .expect("its other side");
    (ours.into(), theirs.into())
}

/// What arrives, as it arrives.
fn chunks(mut from: File) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count) = from.read(&mut bytes) {
            if count == 0 || send.send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    receive
}

/// Waits for the end of a process, and not for ever. Returns its exit code.
fn ends(process: &mut Running) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = process.0.try_wait().expect("our own child") {
            return status.code();
        }
        assert!(start.elapsed() < PATIENCE, "it goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn top_draws_a_terminal_and_gives_it_back() {
    let (_server, client) = pair();
    for end in ["key", "signal", "hang-up"] {
        let (mut ours, theirs) = terminal();
        let stdio = || Stdio::from(theirs.try_clone().expect("a descriptor"));
        let top = command(&["top", "--every", "0.25"]).stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn();
        let mut top = Running(top.expect("it starts"));
        drop(theirs);
        let screen = chunks(ours.try_clone().expect("a descriptor"));
        let mut drawn = Vec::new();
        // The process, what it does, and what limits it.
        let pid = client.0.id().to_string();
        let wanted = ["PROGRAM", "Limit:", "Receive", &pid, "WINDOW"];
        let has_all = |drawn: &[u8]| {
            let text = String::from_utf8_lossy(drawn);
            wanted.iter().all(|word| text.contains(word))
        };
        while !has_all(&drawn) {
            drawn.extend(screen.recv_timeout(PATIENCE).unwrap_or_else(|error| {
                panic!("{error}: {}", String::from_utf8_lossy(&drawn));
            }));
        }
        match end {
            "key" => ours.write_all(b"q").expect("a key"),
            "signal" => top.signal(Signal::TERM),
            _ => {
                // Nobody is left to read what it says: it ends, whatever with.
                drop((ours, screen));
                ends(&mut top);
                continue;
            }
        }
        assert_eq!(ends(&mut top), Some(0), "by {end}");
        drop(ours);
        while let Ok(more) = screen.recv_timeout(PATIENCE) {
            drawn.extend(more);
        }
        let drawn = String::from_utf8_lossy(&drawn);
        assert!(
            drawn.contains("\x1b[?1049h") && drawn.contains("\x1b[?1049l"),
            "it leaves the screen as it was"
        );
    }
    let piped = run(&["top"]);
    assert_eq!(piped.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&piped.stderr).contains("tsumugi status --watch"));
}
