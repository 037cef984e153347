//! Proves that the simulation's checkers bite: faults are put into a copy of the project, one at a time, and the
//! simulation must complain. `sim/mutations.txt` lists them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Seeds that are run before a mutation counts as survived.
const SEEDS_MAX: u64 = 10_000;
/// The same, of clusters whose hosts use every programming model.
const MODEL_SEEDS_MAX: u64 = 2000;
/// Longest run of one mutation, several times what all seeds take on two processors. Who takes longer hangs, which is a
/// complaint of its own.
const RUN_TIME_MAX: Duration = Duration::from_secs(600);
/// What the simulation is built from.
const SOURCES: [&str; 5] = ["Cargo.toml", "Cargo.lock", "crates", "sim", "xtask"];
/// One place of a mutation.
#[derive(Debug, Default)]
struct Place {
    file: String,
    find: String,
    replace: String,
}

/// One mutation.
#[derive(Debug, Default)]
struct Mutation {
    name: String,
    breaks: String,
    /// To be found by the clusters whose hosts use every programming model.
    models: bool,
    /// A seed that shows it, where the usual ones do not.
    seed: Option<u64>,
    places: Vec<Place>,
}

/// What became of a mutation.
enum Outcome {
    /// The number of the seed that complained, and what it said.
    Caught(u64, String),
    Survived,
    /// It does not apply or does not build.
    Broken(String),
}

/// Which mutations are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which<'a> {
    /// All, and before them the controls: the copy without a mutation, about which the simulation must not complain.
    All,
    /// All, without controls: for who runs the simulation's tests, too, which have the same seeds.
    AllButControls,
    /// The one called so, and the controls.
    Only(&'a str),
}

/// Runs mutations. `false` when one survives, or a control does not.
pub(crate) fn run(root: &Path, which: Which<'_>) -> bool {
    let listed = match fs::read_to_string(root.join("sim/mutations.txt")) {
        Ok(text) => parse(&text),
        Err(error) => Err(format!("cannot be read: {error}")),
    };
    let mut mutations = match listed {
        Ok(mutations) => mutations,
        Err(error) => {
            eprintln!("sim/mutations.txt: {error}");
            return false;
        }
    };
    mutations.retain(|mutation| match which {
        Which::Only(name) => mutation.name == name,
        Which::All | Which::AllButControls => true,
    });
    if mutations.is_empty() {
        eprintln!("xtask: no such mutation; sim/mutations.txt lists them");
        return false;
    }
    let copy = root.join("target/mutations/copy");
    if let Err(error) = refresh(root, &copy) {
        eprintln!("xtask: cannot copy the project to {}: {error}", copy.display());
        return false;
    }
    let mut table = String::from("| mutation | what it breaks | seeds | complaint |\n|---|---|---:|---|\n");
    let mut all_caught = true;
    let controls = [("none", false), ("none, all models", true)].map(|(name, models)| Mutation {
        name: name.into(),
        breaks: "nothing: the control".into(),
        models,
        seed: None,
        places: Vec::new(),
    });
    let controls = if which == Which::AllButControls { &[][..] } else { &controls };
    for mutation in controls.iter().chain(&mutations) {
        let is_control = mutation.places.is_empty();
        let began = Instant::now();
        let outcome = attempt(&copy, mutation);
        let seconds = began.elapsed().as_secs();
        let (seeds, text, good) = match outcome {
            Outcome::Caught(seed, text) => ((seed + 1).to_string(), text, !is_control),
            Outcome::Survived => ("–".to_owned(), "none".to_owned(), is_control),
            Outcome::Broken(text) => ("–".to_owned(), format!("does not apply: {text}"), false),
        };
        all_caught &= good;
        let verdict = if good { "ok" } else { "NOT AS IT SHOULD BE" };
        eprintln!("{verdict:<8} {:<26} {seconds:>3} s  seeds {seeds}: {text}", mutation.name);
        let Mutation { name, breaks, .. } = mutation;
        let _ = writeln!(table, "| {name} | {breaks} | {seeds} | {} |", text.replace('|', "/"));
    }
    println!("{table}");
    all_caught
}

fn parse(text: &str) -> Result<Vec<Mutation>, String> {
    enum At {
        Breaks,
        Find,
        Replace,
        Nothing,
    }
    let (mut mutations, mut at) = (Vec::<Mutation>::new(), At::Nothing);
    for (index, line) in text.lines().enumerate() {
        let head = [("== ", false), ("=* ", true)]
            .into_iter()
            .find_map(|(mark, models)| Some((line.strip_prefix(mark)?, models)));
        if let Some((name, models)) = head {
            let (name, seed) = match name.split_once(' ') {
                Some((name, seed)) => {
                    let seed =
                        seed.parse().map_err(|_| format!("line {}: '{seed}' is no seed", index + 1))?;
                    (name, Some(seed))
                }
                None => (name, None),
            };
            mutations.push(Mutation { name: name.to_owned(), models, seed, ..Mutation::default() });
            at = At::Breaks;
            continue;
        }
        let Some(mutation) = mutations.last_mut() else { continue };
        if let Some(file) = line.strip_prefix("-- ") {
            mutation.places.push(Place { file: file.to_owned(), ..Place::default() });
            at = At::Find;
            continue;
        }
        match (&at, mutation.places.last_mut()) {
            (At::Breaks, _) => {
                mutation.breaks = line.to_owned();
                at = At::Nothing;
            }
            (At::Find, Some(_)) if line == "++" => at = At::Replace,
            (At::Find, Some(place)) => place.find += &format!("{line}\n"),
            (At::Replace, Some(place)) => place.replace += &format!("{line}\n"),
            _ if line.is_empty() => {}
            _ => return Err(format!("line {}: '{line}' belongs to nothing", index + 1)),
        }
    }
    // The line end of the last line is not part of the text, nor is the empty line before the next mutation.
    for place in mutations.iter_mut().flat_map(|mutation| &mut mutation.places) {
        place.find.truncate(place.find.trim_end_matches('\n').len());
        place.replace.truncate(place.replace.trim_end_matches('\n').len());
    }
    Ok(mutations)
}

/// Makes `copy` equal to the project. Files that are equal are left alone, so that nothing is built again for them.
fn refresh(root: &Path, copy: &Path) -> std::io::Result<()> {
    fs::create_dir_all(copy)?;
    for source in SOURCES {
        refresh_one(&root.join(source), &copy.join(source))?;
    }
    Ok(())
}

fn refresh_one(from: &Path, to: &Path) -> std::io::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            if name != "target" {
                refresh_one(&from.join(&name), &to.join(&name))?;
            }
        }
        return Ok(());
    }
    let new = fs::read(from)?;
    if fs::read(to).ok().as_ref() != Some(&new) {
        fs::write(to, new)?;
    }
    Ok(())
}

/// Applies a mutation to the copy, builds, runs, and takes it back.
fn attempt(copy: &Path, mutation: &Mutation) -> Outcome {
    let mut originals: Vec<(PathBuf, String)> = Vec::new();
    let applied = mutation.places.iter().try_for_each(|place| {
        let path = copy.join(&place.file);
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", place.file))?;
        let count = text.matches(&place.find).count();
        if count != 1 {
            return Err(format!("{}: the text occurs {count} times: {}", place.file, place.find.trim()));
        }
        let changed = text.replacen(&place.find, &place.replace, 1);
        originals.push((path.clone(), text));
        fs::write(&path, changed).map_err(|error| format!("{}: {error}", place.file))
    });
    let outcome = match applied.and_then(|()| build(copy)) {
        Ok(program) => simulate(&program, mutation),
        Err(error) => Outcome::Broken(error),
    };
    // In reverse: one file may have been changed in two places.
    for (path, text) in originals.into_iter().rev() {
        if let Err(error) = fs::write(&path, text) {
            return Outcome::Broken(format!("cannot be taken back: {}: {error}", path.display()));
        }
    }
    outcome
}

fn build(copy: &Path) -> Result<PathBuf, String> {
    let target = copy.with_file_name("target");
    let output = Command::new("cargo")
        .args(["build", "--release", "--quiet", "--package", "tsumugi-sim"])
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", &target)
        // Quick to build; the simulation is quick enough.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "2")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .env("CARGO_PROFILE_RELEASE_INCREMENTAL", "true")
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("it does not build: {}", text.lines().take(12).collect::<Vec<_>>().join("\n")));
    }
    Ok(target.join("release/tsumugi-sim"))
}

fn simulate(program: &Path, mutation: &Mutation) -> Outcome {
    let seeds = match mutation.seed {
        Some(seed) => seed..seed + 1,
        None if mutation.models => 0..MODEL_SEEDS_MAX,
        None => 0..SEEDS_MAX,
    };
    let child = Command::new(program)
        .args(["--seeds", &format!("{}..{}", seeds.start, seeds.end)])
        .args(mutation.models.then_some("--models"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return Outcome::Broken(format!("{}: {error}", program.display())),
    };
    let Some(stdout) = child.stdout.take() else { return Outcome::Broken("no output".into()) };
    // In a thread: a full pipe would make the child wait for us while we wait for it.
    let reader = std::thread::spawn(move || std::io::read_to_string(stdout).unwrap_or_default());
    let ended = wait(&mut child);
    let text = reader.join().unwrap_or_default();
    let complaint = text.lines().rev().find_map(|line| line.strip_prefix("seed ")?.split_once(": "));
    match (ended, complaint) {
        (None, _) => Outcome::Caught(0, "the simulation hangs".into()),
        (Some(true), _) => Outcome::Survived,
        (Some(false), Some((seed, what))) => Outcome::Caught(seed.parse().unwrap_or(0), what.to_owned()),
        (Some(false), None) => Outcome::Broken("the simulation failed without a complaint".into()),
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
