//! Lines on standard error: what a command has to say while it runs, and what the library logs.
//!
//! Where standard error is the systemd journal, lines have no time, which the journal knows, and begin with their priority
//! as sd-daemon(3) has it. Elsewhere lines of the log begin with time and level, and a command's own with its name.

use std::fmt;
use std::io::{self, Write as _};
use std::sync::OnceLock;
pub use tracing::Level;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tsumugi_lab::child;

/// The variable that says how much is logged, where no option does.
pub const VARIABLE: &str = "TSUMUGI_LOG";

/// How much is logged.
pub type Verbosity = LevelFilter;

/// Writes what the library logs to standard error, up to this level. Not asked for, only commands that serve tell whom, unless they
/// are parts of another command.
pub fn start(verbosity: Option<Verbosity>) {
    let own = if child::is_part() { LevelFilter::WARN } else { LevelFilter::INFO };
    let of_commands = || Targets::new().with_target(env!("CARGO_CRATE_NAME"), own);
    let wanted = verbosity.map_or_else(of_commands, |level| Targets::new().with_default(level));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(io::stderr)
        .log_internal_errors(false)
        .event_format(Line);
    tracing_subscriber::registry().with(wanted).with(lines).init();
}

/// Says something of the command's own, a line or several.
pub fn say(level: Level, text: impl fmt::Display) {
    let text = text.to_string();
    let mut lines = text.lines();
    let mut said = format!("{}tsumugi: {}\n", priority(level), lines.next().unwrap_or_default());
    lines.for_each(|line| said += &format!("{}{line}\n", priority(level)));
    // That nobody hears it is no reason to die.
    let _ = io::stderr().write_all(said.as_bytes());
}

/// One line for each event.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        if is_journal() {
            to.write_str(priority(level))?;
        } else {
            SystemTime.format_time(&mut to)?;
            write!(to, " {level:>5} ")?;
        }
        context.field_format().format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}

/// What a line of the journal begins with: syslog's priority. Elsewhere nothing.
fn priority(level: Level) -> &'static str {
    match level {
        _ if !is_journal() => "",
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

/// Whether standard error is the stream to the journal that systemd has started this process with (systemd.exec(5),
/// `JOURNAL_STREAM`): it may have been redirected since.
fn is_journal() -> bool {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    *IS_JOURNAL.get_or_init(|| {
        let (Ok(stream), Ok(stderr)) = (std::env::var("JOURNAL_STREAM"), rustix::fs::fstat(io::stderr()))
        else {
            return false;
        };
        stream == format!("{}:{}", stderr.st_dev, stderr.st_ino)
    })
}
