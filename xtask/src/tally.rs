//! Runs the tests of several cargo calls and sums up what they say, so that the output ends with one line
//! for all.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What the runs so far came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    /// What did not end well.
    broken: Vec<String>,
}

impl Tally {
    /// Runs `cargo` with these arguments, shows what it prints, and counts.
    pub(crate) fn run(&mut self, arguments: &[&str], environment: &[(&str, &str)]) {
        let status = self.status("cargo", arguments, environment);
        if status != Some(0) {
            self.spoil(&format!("cargo {}", arguments.join(" ")));
        }
    }

    /// The same with any program. Its exit status; `None`: it did not run to its end.
    pub(crate) fn status(
        &mut self,
        program: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Option<i32> {
        let settings: String = environment.iter().map(|(name, value)| format!("{name}='{value}' ")).collect();
        eprintln!("+ {settings}{program} {}", arguments.join(" "));
        let begun = Instant::now();
        let mut command = Command::new(program);
        command.args(arguments).envs(environment.iter().copied()).current_dir(crate::root());
        let mut child = match command.stdout(Stdio::piped()).spawn() {
            Ok(child) => child,
            Err(error) => {
                eprintln!("xtask: cannot run '{program}': {error}");
                return None;
            }
        };
        if let Some(output) = child.stdout.take() {
            let mut shown = std::io::stdout().lock();
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                self.count(&String::from_utf8_lossy(&line));
                // Nobody may be listening; the tests go on all the same.
                let _ = shown.write_all(&line).and_then(|()| shown.write_all(b"\n"));
            }
        }
        let status = child.wait().ok().and_then(|status| status.code());
        crate::tell_time(begun, program, arguments);
        status
    }

    /// Runs a program several times at once, with a name and arguments each. Every line that it prints begins with the name.
    /// The exit statuses, as of [`Tally::status`].
    pub(crate) fn statuses(&mut self, program: &str, runs: &[(&str, Vec<&str>)]) -> Vec<Option<i32>> {
        let (lines, printed) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let running: Vec<_> = runs
                .iter()
                .map(|(name, arguments)| {
                    let lines = lines.clone();
                    scope.spawn(move || {
                        eprintln!("+ {program} {}", arguments.join(" "));
                        let mut command = Command::new(program);
                        command.args(arguments).current_dir(crate::root()).stdout(Stdio::piped());
                        let started = command.spawn();
                        let started =
                            started.map_err(|error| eprintln!("xtask: cannot run '{program}': {error}"));
                        let mut child = started.ok()?;
                        for line in BufReader::new(child.stdout.take()?).split(b'\n').map_while(Result::ok) {
                            let _ = lines.send((*name, line));
                        }
                        child.wait().ok().and_then(|status| status.code())
                    })
                })
                .collect();
            drop(lines);
            for (name, line) in printed {
                let line = String::from_utf8_lossy(&line);
                self.count(&line);
                // Nobody may be listening; the tests go on all the same.
                let _ = writeln!(std::io::stdout(), "{name}: {line}");
            }
            running.into_iter().map(|run| run.join().ok().flatten()).collect()
        })
    }

    /// Takes a run of this program's into account that had a tally of its own: what it printed, and whether it succeeded.
    pub(crate) fn add(&mut self, name: &str, printed: &str, is_good: bool) {
        let counted = printed.lines().rev().find_map(concluded);
        let (passed, failed) = counted.unwrap_or_default();
        self.passed += passed;
        self.failed += failed;
        if !is_good || counted.is_none() {
            self.spoil(name);
        }
    }

    /// Something that no test runner counts was as it should be, or was not.
    pub(crate) fn note(&mut self, is_good: bool) {
        *(if is_good { &mut self.passed } else { &mut self.failed }) += 1;
    }

    /// This went wrong, whatever its tests say.
    pub(crate) fn spoil(&mut self, what: &str) {
        self.broken.push(what.to_owned());
    }

    /// Takes a line of a test runner into account: `test result: ok. 3 passed; 0 failed; …`.
    fn count(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        for part in result.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let number = words.next().and_then(|word| word.parse::<u64>().ok());
            match (number, words.next()) {
                (Some(number), Some("passed")) => self.passed += number,
                (Some(number), Some("failed")) => self.failed += number,
                _ => {}
            }
        }
    }

    /// Prints the sum, last of all, and says whether everything passed.
    pub(crate) fn conclude(&self) -> bool {
        for what in &self.broken {
            eprintln!("xtask: FAILED: {what}");
        }
        println!("{} passed, {} failed", self.passed, self.failed);
        self.broken.is_empty() && self.failed == 0
    }
}

/// The numbers in a line with which a tally ends: `3 passed, 0 failed`.
fn concluded(line: &str) -> Option<(u64, u64)> {
    let (passed, failed) = line.strip_suffix(" failed")?.split_once(" passed, ")?;
    Some((passed.parse().ok()?, failed.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_a_tally_of_its_own_is_added() {
        let mut tally = Tally::default();
        tally.add("loom", "test result: ok. 3 passed; 0 failed\n3 passed, 0 failed\nxtask: took 3 s\n", true);
        assert_eq!(tally, Tally { passed: 3, failed: 0, broken: Vec::new() });
        tally.add("miri", "it does not build\n", true);
        tally.add("defects", "70 passed, 2 failed\n", false);
        assert_eq!(tally, Tally { passed: 73, failed: 2, broken: vec!["miri".into(), "defects".into()] });
    }

    #[test]
    fn results_are_summed_and_other_lines_are_not() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.20s",
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 4 filtered out; finished in 1.00s",
            "12 passed; 5 failed",
        ] {
            tally.count(line);
        }
        assert_eq!(tally, Tally { passed: 13, failed: 2, broken: Vec::new() });
    }
}
