//! Export, import, write, notify, between threads on the loopback interface.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tsumugi::remote_memory::{AccessError, ExportError, ImportError, RemoteMemory};
use tsumugi::{Config, Endpoint, Region, Rights};

const LIMIT: Duration = Duration::from_secs(60);
const CHANNEL: u16 = 3;

fn open() -> Endpoint {
    Endpoint::open(Config::loopback().accept_unknown(true)).unwrap()
}

fn bytes_of(region: &Region, at: usize, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    region.read(at, &mut out).unwrap();
    out
}

#[test]
fn an_importer_writes_reads_and_notifies_the_handler_of_its_choice() {
    let (say, told) = mpsc::channel();
    let exporting = thread::spawn(move || {
        let endpoint = open();
        let mut memory = RemoteMemory::open(&endpoint, CHANNEL).unwrap();
        say.send(endpoint.port()).unwrap();
        let region = Region::new(1 << 20).unwrap();
        // The importer may well ask before.
        thread::sleep(Duration::from_millis(30));
        memory.export("a", &region.all(), Rights::ALL).unwrap();
        memory.export("b", &region.slice(100..200).unwrap(), Rights::READ).unwrap();
        assert!(matches!(memory.export("a", &region.all(), Rights::ALL), Err(ExportError::Taken(_))));
        assert!(matches!(memory.export("", &region.all(), Rights::ALL), Err(ExportError::Name(0))));
        let heard = Rc::new(RefCell::new(Vec::new()));
        for handler in [7, 8] {
            let (heard, region) = (Rc::clone(&heard), region.clone());
            memory.on_notification(handler, move |written| {
                let (at, bytes) = (written.slice.at(), written.slice.bytes());
                heard.borrow_mut().push((handler, at, bytes_of(&region, at, bytes)));
            });
        }
        let began = Instant::now();
        while heard.borrow().len() < 2 || memory.strays() == 0 {
            assert!(began.elapsed() < LIMIT);
            memory.poll().unwrap();
        }
        let heard = heard.borrow();
        assert_eq!((heard[0].0, heard[0].1), (8, 0));
        assert!(heard[0].2 == vec![3; 1 << 20], "not all was there");
        assert_eq!(heard[1], (7, 150, b"last".to_vec()));
        drop(memory);
        endpoint.close().unwrap();
    });
    let endpoint = open();
    let peer = endpoint.add_peer(format!("127.0.0.1:{}", told.recv().unwrap())).unwrap();
    let mut memory = RemoteMemory::open(&endpoint, CHANNEL).unwrap();
    let (a, b) = (memory.import(peer, "a", LIMIT).unwrap(), memory.import(peer, "b", LIMIT).unwrap());
    assert_eq!((a.bytes(), b.bytes()), (1 << 20, 100));
    let missing = memory.import(peer, "c", Duration::from_millis(50));
    assert!(matches!(missing, Err(ImportError::NotExported { .. })));

    let data = Region::new(1 << 20).unwrap();
    data.write(0, &vec![3; 1 << 20]).unwrap();
    a.write_and_notify(0, &data.all(), 8).unwrap();
    let into = Region::new(100).unwrap();
    let read = b.read(0, &into.all()).unwrap();
    assert_eq!(read.wait_timeout(LIMIT).unwrap(), 0);
    assert_eq!(bytes_of(&into, 0, 100), vec![3; 100]);
    assert!(matches!(b.write(0, &into.all()), Err(AccessError::NotPermitted)));
    assert!(matches!(a.write(1, &data.all()), Err(AccessError::Outside(_))));
    assert!(matches!(a.write_bytes(u64::MAX, b"x"), Err(AccessError::Outside(_))));
    data.write(0, b"last").unwrap();
    a.write_and_notify(150, &data.slice(0..4).unwrap(), 7).unwrap();
    // A handler that nobody has.
    a.write_and_notify(0, &data.slice(0..1).unwrap(), 9).unwrap();
    endpoint.flush().unwrap();
    exporting.join().unwrap();
}

#[test]
fn what_is_withdrawn_is_refused_and_two_may_import_from_each_other() {
    let (one, other) = (open(), open());
    let to = one.add_peer(format!("127.0.0.1:{}", other.port())).unwrap();
    let back = other.add_peer(format!("127.0.0.1:{}", one.port())).unwrap();
    let mut ours = RemoteMemory::open(&one, CHANNEL).unwrap();
    let mut theirs = RemoteMemory::open(&other, CHANNEL).unwrap();
    let (mine, yours) = (Region::new(64).unwrap(), Region::new(64).unwrap());
    ours.export("it", &mine.all(), Rights::ALL).unwrap();
    theirs.export("it", &yours.all(), Rights::ALL).unwrap();
    let mut wishes = [ours.begin_import(to, "it").unwrap(), theirs.begin_import(back, "it").unwrap()];
    let (mut there, mut here) = (None, None);
    let began = Instant::now();
    while there.is_none() || here.is_none() {
        assert!(began.elapsed() < LIMIT);
        there = there.or(ours.try_import(&mut wishes[0]).unwrap());
        here = here.or(theirs.try_import(&mut wishes[1]).unwrap());
    }
    there.as_ref().unwrap().write_bytes(0, b"there").unwrap();
    here.unwrap().write_bytes(0, b"here").unwrap();
    let until = |ready: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !ready() {
            assert!(began.elapsed() < LIMIT);
            one.progress().unwrap();
            other.progress().unwrap();
        }
    };
    until(&|| bytes_of(&yours, 0, 5) == b"there" && bytes_of(&mine, 0, 4) == b"here");
    assert!(theirs.withdraw("it") && !theirs.withdraw("it"));
    there.unwrap().write_bytes(0, b"again").unwrap();
    until(&|| one.remote().take_refusal().is_some());
    assert_eq!(bytes_of(&yours, 0, 5), b"there");
}
