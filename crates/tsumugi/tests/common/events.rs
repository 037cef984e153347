//! What a program's log shows.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::Once;
use tracing_subscriber::filter::LevelFilter;

thread_local! {
    /// What this thread has logged.
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Writes to the log of the thread that writes. A subscriber of one thread alone would not do: what another thread came upon
/// first, without one, may be switched off for all.
struct OwnLog;

impl Write for OwnLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that this thread logs while it does some work.
pub(crate) fn logged(work: impl FnOnce()) -> Vec<String> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let log =
            tracing_subscriber::fmt().with_max_level(LevelFilter::DEBUG).with_ansi(false).without_time();
        log.with_writer(|| OwnLog).init();
    });
    LOG.take();
    work();
    let text = String::from_utf8(LOG.take()).unwrap();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

/// How many lines have all these words.
pub(crate) fn count(lines: &[String], words: &[&str]) -> usize {
    lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
}
