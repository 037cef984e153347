//! Memory in which an endpoint shows what it is doing to whoever looks on (`tsumugi status`, `tsumugi top`).
//!
//! It is a file without a name (`memfd_create(2)`), kept open by the process that writes it: those find it who may look into that
//! process (`/proc/PID/fd`), root and its own user, and nothing is left of it when the process is gone, however it ended.
//!
//! ```text
//! 0   magic, process       written when it is made
//! 16  asked                who looks on adds 1, and waits for `answered`
//! 24  answered             what `asked` was when the text was written
//! 32  sequence             odd while the text is being written
//! 40  bytes                of the text
//! 48  asleep               not 0 while the owner sleeps in a call: what was written before is all there is to tell
//! 64  text
//! ```
//!
//! The owner writes when it is asked, now and then, and before it sleeps. It reads one word of it that others write, and trusts
//! nothing about that: `asked` may be anything. Who reads compares `sequence` before and after.

use crate::sys::{Mapping, Own};
use crate::words::copy_words;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Bytes of the file. Pages that were never written take no memory.
const FILE_BYTES: usize = 512 * 1024;
/// Where the text begins.
const TEXT_AT: usize = 64;
/// Longest text, bytes.
pub const TEXT_BYTES_MAX: usize = FILE_BYTES - TEXT_AT;
/// Says that a file is a status page ("tsumugi?").
const MAGIC: u64 = u64::from_le_bytes(*b"tsumugi?");
/// Name of the file, which `/proc/PID/fd` shows.
const NAME: &str = "tsumugi-status";
/// Attempts to read a text that nobody changes meanwhile.
const READS_MAX: u32 = 100;

/// The words before the text.
#[repr(C)]
struct Head {
    magic: AtomicU64,
    process: AtomicU64,
    asked: AtomicU64,
    answered: AtomicU64,
    sequence: AtomicU64,
    bytes: AtomicU64,
    asleep: AtomicU64,
}

const _: () = assert!(size_of::<Head>() <= TEXT_AT);

fn head(map: &Mapping) -> &Head {
    // SAFETY: the mapping is page-aligned and longer; it is accessed as atomics only, by everybody.
    unsafe { map.start().cast::<Head>().as_ref() }
}

/// The owner's side.
#[derive(Debug)]
pub struct StatusPage {
    map: Mapping,
    /// Keeps it where others find it.
    _file: Own<OwnedFd>,
}

impl StatusPage {
    /// Makes one for the calling process.
    ///
    /// # Errors
    /// The system has no memory or no descriptor left, or does not permit such files.
    pub fn new() -> io::Result<StatusPage> {
        let file = Own::new(memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        ftruncate(&*file, FILE_BYTES as u64)?;
        // Who looks on cannot take the memory away under the owner.
        fcntl_add_seals(&*file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = Mapping::of_memory_file(file.as_fd(), FILE_BYTES)?;
        head(&map).process.store(std::process::id().into(), Ordering::Relaxed);
        head(&map).magic.store(MAGIC, Ordering::Release);
        Ok(StatusPage { map, _file: file })
    }

    /// Whether somebody has asked since the text was written.
    #[inline]
    #[must_use]
    pub fn is_asked(&self) -> bool {
        let head = head(&self.map);
        head.asked.load(Ordering::Relaxed) != head.answered.load(Ordering::Relaxed)
    }

    /// Says whether the owner sleeps in a call.
    #[inline]
    pub fn set_asleep(&self, asleep: bool) {
        head(&self.map).asleep.store(asleep.into(), Ordering::Relaxed);
    }

    /// Writes a text; one that is too long is cut.
    pub fn write(&self, text: &[u8]) {
        let (head, text) = (head(&self.map), &text[..text.len().min(TEXT_BYTES_MAX)]);
        let asked = head.asked.load(Ordering::Relaxed);
        let sequence = head.sequence.load(Ordering::Relaxed);
        head.sequence.store(sequence | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        head.bytes.store(text.len() as u64, Ordering::Relaxed);
        // SAFETY: within the mapping, behind the head; others look at it as bytes that may change, and then look again.
        unsafe { copy_words(self.map.start().add(TEXT_AT), text) };
        head.answered.store(asked, Ordering::Relaxed);
        head.sequence.store((sequence | 1).wrapping_add(1), Ordering::Release);
    }
}

/// What somebody else's page says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The text; empty: none was written yet.
    pub text: Vec<u8>,
    /// It was written after it was asked for, or the owner sleeps and there is nothing to add.
    pub is_fresh: bool,
    /// The owner sleeps in a call.
    pub is_asleep: bool,
}

/// The side of who looks on.
#[derive(Debug)]
pub struct Watched {
    map: Mapping,
    /// The process that has it.
    process: u32,
    /// Which file it is.
    inode: u64,
    /// What this watcher has asked last.
    asked: u64,
}

impl Watched {
    /// Opens a page that a process has. `None`: this is none.
    fn open(process: u32, path: &Path) -> io::Result<Option<Watched>> {
        let file: File = OpenOptions::new().read(true).write(true).open(path)?;
        let data = file.metadata()?;
        // One that can be shortened could be taken away under who reads it.
        if data.len() != FILE_BYTES as u64 || !fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            return Ok(None);
        }
        let map = Mapping::of_memory_file(file.as_fd(), FILE_BYTES)?;
        let is_one = head(&map).magic.load(Ordering::Acquire) == MAGIC;
        Ok(is_one.then_some(Watched { map, process, inode: data.ino(), asked: 0 }))
    }

    /// Number of the process that has it, as this process sees it.
    #[must_use]
    pub const fn process(&self) -> u32 {
        self.process
    }

    /// What tells it from other pages of this host.
    #[must_use]
    pub const fn inode(&self) -> u64 {
        self.inode
    }

    /// Asks the owner to write.
    pub fn ask(&mut self) {
        self.asked = head(&self.map).asked.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    }

    /// What it says. `None`: it was being written each time.
    #[must_use]
    pub fn read(&self) -> Option<Reading> {
        let head = head(&self.map);
        for _ in 0..READS_MAX {
            let before = head.sequence.load(Ordering::Acquire);
            if before & 1 == 1 {
                std::thread::yield_now();
                continue;
            }
            let bytes = (head.bytes.load(Ordering::Relaxed) as usize).min(TEXT_BYTES_MAX);
            let answered = head.answered.load(Ordering::Relaxed);
            let is_asleep = head.asleep.load(Ordering::Relaxed) != 0;
            let mut text = Vec::with_capacity(bytes.next_multiple_of(8));
            for word in 0..bytes.div_ceil(8) {
                // SAFETY: within the mapping, aligned; it is accessed as atomics only.
                let word = unsafe { self.map.start().add(TEXT_AT + 8 * word).cast::<AtomicU64>().as_ref() };
                text.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            text.truncate(bytes);
            fence(Ordering::Acquire);
            if head.sequence.load(Ordering::Relaxed) == before {
                // Numbers that grow, in a circle.
                let is_answered = answered.wrapping_sub(self.asked) < u64::MAX / 2;
                return Some(Reading { text, is_fresh: is_answered || is_asleep, is_asleep });
            }
        }
        None
    }
}

/// The pages of all processes that the caller may look into, each once, by number of process.
#[must_use]
pub fn find() -> Vec<Watched> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut processes: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    processes.sort_unstable();
    let mut found: Vec<Watched> = Vec::new();
    for process in processes {
        for path in descriptors(process) {
            if let Ok(Some(page)) = Watched::open(process, &path)
                && found.iter().all(|other| other.inode != page.inode)
            {
                found.push(page);
            }
        }
    }
    found
}

/// The descriptors of a process that are files by our name.
fn descriptors(process: u32) -> impl Iterator<Item = PathBuf> {
    let target = format!("/memfd:{NAME} (deleted)");
    let entries = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(move |path| fs::read_link(path).is_ok_and(|link| link.as_os_str() == OsStr::new(&target)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn own() -> Vec<Watched> {
        find().into_iter().filter(|page| page.process() == std::process::id()).collect()
    }

    #[test]
    fn what_is_written_is_found_and_read() {
        let page = StatusPage::new().unwrap();
        page.write(b"first");
        let mut watched = own();
        assert!(!page.is_asked());
        watched.iter_mut().for_each(Watched::ask);
        assert!(page.is_asked());
        let of_ours = |watched: &[Watched], text: &[u8]| {
            watched.iter().filter_map(Watched::read).find(|reading| reading.text == text)
        };
        let before = of_ours(&watched, b"first").expect("it is found");
        assert!(!before.is_fresh && !before.is_asleep);
        page.set_asleep(true);
        assert!(of_ours(&watched, b"first").unwrap().is_fresh, "who sleeps has nothing to add");
        page.set_asleep(false);
        page.write(b"second");
        assert!(!page.is_asked());
        let after = of_ours(&watched, b"second").expect("it has answered");
        assert!(after.is_fresh);
        drop(page);
    }

    #[test]
    fn a_text_is_never_seen_in_parts() {
        let page = StatusPage::new().unwrap();
        page.write(&[1; 3]);
        let ours = own().into_iter().find(|watched| watched.read().is_some_and(|it| it.text == [1; 3]));
        let watched = ours.expect("it is found");
        thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut seen = 0;
                for _ in 0..2_000 {
                    if let Some(Reading { text, .. }) = watched.read() {
                        let first = text[0];
                        assert!(text.iter().all(|byte| *byte == first), "of {first}");
                        assert_eq!(text.len(), 3 * usize::from(first));
                        seen += 1;
                    }
                }
                seen
            });
            let mut round = 0_usize;
            while !reader.is_finished() {
                round += 1;
                let byte = (1 + round % 250) as u8;
                page.write(&vec![byte; 3 * usize::from(byte)]);
                if round.is_multiple_of(8) {
                    thread::yield_now();
                }
            }
            assert!(reader.join().unwrap() > 0);
        });
    }

    #[test]
    fn what_only_looks_like_a_page_is_passed_over() {
        let like = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&like, FILE_BYTES as u64).unwrap();
        let inode = File::from(like.try_clone().unwrap()).metadata().unwrap().ino();
        assert!(own().iter().all(|page| page.inode() != inode), "it can be shortened");
        fcntl_add_seals(&like, SealFlags::SHRINK).unwrap();
        assert!(own().iter().all(|page| page.inode() != inode), "nothing says that it is one");
    }

    #[test]
    fn nobody_can_take_the_memory_away() {
        let page = StatusPage::new().unwrap();
        let paths: Vec<_> = descriptors(std::process::id()).collect();
        assert!(!paths.is_empty());
        for path in paths {
            let Ok(file) = OpenOptions::new().write(true).open(path) else { continue };
            assert!(file.set_len(0).is_err());
        }
        page.write(&vec![7; TEXT_BYTES_MAX + 1]);
    }
}
