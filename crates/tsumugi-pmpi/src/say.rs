//! Lines on standard error, and the library's own log.

use std::fmt::Display;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The variable that says how much is told: `error`, `warn`, `info`, or `debug`, with the library's own lines.
const VARIABLE: &str = "TSUMUGI_COLLECTIVES_LOG";

/// How much is told.
fn level() -> log::LevelFilter {
    static LEVEL: OnceLock<log::LevelFilter> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let said = std::env::var(VARIABLE).ok().and_then(|text| text.trim().parse().ok());
        said.unwrap_or(log::LevelFilter::Warn)
    })
}

fn line(of: log::Level, text: impl Display) {
    if of <= level() {
        // At once: other ranks write lines, too.
        let line = format!("tsumugi: collectives: {text}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

pub(crate) fn error(text: impl Display) {
    line(log::Level::Error, text);
}

pub(crate) fn warn(text: impl Display) {
    line(log::Level::Warn, text);
}

/// A warning that a process gives once.
pub(crate) fn warn_once(text: impl Display) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        warn(text);
    }
}

pub(crate) fn info(text: impl Display) {
    line(log::Level::Info, text);
}

/// Lines of the library go the same way.
struct Log;

impl log::Log for Log {
    fn enabled(&self, of: &log::Metadata<'_>) -> bool {
        // What an endpoint does without is told where it is opened.
        let is_wanted = of.level() <= log::Level::Warn || level() >= log::LevelFilter::Debug;
        is_wanted && of.target() != "tsumugi::report"
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            line(record.level(), record.args());
        }
    }

    fn flush(&self) {}
}

/// Takes the library's lines.
pub(crate) fn listen() {
    if log::set_logger(&Log).is_ok() {
        log::set_max_level(level());
    }
}
