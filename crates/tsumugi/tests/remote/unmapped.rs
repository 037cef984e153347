//! Memory that is unmapped, or mapped anew, while it is registered.

use super::*;

/// Memory that is gone when it is said. Its place stays taken: a hole would be filled by what is mapped next.
fn mapped(bytes: usize) -> (Region, impl FnOnce()) {
    let map = move |start, access, fixed| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
        // SAFETY: a new mapping anywhere, or in place of the one that was made here.
        let start = unsafe { libc::mmap(start, bytes, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        start
    };
    let start = map(std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE, 0);
    // SAFETY: nobody has a reference to it.
    let region = unsafe { Region::from_raw_checked(NonNull::new(start.cast()).unwrap(), bytes) };
    let unmap = move || {
        map(start, libc::PROT_NONE, libc::MAP_FIXED);
    };
    (region, unmap)
}

#[test]
fn memory_that_was_unmapped_is_refused_and_told_and_nobody_dies() {
    if !tsumugi_lab::testing::unless_emulated(
        "memory_that_was_unmapped_is_refused_and_told_and_nobody_dies",
        "needs MADV_POPULATE_READ, which qemu-user takes without doing anything",
    ) {
        return;
    }
    const BYTES: usize = 1 << 20;
    let pair = Pair::open(Config::loopback());
    let (remote, peer) = (pair.here.remote(), pair.peer);
    let (memory, unmap) = mapped(BYTES);
    let registration = pair.there.remote().register(&memory.all(), Rights::ALL).unwrap();
    let (short, long) = (region_of(&[7; 64]), region_of(&vec![9; BYTES]));
    let add = Atomic { operation: AtomicOperation::Add, word: Word::U64, operand: 1, compare: 0 };
    for from in [&short, &long] {
        pair.write(registration.target(), &from.all());
        pair.fence();
        let into = Region::new(from.bytes()).unwrap();
        let read = pair.outcome(remote.read(peer, registration.target(), &into.all()));
        assert_eq!(read, Ok(0));
        assert_eq!(bytes_of(&into, 0, from.bytes()), bytes_of(from, 0, from.bytes()));
    }
    assert!(pair.outcome(remote.atomic(peer, registration.target(), add)).is_ok());
    // A long read is under way when its memory goes.
    let into = Region::new(BYTES).unwrap();
    let read = remote.read(peer, registration.target(), &into.all());
    pair.here.progress().unwrap();
    unmap();
    let refused = Err(RemoteError::Refused(Refused::NotMapped));
    assert_eq!(pair.outcome(read), refused);
    for from in [&short, &long] {
        let ticket = pair.write(registration.target(), &from.all());
        pair.fence();
        let refusal = remote.take_refusal().expect("a refusal");
        assert_eq!((refusal.ticket, Err(refusal.error)), (ticket, refused));
        assert_eq!(remote.take_refusal(), None);
        let into = Region::new(from.bytes()).unwrap();
        assert_eq!(pair.outcome(remote.read(peer, registration.target(), &into.all())), refused);
    }
    assert_eq!(pair.outcome(remote.atomic(peer, registration.target(), add)), refused);
    assert!(pair.here.take_failure().is_none() && pair.there.take_failure().is_none());
}

#[test]
fn own_memory_that_was_unmapped_is_told_of_and_nobody_dies() {
    if !tsumugi_lab::testing::unless_emulated(
        "own_memory_that_was_unmapped_is_told_of_and_nobody_dies",
        "needs MADV_POPULATE_READ, which qemu-user takes without doing anything",
    ) {
        return;
    }
    const BYTES: usize = 1 << 20;
    let pair = Pair::open(Config::loopback());
    let (remote, peer) = (pair.here.remote(), pair.peer);
    let (memory, registration) = registered(&pair.there, BYTES, Rights::ALL);
    pair.fence();
    let (source, unmap) = mapped(BYTES);
    unmap();
    let short = source.slice(0..64).unwrap();
    assert!(matches!(remote.write(peer, registration.target(), &short), Err(SendError::Memory(_))));
    let ticket = pair.write(registration.target(), &source.all());
    pair.fence();
    let refusal = remote.take_refusal().expect("a refusal");
    assert_eq!((refusal.ticket, refusal.error), (ticket, RemoteError::Refused(Refused::NotMapped)));
    for into in [short, source.all()] {
        let read = pair.outcome(remote.read(peer, registration.target(), &into));
        assert_eq!(read, Err(RemoteError::Refused(Refused::NotMapped)));
    }
    pair.fence();
    assert_eq!(bytes_of(&memory, 0, BYTES), vec![0; BYTES]);
    assert!(pair.here.take_failure().is_none() && pair.there.take_failure().is_none());
}

#[test]
fn what_is_mapped_now_is_what_is_reached() {
    let pair = Pair::open(Config::loopback());
    let map = |at: *mut std::ffi::c_void, flags| {
        // SAFETY: fresh pages, or pages in place of those that this test has mapped and nobody refers to.
        let start = unsafe {
            libc::mmap(
                at,
                8192,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        NonNull::new(start.cast::<u8>()).unwrap()
    };
    let start = map(std::ptr::null_mut(), 0);
    // SAFETY: 8192 bytes are mapped there as long as the test runs, by the one mapping or the other.
    let memory = unsafe { Region::from_raw(start, 8192) };
    let registration = pair.there.remote().register(&memory.all(), Rights::ALL).unwrap();
    pair.here.remote().write_bytes(pair.peer, registration.target(), b"one").unwrap();
    pair.fence();
    assert_eq!(bytes_of(&memory, 0, 3), b"one");
    map(start.as_ptr().cast(), libc::MAP_FIXED);
    assert_eq!(bytes_of(&memory, 0, 3), [0; 3], "other pages");
    pair.here.remote().write_bytes(pair.peer, registration.target(), b"two").unwrap();
    pair.fence();
    assert_eq!(bytes_of(&memory, 0, 3), b"two");
}
