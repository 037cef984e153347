//! A port that is taken may be free in a moment: a process that was killed still has it until its end is complete, and a
//! process that is being started has what its parent has closed until it runs a program of its own.

use std::time::{Duration, Instant};

/// How long a port is waited for.
const WAIT: Duration = Duration::from_millis(200);
/// How often it is tried.
const TRY_INTERVAL: Duration = Duration::from_millis(2);

/// Tries to take a port, as long as it is taken and may be free in a moment.
///
/// # Errors
/// The last attempt's.
pub fn when_free<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    is_taken: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_taken(&error) && begun.elapsed() < WAIT => std::thread::sleep(TRY_INTERVAL),
            outcome => return outcome,
        }
    }
}
