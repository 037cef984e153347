//! Remote memory and atomics.

use crate::host::*;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Instant;
use tsumugi_fi::abi::*;

const ACCESS: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

fn close_region(region: *mut fid_mr) {
    // SAFETY: an open region.
    assert_eq!(unsafe { close(&raw mut (*region).fid) }, 0);
}

#[test]
fn memory_is_written_read_and_guarded() {
    if host().is_none() {
        return;
    }
    for basic in [false, true] {
        let pair = Pair::open(SideOptions {
            mr_mode: if basic { FI_MR_BASIC } else { 0 },
            ..SideOptions::default()
        });
        let mut memory = vec![0u8; 100_000];
        let start = memory.as_mut_ptr().addr() as u64;
        let region = pair.there.register(&mut memory, ACCESS, 77);
        // SAFETY: an open region.
        let key = unsafe { (*region).key };
        assert_eq!(key == 77, !basic);
        let base = if basic { start } else { 0 };
        for bytes in [1usize, 3000, 5000, 60_000] {
            let data: Vec<u8> = (0..bytes).map(|at| (at * 7 + bytes) as u8).collect();
            let mut back = vec![0u8; bytes];
            let (ep, to) = (pair.here.ep, pair.to_there);
            // SAFETY: the buffers stay until the entries are read.
            unsafe {
                let write = pair.here.rma().write.unwrap();
                let from = data.as_ptr().cast::<c_void>();
                pair.attempt(|| write(ep, from, bytes, null_mut(), to, base + 8, key, context(1)));
                let (entry, _) = pair.wait(&pair.here).unwrap_or_else(|failed| panic!("{}", failed.text));
                assert_eq!((entry.op_context, entry.flags), (context(1), FI_RMA | FI_WRITE));
                assert_eq!(memory[8..8 + bytes], data, "complete before it was there");
                let read = pair.here.rma().read.unwrap();
                let into = back.as_mut_ptr().cast::<c_void>();
                pair.attempt(|| read(ep, into, bytes, null_mut(), to, base + 8, key, context(2)));
            }
            let (entry, _) = pair.wait(&pair.here).unwrap_or_else(|failed| panic!("{}", failed.text));
            assert_eq!((entry.op_context, entry.flags), (context(2), FI_RMA | FI_READ));
            assert_eq!(back, data);
        }
        // With data for the peer's completion.
        // SAFETY: the buffer is there.
        unsafe {
            let (ep, to) = (pair.here.ep, pair.to_there);
            let injectdata = pair.here.rma().injectdata.unwrap();
            pair.attempt(|| injectdata(ep, b"told".as_ptr().cast(), 4, 55, to, base, key));
        }
        let (entry, from) = pair.wait(&pair.there).unwrap_or_else(|failed| panic!("{}", failed.text));
        assert_eq!(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
        assert_eq!((entry.data, from), (55, pair.to_here));
        assert_eq!(memory[..4], *b"told");
        // What may not be.
        let mut word = [0u8; 8];
        for (address, key, expected) in [
            (base + 99_996, key, FI_EINVAL),
            (base, key ^ 1, FI_EKEYREJECTED),
            (base.wrapping_sub(1), key, FI_EINVAL),
        ] {
            // SAFETY: the buffer stays until the entries are read.
            unsafe {
                let (ep, to, place) = (pair.here.ep, pair.to_there, word.as_mut_ptr().cast::<c_void>());
                let (read, write) = (pair.here.rma().read.unwrap(), pair.here.rma().write.unwrap());
                pair.attempt(|| read(ep, place, 8, null_mut(), to, address, key, context(3)));
                let failed = pair.wait(&pair.here).err().expect("it is refused");
                assert_eq!(
                    (failed.entry.err, failed.entry.op_context),
                    (expected, context(3)),
                    "{}",
                    failed.text
                );
                pair.attempt(|| write(ep, place, 8, null_mut(), to, address, key, context(4)));
            }
            let failed = pair.wait(&pair.here).err().expect("it is refused");
            assert_eq!(
                (failed.entry.err, failed.entry.op_context),
                (expected, context(4)),
                "{}",
                failed.text
            );
        }
        close_region(region);
        pair.close();
    }
}

#[test]
fn atomics_change_words_and_give_what_was_there() {
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions::default());
    let mut memory = vec![0u8; 4096];
    let region = pair.there.register(&mut memory, ACCESS, 1);
    let (ep, to) = (pair.here.ep, pair.to_there);
    let operands: [i64; 3] = [5, -6, 7];
    let mut results = [0i64; 3];
    let compare = [0i64; 3];
    let (operand, result) = (operands.as_ptr().cast::<c_void>(), results.as_mut_ptr().cast::<c_void>());
    let done = |number: usize, flags: u64| {
        let (entry, _) = pair.wait(&pair.here).unwrap_or_else(|failed| panic!("{}", failed.text));
        assert_eq!((entry.op_context, entry.flags), (context(number), FI_ATOMIC | flags));
    };
    // SAFETY: the buffers stay until the entries are read.
    unsafe {
        let atomic = pair.here.atomic();
        pair.attempt(|| {
            atomic.write.unwrap()(ep, operand, 3, null_mut(), to, 8, 1, FI_INT64, FI_SUM, context(1))
        });
        done(1, FI_WRITE);
        let none = null_mut();
        let fetch = atomic.readwrite.unwrap();
        pair.attempt(|| fetch(ep, operand, 3, none, result, none, to, 8, 1, FI_INT64, FI_SUM, context(2)));
        done(2, FI_READ);
        assert_eq!(results, operands);
        let swap = atomic.compwrite.unwrap();
        let compare = compare.as_ptr().cast::<c_void>();
        pair.attempt(|| {
            swap(
                ep,
                operand,
                3,
                none,
                compare,
                none,
                result,
                none,
                to,
                8,
                1,
                FI_INT64,
                FI_CSWAP_LT,
                context(3),
            )
        });
        done(3, FI_READ);
        assert_eq!(results, [10, -12, 14]);
        pair.attempt(|| {
            fetch(ep, operand, 3, none, result, none, to, 8, 1, FI_INT64, FI_ATOMIC_READ, context(4))
        });
        done(4, FI_READ);
        assert_eq!(results, [5, -12, 7], "swapped where 0 was less");
        pair.attempt(|| fetch(ep, operand, 3, none, result, none, to, 8, 2, FI_INT64, FI_SUM, context(5)));
        let failed = pair.wait(&pair.here).err().expect("there is no such key");
        assert_eq!((failed.entry.err, failed.entry.op_context), (FI_EKEYREJECTED, context(5)));
        let mut count = 0;
        assert_eq!(atomic.writevalid.unwrap()(ep, FI_INT64, FI_SUM, &raw mut count), 0);
        assert!(count >= 1024);
        let refused = atomic.writevalid.unwrap()(ep, FI_LONG_DOUBLE, FI_SUM, &raw mut count);
        assert_eq!(refused, -FI_EOPNOTSUPP);
        let refused = atomic.write.unwrap()(ep, operand, 1, none, to, 8, 1, 99, FI_SUM, none);
        assert_eq!(refused, -(FI_EOPNOTSUPP as isize));
    }
    close_region(region);
    pair.close();
}

/// Pieces of a buffer: where the first is described, and how many there are.
type Pieces = (*mut fi_ioc, usize);

#[test]
fn an_atomic_of_too_many_pieces_is_refused() {
    // So many are offered.
    const MOST: usize = 8;
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions::default());
    let mut memory = vec![0u8; 4096];
    let region = pair.there.register(&mut memory, ACCESS, 1);
    let (ep, to, none, told) = (pair.here.ep, pair.to_there, null_mut(), context(1));
    let mut words = [1u64; MOST + 1];
    let base = words.as_mut_ptr().cast::<c_void>();
    // In one piece, as many words as there are in the most pieces.
    let mut one = [fi_ioc { addr: base, count: MOST }];
    let mut many = [(); MOST + 1].map(|()| fi_ioc { addr: base, count: 1 });
    let target = fi_rma_ioc { addr: 0, count: MOST, key: 1 };
    let described = |op: fi_op, (msg_iov, iov_count): Pieces| fi_msg_atomic {
        msg_iov,
        desc: none,
        iov_count,
        addr: to,
        rma_iov: &raw const target,
        rma_iov_count: 1,
        datatype: FI_UINT64,
        op,
        context: told,
        data: 0,
    };
    let atomic = pair.here.atomic();
    // Each gives what both functions of its sort return.
    // SAFETY: the pieces and the buffers stay until the entries are read.
    let write = |(v, n): Pieces| unsafe {
        let msg = described(FI_SUM, (v, n));
        let writev = atomic.writev.unwrap();
        let code = writev(ep, v, none, n, to, 0, 1, FI_UINT64, FI_SUM, told);
        [code, atomic.writemsg.unwrap()(ep, &raw const msg, 0)]
    };
    // SAFETY: as above.
    let fetch = |(v, n): Pieces, (result, results): Pieces| unsafe {
        let msg = described(FI_SUM, (v, n));
        let readwritev = atomic.readwritev.unwrap();
        let code = readwritev(ep, v, none, n, result, none, results, to, 0, 1, FI_UINT64, FI_SUM, told);
        [code, atomic.readwritemsg.unwrap()(ep, &raw const msg, result, none, results, 0)]
    };
    // SAFETY: as above.
    let swap = |(v, n): Pieces, (with, withs): Pieces, (result, results): Pieces| unsafe {
        let (msg, kind) = (described(FI_CSWAP, (v, n)), FI_UINT64);
        let compwritev = atomic.compwritev.unwrap();
        let code = compwritev(
            ep, v, none, n, with, none, withs, result, none, results, to, 0, 1, kind, FI_CSWAP, told,
        );
        let compwritemsg = atomic.compwritemsg.unwrap();
        [code, compwritemsg(ep, &raw const msg, with, none, withs, result, none, results, 0)]
    };
    let (one, many) = (one.as_mut_ptr(), many.as_mut_ptr());
    let (one, most, many) = ((one, 1), (many, MOST), (many, MOST + 1));
    for codes in [
        write(many),
        fetch(many, one),
        fetch(one, many),
        swap(many, one, one),
        swap(one, many, one),
        swap(one, one, many),
    ] {
        assert_eq!(codes, [-(FI_EINVAL as isize); 2]);
    }
    for codes in [write(most), fetch(most, most), swap(most, most, most)] {
        assert_eq!(codes, [0; 2]);
        for _ in codes {
            let (entry, _) = pair.wait(&pair.here).unwrap_or_else(|failed| panic!("{}", failed.text));
            assert_eq!(entry.op_context, told);
        }
    }
    assert!(pair.here.read().is_none());
    close_region(region);
    pair.close();
}

#[test]
fn an_empty_piece_of_an_atomic_may_be_nowhere() {
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions::default());
    let mut memory = vec![0u64; 2];
    // SAFETY: the words are there, and bytes may have any values.
    let bytes = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), 16) };
    let region = pair.there.register(bytes, ACCESS, 1);
    let (ep, to, none) = (pair.here.ep, pair.to_there, null_mut());
    let mut words = [3u64, 4];
    let base = words.as_mut_ptr().cast::<c_void>();
    let pieces = [fi_ioc { addr: null_mut(), count: 0 }, fi_ioc { addr: base, count: 2 }];
    let writev = pair.here.atomic().writev.unwrap();
    // SAFETY: the pieces and the buffers stay until the entry is read.
    pair.attempt(|| unsafe { writev(ep, pieces.as_ptr(), none, 2, to, 0, 1, FI_UINT64, FI_SUM, context(1)) });
    let (entry, _) = pair.wait(&pair.here).unwrap_or_else(|failed| panic!("{}", failed.text));
    assert_eq!(entry.op_context, context(1));
    assert_eq!(memory, words);
    close_region(region);
    pair.close();
}

#[test]
fn a_write_that_has_arrived_is_complete_though_its_target_closes() {
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions::default());
    let mut memory = vec![0u8; 16];
    let region = pair.there.register(&mut memory, ACCESS, 1);
    let (ep, to) = (pair.here.ep, pair.to_there);
    let write = pair.here.rma().write.unwrap();
    // The first one connects them.
    for number in 1..=2usize {
        let word = [number as u8; 8];
        // SAFETY: the buffer stays until the entry is read, or is copied.
        pair.attempt(|| unsafe {
            write(ep, word.as_ptr().cast(), word.len(), null_mut(), to, 0, 1, context(number))
        });
        if number == 1 {
            let (entry, _) = pair.wait(&pair.here).unwrap_or_else(|failed| panic!("{}", failed.text));
            assert_eq!(entry.op_context, context(1));
        }
    }
    // Its target looks at its memory, and needs to know no more.
    let Pair { here, there, .. } = pair;
    let begun = Instant::now();
    // SAFETY: the memory is there, and whoever writes it does so while progress is made.
    while unsafe { memory.as_ptr().read_volatile() } != 2 {
        assert!(begun.elapsed() < PATIENCE, "it does not arrive");
        assert!(there.read().is_none());
    }
    close_region(region);
    there.close();
    let entry = loop {
        if let Some(entry) = here.read() {
            break entry;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing is told");
    };
    let (entry, _) = entry.unwrap_or_else(|failed| panic!("{}", failed.text));
    assert_eq!((entry.op_context, entry.flags), (context(2), FI_RMA | FI_WRITE));
    here.close();
}
