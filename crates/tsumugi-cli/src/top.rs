//! `tsumugi top`: what processes with endpoints are doing, on a screen that refreshes.

mod keys;
mod screen;

use crate::status::own_last;
use crate::status::processes::Watcher;
use clap::Args;
use screen::Screen;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tsumugi_lab::interrupt::{interrupted, watch_interrupts};

/// How often the screen is refreshed.
const EVERY_MIN: Duration = Duration::from_millis(250);
const EVERY_MAX: Duration = Duration::from_secs(60);
/// How long one waits for a key before asking for signals.
const KEY_TIME: Duration = Duration::from_millis(100);

/// What to show.
#[derive(Args)]
#[command(after_help = "\
Your own processes, and as root everybody's, with endpoints of either receive path. The chosen one is shown with its peers and \
paths. `tsumugi status --help` explains every word. A process that is watched writes a page of text once for each refresh, \
which costs it some 10 µs, and 150 µs with 64 peers.

Keys: up and down choose, s sorts by another column, space halts, + and - refresh sooner and later, q ends.

Examples:
  tsumugi top
  sudo tsumugi top --every 0.5
  tsumugi status --watch            the same as text, for a file or a pipe")]
pub(crate) struct TopArguments {
    /// Seconds between two refreshes.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = every)]
    every: Duration,
}

fn every(text: &str) -> Result<Duration, String> {
    let (least, most) = (EVERY_MIN.as_secs_f64(), EVERY_MAX.as_secs_f64());
    match text.parse::<f64>() {
        Ok(seconds) if (least..=most).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("`{text}` is not a number of seconds from {least} to {most}")),
    }
}

/// There is nothing to draw on.
#[derive(Debug, thiserror::Error)]
#[error("standard output is no terminal; `tsumugi status --watch` writes the same as text")]
struct NoTerminal;

pub(crate) fn run(options: &TopArguments) -> tsumugi_measure::CommandResult {
    if !io::stdout().is_terminal() {
        return Err(NoTerminal.into());
    }
    watch_interrupts()?;
    let mut terminal = ratatui::try_init()?;
    let outcome = show(&mut terminal, options.every);
    ratatui::restore();
    outcome?;
    Ok(ExitCode::SUCCESS)
}

fn show(terminal: &mut ratatui::DefaultTerminal, every: Duration) -> io::Result<()> {
    let mut watcher = Watcher::new();
    let mut screen = Screen::new(every);
    let mut looked_at: Option<Instant> = None;
    while !interrupted() && !screen.is_over() {
        // The second look follows soon, because the first one has no rates.
        let pause = if screen.has_rates() { screen.every() } else { EVERY_MIN };
        if !screen.is_halted() && looked_at.is_none_or(|at| at.elapsed() >= pause) {
            looked_at = Some(Instant::now());
            screen.show(own_last(watcher.look()));
        }
        terminal.draw(|frame| screen.draw(frame))?;
        let until_look = looked_at.map_or(Duration::ZERO, |at| pause.saturating_sub(at.elapsed()));
        for key in keys::typed(until_look.min(KEY_TIME))? {
            screen.key(key);
        }
    }
    Ok(())
}
