//! Memory that others may reach: any memory of the process, by the byte.
//!
//! Whoever has a key may change a region at any time, so nobody gets a reference into it: bytes are copied in and
//! out, and words looked at as atomics.

mod atomic;

pub use atomic::AtomicError;

use crate::copy;
use crate::sys::{self, Access};
use crate::words::copy_words;
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

/// A stretch of memory that lives until nobody needs it any more: neither its owner nor what is under way from it or
/// to it. A clone is the same memory.
#[derive(Clone)]
pub struct Region(Rc<Block>);

struct Block {
    start: NonNull<u8>,
    bytes: usize,
    /// The kernel is asked for it before it is touched: its owner may have unmapped it.
    checked: bool,
    /// What the memory stays for; `None`: it is a caller's, who has promised that it stays.
    _keeper: Option<Rc<dyn Any>>,
}

/// Something lies outside its region, or its region is not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutOfRegion {
    /// It lies outside.
    #[error("{bytes} bytes at {at} do not lie within a region of {region} bytes")]
    Beyond {
        /// Where it begins, bytes from the region's beginning.
        at: usize,
        /// How long it is, bytes.
        bytes: usize,
        /// Length of the region, bytes.
        region: usize,
    },
    /// The process has unmapped it, or may not touch it so any more.
    #[error(
        "{bytes} bytes at {at} of a region are unmapped or protected; keep memory until it is registered no more"
    )]
    Unmapped {
        /// Where it begins, bytes from the region's beginning.
        at: usize,
        /// How long it is, bytes.
        bytes: usize,
    },
}

/// Memory could not be pinned down.
#[derive(Debug, thiserror::Error)]
#[error(
    "pinning down {bytes} bytes: {source}; at most {limit} bytes may be: raise it with `ulimit -l` or memlock in /etc/security/limits.conf"
)]
pub struct PinError {
    /// Bytes that were to be pinned.
    pub bytes: usize,
    /// Bytes that the process may pin, in words when there is no limit.
    pub limit: String,
    /// What the system said.
    #[source]
    pub source: std::io::Error,
}

impl Region {
    /// A region of `bytes` zeroes, page-aligned. Pages take up memory when they are first touched.
    ///
    /// # Errors
    /// The system has no memory, or `bytes` is 0.
    pub fn new(bytes: usize) -> std::io::Result<Region> {
        let mapping = sys::Mapping::anonymous(bytes)?;
        let start = mapping.start();
        Ok(Region(Rc::new(Block { start, bytes, checked: false, _keeper: Some(Rc::new(mapping)) })))
    }

    /// Memory of the caller's.
    ///
    /// # Safety
    /// `bytes` from `start` on can be read and written as long as the region or a clone of it lives, and nobody has a
    /// reference to them meanwhile that rules out their being changed.
    #[must_use]
    pub unsafe fn from_raw(start: NonNull<u8>, bytes: usize) -> Region {
        Region(Rc::new(Block { start, bytes, checked: false, _keeper: None }))
    }

    /// Memory of the caller's, which may go away: each time before it is touched the kernel is asked whether it is there,
    /// and what is not is [refused](OutOfRegion::Unmapped). That costs a system call each time, and before
    /// Linux 5.14 finds unmapped memory only, not what is protected. For programs that unmap what others may still reach,
    /// as some do under MPI.
    ///
    /// # Safety
    /// As for [`Region::from_raw`], but that the memory may be unmapped or protected; not by another thread during a call
    /// into this library, though. Whatever else is mapped there later is taken for the region's.
    #[must_use]
    pub unsafe fn from_raw_checked(start: NonNull<u8>, bytes: usize) -> Region {
        Region(Rc::new(Block { start, bytes, checked: true, _keeper: None }))
    }

    /// Memory that stays as long as `keeper` lives.
    ///
    /// # Safety
    /// As for [`Region::from_raw`], as long as `keeper` lives.
    pub(crate) unsafe fn kept(start: NonNull<u8>, bytes: usize, keeper: Rc<dyn Any>) -> Region {
        Region(Rc::new(Block { start, bytes, checked: false, _keeper: Some(keeper) }))
    }

    /// Length, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Address of the first byte in this process, by which the other side names places in it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0.start.addr().get() as u64
    }

    /// Part of the region.
    ///
    /// # Errors
    /// It does not lie within the region.
    pub fn slice(&self, range: Range<usize>) -> Result<Slice, OutOfRegion> {
        let bytes = range.end.saturating_sub(range.start);
        self.check(range.start, bytes)?;
        Ok(Slice { region: self.clone(), at: range.start, bytes })
    }

    /// All of the region.
    #[must_use]
    pub fn all(&self) -> Slice {
        Slice { region: self.clone(), at: 0, bytes: self.0.bytes }
    }

    /// Copies what lies at `at` out.
    ///
    /// # Errors
    /// It does not lie within the region.
    pub fn read(&self, at: usize, into: &mut [u8]) -> Result<(), OutOfRegion> {
        let from = self.at(at, into.len(), Access::Read)?;
        // SAFETY: `at` has found the bytes within the region; `into` is the caller's alone, so they do not overlap.
        // That somebody else writes them at this moment may mix old and new bytes: they are bytes either way.
        unsafe { copy::bytes(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies what lies at `at` to the end of `into`.
    ///
    /// # Errors
    /// It does not lie within the region.
    pub fn append(&self, at: usize, bytes: usize, into: &mut Vec<u8>) -> Result<(), OutOfRegion> {
        let from = self.at(at, bytes, Access::Read)?;
        into.reserve(bytes);
        // SAFETY: `at` has found the bytes within the region, `reserve` made room for them, and the copy initialises
        // what `set_len` takes in. As for `read`, others may write at this moment.
        unsafe {
            copy::bytes(from.as_ptr(), into.as_mut_ptr().add(into.len()), bytes);
            into.set_len(into.len() + bytes);
        }
        Ok(())
    }

    /// Copies bytes in at `at`. Who looks at them meanwhile may see any part of them; [`Region::write_words`] is for that.
    ///
    /// # Errors
    /// They do not fit there.
    pub fn write(&self, at: usize, from: &[u8]) -> Result<(), OutOfRegion> {
        let to = self.at(at, from.len(), Access::Write)?;
        // SAFETY: `at` has found the bytes within the region. `from` is a reference, which by the region's contract
        // is not to these bytes.
        unsafe { copy::bytes(from.as_ptr(), to.as_ptr(), from.len()) };
        Ok(())
    }

    /// Copies bytes in at `at`, where another thread may be looking. Every word of 1, 2, 4 or 8 bytes in them, at an address
    /// that is a multiple of its size, is written by one store; who loads it with acquire order sees everything that was
    /// written to this and other regions before, and who loads the last one sees the rest of them. A long copy takes up to twice as long as [`Region::write`].
    ///
    /// # Errors
    /// They do not fit there.
    pub fn write_words(&self, at: usize, from: &[u8]) -> Result<(), OutOfRegion> {
        let to = self.at(at, from.len(), Access::Write)?;
        // SAFETY: `at` has found the bytes within the region, to which nobody has a reference but as atomics.
        unsafe { copy_words(to, from) };
        Ok(())
    }

    /// The word at `at`, to be looked at or changed while others do.
    ///
    /// # Errors
    /// It does not lie within the region, or not at a multiple of 8 in memory.
    pub fn word(&self, at: usize) -> Result<&AtomicU64, OutOfRegion> {
        let place = self.at(at, 8, Access::Write)?.cast::<AtomicU64>();
        if !place.is_aligned() {
            return Err(self.outside(at, 8));
        }
        // SAFETY: within the region and aligned; nobody has a reference to it but as an atomic.
        Ok(unsafe { place.as_ref() })
    }

    /// Keeps the region's pages in memory, so that nobody ever waits for one.
    ///
    /// # Errors
    /// The process may not pin so much.
    pub fn pin(&self) -> Result<(), PinError> {
        sys::pin(self.0.start, self.0.bytes).map_err(|source| PinError {
            bytes: self.0.bytes,
            limit: match sys::pinned_bytes_max() {
                Ok(Some(bytes)) => bytes.to_string(),
                Ok(None) => "unlimited".to_owned(),
                Err(_) => "unknown".to_owned(),
            },
            source,
        })
    }

    fn at(&self, at: usize, bytes: usize, access: Access) -> Result<NonNull<u8>, OutOfRegion> {
        self.check(at, bytes)?;
        // SAFETY: within the region, as just found.
        let place = unsafe { self.0.start.add(at) };
        if self.0.checked && !sys::is_mapped(place, bytes, access) {
            return Err(OutOfRegion::Unmapped { at, bytes });
        }
        Ok(place)
    }

    fn check(&self, at: usize, bytes: usize) -> Result<(), OutOfRegion> {
        if bytes > self.0.bytes || at > self.0.bytes - bytes {
            return Err(self.outside(at, bytes));
        }
        Ok(())
    }

    fn outside(&self, at: usize, bytes: usize) -> OutOfRegion {
        OutOfRegion::Beyond { at, bytes, region: self.0.bytes }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes at {:#x})", self.0.bytes, self.address())
    }
}

/// Part of a region; keeps it alive.
#[derive(Clone, Debug)]
pub struct Slice {
    region: Region,
    at: usize,
    bytes: usize,
}

impl Slice {
    /// The region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Where it begins in the region, bytes.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Length, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies `bytes` from `at` of the slice to the end of `into`.
    ///
    /// # Errors
    /// They do not lie within the slice.
    pub fn append(&self, at: usize, bytes: usize, into: &mut Vec<u8>) -> Result<(), OutOfRegion> {
        self.check(at, bytes)?;
        self.region.append(self.at + at, bytes, into)
    }

    /// Copies bytes in at `at` of the slice.
    ///
    /// # Errors
    /// They do not fit there.
    pub fn write(&self, at: usize, from: &[u8]) -> Result<(), OutOfRegion> {
        self.check(at, from.len())?;
        self.region.write(self.at + at, from)
    }

    fn check(&self, at: usize, bytes: usize) -> Result<(), OutOfRegion> {
        if bytes > self.bytes || at > self.bytes - bytes {
            return Err(OutOfRegion::Beyond { at, bytes, region: self.bytes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
    use std::sync::atomic::Ordering;

    #[test]
    fn bytes_come_back_and_nothing_reaches_beyond() {
        let region = Region::new(100).unwrap();
        region.write(97, b"abc").unwrap();
        let mut back = [0; 3];
        region.read(97, &mut back).unwrap();
        assert_eq!(&back, b"abc");
        for (at, bytes) in [(98, 3), (101, 0), (usize::MAX, 1), (0, 101)] {
            let error = OutOfRegion::Beyond { at, bytes, region: 100 };
            assert_eq!(region.write(at, &vec![0; bytes]), Err(error));
            assert_eq!(region.write_words(at, &vec![0; bytes]), Err(error));
            assert_eq!(region.read(at, &mut vec![0; bytes]), Err(error));
            assert_eq!(region.append(at, bytes, &mut Vec::new()), Err(error));
        }
        region.write(100, b"").unwrap();
        region.write_words(100, b"").unwrap();
        region.write_words(93, b"defghij").unwrap();
        region.read(96, &mut back).unwrap();
        assert_eq!(&back, b"ghi");
    }

    #[test]
    fn a_slice_ends_where_it_says() {
        let region = Region::new(100).unwrap();
        let slice = region.slice(10..20).unwrap();
        slice.write(8, b"xy").unwrap();
        assert!(slice.write(9, b"xy").is_err());
        let mut out = b"->".to_vec();
        slice.append(8, 2, &mut out).unwrap();
        assert_eq!(out, b"->xy");
        assert!(slice.append(usize::MAX, 2, &mut out).is_err());
        assert!(region.slice(90..101).is_err());
    }

    #[test]
    fn words_are_aligned() {
        let region = Region::new(16).unwrap();
        region.word(8).unwrap().store(7, Ordering::Relaxed);
        let mut back = [0; 8];
        region.read(8, &mut back).unwrap();
        assert_eq!(u64::from_le_bytes(back), 7);
        assert!(region.word(4).is_err());
        assert!(region.word(9).is_err());
        assert!(region.word(16).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no mprotect")]
    fn what_was_unmapped_or_protected_is_refused_where_that_is_checked() {
        if !tsumugi_lab::testing::unless_emulated(
            "what_was_unmapped_or_protected_is_refused_where_that_is_checked",
            "needs MADV_POPULATE_READ, which qemu-user takes without doing anything",
        ) {
            return;
        }
        // Where the kernel puts no mapping by itself: another thread's would fill the hole.
        let (place, bytes) = (std::ptr::without_provenance_mut(1 << 37), 3 * 4096);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: a fresh mapping, which takes nobody's place.
        let start = unsafe { mmap_anonymous(place, bytes, access, flags) }.unwrap();
        let start = NonNull::new(start.cast::<u8>()).unwrap();
        assert_eq!(start.as_ptr().cast(), place);
        // SAFETY: the mapping is there, and nobody has a reference to its bytes.
        let region = unsafe { Region::from_raw_checked(start, bytes) };
        region.write(4000, &[1; 200]).unwrap();
        region.word(4096).unwrap().fetch_add(1, Ordering::Relaxed);
        // SAFETY: a page of the mapping, which nobody has a reference to.
        unsafe { mprotect(start.as_ptr().add(4096).cast(), 4096, MprotectFlags::READ) }.unwrap();
        region.read(4096, &mut [0; 8]).unwrap();
        let unmapped = |at, bytes| Err(OutOfRegion::Unmapped { at, bytes });
        assert_eq!(region.write(4000, &[1; 200]), unmapped(4000, 200));
        assert!(region.word(4096).is_err());
        // SAFETY: exactly the mapping, which nobody has a reference to.
        unsafe { munmap(start.as_ptr().cast(), bytes) }.unwrap();
        assert_eq!(region.write(4000, &[1; 200]), unmapped(4000, 200));
        assert_eq!(region.write_words(0, &[1; 8]), unmapped(0, 8));
        assert_eq!(region.read(0, &mut [0; 8]), unmapped(0, 8));
        let mut kept = b"kept".to_vec();
        assert_eq!(region.append(0, 8, &mut kept), unmapped(0, 8));
        assert_eq!(kept, b"kept");
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri long")]
    fn a_region_of_more_than_four_gibibytes_takes_what_is_touched() {
        let region = Region::new(5 << 30).unwrap();
        let far = (5 << 30) - 3;
        region.write(far, b"end").unwrap();
        let mut back = [0; 3];
        region.read(far, &mut back).unwrap();
        assert_eq!(&back, b"end");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no mlock")]
    fn what_may_not_be_pinned_says_which_limit_to_raise() {
        Region::new(4096).unwrap().pin().unwrap();
        // Address space that no machine can keep in memory.
        let error = match Region::new(1 << 44) {
            Ok(region) => region.pin().unwrap_err().to_string(),
            Err(_) => return, // nor promise
        };
        assert!(error.contains("ulimit -l"), "{error}");
    }
}
