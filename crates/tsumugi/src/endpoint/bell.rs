//! What an application's event loop watches in place of a blocking call: that something has arrived, or that a timer of the
//! endpoint is due.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
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
        // SAFETY: no memory is involved; what is returned is checked, and nobody else has it.
        let epoll = unsafe { owned(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }?;
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: as above.
        let timer = unsafe { owned(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags)) }?;
        for descriptor in [rail, timer.as_fd()] {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            let (epoll, descriptor) = (epoll.as_raw_fd(), descriptor.as_raw_fd());
            // SAFETY: both are open, and the event lives through the call, which reads it.
            if unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, descriptor, &raw mut event) } != 0 {
                return Err(io::Error::last_os_error());
            }
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
        let value = libc::timespec {
            tv_sec: (ns / SECOND_NS) as libc::time_t,
            tv_nsec: (ns % SECOND_NS) as libc::c_long,
        };
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = libc::itimerspec { it_interval: never, it_value: value };
        // SAFETY: the descriptor is a timer's, and the time lives through the call, which reads it.
        let set = unsafe {
            libc::timerfd_settime(self.timer.as_raw_fd(), 0, &raw const spec, std::ptr::null_mut())
        };
        debug_assert_eq!(set, 0, "a timer of ours and a time that is one");
        self.rings_at = due;
    }
}

/// # Safety
/// `raw` is -1, or a descriptor that nobody else has.
unsafe fn owned(raw: libc::c_int) -> io::Result<Own<OwnedFd>> {
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller says so.
    Ok(Own::new(unsafe { OwnedFd::from_raw_fd(raw) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Instant as Time;
    use tsumugi_wire::time::MILLISECOND_NS;

    fn rings_within(bell: &Bell, ms: i32) -> bool {
        let mut poll = libc::pollfd { fd: bell.descriptor().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that lives through the call.
        unsafe { libc::poll(&raw mut poll, 1, ms) == 1 }
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
