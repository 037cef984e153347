//! The examples, as real processes that do what their headers say, each set of them in a network namespace of its own where
//! there are such, so that ports are those that a user sees.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tsumugi::snapshot::Snapshot;
use tsumugi_rail::status_page;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
/// Says that this is the copy in a namespace.
const INSIDE: &str = "TSUMUGI_TEST_INSIDE";
/// The programs for newcomers, and how long they may be.
const FOR_NEWCOMERS: [&str; 8] = [
    "hello",
    "request_reply",
    "pipeline",
    "token_ring",
    "shared_counter",
    "key_value",
    "upload",
    "tokio_client",
];
const LINES_MAX: usize = 60;

/// An example as cargo has built it beside this test.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples").join(name);
    let changed = |file: &Path| fs::metadata(file).and_then(|file| file.modified()).ok();
    let source = Path::new(SOURCES).join(name).with_extension("rs");
    assert!(
        changed(&program) >= changed(&source),
        "{name} is not built as it is now: run `cargo build --profile test -p tsumugi --examples`"
    );
    program
}

fn example(name: &str, arguments: &str) -> Command {
    let mut command = Command::new(built(name));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

/// An example that runs. Killed when dropped.
struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Running {
    fn start(name: &str, arguments: &str) -> Running {
        let mut child =
            example(name, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Running { child, lines }
    }

    /// The next line that it prints.
    fn hear(&mut self) -> String {
        self.lines.next().unwrap_or_else(|| panic!("it ended: {}", self.complaint())).unwrap()
    }

    /// Everything else that it prints, and its good end.
    fn finish(mut self) -> Vec<String> {
        let rest = self.lines.by_ref().collect::<Result<_, _>>().unwrap();
        assert!(self.child.wait().unwrap().success(), "{}", self.complaint());
        rest
    }

    /// The same of one that fails: what it says of that.
    fn fail(mut self) -> String {
        assert_eq!(self.child.wait().unwrap().code(), Some(1));
        self.complaint()
    }

    fn complaint(&mut self) -> String {
        let mut said = String::new();
        self.child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
        said
    }

    /// Waits until messages have come to it.
    fn until_it_receives(&self) {
        let patience = Instant::now() + Duration::from_secs(60);
        let receives = |mut page: status_page::Watched| {
            page.ask();
            let text = page.read().map(|reading| reading.text).unwrap_or_default();
            serde_json::from_slice::<Snapshot>(&text)
                .is_ok_and(|snapshot| snapshot.counters["messages_received"] > 0)
        };
        let its = |page: &status_page::Watched| page.process() == self.child.id();
        while !status_page::find().into_iter().filter(its).any(receives) {
            assert!(Instant::now() < patience, "nothing comes");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended; both are no harm then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether this is to be done here; otherwise a copy of this test has done it in a network namespace. Where there is none to be
/// had, it is done here, on the ports of the machine.
fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let script = "ip link set lo up && exec \"$0\" --exact \"$1\" --nocapture";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", script]).arg(std::env::current_exe().unwrap());
    match command.arg(test).env(INSIDE, "").output() {
        Ok(Output { stdout, stderr, status })
            if String::from_utf8_lossy(&stdout).contains("running 1 test") =>
        {
            let said = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
            assert!(status.success(), "{said}");
            false
        }
        other => {
            assert!(std::env::var_os("CI").is_none(), "CI needs user namespaces, unshare and ip: {other:?}");
            true
        }
    }
}

/// The lines of one that runs to its good end.
fn printed(name: &str, arguments: &str) -> Vec<String> {
    Running::start(name, arguments).finish()
}

#[test]
fn the_programs_for_newcomers_fit_a_screen() {
    for name in FOR_NEWCOMERS {
        let source = fs::read_to_string(Path::new(SOURCES).join(name).with_extension("rs")).unwrap();
        let lines = source.lines().count();
        assert!(lines <= LINES_MAX, "{name}: {lines} lines");
        assert!(source.starts_with("//! "), "{name} does not say what it shows");
    }
}

#[test]
fn the_readme_shows_programs_as_they_are() {
    let readme = fs::read_to_string(Path::new(SOURCES).join("../../../README.md")).unwrap();
    let mut blocks = readme.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let source = |name: &str| fs::read_to_string(Path::new(SOURCES).join(name)).unwrap();
    assert_eq!(blocks.next(), Some(source("hello.rs").as_str()), "README.md and examples/hello.rs differ");
    for block in blocks {
        assert!(source("request_reply.rs").contains(block), "not in examples/request_reply.rs:\n{block}");
    }
}

#[test]
fn two_copies_of_hello_greet_each_other() {
    if !is_inside("two_copies_of_hello_greet_each_other") {
        return;
    }
    let waiting = Running::start("hello", "");
    assert_eq!(printed("hello", "127.0.0.1"), ["peer 0: a strong everyday cloth"]);
    assert_eq!(waiting.finish(), ["peer 0: spun from plain yarn"]);
    let nobody = Running::start("hello", "no.such.host.invalid");
    assert!(nobody.fail().contains("UnknownHost"));
}

#[test]
fn a_server_answers_clients_that_come_and_go_and_are_killed() {
    if !is_inside("a_server_answers_clients_that_come_and_go_and_are_killed") {
        return;
    }
    let mut server = Running::start("request_reply", "");
    let others =
        [1, 2, 3].map(|number| Running::start("request_reply", &format!("127.0.0.1 client{number} 200")));
    let mut killed = Running::start("request_reply", "127.0.0.1 killed 1000000000");
    assert_eq!(killed.hear(), "KILLED 1");
    killed.kill();
    let tokio = Running::start("tokio_client", "127.0.0.1 tokio 200");
    for (number, other) in (1..).zip(others) {
        let expected: Vec<String> = (1..=200).map(|count| format!("CLIENT{number} {count}")).collect();
        assert_eq!(other.finish(), expected);
    }
    let expected: Vec<String> = (1..=200).map(|count| format!("TOKIO {count}")).collect();
    assert_eq!(tokio.finish(), expected);
    assert_eq!(printed("request_reply", "127.0.0.1 later"), ["LATER 1"]);
    // It comes when the client's host has been asked.
    let mut said = String::new();
    BufReader::new(server.child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("its process has ended"), "{said}");
}

/// Starts an example once for each of three hosts, the last first.
fn three(name: &str, argument: &str) -> [Running; 3] {
    let start = |place: usize| {
        let hosts = "127.0.0.1:7501 127.0.0.1:7502 127.0.0.1:7503";
        Running::start(name, &format!("{place} {argument} {hosts}"))
    };
    let (last, middle, first) = (start(2), start(1), start(0));
    [first, middle, last]
}

#[test]
fn data_pass_through_a_pipeline_and_its_end_is_told_when_one_of_it_dies() {
    if !is_inside("data_pass_through_a_pipeline_and_its_end_is_told_when_one_of_it_dies") {
        return;
    }
    let bytes: u64 = (50 << 20) + 17;
    let sum: u64 = (0..50).sum::<u64>() * (1 << 20) + 50 * 17;
    for (place, stage) in three("pipeline", &bytes.to_string()).into_iter().enumerate() {
        let said = stage.finish().concat();
        assert!(said.starts_with(&format!("place {place}: {bytes} B, their sum is {sum}, ")), "{said}");
    }
    let [first, middle, mut last] = three("pipeline", &(1u64 << 40).to_string());
    last.until_it_receives();
    last.kill();
    assert!(middle.fail().contains("is gone: its process has ended"));
    let said = first.fail();
    assert!(said.starts_with("pipeline: 127.0.0.1:7502 (peer 0, 127.0.0.1:7502) is gone: "), "{said}");
}

#[test]
fn a_token_goes_round() {
    if !is_inside("a_token_goes_round") {
        return;
    }
    let said = three("token_ring", "2").map(Running::finish);
    assert_eq!(
        said[0],
        ["round 1: token: 0 1 2, after 3 steps", "round 2: token: 0 1 2 0 1 2, after 6 steps"]
    );
    assert_eq!(said[1], ["round 1: token: 0, after 1 steps", "round 2: token: 0 1 2 0, after 4 steps"]);
    assert_eq!(said[2], ["round 1: token: 0 1, after 2 steps", "round 2: token: 0 1 2 0 1, after 5 steps"]);
}

#[test]
fn every_number_of_a_counter_is_drawn_once_though_a_client_is_killed() {
    if !is_inside("every_number_of_a_counter_is_drawn_once_though_a_client_is_killed") {
        return;
    }
    let mut keeper = Running::start("shared_counter", "");
    let mut killed = Running::start("shared_counter", "127.0.0.1 1000000000");
    let others = [0, 1].map(|_| Running::start("shared_counter", "127.0.0.1 500"));
    let mut drawn = vec![killed.hear()];
    killed.kill();
    drawn.extend(killed.lines.by_ref().map_while(Result::ok).filter(|line| !line.is_empty()));
    for other in others {
        let numbers = other.finish();
        assert_eq!(numbers.len(), 500);
        drawn.extend(numbers);
    }
    let count = drawn.len();
    let drawn: BTreeSet<u64> = drawn.iter().map(|number| number.parse().unwrap()).collect();
    assert_eq!(drawn.len(), count, "a number was drawn twice");
    // What the killed one had asked for when it died nobody has heard of.
    let next: u64 = printed("shared_counter", "127.0.0.1 1")[0].parse().unwrap();
    assert!(
        (count as u64..=count as u64 + 1).contains(&next),
        "{count} were heard of, and the next is {next}"
    );
    let said = keeper.hear();
    assert!(said.starts_with("at ") && said.contains("its process has ended"), "{said}");
}

#[test]
fn keys_have_the_values_that_were_set() {
    if !is_inside("keys_have_the_values_that_were_set") {
        return;
    }
    let _server = Running::start("key_value", "");
    for (arguments, expected) in [
        ("get warp", "(nothing)"),
        ("set warp lengthwise", "(nothing)"),
        ("set weft across", "(nothing)"),
        ("get warp", "lengthwise"),
        ("set warp along", "lengthwise"),
        ("get warp", "along"),
        ("get weft", "across"),
    ] {
        assert_eq!(printed("key_value", &format!("127.0.0.1 {arguments}")), [expected], "{arguments}");
    }
    let wrong = Running::start("key_value", "127.0.0.1 forget warp");
    assert!(wrong.fail().contains("say nothing to serve"));
}

#[test]
fn a_file_arrives_with_progress_shown() {
    if !is_inside("a_file_arrives_with_progress_shown") {
        return;
    }
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut server = Running::start("upload", &format!("into {}", there.path().display()));
    let send = |name: &str, data: &[u8]| {
        let file = here.path().join(name);
        fs::write(&file, data).unwrap();
        Running::start("upload", &format!("{} 127.0.0.1", file.display()))
    };
    let data: Vec<u8> = (0..3_000_001u32).map(|at| ((at * 31) >> 4) as u8).collect();
    let mut long = send("long", &data);
    let short = send("short", b"");
    assert_eq!(short.finish(), ["", "all 0 B have arrived"]);
    assert_eq!(
        long.lines.by_ref().collect::<Result<Vec<_>, _>>().unwrap(),
        ["", "all 3000001 B have arrived"]
    );
    let progress = long.complaint();
    assert!(progress.contains(" of 12 pieces have arrived"), "{progress}");
    long.finish();
    assert!(fs::read(there.path().join("long")).unwrap() == data);
    assert_eq!(fs::read(there.path().join("short")).unwrap(), b"");
    server.kill();
    assert_eq!(server.lines.by_ref().map_while(Result::ok).count(), 0, "closing in good order is no failure");
}

#[test]
fn the_other_examples_run() {
    if !is_inside("the_other_examples_run") {
        return;
    }
    let said = printed("stream", "");
    assert!(said.iter().any(|line| line.contains("client: the sum is Some(")), "{said:?}");
    assert_eq!(printed("collective", "3"), ["3 participants: 3.1415916536"]);
    let said = printed("event_loop", "50 loss=10%");
    assert!(said[0].starts_with("50 messages answered in "), "{said:?}");
    let mut page = Running::start("remote_write", "");
    assert!(page.hear().starts_with("'page' is exported"));
    assert_eq!(printed("remote_write", "127.0.0.1"), ["writers before this one: 0"]);
    assert_eq!(page.hear(), "peer 0 wrote: woven across the wire");
    assert_eq!(page.finish(), ["writers so far: 1"]);
}
