//! Proves that the simulation's checkers bite: the simulation is built with every defect of the protocol in it, each is
//! switched on in turn, and a seed must complain. `tsumugi-sim --defects` lists them.

use crate::built;
use crate::tally::Tally;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest run of one defect, many times what all seeds take. What takes longer hangs, and no checker has complained.
const RUN_TIME_MAX: Duration = Duration::from_secs(1800);

/// What is run: a defect, or a control.
#[derive(Debug)]
struct Trial {
    name: String,
    breaks: String,
    arguments: Vec<String>,
    is_control: bool,
}

/// What became of it.
enum Judgement {
    /// The number of the seed that complained, and what it said.
    Caught(u64, String),
    Survived,
    /// It could not be run.
    Failed(String),
}

/// Which defects are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which<'a> {
    All,
    /// All, and before them the controls: no defect, about which the simulation must not complain. The simulation's tests
    /// see to the same seeds.
    AllAndControls,
    /// The one called so.
    Only(&'a str),
}

/// Tries defects, and counts each that is caught as passed.
pub(crate) fn run(tally: &mut Tally, which: Which<'_>) {
    let begun = Instant::now();
    match attempt_which(&crate::root(), which) {
        Ok(rows) => {
            println!("| defect | what it breaks | seeds | complaint |\n|---|---|---:|---|");
            for (row, good) in rows {
                println!("{row}");
                tally.note(good);
            }
        }
        Err(error) => tally.spoil(&error),
    }
    crate::tell_time(begun, "xtask", &["defects"]);
}

fn attempt_which(root: &Path, which: Which<'_>) -> Result<Vec<(String, bool)>, String> {
    let program = build(root)?;
    let mut defects = list(&program)?;
    if let Which::Only(name) = which {
        defects.retain(|trial| trial.name == name);
    }
    if defects.is_empty() {
        return Err(format!("there is no such defect; `{} --defects` lists them", program.display()));
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut rows = Vec::new();
    if which == Which::AllAndControls {
        rows = attempt_all(&program, &controls(), 1, processors);
    }
    // Each on one processor, so that the seed that complains is always the first that can.
    rows.extend(attempt_all(&program, &defects, processors, 1));
    Ok(rows)
}

/// Builds the simulation with all defects as the tests' own is built, into a folder of its own.
fn build(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target/defects");
    let built = Command::new("cargo")
        .args(["build", "--profile", "test", "--quiet", "--package", "tsumugi-sim", "--features", "defects"])
        .current_dir(root)
        .envs(built::beside_the_tests(&folder))
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if built.success() {
        Ok(folder.join("debug/tsumugi-sim"))
    } else {
        Err("the simulation with defects does not build".to_owned())
    }
}

/// The defects that the simulation knows.
fn list(program: &Path) -> Result<Vec<Trial>, String> {
    let output = Command::new(program).arg("--defects").output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let named = text.lines().filter_map(|line| line.split_once(' '));
    let trials = named.map(|(name, breaks)| Trial {
        name: name.to_owned(),
        breaks: breaks.trim().to_owned(),
        arguments: vec!["--defect".to_owned(), name.to_owned()],
        is_control: false,
    });
    Ok(trials.collect())
}

fn controls() -> [Trial; 2] {
    [("none", None), ("none, all models", Some("--models"))].map(|(name, option)| Trial {
        name: name.to_owned(),
        breaks: "nothing: the control".to_owned(),
        arguments: option.into_iter().map(str::to_owned).collect(),
        is_control: true,
    })
}

/// Makes every trial, so many at once, each with so many threads. Returns rows of a table, in order, and whether each is
/// as it should be.
fn attempt_all(program: &Path, trials: &[Trial], at_once: usize, jobs: usize) -> Vec<(String, bool)> {
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(trial) = trials.get(index) else { break };
                    let row = attempt(program, trial, jobs);
                    rows.lock().expect("no thread panics with the lock").push((index, row));
                }
            });
        }
    });
    let mut rows = rows.into_inner().expect("no thread panics with the lock");
    rows.sort_by_key(|(index, _)| *index);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Makes one trial, and says how it went. Returns its row of the table, and whether it is as it should be.
fn attempt(program: &Path, trial: &Trial, jobs: usize) -> (String, bool) {
    let Trial { name, breaks, arguments, is_control } = trial;
    let began = Instant::now();
    let (seeds, text, good) = match simulate(program, arguments, jobs) {
        Judgement::Caught(seed, text) => ((seed + 1).to_string(), text, !is_control),
        Judgement::Survived => ("–".to_owned(), "none".to_owned(), *is_control),
        Judgement::Failed(text) => ("–".to_owned(), text, false),
    };
    let verdict = if good { "ok" } else { "NOT AS IT SHOULD BE" };
    eprintln!("{verdict:<8} {name:<26} {:>3} s  seeds {seeds}: {text}", began.elapsed().as_secs());
    (format!("| {name} | {breaks} | {seeds} | {} |", text.replace('|', "/")), good)
}

fn simulate(program: &Path, arguments: &[String], jobs: usize) -> Judgement {
    let child = Command::new(program)
        .args(["--jobs", &jobs.to_string()])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return Judgement::Failed(format!("cannot run {}: {error}", program.display())),
    };
    let Some(stdout) = child.stdout.take() else { return Judgement::Failed("no output".into()) };
    // In a thread: a full pipe would make the child wait for us while we wait for it.
    let reader = std::thread::spawn(move || std::io::read_to_string(stdout).unwrap_or_default());
    let ended = wait(&mut child);
    let text = reader.join().unwrap_or_default();
    let complaint = text.lines().rev().find_map(|line| line.strip_prefix("seed ")?.split_once(": "));
    match (ended, complaint) {
        (None, _) => Judgement::Failed(format!("the simulation still runs after {RUN_TIME_MAX:?}")),
        (Some(true), _) => Judgement::Survived,
        (Some(false), Some((seed, what))) => Judgement::Caught(seed.parse().unwrap_or(0), what.to_owned()),
        (Some(false), None) => Judgement::Failed("the simulation failed without a complaint".into()),
    }
}

/// Whether the child succeeded; `None` if it had to be ended.
fn wait(child: &mut Child) -> Option<bool> {
    let began = Instant::now();
    while began.elapsed() < RUN_TIME_MAX {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status.success());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}
