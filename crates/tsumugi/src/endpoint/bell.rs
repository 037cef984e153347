//! What an application's event loop watches in place of a blocking call: that something has arrived, or that a timer of the
//! endpoint is due.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tsumugi_rail::Own;
use tsumugi_wire::Instant;
use tsumugi_wire::time::{MICROSECOND_NS, SECOND_NS};

/// How much later than it should a timer may ring, ns, and one in so many of its time: it must not ring before the endpoint's
/// clock says that it is time, because it would not be set again.
const LATE_NS: u64 = MICROSECOND_NS;
const LATE_SHARE: u64 = 1024;

/// An epoll set with the rail's descriptor and a timer in it.
#[derive(Debug)]
pub(super) struct Bell {
    epoll: Own<OwnedFd>,
    timer: Own<OwnedFd>,
    /// When the timer rings; never, if it is not set.
    rings_at: Instant,
}

impl Bell {
    /// A bell that rings when `rail` is readable.
    pub(super) fn new(rail: BorrowedFd<'_>) -> io::Result<Bell> {
        let epoll = Own::new(epoll::create(CreateFlags::CLOEXEC)?);
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = Own::new(timerfd_create(TimerfdClockId::Monotonic, flags)?);
        for descriptor in [rail, timer.as_fd()] {
            epoll::add(&epoll, descriptor, EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(Bell { epoll, timer, rings_at: Instant::NEVER })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Sees to it that it rings at `due` at the latest. A timer that was set for earlier stays, because the next one is
    /// mostly later, and setting it is a system call. Setting one that has rung silences it.
    pub(super) fn set(&mut self, now: Instant, due: Instant) {
        let has_rung = self.rings_at <= now;
        if due >= self.rings_at && !has_rung || due == Instant::NEVER && self.rings_at == Instant::NEVER {
            return;
        }
        // 0 takes it back.
        let ns =
            if due == Instant::NEVER { 0 } else { due.since(now) + due.since(now) / LATE_SHARE + LATE_NS };
        let it_value = Timespec { tv_sec: (ns / SECOND_NS) as _, tv_nsec: (ns % SECOND_NS) as _ };
        let times = Itimerspec { it_interval: Timespec::default(), it_value };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &times);
        debug_assert!(set.is_ok(), "a timer of ours and a time that is one");
        self.rings_at = due;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::net::UdpSocket;
    use std::time::Instant as Time;
    use tsumugi_wire::time::MILLISECOND_NS;

    fn rings_within(bell: &Bell, ms: i64) -> bool {
        let timeout = Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
        poll(&mut [PollFd::from_borrowed_fd(bell.descriptor(), PollFlags::IN)], Some(&timeout)) == Ok(1)
    }

    #[test]
    fn it_rings_for_what_arrives_and_for_the_earliest_timer_and_is_silenced_by_the_next() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut bell = Bell::new(socket.as_fd()).unwrap();
        assert!(!rings_within(&bell, 0), "nothing is due");
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        assert!(rings_within(&bell, 1000), "something has arrived");
        socket.recv(&mut [0; 1]).unwrap();
        assert!(!rings_within(&bell, 0), "it was taken");

        let start = Time::now();
        bell.set(Instant(0), Instant(30_000 * MILLISECOND_NS));
        bell.set(Instant(0), Instant(20 * MILLISECOND_NS));
        bell.set(Instant(0), Instant(40_000 * MILLISECOND_NS));
        assert!(rings_within(&bell, 10_000));
        assert!((20..10_000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
        bell.set(Instant(20 * MILLISECOND_NS), Instant::NEVER);
        assert!(!rings_within(&bell, 0), "silenced");
        bell.set(Instant(30 * MILLISECOND_NS), Instant(1));
        assert!(rings_within(&bell, 1000), "what is overdue rings at once");
    }
}
