//! How long a measurement takes and how far it is, on standard error.

use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Shown;

/// What takes less is not announced.
const ANNOUNCED_MIN: Duration = Duration::from_secs(2);
/// How long it is from a line to the next at least, where there is no terminal to draw on.
const LINES_APART: Duration = Duration::from_secs(10);

/// How far a measurement is: drawn in one line of a terminal, or now and then a line of text. Nothing is left of the drawing
/// when this is dropped.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// When the last line was printed; nothing where none are.
    printed: Option<Mutex<Instant>>,
}

impl Progress {
    /// Says how long it is going to take and why, as in `3 sizes × 3 rounds × 0.5 s`, and begins with the first of so many steps.
    pub(crate) fn begin(shown: Shown, expected_s: f64, what: &str, steps: u64) -> Progress {
        let expected = Duration::try_from_secs_f64(expected_s).unwrap_or_default();
        if !shown.quiet && expected >= ANNOUNCED_MIN {
            eprintln!("{}: {what}", about(expected));
        }
        let template = "{msg:44} {wide_bar} {pos}/{len} {eta:>4}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let is_drawn = !shown.quiet && std::io::stderr().is_terminal();
        let target = if is_drawn { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let printed = (!shown.quiet && !is_drawn).then(|| Mutex::new(Instant::now()));
        Progress { bar: ProgressBar::with_draw_target(Some(steps), target).with_style(style), printed }
    }

    /// The next step begins.
    pub(crate) fn step(&self, what: impl Into<String>) {
        let what = what.into();
        if !self.bar.message().is_empty() {
            self.bar.inc(1);
        }
        if let Some(printed) = &self.printed {
            let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
            if printed.elapsed() >= LINES_APART {
                *printed = Instant::now();
                eprintln!("{}", line(self.bar.position(), self.bar.length().unwrap_or(0), &what));
            }
        }
        self.bar.set_message(what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A line of text.
fn line(done: u64, all: u64, what: &str) -> String {
    format!("{done} of {all} steps done; now {what}")
}

/// `about 9 s`, `about 3 min`.
fn about(expected: Duration) -> String {
    match expected.as_secs_f64() {
        seconds if seconds < 99.5 => format!("about {seconds:.0} s"),
        seconds => format!("about {:.0} min", (seconds / 60.0).max(2.0)),
    }
}

/// `3 rounds`, `1 size`.
pub(crate) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_as_people_do() {
        assert_eq!(about(Duration::from_secs_f64(8.7)), "about 9 s");
        assert_eq!(about(Duration::from_secs(99)), "about 99 s");
        assert_eq!(about(Duration::from_secs(100)), "about 2 min");
        assert_eq!(about(Duration::from_secs(600)), "about 10 min");
        assert_eq!((count(1, "size"), count(3, "round")), ("1 size".to_owned(), "3 rounds".to_owned()));
    }

    #[test]
    fn a_step_is_done_when_the_next_one_begins() {
        let progress = Progress::begin(Shown { quiet: true, ..Shown::default() }, 60.0, "nothing", 3);
        progress.step("one");
        assert_eq!(progress.bar.position(), 0);
        progress.step("two");
        progress.step("three");
        assert_eq!(progress.bar.position(), 2);
        assert_eq!(line(2, 3, "three"), "2 of 3 steps done; now three");
    }
}
