//! What the program that has an endpoint is doing.

use serde::Serialize;
use tsumugi_rail::status_page::Reading;

/// What the program that has an endpoint is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Doing {
    /// It calls the library, and so makes progress.
    Calling,
    /// It sleeps in a call until something arrives.
    Asleep,
    /// Its event loop watches the endpoint, and there is nothing to do.
    EventLoop,
    /// It runs and does not call.
    Computing,
    /// It waits for something else.
    Elsewhere,
    /// A signal or a debugger has stopped it.
    Stopped,
}

impl Doing {
    /// What the kernel's letter for a process (proc_pid_stat(5)) and what its page says come to.
    pub(super) fn of(reading: &Reading, state: char, in_event_loop: bool) -> Doing {
        match state {
            'T' | 't' => Doing::Stopped,
            _ if reading.is_asleep => Doing::Asleep,
            _ if reading.is_fresh => Doing::Calling,
            'S' if in_event_loop => Doing::EventLoop,
            'R' => Doing::Computing,
            _ => Doing::Elsewhere,
        }
    }

    /// As it is shown.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Doing::Calling => "calling",
            Doing::Asleep => "asleep",
            Doing::EventLoop => "event loop",
            Doing::Computing => "computing",
            Doing::Elsewhere => "elsewhere",
            Doing::Stopped => "stopped",
        }
    }
}
