//! Instructions that the library takes for a message, both sides together, without sockets: what has become dearer is seen whatever
//! else the machine does. Valgrind counts them.

#[path = "../benches/conversation/mod.rs"]
mod conversation;
#[path = "../benches/tray/mod.rs"]
mod tray;

use conversation::Conversation;
use std::process::Command;

/// What was counted last, and with which compiler: another makes other instructions.
const RECORDED: &str = include_str!("instructions.txt");
/// How far a count may be from what is recorded, as a share. Less is to be recorded, too, or else it may be lost again unseen.
const TOLERANCE: f64 = 0.03;
/// Says, for a process of this test, how long the messages are and how many are exchanged.
const EXCHANGES: &str = "INSTRUCTIONS_OF_EXCHANGES";

/// Lengths, bytes, and exchanges that are counted.
const LENGTHS: [(usize, u64); 6] =
    [(8, 400), (64, 400), (1400, 400), (4 << 10, 200), (16 << 10, 100), (64 << 10, 50)];

#[test]
fn a_message_takes_as_many_instructions_as_recorded() {
    if let Ok(what) = std::env::var(EXCHANGES) {
        return exchange(&what);
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        assert!(!is_ci, "valgrind is not installed, and CI skips nothing");
        eprintln!("SKIPPED: a_message_takes_as_many_instructions_as_recorded: valgrind is not installed");
        return;
    }
    let compiler = Command::new("rustc").arg("--version").output().expect("the compiler that made this test");
    let compiler = String::from_utf8_lossy(&compiler.stdout).trim().to_owned();
    let counts = LENGTHS.map(|(bytes, count)| {
        // What comes before the first exchanges is in both.
        let [some, more] = [count, 2 * count].map(|count| instructions(bytes, count));
        (bytes, (more - some) / (2 * count))
    });
    let mut lines = RECORDED.lines().filter(|line| !line.starts_with('#'));
    let is_same = lines.next() == Some(&compiler);
    let recorded = lines.map(|line| {
        let (bytes, count) = line.split_once(' ').expect("two numbers");
        (bytes.parse().expect("bytes"), count.trim().parse().expect("instructions"))
    });
    let recorded: Vec<(usize, u64)> = recorded.collect();
    let differs = |((bytes, count), (of, before)): (&(usize, u64), &(usize, u64))| {
        bytes != of || (*count as f64 / *before as f64 - 1.0).abs() > TOLERANCE
    };
    let differ = recorded.len() != counts.len() || counts.iter().zip(&recorded).any(differs);
    let now: String = counts.iter().map(|(bytes, count)| format!("{bytes} {count}\n")).collect();
    let said = format!("now, for tests/instructions.txt:\n{compiler}\n{now}recorded:\n{RECORDED}");
    if is_same {
        assert!(!differ, "{said}");
    } else if differ {
        eprintln!("not compared, because of another compiler; {said}");
    }
}

/// Instructions of a process that exchanges so many messages.
fn instructions(bytes: usize, count: u64) -> u64 {
    let own = std::env::current_exe().expect("this program has a name");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(own);
    command.args(["--exact", "a_message_takes_as_many_instructions_as_recorded"]);
    let output = command.env(EXCHANGES, format!("{bytes} {count}")).output().expect("valgrind starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    collected.and_then(|(_, count)| count.trim().parse().ok()).unwrap_or_else(|| panic!("no count: {said}"))
}

fn exchange(what: &str) {
    let numbers: Vec<usize> = what.split(' ').map(|word| word.parse().expect("a number")).collect();
    let [bytes, count] = numbers[..] else { panic!("{what}") };
    let data = vec![3; bytes];
    let mut conversation = Conversation::begin();
    for _ in 0..count {
        conversation.exchange(&data);
    }
}
