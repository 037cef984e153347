//! How long it takes a program to know what has become of a peer: the table of docs/networks.md, measured.
//!
//! ```text
//! sudo -E cargo run --release -p tsumugi --example evidence
//! ```
//!
//! As root, because it makes two hosts of network namespaces. Takes some four minutes, most of which it waits. Each row is
//! one trial on each receive path: the times are of the order that is to be expected, and no benchmark.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tsumugi::{Config, Endpoint, ReceiveChoice, ReceiveError, TicketStatus};
use tsumugi_lab::{Lab, LabGuard, Spec, Wire};
use tsumugi_rail::xdp::{self, Access, Pins, PoolOptions};

type Outcome<T> = Result<T, Box<dyn Error>>;

const PORT: u16 = 7411;
const HERE: &str = "10.77.0.1";
const THERE: &str = "10.77.0.2:7411";
/// How long processes are stopped and links are off.
const AWAY: Duration = Duration::from_secs(8);
/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is told of a peer that is not dead.
const GOES_ON: &str = "nothing: it goes on";
/// A pause between two deliveries that is worth a word.
const PAUSE: Duration = Duration::from_millis(500);

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => measure(),
        ["up"] => up(),
        ["receive", receive_path] => receive(receive_path),
        ["send", receive_path, peer, timeout_ms, habit] => {
            send(receive_path, peer, timeout_ms.parse()?, habit)
        }
        _ => Err("usage: evidence, without arguments".into()),
    }
}

// What the processes in the nodes do.

fn up() -> Outcome<()> {
    let options = PoolOptions {
        first_port: PORT,
        endpoints: 2,
        geometry: None,
        access: Access { owner: None, group: None, mode: 0o600 },
        mode: None,
        busy_poll: false,
    };
    xdp::up(&Pins::here()?, &["nic0".to_owned()], &options)?;
    println!("up");
    Ok(())
}

fn receive(receive_path: &str) -> Outcome<()> {
    let config = Config::default().port(PORT).receive(receive_path.parse()?);
    let endpoint = Endpoint::open(config)?;
    let channel = endpoint.channel(1)?;
    println!("ready");
    loop {
        // Peers come and go.
        let _ = channel.receive();
    }
}

/// Sends small messages one after the other, or one alone if its habit is to `wait`. Says when the first is delivered,
/// when one is after a pause, and what ends it.
fn send(receive_path: &str, peer: &str, timeout_ms: u64, habit: &str) -> Outcome<()> {
    let timeout = Duration::from_millis(timeout_ms);
    let receive_path: ReceiveChoice = receive_path.parse()?;
    let config = Config::default().receive(receive_path).peer_timeout(timeout).connect_timeout(timeout);
    let endpoint = Endpoint::open(config)?;
    let channel = endpoint.channel(1)?;
    let peer = endpoint.add_peer(peer)?;
    println!("begun");
    let mut ticket = channel.post(peer, b"small")?;
    let mut delivered: Option<Instant> = None;
    loop {
        match channel.receive_timeout(Duration::from_millis(1)) {
            Ok(_) | Err(ReceiveError::TimedOut(_)) => {}
            Err(ReceiveError::Peer(failure)) => {
                println!("gone {}", failure.reason);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        if endpoint.status(ticket) != TicketStatus::Delivered || habit == "wait" && delivered.is_some() {
            continue;
        }
        match delivered {
            None => println!("delivered"),
            Some(last) if last.elapsed() > PAUSE => println!("again"),
            Some(_) => {}
        }
        delivered = Some(Instant::now());
        if habit != "wait" {
            ticket = channel.post(peer, b"small")?;
        }
    }
}

/// A process in a node; it ends with this.
struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    fn start(lab: &LabGuard, node: usize, words: &[&str]) -> Outcome<Process> {
        let mut command = lab.command(node, std::env::current_exe()?)?;
        let mut child = command.args(words).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let (said, lines) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
        Ok(Process { child, lines })
    }

    /// Waits for a line that begins with `word`; returns the rest.
    fn hear(&self, word: &str) -> Outcome<String> {
        let line = self.lines.recv_timeout(PATIENCE).map_err(|_| format!("'{word}' does not come"))?;
        let rest = line.strip_prefix(word).ok_or_else(|| format!("'{line}' and not '{word}'"))?;
        Ok(rest.trim().to_owned())
    }

    /// Waits, for it to say nothing.
    fn be_quiet_for(&self, time: Duration) -> Outcome<()> {
        match self.lines.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            other => Err(format!("it should be quiet: {other:?}").into()),
        }
    }

    fn signal(&self, signal: &str) -> Outcome<()> {
        let done = Command::new("kill").args([signal, &self.child.id().to_string()]).status()?;
        done.success().then_some(()).ok_or_else(|| format!("kill {signal}: {done}").into())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// The measurement.

/// Two hosts, and the receive path of both.
struct Hosts {
    lab: LabGuard,
    receive_path: &'static str,
}

/// How long it took, and what the program was told.
type Row = (Duration, String);

impl Hosts {
    fn new(wire: Wire, receive_path: &'static str) -> Outcome<Hosts> {
        let lab = Lab::up(&Spec { wire: Some(wire), ..Spec::unique("evidence") })?.guarded();
        if receive_path == "xdp" {
            for node in [0, 1] {
                Process::start(&lab, node, &["up"])?.hear("up")?;
            }
        }
        Ok(Hosts { lab, receive_path })
    }

    fn shell(&self, node: usize, line: &str) -> Outcome<()> {
        let done = self.lab.command(node, "/bin/sh")?.args(["-c", line]).status()?;
        done.success().then_some(()).ok_or_else(|| format!("'{line}': {done}").into())
    }

    fn sender(&self, peer: &str, timeout_ms: &str, habit: &str) -> Outcome<Process> {
        Process::start(&self.lab, 0, &["send", self.receive_path, peer, timeout_ms, habit])
    }

    /// A sender and a receiver that know each other.
    fn pair(&self, timeout_ms: &str, habit: &str) -> Outcome<(Process, Process)> {
        let receiver = Process::start(&self.lab, 1, &["receive", self.receive_path])?;
        receiver.hear("ready")?;
        let sender = self.sender(THERE, timeout_ms, habit)?;
        sender.hear("begun")?;
        sender.hear("delivered")?;
        std::thread::sleep(PAUSE);
        Ok((sender, receiver))
    }

    fn never_answered(&self, peer: &str) -> Outcome<Row> {
        let sender = self.sender(peer, "3000", "go on")?;
        sender.hear("begun")?;
        until_gone(&sender)
    }

    fn killed(&self, habit: &str) -> Outcome<Row> {
        let (sender, mut receiver) = self.pair("180000", habit)?;
        receiver.child.kill()?;
        until_gone(&sender)
    }

    fn stopped(&self) -> Outcome<Row> {
        let (sender, receiver) = self.pair("3000", "go on")?;
        receiver.signal("-STOP")?;
        sender.be_quiet_for(AWAY)?;
        receiver.signal("-CONT")?;
        // With the program messages are acknowledged until the receive memory is full: it may not have paused at all.
        match until_again(&sender) {
            Err(_) if self.receive_path == "xdp" => Ok((Duration::ZERO, GOES_ON.to_owned())),
            outcome => outcome,
        }
    }

    /// Turns a node's NIC off, for good or for a while.
    fn off(&self, node: usize, timeout_ms: &str, for_good: bool) -> Outcome<Row> {
        let (sender, _receiver) = self.pair(timeout_ms, "go on")?;
        self.shell(node, "ip link set nic0 down")?;
        if for_good {
            let row = until_gone(&sender)?;
            self.shell(node, "ip link set nic0 up")?;
            return Ok(row);
        }
        sender.be_quiet_for(AWAY)?;
        self.shell(node, "ip link set nic0 up")?;
        until_again(&sender)
    }
}

fn until_gone(sender: &Process) -> Outcome<Row> {
    let begun = Instant::now();
    let why = sender.hear("gone")?;
    Ok((begun.elapsed(), why))
}

fn until_again(sender: &Process) -> Outcome<Row> {
    let begun = Instant::now();
    sender.hear("again")?;
    Ok((begun.elapsed(), GOES_ON.to_owned()))
}

type Trial = fn(&Hosts) -> Outcome<Row>;

const TRIALS: [(&str, Wire, Trial); 12] = [
    ("never answered: no route", Wire::Direct, |hosts| hosts.never_answered("192.0.2.1:7411")),
    ("never answered: prohibited here", Wire::Direct, |hosts| {
        hosts.shell(0, "ip route add prohibit 198.51.100.0/24")?;
        hosts.never_answered("198.51.100.1:7411")
    }),
    ("never answered: refused, `connect_timeout` 3 s", Wire::Direct, |hosts| hosts.never_answered(THERE)),
    ("never answered: no such host, 3 s", Wire::Direct, |hosts| hosts.never_answered("10.77.0.99:7411")),
    ("never answered: answers filtered, 3 s", Wire::Direct, |hosts| {
        hosts.shell(1, &format!("ip route add blackhole {HERE}/32"))?;
        hosts.never_answered(THERE)
    }),
    ("killed, messages under way: its port is closed", Wire::Direct, |hosts| hosts.killed("go on")),
    ("killed, all acknowledged: whoever waits to receive", Wire::Direct, |hosts| hosts.killed("wait")),
    ("stopped for 8 s, `peer_timeout` 3 s: after SIGCONT", Wire::Direct, Hosts::stopped),
    ("silent host, `peer_timeout` 3 s", Wire::Switch, |hosts| hosts.off(1, "3000", true)),
    ("link down here for 8 s, `peer_timeout` 3 s: after it is up", Wire::Direct, |hosts| {
        hosts.off(0, "3000", false)
    }),
    ("link down here for good, `peer_timeout` 1 s", Wire::Direct, |hosts| hosts.off(0, "1000", true)),
    ("switch away for 8 s, `peer_timeout` 180 s: after it is back", Wire::Switch, |hosts| {
        hosts.off(1, "180000", false)
    }),
];

fn measure() -> Outcome<()> {
    println!("| what happened | sockets | XDP | what the program is told |\n|---|---:|---:|---|");
    for (what, wire, trial) in TRIALS {
        let mut times = Vec::new();
        let mut told = String::new();
        for receive_path in ["socket", "xdp"] {
            // Hosts of its own, so that nothing is left of the trial before.
            let outcome = Hosts::new(wire, receive_path).and_then(|hosts| trial(&hosts));
            match outcome {
                Ok((took, why)) => {
                    times.push(format!("{:.3} s", took.as_secs_f64()));
                    told = why;
                }
                Err(error) => {
                    times.push("–".to_owned());
                    eprintln!("{what}, {receive_path}: {error}");
                }
            }
        }
        println!("| {what} | {} | {} | {told} |", times[0], times[1]);
    }
    Ok(())
}
