//! Memory shared with the kernel: the rings, and the memory that frames lie in.
//!
//! What stands in shared memory is never trusted for memory safety: places in a ring are masked, a peer's index
//! that cannot be counts as "nothing there" or "no room", and memory is ours again only if it had been lent.

use crate::sys::Mapping;
use rustix::net::xdp::{XdpDesc, XdpRingFlags, XdpRingOffset};
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// What lies in a ring.
///
/// # Safety
/// Every bit pattern is a valid value.
pub(super) unsafe trait Entry: Copy {}
// SAFETY: an address, of any value.
unsafe impl Entry for u64 {}
// SAFETY: three numbers, of any value.
unsafe impl Entry for XdpDesc {}

/// Where in a ring's mapping its parts lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    producer: u64,
    consumer: u64,
    flags: u64,
    desc: u64,
}

impl TryFrom<XdpRingOffset> for Offsets {
    type Error = io::Error;

    /// # Errors
    /// Before Linux 5.4 a ring has no flags.
    fn try_from(at: XdpRingOffset) -> io::Result<Offsets> {
        let flags = at.flags.ok_or(io::ErrorKind::Unsupported)?;
        Ok(Offsets { producer: at.producer, consumer: at.consumer, flags, desc: at.desc })
    }
}

/// One ring: two running indices, and a power of two of entries.
#[derive(Debug)]
struct Ring<E> {
    mapping: Mapping,
    /// Offsets of the two indices, the flags and the entries; checked by [`Ring::new`].
    offsets: Offsets,
    mask: u32,
    entries: PhantomData<E>,
}

/// Bytes of the mapping of a ring of `size` entries.
pub(super) const fn ring_bytes<E>(offsets: &Offsets, size: u32) -> usize {
    offsets.desc as usize + size as usize * size_of::<E>()
}

impl<E: Entry> Ring<E> {
    /// # Errors
    /// The kernel describes a ring that does not lie in the mapping.
    fn new(mapping: Mapping, offsets: Offsets, size: u32) -> io::Result<Ring<E>> {
        let word = |at: u64| {
            at.is_multiple_of(4) && at.checked_add(4).is_some_and(|end| end <= mapping.bytes() as u64)
        };
        let entries = offsets.desc.is_multiple_of(align_of::<E>() as u64)
            && offsets.desc <= mapping.bytes() as u64
            && ring_bytes::<E>(&offsets, size) <= mapping.bytes();
        let words = [offsets.producer, offsets.consumer, offsets.flags].into_iter().all(word);
        if !(size.is_power_of_two() && entries && words) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Ring { mapping, offsets, mask: size - 1, entries: PhantomData })
    }

    const fn size(&self) -> u32 {
        self.mask + 1
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: `new` has found the word aligned and within the mapping, which lives as long as `self`. The
        // kernel changes it with atomic stores only.
        unsafe { self.mapping.start().add(offset as usize).cast().as_ref() }
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.offsets.consumer)
    }

    /// Whether the kernel wants to be called before it looks at the ring again.
    fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
    }

    /// The place of an entry, which lies within the mapping whatever `index` is.
    fn entry(&self, index: u32) -> NonNull<E> {
        // SAFETY: `new` has found `mask + 1` entries, aligned, within the mapping.
        unsafe {
            let entries = self.mapping.start().add(self.offsets.desc as usize).cast::<E>();
            entries.add((index & self.mask) as usize)
        }
    }
}

/// A ring that we write and the kernel reads: fill and tx.
#[derive(Debug)]
pub(super) struct Producer<E> {
    ring: Ring<E>,
    /// Index behind the last entry written. The kernel knows of it after [`Producer::publish`].
    written: u32,
    /// The kernel's index, when it was looked at last.
    consumed: u32,
}

impl<E: Entry> Producer<E> {
    pub(super) fn new(mapping: Mapping, offsets: Offsets, size: u32) -> io::Result<Self> {
        let ring = Ring::new(mapping, offsets, size)?;
        let written = ring.producer().load(Ordering::Relaxed);
        Ok(Producer { ring, written, consumed: written })
    }

    /// How many entries can be written; looks at the kernel's index only if it seems to be fewer than `wanted`.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let room = |consumed: u32| self.ring.size().saturating_sub(self.written.wrapping_sub(consumed));
        let known = room(self.consumed);
        if known >= wanted {
            return known;
        }
        // Acquire: the kernel has read the entries that are about to be overwritten.
        let consumed = self.ring.consumer().load(Ordering::Acquire);
        let room = room(consumed);
        self.consumed = consumed;
        room
    }

    /// Writes an entry; `false` if there is no room.
    pub(super) fn push(&mut self, entry: E) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        // SAFETY: the place lies in the ring; the kernel does not look at it until it is published, because
        // there was room.
        unsafe { self.ring.entry(self.written).write(entry) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Tells the kernel of everything written.
    pub(super) fn publish(&self) {
        // Release: what was written to entries and chunks is seen by whoever sees the index.
        self.ring.producer().store(self.written, Ordering::Release);
    }

    /// Entries that the kernel has not taken yet.
    pub(super) fn waiting(&self) -> u32 {
        self.written.wrapping_sub(self.ring.consumer().load(Ordering::Acquire))
    }

    /// Whether the kernel wants to be called before it takes more.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring that the kernel writes and we read: rx and completion.
#[derive(Debug)]
pub(super) struct Consumer<E> {
    ring: Ring<E>,
    /// Index of the next entry to read. The kernel knows of it after [`Consumer::release`].
    read: u32,
    /// The kernel's index, when it was looked at last.
    produced: u32,
}

impl<E: Entry> Consumer<E> {
    pub(super) fn new(mapping: Mapping, offsets: Offsets, size: u32) -> io::Result<Self> {
        let ring = Ring::new(mapping, offsets, size)?;
        let read = ring.consumer().load(Ordering::Relaxed);
        Ok(Consumer { ring, read, produced: read })
    }

    /// How many entries can be read; looks at the kernel's index only if it seems to be fewer than `wanted`.
    fn available(&mut self, wanted: u32) -> u32 {
        let available = |produced: u32| {
            // More than there are places cannot be: then the index is not one.
            Some(produced.wrapping_sub(self.read)).filter(|count| *count <= self.ring.size()).unwrap_or(0)
        };
        let known = available(self.produced);
        if known >= wanted {
            return known;
        }
        // Acquire: entries up to the index, and the chunks they speak of, are seen as the kernel wrote them.
        let produced = self.ring.producer().load(Ordering::Acquire);
        let available = available(produced);
        self.produced = produced;
        available
    }

    /// The entry that is `ahead` entries behind the next one, if it is there.
    pub(super) fn peek(&mut self, ahead: u32) -> Option<E> {
        if self.available(ahead + 1) <= ahead {
            return None;
        }
        // SAFETY: the place lies in the ring, and every bit pattern is a value. The kernel does not write to it
        // until it is released.
        Some(unsafe { self.ring.entry(self.read.wrapping_add(ahead)).read() })
    }

    /// Takes the next entry.
    pub(super) fn pop(&mut self) -> Option<E> {
        let entry = self.peek(0)?;
        self.read = self.read.wrapping_add(1);
        Some(entry)
    }

    /// Lets the kernel use the places of everything taken.
    pub(super) fn release(&self) {
        // Release: the entries have been read before the kernel sees that it may overwrite them.
        self.ring.consumer().store(self.read, Ordering::Release);
    }
}

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The kernel writes frames to it, each to as many chunks as it takes.
    Receive,
    /// We write frames to it, each to a slot.
    Send,
}

/// One or more chunks behind each other that belong to us alone. There is never more than one of these for a slot.
#[derive(Debug)]
pub(super) struct Slot {
    side: Side,
    index: u32,
}

/// The slots of one side.
#[derive(Debug)]
struct Pool {
    /// Where they begin in the memory, bytes.
    start: usize,
    slot_bytes: usize,
    /// Of each slot, how many chunks the kernel has; none: a [`Slot`] exists.
    lent: Box<[u32]>,
}

/// The memory that frames lie in, in chunks of equal length.
#[derive(Debug)]
pub(super) struct Umem {
    mapping: Mapping,
    chunk_bytes: usize,
    receive: Pool,
    send: Pool,
}

impl Umem {
    /// Maps memory in chunks of `chunk_bytes`, a power of two: so many chunks to receive into, and so many slots
    /// of `slot_chunks` to send from. Hands all of them out.
    pub(super) fn new(
        chunk_bytes: usize,
        receive_chunks: u32,
        send_slots: u32,
        slot_chunks: u32,
    ) -> io::Result<(Umem, Vec<Slot>, Vec<Slot>)> {
        assert!(chunk_bytes.is_power_of_two(), "the place in a chunk is computed with a mask");
        let pool =
            |start, slots: u32, slot_bytes| Pool { start, slot_bytes, lent: vec![0; slots as usize].into() };
        let receive = pool(0, receive_chunks, chunk_bytes);
        let send = pool(receive.bytes(), send_slots, slot_chunks as usize * chunk_bytes);
        let mapping = Mapping::shared(receive.bytes() + send.bytes())?;
        mapping.prefault();
        let slots = |side, count| (0..count).map(|index| Slot { side, index }).collect();
        let (to_receive, to_send) = (slots(Side::Receive, receive_chunks), slots(Side::Send, send_slots));
        Ok((Umem { mapping, chunk_bytes, receive, send }, to_receive, to_send))
    }

    /// Where the memory begins, and its bytes.
    pub(super) const fn area(&self) -> (NonNull<u8>, usize) {
        (self.mapping.start(), self.mapping.bytes())
    }

    /// Bytes of a chunk.
    pub(super) const fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    fn pool(&mut self, side: Side) -> &mut Pool {
        match side {
            Side::Receive => &mut self.receive,
            Side::Send => &mut self.send,
        }
    }

    /// Lends the first `chunks` chunks of a slot to the kernel, and returns the address of the first for a ring.
    pub(super) fn lend(&mut self, slot: Slot, chunks: u32) -> u64 {
        let pool = self.pool(slot.side);
        pool.lent[slot.index as usize] = chunks;
        (pool.start + slot.index as usize * pool.slot_bytes) as u64
    }

    /// Takes back the chunk that `address` lies in, and returns its slot if that was the last one lent. A chunk
    /// that had not been lent is left alone: the kernel's entry is wrong then.
    pub(super) fn take_back(&mut self, address: u64, side: Side) -> Option<Slot> {
        let pool = self.pool(side);
        let index = usize::try_from(address).ok()?.checked_sub(pool.start)? / pool.slot_bytes;
        let lent = pool.lent.get_mut(index).filter(|lent| **lent > 0)?;
        *lent -= 1;
        (*lent == 0).then_some(Slot { side, index: index as u32 })
    }

    /// `bytes` of a slot of one chunk from where `address` lies in it; `None` if they do not lie in it.
    pub(super) fn bytes<'a>(&'a self, slot: &'a Slot, address: u64, bytes: u32) -> Option<&'a [u8]> {
        let offset = address as usize & (self.chunk_bytes - 1);
        let (start, slot_bytes) = self.place(slot);
        if offset + bytes as usize > slot_bytes {
            return None;
        }
        // SAFETY: within the slot, which `place` has found in the mapping, and initialised when that was made. Who
        // holds the `Slot` is its only owner: the kernel does not write to it, and no other reference exists.
        Some(unsafe { std::slice::from_raw_parts(start.add(offset).as_ptr(), bytes as usize) })
    }

    /// A slot, to write to.
    pub(super) fn bytes_mut<'a>(&'a mut self, slot: &'a mut Slot) -> &'a mut [u8] {
        let (start, slot_bytes) = self.place(slot);
        // SAFETY: as in `bytes`; both the memory and the slot are borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), slot_bytes) }
    }

    /// Where a slot begins, and its bytes.
    fn place(&self, slot: &Slot) -> (NonNull<u8>, usize) {
        let pool = match slot.side {
            Side::Receive => &self.receive,
            Side::Send => &self.send,
        };
        assert!((slot.index as usize) < pool.lent.len(), "a slot of this memory");
        // SAFETY: the mapping is as long as both pools.
        let start = unsafe { self.mapping.start().add(pool.start + slot.index as usize * pool.slot_bytes) };
        (start, pool.slot_bytes)
    }
}

impl Pool {
    fn bytes(&self) -> usize {
        self.lent.len() * self.slot_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFSETS: Offsets = Offsets { producer: 0, consumer: 64, flags: 128, desc: 192 };
    const SIZE: u32 = 8;

    fn mapping() -> Mapping {
        Mapping::anonymous(4096).unwrap()
    }

    /// A ring whose indices are about to wrap around.
    fn old_mapping() -> Mapping {
        let ring = Ring::<u64>::new(mapping(), OFFSETS, SIZE).unwrap();
        ring.producer().store(u32::MAX - 2, Ordering::Relaxed);
        ring.consumer().store(u32::MAX - 2, Ordering::Relaxed);
        ring.mapping
    }

    #[test]
    fn a_producer_fills_the_ring_and_no_more() {
        let mut ring = Producer::<u64>::new(old_mapping(), OFFSETS, SIZE).unwrap();
        for round in 0..10 {
            let pushed = (0..20).take_while(|entry| ring.push(round * 100 + entry)).count();
            assert_eq!((pushed, ring.room(1)), (SIZE as usize, 0));
            assert_ne!(ring.ring.producer().load(Ordering::Relaxed), ring.written, "not published yet");
            ring.publish();
            assert_eq!(ring.ring.producer().load(Ordering::Relaxed), ring.written);
            // The kernel takes three of them, then the others.
            let first = ring.written.wrapping_sub(SIZE);
            for (index, taken) in (0..SIZE).zip([3, 3, 3, 8, 8, 8, 8, 8]) {
                // SAFETY: a place of the ring that nobody else touches in this test.
                let entry = unsafe { ring.ring.entry(first.wrapping_add(index)).read() };
                assert_eq!(entry, round * 100 + u64::from(index));
                ring.ring.consumer().store(first.wrapping_add(taken), Ordering::Relaxed);
                assert_eq!((ring.waiting(), ring.room(SIZE)), (SIZE - taken, taken));
            }
        }
    }

    #[test]
    fn a_consumer_reads_what_is_there_and_no_more() {
        let mut ring = Consumer::<u64>::new(old_mapping(), OFFSETS, SIZE).unwrap();
        let mut number = 0;
        for count in [1, 5, 8, 3, 8, 0, 8] {
            let produced = ring.ring.producer().load(Ordering::Relaxed);
            for ahead in 0..count {
                // SAFETY: a place of the ring that nobody else touches in this test.
                unsafe { ring.ring.entry(produced.wrapping_add(ahead)).write(number + u64::from(ahead)) };
            }
            ring.ring.producer().store(produced.wrapping_add(count), Ordering::Relaxed);
            assert_eq!(ring.peek(count), None);
            assert_eq!(ring.peek(count.wrapping_sub(1) % 64).is_some(), count > 0);
            for _ in 0..count {
                assert_eq!(ring.pop(), Some(number));
                number += 1;
            }
            assert_eq!(ring.pop(), None);
            assert_eq!(ring.ring.consumer().load(Ordering::Relaxed), produced);
            ring.release();
            assert_eq!(ring.ring.consumer().load(Ordering::Relaxed), produced.wrapping_add(count));
        }
    }

    #[test]
    fn impossible_indices_are_no_entries_and_no_room() {
        let mut ring = Consumer::<u64>::new(mapping(), OFFSETS, SIZE).unwrap();
        for produced in [SIZE + 1, 1 << 31, u32::MAX] {
            ring.ring.producer().store(produced, Ordering::Relaxed);
            assert_eq!(ring.pop(), None, "{produced}");
        }
        let mut ring = Producer::<u64>::new(mapping(), OFFSETS, SIZE).unwrap();
        while ring.push(1) {}
        for consumed in [SIZE + 1, 1 << 31, u32::MAX] {
            ring.ring.consumer().store(consumed, Ordering::Relaxed);
            assert!(!ring.push(2), "{consumed}");
        }
    }

    #[test]
    fn a_ring_must_lie_in_its_mapping() {
        for offsets in [
            Offsets { producer: 4096, ..OFFSETS },
            Offsets { consumer: 2, ..OFFSETS },
            Offsets { flags: u64::MAX - 3, ..OFFSETS },
            Offsets { desc: 4096 - 8, ..OFFSETS },
            Offsets { desc: 4, ..OFFSETS },
        ] {
            assert!(Producer::<u64>::new(mapping(), offsets, SIZE).is_err(), "{offsets:?}");
        }
        assert!(Producer::<u64>::new(mapping(), OFFSETS, 6).is_err(), "not a power of two");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no shared memory")]
    fn a_slot_comes_back_once_and_to_where_it_belongs() {
        let (mut umem, mut to_receive, mut to_send) = Umem::new(2048, 4, 2, 3).unwrap();
        let chunk = to_receive.pop().unwrap();
        assert_eq!(umem.bytes(&chunk, 3 * 2048 + 1, 2047).map(<[u8]>::len), Some(2047));
        assert_eq!(umem.bytes(&chunk, 3 * 2048 + 2000, 49), None, "over the end of the chunk");
        let address = umem.lend(chunk, 1);
        assert_eq!(address, 3 * 2048);
        assert!(umem.take_back(address, Side::Send).is_none());
        assert!(umem.take_back(4 * 2048, Side::Receive).is_none());
        assert!(umem.take_back(u64::MAX, Side::Receive).is_none());
        let chunk = umem.take_back(address + 256, Side::Receive).unwrap();
        assert!(umem.take_back(address, Side::Receive).is_none(), "twice");
        let mut slot = to_send.pop().unwrap();
        umem.bytes_mut(&mut slot).fill(7);
        assert_eq!(umem.bytes(&chunk, address, 2048), Some(&[0; 2048][..]), "the slot is not the chunk's");
        let address = umem.lend(slot, 2);
        assert_eq!(address, (4 + 3) * 2048);
        assert!(umem.take_back(address, Side::Send).is_none(), "one of two");
        let mut slot = umem.take_back(address + 2048, Side::Send).unwrap();
        assert_eq!(umem.bytes_mut(&mut slot), [7; 3 * 2048]);
        assert!(umem.take_back(address + 2 * 2048, Side::Send).is_none(), "was not lent");
        assert!(umem.take_back(4 * 2048, Side::Send).is_none(), "never was");
    }
}
