//! Messages with tags and without.

use crate::host::*;
use libc::iovec;
use std::ffi::c_void;
use std::ptr::null_mut;
use tsumugi_fi::abi::*;

const SIZES: [usize; 7] = [0, 1, 1000, 4096, 20_000, 1 << 20, 3 << 20];

fn payload(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at * 31) ^ (seed * 77) ^ (at >> 8)) as u8).collect()
}

fn start(data: &[u8]) -> *const c_void {
    data.as_ptr().cast()
}

fn room(data: &mut [u8]) -> *mut c_void {
    data.as_mut_ptr().cast()
}

#[test]
fn messages_of_every_length_arrive_whole_with_data_tag_and_source() {
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions::default());
    for posted_first in [true, false] {
        for (at, bytes) in SIZES.into_iter().enumerate() {
            let data = payload(at, bytes);
            let mut into = vec![0; bytes + 1];
            let (tag, far) = (at as u64 | 7 << 60, at as u64 + 100);
            let receive = |into: &mut [u8]| {
                let recv = pair.there.tagged().recv.unwrap();
                let (place, from) = (room(into), FI_ADDR_UNSPEC);
                // SAFETY: the buffer stays until the entry is read.
                unsafe { recv(pair.there.ep, place, bytes, null_mut(), from, tag, 1 << 60, context(5)) }
            };
            if posted_first {
                assert_eq!(receive(&mut into), 0);
            }
            pair.attempt(|| {
                let senddata = pair.here.tagged().senddata.unwrap();
                let to = pair.to_there;
                // SAFETY: the buffer stays until the entry is read.
                unsafe {
                    senddata(
                        pair.here.ep,
                        start(&data),
                        bytes,
                        null_mut(),
                        far,
                        to,
                        tag ^ 1 << 60,
                        context(6),
                    )
                }
            });
            if !posted_first {
                (0..50).for_each(|_| pair.progress());
                assert_eq!(receive(&mut into), 0);
            }
            let (entry, from) = pair.wait(&pair.there).unwrap_or_else(|failed| panic!("{}", failed.text));
            assert_eq!(entry.op_context, context(5));
            assert_eq!(entry.flags, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA);
            assert_eq!((entry.len, entry.data, entry.tag, from), (bytes, far, tag ^ 1 << 60, pair.to_here));
            assert_eq!(into[..bytes], data);
            let (entry, _) = pair.wait(&pair.here).unwrap_or_else(|failed| panic!("{}", failed.text));
            assert_eq!((entry.op_context, entry.flags), (context(6), FI_SEND | FI_TAGGED));
        }
    }
    pair.close();
}

#[test]
fn what_is_injected_needs_no_completion_and_plain_messages_are_matched_apart_from_tagged_ones() {
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions::default());
    let (mut plain, mut tagged) = ([0u8; 8], [0u8; 8]);
    // SAFETY: the buffers stay until the entries are read.
    unsafe {
        let (ep, any) = (pair.there.ep, FI_ADDR_UNSPEC);
        assert_eq!(pair.there.msg().recv.unwrap()(ep, room(&mut plain), 8, null_mut(), any, context(1)), 0);
        let recv = pair.there.tagged().recv.unwrap();
        assert_eq!(recv(ep, room(&mut tagged), 8, null_mut(), any, 3, 0, context(2)), 0);
        let (ep, to) = (pair.here.ep, pair.to_there);
        pair.attempt(|| pair.here.tagged().inject.unwrap()(ep, start(b"tagged"), 6, to, 3));
        pair.attempt(|| pair.here.msg().injectdata.unwrap()(ep, start(b"plain"), 5, 9, to));
    }
    let mut seen =
        [1, 2].map(|_| pair.wait(&pair.there).unwrap_or_else(|failed| panic!("{}", failed.text)).0);
    seen.sort_by_key(|entry| entry.op_context.addr());
    assert_eq!((seen[0].flags, seen[0].data), (FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA, 9));
    assert_eq!(seen[1].flags, FI_RECV | FI_TAGGED);
    assert_eq!((&plain[..5], &tagged[..6]), (&b"plain"[..], &b"tagged"[..]));
    assert!(pair.here.read().is_none(), "an injected message is complete without a word");
    // SAFETY: an open counter.
    let counted = unsafe { (*(*pair.here.cntr).ops).read.unwrap()(pair.here.cntr) };
    assert_eq!(counted, 2, "but it is counted");
    pair.close();
}

#[test]
fn pieces_are_gathered_and_scattered() {
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions::default());
    for bytes in [30, 30_000] {
        let data = payload(1, bytes);
        let mut into = vec![0u8; bytes];
        let cut = |base: *mut u8| {
            let third = bytes / 3;
            [0, third, 2 * third].map(|at| iovec { iov_base: base.wrapping_add(at).cast(), iov_len: third })
        };
        let (from, to) = (cut(data.as_ptr().cast_mut()), cut(into.as_mut_ptr()));
        // SAFETY: the buffers stay until the entries are read.
        unsafe {
            let recvv = pair.there.msg().recvv.unwrap();
            assert_eq!(recvv(pair.there.ep, to.as_ptr(), null_mut(), 3, FI_ADDR_UNSPEC, context(1)), 0);
            let sendv = pair.here.msg().sendv.unwrap();
            let ep = pair.here.ep;
            pair.attempt(|| sendv(ep, from.as_ptr(), null_mut(), 3, pair.to_there, context(2)));
        }
        let (entry, _) = pair.wait(&pair.there).unwrap_or_else(|failed| panic!("{}", failed.text));
        assert_eq!(entry.len, bytes);
        assert!(pair.wait(&pair.here).is_ok());
        assert_eq!(into, data);
    }
    pair.close();
}

#[test]
fn a_message_is_looked_at_claimed_dropped_and_cut_short() {
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions::default());
    let look = |flags: u64, tag: u64, number: usize, into: &mut [u8]| {
        let piece = iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let (msg_iov, desc, iov_count) = (&raw const piece, null_mut(), 1);
        let (addr, ignore, context, data) = (FI_ADDR_UNSPEC, 0, context(number), 0);
        let msg = fi_msg_tagged { msg_iov, desc, iov_count, addr, tag, ignore, context, data };
        // SAFETY: the buffer stays until the entry is read.
        assert_eq!(unsafe { pair.there.tagged().recvmsg.unwrap()(pair.there.ep, &raw const msg, flags) }, 0);
    };
    look(FI_PEEK, 1, 10, &mut []);
    let failed = pair.wait(&pair.there).err().expect("there is no message yet");
    assert_eq!((failed.entry.err, failed.entry.op_context), (FI_ENOMSG, context(10)));
    look(FI_PEEK, 1, 10, &mut []);
    // Who expects this reads it into an entry as it finds it on its stack.
    // SAFETY: plain numbers, and pointers that nobody follows.
    unsafe {
        let mut entry: fi_cq_err_entry = std::mem::zeroed();
        (entry.err_data, entry.err_data_size) = (context(1), 4096);
        assert_eq!((*(*pair.there.cq).ops).readerr.unwrap()(pair.there.cq, &raw mut entry, 0), 1);
        assert_eq!((entry.err, entry.err_data, entry.err_data_size), (FI_ENOMSG, null_mut(), 0));
    }
    for tag in [1, 2, 3] {
        let data = payload(tag as usize, 100);
        let inject = pair.here.tagged().inject.unwrap();
        // SAFETY: the buffer is there.
        pair.attempt(|| unsafe { inject(pair.here.ep, start(&data), 100, pair.to_there, tag) });
    }
    let begun = std::time::Instant::now();
    loop {
        look(FI_PEEK | FI_CLAIM, 2, 11, &mut []);
        match pair.wait(&pair.there) {
            Ok((entry, from)) => {
                assert_eq!((entry.len, entry.tag, from), (100, 2, pair.to_here));
                break;
            }
            Err(failed) => assert_eq!(failed.entry.err, FI_ENOMSG),
        }
        pair.progress();
        assert!(begun.elapsed() < PATIENCE);
    }
    look(FI_PEEK, 2, 12, &mut []);
    assert!(pair.wait(&pair.there).is_err(), "nobody else finds what was claimed");
    let mut into = [0; 200];
    look(FI_CLAIM, 2, 11, &mut into);
    let (entry, _) = pair.wait(&pair.there).unwrap_or_else(|failed| panic!("{}", failed.text));
    assert_eq!((entry.len, entry.op_context), (100, context(11)));
    assert_eq!(into[..100], payload(2, 100));
    look(FI_PEEK | FI_DISCARD, 1, 13, &mut []);
    assert!(pair.wait(&pair.there).is_ok());
    look(FI_PEEK, 1, 14, &mut []);
    assert!(pair.wait(&pair.there).is_err(), "it was dropped");
    let mut short = [0; 60];
    look(0, 3, 15, &mut short);
    let failed = pair.wait(&pair.there).err().expect("too long for its buffer");
    assert_eq!((failed.entry.err, failed.entry.len, failed.entry.olen), (FI_ETRUNC, 60, 40));
    assert_eq!(short[..], payload(3, 100)[..60]);
    pair.close();
}

#[test]
fn one_buffer_takes_several_messages_and_is_given_back() {
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions::default());
    let mut buffer = vec![0u8; 1000];
    let base = buffer.as_mut_ptr();
    let piece = iovec { iov_base: base.cast(), iov_len: 1000 };
    let (msg_iov, desc, iov_count) = (&raw const piece, null_mut(), 1);
    let msg = fi_msg { msg_iov, desc, iov_count, addr: FI_ADDR_UNSPEC, context: context(1), data: 0 };
    // SAFETY: the buffer stays until it is given back.
    unsafe {
        let ep = &raw mut (*pair.there.ep).fid;
        let setopt = (*(*pair.there.ep).ops).setopt.unwrap();
        let least = 300usize;
        let (level, name) = (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV);
        assert_eq!(setopt(ep, level, name, (&raw const least).cast(), size_of::<usize>()), 0);
        assert_eq!(pair.there.msg().recvmsg.unwrap()(pair.there.ep, &raw const msg, FI_MULTI_RECV), 0);
        for number in 0..4 {
            let data = payload(number, 200);
            let inject = pair.here.msg().inject.unwrap();
            pair.attempt(|| inject(pair.here.ep, start(&data), 200, pair.to_there));
        }
    }
    for number in 0..4 {
        let (entry, _) = pair.wait(&pair.there).unwrap_or_else(|failed| panic!("{}", failed.text));
        assert_eq!((entry.len, entry.buf), (200, base.wrapping_add(200 * number).cast()));
        assert_eq!(entry.flags & FI_MULTI_RECV != 0, number == 3, "message {number}");
    }
    for number in 0..4 {
        assert_eq!(buffer[200 * number..200 * (number + 1)], payload(number, 200));
    }
    pair.close();
}

#[test]
fn a_receive_is_for_the_peer_that_it_names_and_can_be_cancelled() {
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions::default());
    let other = Side::open(SideOptions::default());
    let (to_there, from_other) = (other.insert(&pair.there.name()), pair.there.insert(&other.name()));
    let mut buffers = [[0u8; 8]; 3];
    let post = |from: fi_addr_t, number: usize, into: &mut [u8]| {
        let recv = pair.there.tagged().recv.unwrap();
        // SAFETY: the buffer stays until the entry is read.
        unsafe { recv(pair.there.ep, room(into), 8, null_mut(), from, 1, 0, context(number)) }
    };
    let [first, second, third] = &mut buffers;
    assert_eq!(post(from_other, 1, first), 0);
    assert_eq!(post(pair.to_here, 2, second), 0);
    assert_eq!(post(FI_ADDR_UNSPEC, 3, third), 0);
    // SAFETY: the buffers are there.
    unsafe {
        pair.attempt(|| {
            pair.here.tagged().inject.unwrap()(pair.here.ep, start(b"here"), 4, pair.to_there, 1)
        });
        let (entry, from) = pair.wait(&pair.there).unwrap_or_else(|failed| panic!("{}", failed.text));
        assert_eq!((entry.op_context, from), (context(2), pair.to_here));
        let cancel = (*(*pair.there.ep).ops).cancel.unwrap();
        let ep = &raw mut (*pair.there.ep).fid;
        assert_eq!(cancel(ep, context(3)), 0);
        assert_eq!(cancel(ep, context(99)), -(FI_ENOENT as isize));
    }
    let failed = pair.wait(&pair.there).err().expect("it was cancelled");
    assert_eq!((failed.entry.err, failed.entry.op_context), (FI_ECANCELED, context(3)));
    loop {
        // SAFETY: the buffer is there.
        let code = unsafe { other.tagged().inject.unwrap()(other.ep, start(b"other"), 5, to_there, 1) };
        if code == 0 {
            break;
        }
        pair.progress();
    }
    let begun = std::time::Instant::now();
    let (entry, from) = loop {
        other.read();
        if let Some(Ok(entry)) = pair.there.read() {
            break entry;
        }
        assert!(begun.elapsed() < PATIENCE);
    };
    assert_eq!((entry.op_context, from), (context(1), from_other));
    assert_eq!(&buffers[0][..5], b"other");
    other.close();
    pair.close();
}

#[test]
fn a_number_that_is_used_again_is_no_longer_that_of_the_peer_that_had_it() {
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions::default());
    let other = Side::open(SideOptions::default());
    let other_to_here = other.insert(&pair.here.name());
    let mut into = [0u8; 8];
    // The number that a message of this side's is told with.
    let mut hear = |side: &Side, to_here: fi_addr_t, number: usize| {
        let any = FI_ADDR_UNSPEC;
        // SAFETY: the buffer stays until the entry is read.
        unsafe {
            let recv = pair.here.msg().recv.unwrap();
            assert_eq!(recv(pair.here.ep, room(&mut into), 8, null_mut(), any, context(number)), 0);
        }
        let inject = side.msg().inject.unwrap();
        let progress = || assert!(side.read().is_none());
        pair.attempt(|| {
            progress();
            // SAFETY: the buffer is there.
            unsafe { inject(side.ep, start(b"hello"), 5, to_here) }
        });
        let begun = std::time::Instant::now();
        loop {
            progress();
            if let Some(entry) = pair.here.read() {
                let (entry, from) = entry.unwrap_or_else(|failed| panic!("{}", failed.text));
                assert_eq!(entry.op_context, context(number));
                return from;
            }
            assert!(begun.elapsed() < PATIENCE, "nothing comes");
        }
    };
    assert_eq!(hear(&pair.there, pair.to_here, 1), pair.to_there);
    pair.here.remove(pair.to_there);
    assert_eq!(hear(&pair.there, pair.to_here, 2), FI_ADDR_NOTAVAIL, "nobody has the number");
    assert_eq!(pair.here.insert(&other.name()), pair.to_there, "the number is used again");
    assert_eq!(hear(&pair.there, pair.to_here, 3), FI_ADDR_NOTAVAIL, "the number is another's");
    assert_eq!(hear(&other, other_to_here, 4), pair.to_there);
    let again = pair.here.insert(&pair.there.name());
    assert_eq!(hear(&pair.there, pair.to_here, 5), again);
    assert_eq!(hear(&other, other_to_here, 6), pair.to_there);
    other.close();
    pair.close();
}

#[test]
fn a_peer_without_a_number_hides_no_other_peers_number() {
    if host().is_none() {
        return;
    }
    let [here, known, stranger] = [(); 3].map(|()| Side::open(SideOptions::default()));
    let number = here.insert(&known.name());
    let mut into = [[0u8; 8]; 2];
    // Both are connected before the first of their messages is received.
    let begun = std::time::Instant::now();
    for (side, word) in [(&stranger, b"strange"), (&known, b"familia")] {
        let (to_here, inject) = (side.insert(&here.name()), side.msg().inject.unwrap());
        // SAFETY: the buffer is there.
        while unsafe { inject(side.ep, start(word), 7, to_here) } != 0 {
            assert!(begun.elapsed() < PATIENCE, "no room");
            assert!(here.read().is_none() && side.read().is_none());
        }
    }
    // Told by what arrived, not by the order in which it did.
    let mut from = into.each_mut().map(|into| {
        // SAFETY: the buffer stays until the entry is read.
        unsafe {
            let recv = here.msg().recv.unwrap();
            assert_eq!(recv(here.ep, room(into), 8, null_mut(), FI_ADDR_UNSPEC, context(1)), 0);
        }
        loop {
            assert!(begun.elapsed() < PATIENCE, "nothing comes");
            if let Some(entry) = here.read() {
                return (*into, entry.unwrap_or_else(|failed| panic!("{}", failed.text)).1);
            }
        }
    });
    from.sort_unstable();
    assert_eq!(from, [(*b"familia\0", number), (*b"strange\0", FI_ADDR_NOTAVAIL)]);
    for side in [here, known, stranger] {
        side.close();
    }
}

#[test]
fn only_what_asks_for_it_is_told_of_where_completions_are_selective() {
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions { selective: FI_SELECTIVE_COMPLETION, ..SideOptions::default() });
    let mut into = [0u8; 8];
    // SAFETY: the buffers stay.
    unsafe {
        let recv = pair.there.msg().recv.unwrap();
        assert_eq!(recv(pair.there.ep, room(&mut into), 8, null_mut(), FI_ADDR_UNSPEC, context(1)), 0);
        let send = pair.here.msg().send.unwrap();
        pair.attempt(|| send(pair.here.ep, start(b"silent"), 6, null_mut(), pair.to_there, context(2)));
        let begun = std::time::Instant::now();
        while (&raw const into).read_volatile()[..6] != *b"silent" {
            assert!(pair.there.read().is_none() && pair.here.read().is_none());
            assert!(begun.elapsed() < PATIENCE);
        }
        let piece = iovec { iov_base: into.as_mut_ptr().cast(), iov_len: 8 };
        let (msg_iov, desc, iov_count) = (&raw const piece, null_mut(), 1);
        let mut msg = fi_msg { msg_iov, desc, iov_count, addr: FI_ADDR_UNSPEC, context: context(3), data: 0 };
        assert_eq!(pair.there.msg().recvmsg.unwrap()(pair.there.ep, &raw const msg, FI_COMPLETION), 0);
        let data = *b"spoken of";
        let out = iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: 6 };
        (msg.msg_iov, msg.addr, msg.context) = (&raw const out, pair.to_there, context(4));
        let flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
        pair.attempt(|| pair.here.msg().sendmsg.unwrap()(pair.here.ep, &raw const msg, flags));
    }
    assert_eq!(pair.wait(&pair.there).map(|(entry, _)| entry.op_context).ok(), Some(context(3)));
    assert_eq!(pair.wait(&pair.here).map(|(entry, _)| entry.op_context).ok(), Some(context(4)));
    pair.close();
}

#[test]
fn what_is_counted_when_it_is_delivered_is_not_counted_before_though_no_entry_is_wanted() {
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions { selective: FI_SELECTIVE_COMPLETION, ..SideOptions::default() });
    let mut into = [0u8; 8];
    // SAFETY: the buffers stay, and the counter is open.
    unsafe {
        let recv = pair.there.msg().recv.unwrap();
        assert_eq!(recv(pair.there.ep, room(&mut into), 8, null_mut(), FI_ADDR_UNSPEC, context(1)), 0);
        let data = *b"counted";
        let piece = iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: 7 };
        let (msg_iov, desc, iov_count) = (&raw const piece, null_mut(), 1);
        let msg = fi_msg { msg_iov, desc, iov_count, addr: pair.to_there, context: context(2), data: 0 };
        let send = pair.here.msg().sendmsg.unwrap();
        pair.attempt(|| send(pair.here.ep, &raw const msg, FI_DELIVERY_COMPLETE));
        let counted = || (*(*pair.here.cntr).ops).read.unwrap()(pair.here.cntr);
        (0..100).for_each(|_| assert_eq!(counted(), 0, "its receiver makes no call"));
        let begun = std::time::Instant::now();
        while counted() == 0 {
            assert!(begun.elapsed() < PATIENCE, "it is never counted");
            pair.there.read();
        }
    }
    assert!(pair.here.read().is_none());
    assert_eq!(&into[..7], b"counted");
    pair.close();
}

#[test]
fn what_is_injected_leaves_though_its_sender_makes_no_further_call() {
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions::default());
    let (mut memory, mut into) = (vec![0u64; 2], [[0u8; 8]; 2]);
    // SAFETY: the buffers stay until both sides are closed.
    unsafe {
        let bytes = std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), 16);
        let region = pair.there.register(bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, 7);
        let recv = pair.there.tagged().recv.unwrap();
        for (tag, place) in into.iter_mut().enumerate() {
            let (place, any) = (place.as_mut_ptr().cast(), FI_ADDR_UNSPEC);
            assert_eq!(recv(pair.there.ep, place, 8, null_mut(), any, tag as u64, 0, context(1)), 0);
        }
        let (ep, to) = (pair.here.ep, pair.to_there);
        let inject = pair.here.tagged().inject.unwrap();
        pair.attempt(|| inject(ep, start(b"first"), 5, to, 0));
        // Only its receiver calls from now on, so that all that follows is behind a message of whose arrival nobody here knows.
        let begun = std::time::Instant::now();
        let arrives = |there: &dyn Fn() -> bool| {
            while !there() {
                assert!(begun.elapsed() < PATIENCE, "it does not leave");
                pair.there.read();
            }
        };
        let word = |at: usize| memory.as_ptr().add(at).read_volatile();
        assert_eq!(inject(ep, start(b"second"), 6, to, 1), 0);
        let second = into[1].as_ptr();
        arrives(&|| second.cast::<[u8; 6]>().read_volatile() == *b"second");
        assert_eq!(pair.here.rma().inject.unwrap()(ep, start(&[9; 8]), 8, to, 0, 7), 0);
        arrives(&|| word(0) == u64::from_ne_bytes([9; 8]));
        let one = 1u64;
        let atomic = pair.here.atomic().inject.unwrap();
        assert_eq!(atomic(ep, (&raw const one).cast(), 1, to, 8, 7, FI_UINT64, FI_SUM), 0);
        arrives(&|| word(1) == 1);
        assert_eq!(close(&raw mut (*region).fid), 0);
    }
    pair.close();
}

#[test]
fn what_waits_for_a_peer_that_is_gone_fails_and_says_why() {
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions::default());
    let mut into = vec![0u8; 100];
    let long = vec![1u8; 8 << 20];
    // SAFETY: the buffers stay until the entries are read.
    unsafe {
        let inject = pair.there.msg().inject.unwrap();
        pair.attempt(|| inject(pair.there.ep, start(b"hello"), 5, pair.to_here));
        let recv = pair.here.msg().recv.unwrap();
        let (ep, from) = (pair.here.ep, pair.to_there);
        assert_eq!(recv(ep, room(&mut into), 100, null_mut(), from, context(1)), 0);
        assert!(pair.wait(&pair.here).is_ok());
        assert_eq!(recv(ep, room(&mut into), 100, null_mut(), from, context(2)), 0);
        pair.attempt(|| {
            pair.here.msg().send.unwrap()(ep, start(&long), long.len(), null_mut(), from, context(3))
        });
    }
    let Pair { here, there, to_there, .. } = pair;
    there.close();
    let mut told = Vec::new();
    let begun = std::time::Instant::now();
    while told.len() < 2 {
        assert!(begun.elapsed() < PATIENCE);
        if let Some(Err(failed)) = here.read() {
            assert_eq!(failed.entry.err, FI_ECONNRESET, "{}", failed.text);
            assert!(failed.text.contains("127.0.0.1"), "{}", failed.text);
            told.push(failed.entry.op_context.addr());
        }
    }
    told.sort_unstable();
    assert_eq!(told, [2, 3]);
    // SAFETY: the buffer is there.
    let code = unsafe { here.msg().inject.unwrap()(here.ep, start(b"more"), 4, to_there) };
    assert_eq!(code, -(FI_ECONNRESET as isize));
    here.close();
}
