//! Tests and builds that need processors and nothing else, run beside those that wait for namespaces, time-outs and each other.

use crate::tally::Tally;
use std::fs::File;
use std::io::Result;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Instant;

/// The commands of this program that are run so, in this order.
const TESTS: [&str; 3] = ["loom", "miri", "defects"];
/// What CI builds in folders of its own, to see that it can be built.
const BUILDS: [&str; 2] = ["fuzz", "oldest"];

/// What they print and how they ended.
pub(crate) struct Beside(JoinHandle<Vec<Ended>>);

/// A command, and what it printed and whether it succeeded, or why it could not be run.
type Ended = (&'static str, Result<(String, bool)>);

impl Beside {
    /// Begins them, one after the other, and the builds if they are wanted. They get only what the others leave of the processors.
    pub(crate) fn start(builds: bool) -> Beside {
        let builds = if builds { &BUILDS[..] } else { &[] };
        let commands = [&TESTS, builds].concat();
        eprintln!("xtask: beside the tests, shown when they are done: {}", commands.join(", "));
        let all = move || commands.into_iter().map(|command| (command, run(command))).collect();
        Beside(std::thread::spawn(all))
    }

    /// Waits for them, shows what they printed, and adds it up.
    pub(crate) fn conclude(self, tally: &mut Tally) {
        let begun = Instant::now();
        for (command, outcome) in self.0.join().expect("no panic") {
            match outcome {
                Ok((printed, is_good)) => {
                    println!("xtask: {command}\n{printed}");
                    tally.add(command, &printed, is_good);
                }
                Err(error) => tally.spoil(&format!("{command}: {error}")),
            }
        }
        crate::tell_time(begun, "waiting", &["for what ran beside"]);
    }
}

/// Runs a command of this program's. What it printed, and whether it succeeded.
fn run(command: &str) -> Result<(String, bool)> {
    let folder = crate::root().join("target/beside");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(command);
    let file = File::create(&path)?;
    let mut child = Command::new("nice");
    child.args(["-n", "19"]).arg(std::env::current_exe()?).arg(command).current_dir(crate::root());
    let status = child.stdout(file.try_clone()?).stderr(file).status()?;
    let printed = std::fs::read(&path)?;
    Ok((String::from_utf8_lossy(&printed).into_owned(), status.success()))
}
