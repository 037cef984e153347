//! What a process made by fork does not share with the process that made it.
//!
//! A child inherits every descriptor and every mapping. With them it would keep its parent's port and lock after the parent
//! has died, and the kernel, peers and the XDP program would take the child for the owner. So in the child, before
//! `fork` returns, each [`Own`] descriptor is replaced by one of a socket that does nothing, and memory that is shared with
//! the kernel by a copy. The numbers stay taken until their owners close them: nothing else can come by them.
//!
//! A process made otherwise (`clone`, `_Fork`) runs no handler. If it does not share the memory, a page that the kernel
//! wipes tells it, and the owner's calls are refused ([`Owner::is_here`]). `posix_spawn` and `vfork` are followed by `exec`,
//! and every descriptor is closed then.

use super::READ_AND_WRITE;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{DupFlags, dup3};
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MremapFlags, madvise, mmap_anonymous, mprotect, mremap_fixed,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::gettid;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::fmt;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use tsumugi_wire::memory::PAGE_BYTES;

/// Which process something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    generation: u32,
    process: u32,
}

impl Owner {
    /// The calling process.
    #[must_use]
    pub fn this_process() -> Owner {
        prepare_for_forks();
        let word = word();
        let generation = match word.load(Ordering::Relaxed) {
            0 => {
                let next = GENERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
                match word.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => next,
                    Err(other) => other,
                }
            }
            generation => generation,
        };
        Owner { generation, process: std::process::id() }
    }

    /// Whether the caller is that process, and not one made from it. Costs two loads.
    #[inline]
    #[must_use]
    pub fn is_here(self) -> bool {
        word().load(Ordering::Relaxed) == self.generation
    }

    /// Its number.
    #[must_use]
    pub const fn process(self) -> u32 {
        self.process
    }
}

/// Number of the latest generation: of this process, or of one that it descends from.
static GENERATIONS: AtomicU32 = AtomicU32::new(0);
/// This process's generation where no page can be wiped; 0: it has none yet.
static UNWIPED: AtomicU32 = AtomicU32::new(0);
/// This process's generation, in a page that is all zeroes in a child; null: [`UNWIPED`].
static WIPED: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

#[inline]
fn word() -> &'static AtomicU32 {
    // SAFETY: null, or the beginning of a page that is never unmapped.
    unsafe { WIPED.load(Ordering::Acquire).as_ref() }.unwrap_or(&UNWIPED)
}

fn prepare_for_forks() {
    static PREPARED: Once = Once::new();
    PREPARED.call_once(|| {
        // SAFETY: a fresh mapping of one page that is this module's for good; all zeroes is an atomic number.
        unsafe {
            let page = mmap_anonymous(null_mut(), PAGE_BYTES, READ_AND_WRITE, MapFlags::PRIVATE);
            // Linux 4.14. Without it the handler does as well, for processes made by `fork`.
            if let Ok(page) = page
                && madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork).is_ok()
            {
                WIPED.store(page.cast(), Ordering::Release);
            }
            // It fails for want of memory only, and then so does all else.
            libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child));
        }
    });
}

/// A descriptor that a child made by fork does not get: the child's is of a socket that does nothing.
pub struct Own<T> {
    /// Goes before the descriptor is closed, so that no child takes the number from another.
    kept: Kept,
    inner: T,
}

impl<T: AsRawFd> Own<T> {
    /// Takes a descriptor that nobody else has.
    pub fn new(inner: T) -> Own<T> {
        Own { kept: Kept::new(Entry::Other(inner.as_raw_fd())), inner }
    }

    /// A socket that a port, which others wait for, may belong to.
    pub(crate) fn of_port(inner: T) -> Own<T> {
        Own { kept: Kept::new(Entry::Port(inner.as_raw_fd())), inner }
    }
}

impl<T> Own<T> {
    /// Takes something that has `descriptor`, and nobody else has it.
    pub(crate) fn with(inner: T, descriptor: RawFd) -> Own<T> {
        Own { kept: Kept::new(Entry::Other(descriptor)), inner }
    }

    /// The same descriptor as another type.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Own<U> {
        Own { kept: self.kept, inner: change(self.inner) }
    }
}

impl<T: AsFd> AsFd for Own<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl<T: Write> Write for Own<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Own<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for Own<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Something that a child does not get, as long as this lives.
#[derive(Debug)]
pub(super) struct Kept(Entry);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// A socket that may have a port.
    Port(RawFd),
    /// Another descriptor.
    Other(RawFd),
    /// Beginning and bytes.
    Shared(usize, usize),
}

impl Kept {
    fn new(entry: Entry) -> Kept {
        prepare_for_forks();
        TABLE.with(|entries| entries.push(entry));
        Kept(entry)
    }

    /// Of memory that is shared with the kernel, a child gets a copy.
    pub(super) fn memory(start: NonNull<u8>, bytes: usize) -> Kept {
        Kept::new(Entry::Shared(start.as_ptr().expose_provenance(), bytes))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        TABLE.with(|entries| {
            // In a child it was taken out when the child was made.
            if let Some(at) = entries.iter().position(|entry| *entry == self.0) {
                entries.swap_remove(at);
            }
        });
    }
}

/// What children do not get.
struct Table {
    /// The thread that uses the entries; 0: none.
    holder: AtomicI32,
    entries: UnsafeCell<Vec<Entry>>,
}

// SAFETY: the entries are reached by the holder alone.
unsafe impl Sync for Table {}

static TABLE: Table = Table { holder: AtomicI32::new(0), entries: UnsafeCell::new(Vec::new()) };
/// A signal handler forks in the midst of [`Table::with`]: the entries cannot be read.
static AMIDST: AtomicBool = AtomicBool::new(false);

impl Table {
    /// Waits for whoever has the entries, which nobody has for long.
    fn hold(&self, thread: i32) {
        while self.holder.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
    }

    fn with(&self, change: impl FnOnce(&mut Vec<Entry>)) {
        self.hold(thread());
        // SAFETY: held by this thread, which does not come here again meanwhile.
        change(unsafe { &mut *self.entries.get() });
        self.holder.store(0, Ordering::Release);
    }
}

fn thread() -> i32 {
    gettid().as_raw_pid()
}

/// Nobody changes the entries while the process is copied.
extern "C" fn before() {
    let thread = thread();
    if TABLE.holder.load(Ordering::Relaxed) == thread {
        AMIDST.store(true, Ordering::Relaxed);
    } else {
        TABLE.hold(thread);
    }
}

extern "C" fn after_in_parent() {
    if !AMIDST.swap(false, Ordering::Relaxed) {
        TABLE.holder.store(0, Ordering::Release);
    }
}

/// Runs in the child, where nothing is safe but system calls: other threads may have been anywhere.
extern "C" fn after_in_child() {
    word().store(0, Ordering::Relaxed);
    if AMIDST.swap(false, Ordering::Relaxed) {
        return;
    }
    // SAFETY: held since before the fork, and this is the only thread.
    let entries = unsafe { &mut *TABLE.entries.get() };
    let inert = inert().ok();
    // Ports first: if the parent has just died, closing a packet socket takes a grace period of the kernel.
    for entry in &*entries {
        if let Entry::Port(descriptor) = *entry {
            part_with(descriptor, inert.as_ref());
        }
    }
    for entry in &*entries {
        match *entry {
            Entry::Port(_) => {}
            Entry::Other(descriptor) => part_with(descriptor, inert.as_ref()),
            Entry::Shared(start, bytes) => copy_in_place(start, bytes),
        }
    }
    drop(inert);
    entries.clear();
    TABLE.holder.store(0, Ordering::Release);
}

/// Puts a descriptor that does nothing in the place of one of ours.
fn part_with(descriptor: RawFd, inert: Option<&OwnedFd>) {
    // SAFETY: whoever has the descriptor knows that it is not this process's.
    let place = unsafe { OwnedFd::from_raw_fd(descriptor) };
    if let Some(inert) = inert {
        // Its owner closes it.
        let _ = dup3(inert, &mut ManuallyDrop::new(place), DupFlags::CLOEXEC);
    }
}

/// A descriptor from which nothing comes, and which takes nothing.
fn inert() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
        .or_else(|_| open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))
}

/// Puts a copy in the place of memory that is shared. Without memory for it, what is there can be read only.
fn copy_in_place(start: usize, bytes: usize) {
    let place = std::ptr::with_exposed_provenance_mut::<c_void>(start);
    // SAFETY: the mapping was made by this process's parent and is not unmapped before its entry is taken out. It is as long
    // as that says, and readable; the copy is as long and takes its place whole.
    unsafe {
        let Ok(copy) = mmap_anonymous(null_mut(), bytes, READ_AND_WRITE, MapFlags::PRIVATE) else {
            let _ = mprotect(place, bytes, MprotectFlags::READ);
            return;
        };
        std::ptr::copy_nonoverlapping(place.cast::<u8>(), copy.cast::<u8>(), bytes);
        let _ = mremap_fixed(copy, bytes, bytes, MremapFlags::MAYMOVE, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Mapping, udp_socket};

    /// What a child that does this returns.
    fn in_a_child(child: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child calls nothing that other threads of the tests could have locked, and ends at once.
        let process = unsafe { libc::fork() };
        if process == 0 {
            let result = child();
            // SAFETY: ends the child without the harness's doing.
            unsafe { libc::_exit(result) };
        }
        let mut status = 0;
        // SAFETY: our own child; the status outlives the call.
        assert_eq!(unsafe { libc::waitpid(process, &raw mut status, 0) }, process);
        assert!(libc::WIFEXITED(status), "the child: status {status}");
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn a_child_has_no_part_in_sockets_and_is_another_owner() {
        let owner = Owner::this_process();
        assert!(owner.is_here());
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = udp_socket(any).unwrap();
        rustix::net::bind(&socket, &any).unwrap();
        let bound = || rustix::net::sockopt::socket_domain(&socket) == Ok(AddressFamily::INET);
        assert!(bound());
        let result = in_a_child(|| {
            let mine = owner.is_here() || bound();
            let closes = rustix::io::fcntl_getfd(&socket) == Ok(rustix::io::FdFlags::CLOEXEC);
            let fresh = Owner::this_process();
            i32::from(mine) | i32::from(!closes) << 1 | i32::from(!fresh.is_here()) << 2
        });
        assert_eq!(result, 0);
        assert!(owner.is_here() && bound(), "the parent keeps what it has");
    }

    #[test]
    fn a_process_made_without_handlers_is_another_owner_all_the_same() {
        if !tsumugi_lab::testing::unless_emulated(
            "a_process_made_without_handlers_is_another_owner_all_the_same",
            "needs MADV_WIPEONFORK, which qemu-user takes without doing anything",
        ) {
            return;
        }
        let owner = Owner::this_process();
        // SAFETY: as fork, without its handlers: no stack is given, the memory is copied.
        let process = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if process == 0 {
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(owner.is_here())) };
        }
        let mut status = 0;
        // SAFETY: our own child; the status outlives the call.
        unsafe { libc::waitpid(process as i32, &raw mut status, 0) };
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status}");
    }

    #[test]
    fn a_child_writes_into_memory_of_its_own() {
        let memory = Mapping::anonymous(3 * PAGE_BYTES).unwrap();
        let shared = Mapping::shared(3 * PAGE_BYTES).unwrap();
        let _kept = Kept::memory(shared.start(), shared.bytes());
        let places = [&memory, &shared].map(|mapping| mapping.start());
        // SAFETY: within the mappings, which nobody else knows of.
        let poke = |value: u8| places.iter().for_each(|place| unsafe { place.add(5000).write(value) });
        // SAFETY: as above.
        let peek = || places.map(|place| unsafe { place.add(5000).read_volatile() });
        poke(7);
        let result = in_a_child(|| {
            let found = peek();
            poke(9);
            i32::from(found != [7, 7]) | i32::from(peek() != [9, 9]) << 1
        });
        assert_eq!((result, peek()), (0, [7, 7]));
    }

    #[test]
    fn numbers_that_were_given_back_are_left_alone() {
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let raw = udp_socket(any).unwrap().as_raw_fd();
        // Most likely the same number.
        let other = std::net::UdpSocket::bind(any).unwrap();
        let result = in_a_child(|| i32::from(other.local_addr().is_err()));
        assert_eq!(result, 0, "{raw} and {}", other.as_raw_fd());
    }
}
