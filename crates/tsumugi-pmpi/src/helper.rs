//! A thread that makes progress now and then while the program is elsewhere.
//!
//! A process whose part in an operation is done may still be needed: what it has sent is lost and has to be sent again, or a switch box was
//! restarted and others ask what came of it. And what was started without waiting goes on, though the program waits for a message by
//! the MPI. The thread sleeps between looks, and calls nothing of the MPI's: how many threads may do so is the program's choice.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long it sleeps while there is something to do, and else.
const BUSY: Duration = Duration::from_millis(1);
const IDLE: Duration = Duration::from_millis(20);

/// The thread, as long as this lives.
pub(crate) struct Helper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_over: bool,
    is_hurried: bool,
    /// It sleeps for long.
    is_idle: bool,
}

impl Helper {
    /// Begins to call `look`, which makes progress and says whether there is more to do soon; `None`: somebody else does. `None` of this:
    /// the system has no thread for it, and progress is made by calls alone.
    pub(crate) fn start(look: fn() -> Option<bool>) -> Option<Helper> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("tsumugi-pmpi".to_owned());
        match builder.spawn(move || of_thread.run(look)) {
            Ok(thread) => Some(Helper { shared, thread: Some(thread) }),
            Err(error) => {
                crate::say::warn(format_args!("no thread for progress: {error}; see `ulimit -u`"));
                None
            }
        }
    }

    /// There is something to do.
    pub(crate) fn hurry(&self) {
        let mut state = self.shared.lock();
        if state.is_idle && !state.is_hurried {
            state.is_hurried = true;
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, look: fn() -> Option<bool>) {
        let mut is_busy = true;
        loop {
            let mut state = self.lock();
            state.is_idle = !is_busy;
            let time = if is_busy { BUSY } else { IDLE };
            if !state.is_over && !state.is_hurried {
                state = self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0;
            }
            (state.is_idle, state.is_hurried) = (false, false);
            if state.is_over {
                return;
            }
            drop(state);
            is_busy = look().unwrap_or(is_busy);
        }
    }
}
