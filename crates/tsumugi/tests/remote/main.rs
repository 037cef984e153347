//! Remote memory between endpoints on the loopback interface, with and without faults.

mod in_order;
mod notifying;
mod unmapped;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tsumugi::remote::{
    Atomic, AtomicOperation, Operation, OperationError, Refused, RegisterError, Registration, RemoteError,
    Word,
};
use tsumugi::{
    Config, Endpoint, FaultOptions, PeerId, Region, Rights, SendError, Target, Ticket, TicketStatus,
};

const LIMIT: Duration = Duration::from_secs(60);
const DONE: Option<Result<u64, RemoteError>> = Some(Ok(0));

/// Two endpoints that one thread drives: `here` uses the memory of `there`.
struct Pair {
    here: Endpoint,
    there: Endpoint,
    peer: PeerId,
}

impl Pair {
    fn open(config: Config) -> Pair {
        // Whoever is dropped first has nobody left to acknowledge.
        let config = config.accept_unknown(true).linger(Duration::from_millis(20));
        let there = Endpoint::open(config.clone()).unwrap();
        let here = Endpoint::open(config).unwrap();
        let peer = here.add_peer(format!("127.0.0.1:{}", there.port())).unwrap();
        Pair { here, there, peer }
    }

    fn until(&self, what: &str, mut ready: impl FnMut() -> bool) {
        let began = Instant::now();
        while !ready() {
            assert!(began.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
            self.here.progress().unwrap();
            self.there.progress().unwrap();
        }
    }

    fn outcome(&self, operation: Result<Operation, SendError>) -> Result<u64, RemoteError> {
        let operation = operation.unwrap();
        self.until("an operation's outcome", || operation.outcome().is_some());
        operation.outcome().unwrap()
    }

    fn fence(&self) {
        let fence = self.post(|| self.here.remote().fence(self.peer));
        assert_eq!(self.outcome(Ok(fence)), Ok(0));
    }

    /// Tries until the queue has room.
    fn post<T>(&self, mut post: impl FnMut() -> Result<T, SendError>) -> T {
        let mut posted = None;
        self.until("room", || match post() {
            Ok(done) => {
                posted = Some(done);
                true
            }
            Err(SendError::WouldBlock) => false,
            Err(error) => panic!("{error}"),
        });
        posted.unwrap()
    }

    fn write(&self, to: Target, from: &tsumugi::Slice) -> Ticket {
        self.post(|| self.here.remote().write(self.peer, to, from))
    }
}

fn payload(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|at| (at.wrapping_mul(31) ^ seed.wrapping_mul(0x9e37_79b9) ^ (at >> 8)) as u8)
        .collect()
}

fn region_of(bytes: &[u8]) -> Region {
    let region = Region::new(bytes.len().max(1)).unwrap();
    region.write(0, bytes).unwrap();
    region
}

fn bytes_of(region: &Region, at: usize, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    region.read(at, &mut out).unwrap();
    out
}

fn registered(endpoint: &Endpoint, bytes: usize, rights: Rights) -> (Region, Registration) {
    let region = Region::new(bytes).unwrap();
    let registration = endpoint.remote().register(&region.all(), rights).unwrap();
    (region, registration)
}

fn faulty() -> Config {
    let faults: FaultOptions = "loss=3%,dup=3%,reorder=10%,corrupt=1%,seed=11".parse().unwrap();
    Config::loopback().faults(Some(faults)).datagram_bytes(Some(1472))
}

#[test]
fn what_is_written_is_there_and_is_read_back_whatever_its_length_and_place() {
    for config in [Config::loopback(), faulty()] {
        let pair = Pair::open(config);
        let (memory, registration) = registered(&pair.there, 2 << 20, Rights::READ.and(Rights::WRITE));
        for (round, bytes) in
            [1, 2, 7, 8, 100, 1392, 1393, 4095, 4097, 70_001, 1 << 20].into_iter().enumerate()
        {
            let at = 4096 * 3 - 1 - round;
            let data = payload(bytes as u64, bytes);
            let ticket = pair.write(registration.target().plus(at as u64), &region_of(&data).all());
            pair.fence();
            assert_eq!(pair.here.status(ticket), TicketStatus::Delivered);
            assert!(bytes_of(&memory, at, bytes) == data, "{bytes} bytes at {at} were altered");
            assert_eq!(bytes_of(&memory, at - 1, 1), [0], "the byte before was written");
            let back = Region::new(bytes).unwrap();
            let read = pair.here.remote().read(pair.peer, registration.target().plus(at as u64), &back.all());
            assert_eq!(pair.outcome(read), Ok(0));
            assert!(bytes_of(&back, 0, bytes) == data, "{bytes} bytes were read wrongly");
            memory.write(at, &vec![0; bytes]).unwrap();
        }
    }
}

#[test]
fn regions_beyond_four_gibibytes_are_reached() {
    let pair = Pair::open(Config::loopback());
    let (memory, registration) = registered(&pair.there, 5 << 30, Rights::ALL);
    let at = (5usize << 30) - 100_000;
    let data = payload(1, 100_000);
    pair.write(registration.target().plus(at as u64), &region_of(&data).all());
    pair.fence();
    assert!(bytes_of(&memory, at, data.len()) == data);
}

#[test]
fn many_long_writes_and_reads_are_under_way_at_once() {
    let pair = Pair::open(faulty());
    const BYTES: usize = 300_000;
    let (memory, registration) = registered(&pair.there, 20 * BYTES, Rights::ALL);
    let sources: Vec<Vec<u8>> = (0..20).map(|seed| payload(seed, BYTES)).collect();
    for (index, data) in sources.iter().enumerate() {
        pair.write(registration.target().plus((index * BYTES) as u64), &region_of(data).all());
    }
    let back = Region::new(20 * BYTES).unwrap();
    let reads: Vec<Operation> = (0..20)
        .map(|index| {
            let into = back.slice(index * BYTES..(index + 1) * BYTES).unwrap();
            let from = registration.target().plus((index * BYTES) as u64);
            pair.post(|| pair.here.remote().read(pair.peer, from, &into))
        })
        .collect();
    pair.until("the reads", || reads.iter().all(|read| read.outcome().is_some()));
    for (index, data) in sources.iter().enumerate() {
        assert_eq!(reads[index].outcome(), DONE);
        assert!(bytes_of(&memory, index * BYTES, BYTES) == *data, "write {index}");
        assert!(bytes_of(&back, index * BYTES, BYTES) == *data, "read {index} overtook its write");
    }
}

#[test]
fn a_flag_written_behind_data_tells_the_truth() {
    let pair = Pair::open(faulty());
    const BYTES: usize = 20_000;
    let (memory, registration) = registered(&pair.there, BYTES + 8, Rights::WRITE);
    let flag = memory.word(BYTES).unwrap();
    for round in 1..=30 {
        let data = payload(round, BYTES);
        pair.write(registration.target(), &region_of(&data).all());
        let to = registration.target().plus(BYTES as u64);
        pair.post(|| pair.here.remote().write_bytes(pair.peer, to, &round.to_le_bytes()));
        pair.until("the flag", || flag.load(std::sync::atomic::Ordering::Acquire) == round);
        assert!(bytes_of(&memory, 0, BYTES) == data, "round {round}: the flag came before the data");
    }
}

/// As above, with the flag in the write itself.
#[test]
fn a_short_write_ends_with_a_flag_for_the_rest_of_it() {
    let pair = Pair::open(Config::loopback());
    let (remote, stranger) = (pair.here.remote(), PeerId(99));
    assert_eq!(remote.short_bytes(stranger), 0);
    let before = remote.short_bytes(pair.peer);
    assert!(before >= 256, "{before} bytes before the peer has answered");
    let (memory, registration) = registered(&pair.there, 1 << 17, Rights::WRITE);
    let fence = remote.fence(pair.peer);
    pair.outcome(fence).unwrap();
    let bytes = remote.short_bytes(pair.peer);
    assert!(bytes > before, "{bytes} bytes afterwards");
    let sent = pair.here.counters().get("packets_sent");
    for round in 1..=30 {
        let data = payload(round, bytes / 8 * 8);
        let flag = memory.word(data.len() - 8).unwrap();
        pair.write(registration.target(), &region_of(&data).all());
        let last = u64::from_ne_bytes(*data.last_chunk().unwrap());
        pair.until("the flag", || flag.load(std::sync::atomic::Ordering::Acquire) == last);
        assert!(bytes_of(&memory, 0, data.len()) == data, "round {round}: the flag came before the data");
    }
    assert_eq!(pair.here.counters().get("packets_sent") - sent, 30, "one packet for each");
}

#[test]
fn what_may_not_be_is_refused_counted_and_told_and_changes_nothing() {
    let pair = Pair::open(Config::loopback());
    let remote = pair.here.remote();
    let peer = pair.peer;
    let (memory, read_only) = registered(&pair.there, 10_000, Rights::READ);
    let write_only = pair.there.remote().register(&memory.all(), Rights::WRITE).unwrap();
    let middle = pair.there.remote().register(&memory.slice(4000..5000).unwrap(), Rights::ALL).unwrap();
    let revoked = pair.there.remote().register(&memory.all(), Rights::ALL).unwrap().target();
    let guessed = Target { key: 0x1234_5678_9abc_def0, ..middle.target() };
    let (short, long) = (region_of(&[7; 8]), region_of(&[7; 5000]));

    let writes = [
        (guessed, &short, Refused::NoSuchKey),
        (revoked, &short, Refused::NoSuchKey),
        (read_only.target(), &short, Refused::NotPermitted),
        (read_only.target(), &long, Refused::NotPermitted),
        (middle.target().plus(993), &short, Refused::OutOfBounds),
        (middle.target().plus(u64::MAX), &short, Refused::OutOfBounds),
        (middle.target().plus(1 << 63), &long, Refused::OutOfBounds),
        (write_only.target().plus(10_000), &short, Refused::OutOfBounds),
    ];
    for (number, (to, from, why)) in writes.into_iter().enumerate() {
        let ticket = pair.write(to, &from.all());
        pair.fence();
        let refusal = remote.take_refusal().unwrap_or_else(|| panic!("write {number} was not refused"));
        assert_eq!((refusal.ticket, refusal.error), (ticket, RemoteError::Refused(why)), "write {number}");
        assert_eq!(remote.take_refusal(), None, "write {number} was refused twice");
    }
    let into = Region::new(8).unwrap();
    let add = |word| Atomic { operation: AtomicOperation::Add, word, operand: 1, compare: 0 };
    let asks = [
        (remote.read(peer, guessed, &into.all()), Refused::NoSuchKey),
        (remote.read(peer, write_only.target(), &into.all()), Refused::NotPermitted),
        (remote.read(peer, middle.target().plus(1000), &into.all()), Refused::OutOfBounds),
        (remote.read(peer, middle.target(), &long.all()), Refused::OutOfBounds),
        (remote.atomic(peer, read_only.target(), add(Word::U64)), Refused::NotPermitted),
        (remote.atomic(peer, middle.target().plus(1), add(Word::U64)), Refused::Misaligned),
        (remote.atomic(peer, middle.target().plus(999), add(Word::U16)), Refused::OutOfBounds),
        (
            remote.atomic(
                peer,
                middle.target(),
                Atomic { operation: AtomicOperation::Xor, ..add(Word::F32) },
            ),
            Refused::Malformed,
        ),
    ];
    let many = asks.len() as u64;
    for (number, (operation, why)) in asks.into_iter().enumerate() {
        assert_eq!(pair.outcome(operation), Err(RemoteError::Refused(why)), "request {number}");
    }
    assert_eq!(bytes_of(&memory, 0, 10_000), vec![0; 10_000]);
    let counted = pair.there.counters().get("remote_refused");
    assert!(counted >= 8 + many, "{counted} of {} refusals are counted", 8 + many);
    assert!(pair.there.remote().register(&memory.slice(5..5).unwrap(), Rights::ALL).is_err());
}

#[test]
fn nothing_is_written_after_a_key_is_revoked_in_the_middle_of_a_write() {
    let pair = Pair::open(Config::loopback().datagram_bytes(Some(1472)));
    const BYTES: usize = 8 << 20;
    let (memory, registration) = registered(&pair.there, BYTES, Rights::WRITE);
    let ticket = pair.write(registration.target(), &region_of(&vec![1; BYTES]).all());
    let arrived = || bytes_of(&memory, 0, BYTES).iter().filter(|byte| **byte == 1).count();
    pair.until("a part", || arrived() > 0);
    drop(registration);
    let before = arrived();
    assert!(before < BYTES, "all of it was there before the key could be revoked");
    pair.fence();
    assert_eq!(arrived(), before);
    let refusal = pair.here.remote().take_refusal().expect("it was refused");
    // The ticket may be told by the number: it is that write's.
    assert_eq!((refusal.ticket, refusal.error), (ticket, RemoteError::Refused(Refused::NoSuchKey)));
    assert_eq!(pair.here.remote().take_refusal(), None);
}

#[test]
fn a_region_may_go_while_it_is_read_and_written_by_others() {
    let pair = Pair::open(Config::loopback());
    const BYTES: usize = 4 << 20;
    let data = payload(3, BYTES);
    let (memory, registration) = registered(&pair.there, BYTES, Rights::ALL);
    memory.write(0, &data).unwrap();
    let into = Region::new(BYTES).unwrap();
    let read = pair.here.remote().read(pair.peer, registration.target(), &into.all()).unwrap();
    pair.until("a part", || bytes_of(&into, 0, 1) == [data[0]]);
    drop((memory, registration));
    pair.until("the rest", || read.outcome().is_some());
    assert_eq!(read.outcome(), DONE);
    assert!(bytes_of(&into, 0, BYTES) == data);
}

#[test]
fn counters_count_everybody_once() {
    const EACH: u64 = 300;
    let there = Endpoint::open(faulty().accept_unknown(true)).unwrap();
    let (memory, registration) = registered(&there, 8, Rights::ALL);
    let users: Vec<Endpoint> = (0..3).map(|_| Endpoint::open(faulty()).unwrap()).collect();
    let mut operations = Vec::new();
    for user in &users {
        let peer = user.add_peer(format!("127.0.0.1:{}", there.port())).unwrap();
        for _ in 0..EACH {
            operations.push(user.remote().fetch_add(peer, registration.target(), 1).unwrap());
        }
    }
    let began = Instant::now();
    while operations.iter().any(|operation| operation.outcome().is_none()) {
        assert!(began.elapsed() < LIMIT);
        for endpoint in users.iter().chain([&there]) {
            endpoint.progress().unwrap();
        }
    }
    let mut seen: Vec<u64> =
        operations.iter().map(|operation| operation.outcome().unwrap().unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..3 * EACH).collect::<Vec<_>>(), "each value was seen once");
    assert_eq!(memory.word(0).unwrap().load(std::sync::atomic::Ordering::Relaxed), 3 * EACH);
}

#[test]
fn compare_and_swap_gives_a_lock_to_one() {
    let pair = Pair::open(Config::loopback());
    let (_memory, registration) = registered(&pair.there, 64, Rights::ATOMIC);
    let remote = pair.here.remote();
    let swap =
        |compare, new| pair.outcome(remote.compare_swap(pair.peer, registration.target(), compare, new));
    assert_eq!(swap(0, 17), Ok(0));
    assert_eq!(swap(0, 18), Ok(17), "it is taken");
    assert_eq!(swap(17, 0), Ok(17));
    assert_eq!(swap(0, 19), Ok(0));
}

#[test]
fn too_many_operations_wait_at_the_sender() {
    let pair = Pair::open(Config::loopback());
    let (_memory, registration) = registered(&pair.there, 64, Rights::ALL);
    let mut operations = Vec::new();
    let refused = loop {
        match pair.here.remote().fetch_add(pair.peer, registration.target(), 1) {
            Ok(operation) => operations.push(operation),
            Err(error) => break error,
        }
        assert!(operations.len() < 100_000);
    };
    assert!(matches!(refused, SendError::WouldBlock), "{refused}");
    pair.until("all of them", || operations.iter().all(|operation| operation.outcome().is_some()));
    assert!(
        operations
            .iter()
            .enumerate()
            .all(|(number, operation)| operation.outcome() == Some(Ok(number as u64)))
    );
    pair.here.remote().fetch_add(pair.peer, registration.target(), 1).unwrap();
}

#[test]
fn who_waits_hears_that_the_peer_is_gone() {
    let pair = Pair::open(
        Config::loopback()
            .peer_timeout(Duration::from_millis(300))
            .faults(Some("firewall=on".parse().unwrap())),
    );
    let (_memory, registration) = registered(&pair.there, 1 << 20, Rights::ALL);
    pair.fence();
    let Pair { here, there, peer } = pair;
    let into = Region::new(1 << 20).unwrap();
    let target = registration.target();
    // Nobody makes progress there any more.
    let operations = [
        here.remote().read(peer, target, &into.all()).unwrap(),
        here.remote().fetch_add(peer, target, 1).unwrap(),
        here.remote().fence(peer).unwrap(),
    ];
    for operation in &operations {
        let outcome = operation.wait_timeout(LIMIT);
        let gone = RemoteError::PeerGone(peer);
        assert!(matches!(outcome, Err(OperationError::Remote(error)) if error == gone), "{outcome:?}");
    }
    assert!(here.take_failure().is_some());
    assert!(matches!(here.remote().fence(peer), Err(SendError::Peer(_))));
    drop((there, registration));
}

#[test]
fn an_endpoint_with_operations_under_way_is_not_suspended() {
    let pair = Pair::open(Config::loopback());
    let (_memory, registration) = registered(&pair.there, 64, Rights::ALL);
    let operation = pair.here.remote().fetch_add(pair.peer, registration.target(), 1).unwrap();
    let (error, here) = match pair.here.suspend() {
        Ok(_) => panic!("suspended in the middle of an operation"),
        Err(refused) => refused,
    };
    assert!(error.to_string().contains("held"), "{error}");
    drop((operation, here));
}

#[test]
fn a_flag_written_behind_data_tells_the_truth_to_another_thread() {
    const ROUNDS: u32 = 200;
    let pair = Pair::open(Config::loopback());
    let (memory, registration) = registered(&pair.there, 1 << 16, Rights::WRITE);
    let (short, long, flag) = (8, 1024, 60_000);
    let seen = AtomicU32::new(0);
    let address = memory.address() as usize;
    std::thread::scope(|scope| {
        let seen = &seen;
        scope.spawn(move || {
            let at = |at: usize| std::ptr::with_exposed_provenance_mut::<u8>(address + at);
            for round in 1..=ROUNDS {
                // SAFETY: aligned, within the region, which lives on, and nobody treats it but as an atomic.
                let flag = unsafe { AtomicU32::from_ptr(at(flag).cast()) };
                while flag.load(Ordering::Acquire) != round {
                    std::thread::yield_now();
                }
                for (place, bytes) in [(short, 100), (long, 20_000)] {
                    let mut data = vec![0; bytes];
                    // SAFETY: within the region; what is there is not written before `seen` says that it was read.
                    unsafe { std::ptr::copy_nonoverlapping(at(place), data.as_mut_ptr(), bytes) };
                    assert!(data == payload(round.into(), bytes), "round {round}: the flag was first");
                }
                seen.store(round, Ordering::Release);
            }
        });
        for round in 1..=ROUNDS {
            let target = registration.target();
            pair.write(target.plus(long as u64), &region_of(&payload(round.into(), 20_000)).all());
            pair.write(target.plus(short as u64), &region_of(&payload(round.into(), 100)).all());
            pair.post(|| {
                pair.here.remote().write_bytes(pair.peer, target.plus(flag as u64), &round.to_ne_bytes())
            });
            pair.until("the other thread", || seen.load(Ordering::Acquire) == round);
        }
    });
}

#[test]
fn memory_is_reached_under_a_key_and_by_places_that_its_owner_chooses() {
    let pair = Pair::open(Config::loopback());
    let memory = region_of(&payload(1, 5000));
    let (key, other_key) = (0, 7);
    let rights = Rights::READ.and(Rights::WRITE);
    let registered =
        pair.there.remote().register_as(&memory.all(), rights, Target { key, address: 0 }).unwrap();
    assert_eq!(registered.target(), Target { key, address: 0 });
    let twice = pair.there.remote().register_as(&memory.all(), rights, Target { key, address: 9 });
    assert_eq!(twice.err(), Some(RegisterError::KeyInUse(key)));
    let upper = memory.slice(4000..5000).unwrap();
    let target = Target { key: other_key, address: 1 << 40 };
    let _upper = pair.there.remote().register_as(&upper, rights, target).unwrap();

    pair.post(|| pair.here.remote().write_bytes(pair.peer, Target { key, address: 3990 }, b"woven of yarn"));
    let into = Region::new(1000).unwrap();
    let read = pair.post(|| pair.here.remote().read(pair.peer, target, &into.all()));
    assert_eq!(pair.outcome(Ok(read)), Ok(0));
    let mut back = [0; 3];
    into.read(0, &mut back).unwrap();
    assert_eq!(&back, b"arn", "both are the same memory");

    let beyond = [Target { key, address: 5000 }, target.plus(1000), Target { key: other_key, address: 0 }];
    for target in beyond {
        let read = pair.post(|| pair.here.remote().read(pair.peer, target, &into.slice(0..1).unwrap()));
        assert_eq!(pair.outcome(Ok(read)), Err(RemoteError::Refused(Refused::OutOfBounds)), "{target:?}");
    }
    drop(registered);
    let read = pair.post(|| pair.here.remote().read(pair.peer, Target { key, address: 0 }, &into.all()));
    assert_eq!(pair.outcome(Ok(read)), Err(RemoteError::Refused(Refused::NoSuchKey)));
    assert!(pair.there.remote().register_as(&memory.all(), rights, Target { key, address: 0 }).is_ok());
}

#[test]
fn a_peer_that_is_added_by_its_address_is_the_one_of_that_name() {
    let pair = Pair::open(Config::loopback());
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], pair.there.port()));
    assert_eq!(pair.here.add_peer(address).unwrap(), pair.peer);
    let mapped =
        std::net::SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), pair.there.port());
    assert_eq!(pair.here.add_peer(mapped).unwrap(), pair.peer);
    assert!(pair.here.add_peer("127.0.0.1:1").is_ok_and(|other| other != pair.peer));
}
