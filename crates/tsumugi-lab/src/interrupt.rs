//! Ctrl-C and its like: asked for now and then by whoever waits or measures, so that everything that was made is removed.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::process::Signal;

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on Ctrl-C, a terminal that hangs up and SIGTERM set a flag instead of killing the process, so that everything is
/// cleaned up. A process that was told to live on without its terminal (`nohup`) does.
pub fn watch_interrupts() -> io::Result<()> {
    if INTERRUPTED.get().is_some() {
        return Ok(());
    }
    let flag = Arc::clone(INTERRUPTED.get_or_init(Arc::default));
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        if signal != Signal::HUP || !is_ignored(signal) {
            signal_hook::flag::register(signal.as_raw(), Arc::clone(&flag))?;
        }
    }
    Ok(())
}

/// Whether whoever started us has a signal ignored. Whatever cannot be read says no.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

/// Whether Ctrl-C, SIGHUP or SIGTERM has arrived.
pub fn interrupted() -> bool {
    INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}
