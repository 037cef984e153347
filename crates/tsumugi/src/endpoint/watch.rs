//! The endpoint's descriptor in tokio's event loop.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tsumugi_rail::Own;

/// The descriptor, once a runtime watches it.
#[derive(Default)]
pub(super) struct Watch(RefCell<Option<AsyncFd<Descriptor>>>);

/// A duplicate of the endpoint's descriptor, which so may be closed in any order.
struct Descriptor(Own<OwnedFd>);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Watch {
    /// Whether the descriptor has become readable since this was asked last; if not, the runtime will wake the task. `false`
    /// also where no runtime is, or nothing to watch.
    pub(super) fn has_rung<'a>(
        &self,
        context: &mut Context<'_>,
        descriptor: impl Fn() -> Option<BorrowedFd<'a>>,
    ) -> bool {
        let mut watched = self.0.borrow_mut();
        // A runtime that has ended leaves room for the one that runs now.
        for _ in 0..2 {
            if watched.is_none() {
                *watched = register(&descriptor);
            }
            match watched.as_ref().map(|watched| watched.poll_read_ready(context)) {
                None | Some(Poll::Pending) => return false,
                Some(Poll::Ready(Ok(mut guard))) => {
                    guard.clear_ready();
                    return true;
                }
                Some(Poll::Ready(Err(_))) => *watched = None,
            }
        }
        false
    }
}

fn register<'a>(descriptor: impl Fn() -> Option<BorrowedFd<'a>>) -> Option<AsyncFd<Descriptor>> {
    Handle::try_current().ok()?;
    let duplicate = Descriptor(Own::new(descriptor()?.try_clone_to_owned().ok()?));
    // SAFETY: the duplicate is open and nobody else's, and stays so as long as the event loop has it.
    unsafe { AsyncFd::register_with_interest(duplicate, Interest::READABLE) }.ok()
}
