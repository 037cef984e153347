//! What every waiting loop looks at now and then: Ctrl-C, the other side's word, and too long a silence.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use thiserror::Error;
use tsumugi_lab::interrupt::interrupted;

/// Why to stop waiting.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum StopReason {
    #[error("interrupted")]
    Interrupted,
    /// Something can be read from the control connection: a word from the other side, or its end.
    #[error("the other side ended the measurement")]
    Control,
    #[error("nothing arrived from the other side for {0:?}")]
    Silent(Duration),
}

/// Between two looks at clock and control connection a spinning loop polls this often: some hundred
/// microseconds, so that the look (half a microsecond) does not show in the percentiles.
const POLLS_PER_CHECK: u32 = 4096;

/// Keeps a waiting loop from waiting for ever.
pub(crate) struct Watch<'a> {
    control: Option<&'a TcpStream>,
    silence_max: Duration,
    polls: u32,
    quiet_since: Option<Instant>,
    moved: u64,
}

impl<'a> Watch<'a> {
    /// Stops after `silence_max` without progress, or when `control` has something to say.
    pub(crate) fn new(control: Option<&'a TcpStream>, silence_max: Duration) -> Watch<'a> {
        Watch { control, silence_max, polls: 0, quiet_since: None, moved: 0 }
    }

    /// A poll that found nothing; now and then this checks.
    #[inline]
    pub(crate) fn idle(&mut self) -> Result<(), StopReason> {
        if self.is_due() {
            return self.check();
        }
        std::hint::spin_loop();
        Ok(())
    }

    /// Whether a loop that polls should check again.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        self.polls += 1;
        self.polls >= POLLS_PER_CHECK
    }

    /// Something arrived or could be sent. A loop that never waits notices Ctrl-C here.
    #[inline]
    pub(crate) fn progress(&mut self) -> Result<(), StopReason> {
        self.quiet_since = None;
        if interrupted() { Err(StopReason::Interrupted) } else { Ok(()) }
    }

    /// As [`Watch::check`], where so much has moved in all: a message that takes long is no silence while parts of it do.
    #[cold]
    pub(crate) fn check_moved(&mut self, moved: u64) -> Result<(), StopReason> {
        if moved != std::mem::replace(&mut self.moved, moved) {
            self.quiet_since = None;
        }
        self.check()
    }

    /// Looks at everything at once; for loops that slept.
    #[cold]
    pub(crate) fn check(&mut self) -> Result<(), StopReason> {
        self.polls = 0;
        if interrupted() {
            return Err(StopReason::Interrupted);
        }
        if self.control.is_some_and(readable) {
            return Err(StopReason::Control);
        }
        let now = Instant::now();
        let quiet = now.duration_since(*self.quiet_since.get_or_insert(now));
        if quiet >= self.silence_max {
            return Err(StopReason::Silent(self.silence_max));
        }
        Ok(())
    }
}

/// How long an answer may take before it is taken for lost.
pub(super) struct Patience {
    time: Duration,
    deadline: Option<Instant>,
    polls: u32,
}

impl Patience {
    pub(super) const fn new(time: Duration) -> Patience {
        Patience { time, deadline: None, polls: 0 }
    }

    /// A poll that found nothing; now and then this looks at the clock, and says whether the time is over.
    #[inline]
    pub(super) fn ended(&mut self) -> bool {
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(POLLS_PER_CHECK) {
            return false;
        }
        let now = Instant::now();
        now >= *self.deadline.get_or_insert(now + self.time)
    }
}

/// Whether reading would not block: data, the end, or an error.
fn readable(stream: &TcpStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn silence_ends_the_wait() {
        let mut watch = Watch::new(None, Duration::ZERO);
        assert_eq!(watch.check(), Err(StopReason::Silent(Duration::ZERO)));
        let mut watch = Watch::new(None, Duration::from_secs(3600));
        for _ in 0..3 * POLLS_PER_CHECK {
            watch.idle().expect("an hour has not passed");
        }
    }

    #[test]
    fn what_moves_is_not_silent() {
        let mut watch = Watch::new(None, Duration::from_millis(20));
        for moved in 1..=4 {
            watch.check_moved(moved).expect("something has moved");
            std::thread::sleep(Duration::from_millis(21));
        }
        assert_eq!(watch.check_moved(4), Err(StopReason::Silent(Duration::from_millis(20))));
    }

    #[test]
    fn a_word_or_the_end_of_the_other_side_ends_the_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let mut far = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (near, _) = listener.accept().expect("accept");
        let mut watch = Watch::new(Some(&near), Duration::from_secs(3600));
        watch.check().expect("nothing has been said");
        far.write_all(b"x").expect("write");
        while watch.check().is_ok() {}
        drop(far);
        let mut watch = Watch::new(Some(&near), Duration::from_secs(3600));
        assert_eq!(watch.check(), Err(StopReason::Control));
    }
}
