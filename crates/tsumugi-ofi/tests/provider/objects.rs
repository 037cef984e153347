//! What is offered, how objects are opened and closed, and who may wait for what.

use crate::host::*;
use std::ffi::{c_int, c_void};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tsumugi_fi::abi::*;

#[test]
fn what_is_offered_is_what_was_asked_for() {
    if host().is_none() {
        return;
    }
    let hints = Info::hints();
    let found = hints.get().unwrap();
    // SAFETY: an answer is whole.
    unsafe {
        let (info, domain, ep) = (&*found.0, &*(*found.0).domain_attr, &*(*found.0).ep_attr);
        assert_eq!((info.mode, info.addr_format, ep.r#type), (0, FI_SOCKADDR_IN, FI_EP_RDM));
        assert_eq!(
            info.caps & (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC),
            FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC
        );
        assert!(info.caps & FI_SEND != 0 && info.caps & FI_REMOTE_WRITE != 0);
        assert_eq!((domain.mr_mode, domain.data_progress, domain.cq_data_size), (0, FI_PROGRESS_MANUAL, 8));
        let name = std::ffi::CStr::from_ptr((*info.fabric_attr).prov_name);
        assert_eq!(name, c"tsumugi");
        assert_eq!(domain.av_type, FI_AV_UNSPEC, "either");
        (*(*hints.0).domain_attr).av_type = FI_AV_MAP;
        assert_eq!((*(*hints.get().unwrap().0).domain_attr).av_type, FI_AV_MAP);
        (*hints.0).caps = FI_MSG | FI_RECV;
        let found = hints.get().unwrap();
        assert_eq!((*found.0).caps & (FI_SEND | FI_RECV | FI_TAGGED | FI_RMA), FI_RECV);
        for spoil in [
            |info: &mut fi_info| info.caps = FI_COLLECTIVE,
            |info: &mut fi_info| (*info.ep_attr).r#type = FI_EP_MSG,
            |info: &mut fi_info| (*info.ep_attr).tx_ctx_cnt = 4,
            |info: &mut fi_info| (*info.tx_attr).inject_size = 1 << 30,
            |info: &mut fi_info| (*info.tx_attr).msg_order = FI_ORDER_STRICT,
            |info: &mut fi_info| info.addr_format = FI_ADDR_STR,
            |info: &mut fi_info| (*info.domain_attr).mr_iov_limit = 9,
        ] {
            let hints = Info::hints();
            spoil(&mut *hints.0);
            assert_eq!(hints.get().err(), Some(FI_ENODATA));
        }
    }
    let hints = Info::hints();
    assert_eq!(hints.get_at(Some("no such host"), 0, FI_VERSION(1, 17)).err(), Some(FI_ENODATA));
}

#[test]
fn objects_that_others_need_are_busy() {
    if host().is_none() {
        return;
    }
    let side = Side::open(SideOptions::default());
    // SAFETY: open objects.
    unsafe {
        for fid in [
            &raw mut (*side.cq).fid,
            &raw mut (*side.cntr).fid,
            &raw mut (*side.av).fid,
            &raw mut (*side.domain).fid,
            &raw mut (*side.fabric).fid,
        ] {
            assert_eq!(close(fid), -FI_EBUSY);
        }
    }
    side.close();
}

#[test]
fn addresses_are_numbered_looked_up_and_removed() {
    if host().is_none() {
        return;
    }
    let side = Side::open(SideOptions::default());
    let name = side.name();
    let (first, second) = (side.insert(&name), side.insert(&name));
    assert_eq!((first, second), (0, 1));
    // SAFETY: an open address vector.
    unsafe {
        let (av, ops) = (side.av, &*(*side.av).ops);
        let (mut back, mut length) = ([0u8; 16], 16);
        assert_eq!(ops.lookup.unwrap()(av, 1, back.as_mut_ptr().cast(), &raw mut length), 0);
        assert_eq!((&back[..], length), (&name[..], 16));
        let mut numbers = [1];
        assert_eq!(ops.remove.unwrap()(av, numbers.as_mut_ptr(), 1, 0), 0);
        assert_eq!(ops.remove.unwrap()(av, numbers.as_mut_ptr(), 1, 0), -FI_EINVAL);
        assert_eq!(ops.lookup.unwrap()(av, 1, back.as_mut_ptr().cast(), &raw mut length), -FI_EINVAL);
        assert_eq!(side.insert(&name), 1, "a gap is filled");
        let (mut words, mut length) = ([0i8; 64], 64);
        let straddr = ops.straddr.unwrap();
        straddr(av, name.as_ptr().cast(), words.as_mut_ptr().cast(), &raw mut length);
        let words = std::ffi::CStr::from_ptr(words.as_ptr().cast()).to_str().unwrap();
        assert!(words.starts_with("fi_sockaddr_in://127.0.0.1:"), "{words}");
        let mut numbers = [0; 4];
        let (insert, node, port) = (ops.insertsym.unwrap(), c"10.0.0.1".as_ptr(), c"7411".as_ptr());
        assert_eq!(insert(av, node, 2, port, 2, numbers.as_mut_ptr(), 0, null_mut()), 4);
        assert_eq!(numbers, [2, 3, 4, 5]);
        let mut code: c_int = 0;
        let other = [1u8; 28];
        let inserted = ops.insert.unwrap()(
            av,
            other.as_ptr().cast(),
            1,
            numbers.as_mut_ptr(),
            FI_SYNC_ERR,
            (&raw mut code).cast(),
        );
        assert_eq!((inserted, code, numbers[0]), (0, FI_EINVAL, FI_ADDR_NOTAVAIL));
    }
    side.close();
}

#[test]
fn insertions_that_are_told_of_later_tell_what_failed() {
    if host().is_none() {
        return;
    }
    let side = Side::open(SideOptions::default());
    // SAFETY: open objects; there is room for what is read.
    unsafe {
        let (eq, mut av) = (side.open_eq(0), null_mut());
        let mut attr: fi_av_attr = std::mem::zeroed();
        attr.flags = FI_EVENT;
        let open = (*(*side.domain).ops).av_open.unwrap();
        assert_eq!(open(side.domain, &raw mut attr, &raw mut av, null_mut()), 0);
        let fid = &raw mut (*av).fid;
        let insert = (*(*av).ops).insert.unwrap();
        // A good one, and one of another provider's.
        let mut addresses = side.name();
        addresses.extend([1; 28]);
        let mut numbers = [0; 2];
        let mut insert = || insert(av, addresses.as_ptr().cast(), 2, numbers.as_mut_ptr(), 0, context(7));
        assert_eq!(insert(), -FI_ENOEQ);
        assert_eq!(bind(fid, &raw mut (*eq).fid, 0), 0);
        assert_eq!(insert(), 0);
        assert_eq!(numbers, [0, FI_ADDR_NOTAVAIL]);
        let ops = &*(*eq).ops;
        let (mut event, mut entry): (u32, fi_eq_entry) = (0, std::mem::zeroed());
        let mut read = || {
            let place = (&raw mut entry).cast();
            let got = ops.sread.unwrap()(eq, &raw mut event, place, size_of::<fi_eq_entry>(), 1000, 0);
            (got, event, entry.fid, entry.context, entry.data)
        };
        assert_eq!(read().0, -(FI_EAVAIL as isize));
        let mut failed: fi_eq_err_entry = std::mem::zeroed();
        let size = size_of::<fi_eq_err_entry>() as isize;
        assert_eq!(ops.readerr.unwrap()(eq, &raw mut failed, FI_PEEK), size);
        assert_eq!(ops.readerr.unwrap()(eq, &raw mut failed, 0), size);
        assert_eq!((failed.fid, failed.context, failed.data), (fid, context(7), 1));
        assert_eq!((failed.err, failed.err_data), (FI_EINVAL, null_mut()));
        assert_eq!(ops.readerr.unwrap()(eq, &raw mut failed, 0), -(FI_EAGAIN as isize));
        let size = size_of::<fi_eq_entry>() as isize;
        assert_eq!(read(), (size, FI_AV_COMPLETE, fid, context(7), 1));
        assert_eq!(close(fid), 0);
        assert_eq!(close(&raw mut (*eq).fid), 0);
    }
    side.close();
}

#[test]
fn an_event_of_the_callers_may_say_nothing_but_its_number() {
    if host().is_none() {
        return;
    }
    let side = Side::open(SideOptions::default());
    let eq = side.open_eq(FI_WRITE);
    // SAFETY: an open event queue.
    unsafe {
        let (ops, mut event) = (&*(*eq).ops, 0);
        let mut read = || ops.read.unwrap()(eq, &raw mut event, null_mut(), 0, 0);
        assert_eq!(read(), -(FI_EAGAIN as isize));
        assert_eq!(ops.write.unwrap()(eq, 77, null_mut(), 0, 0), 0);
        assert_eq!(read(), 0);
        assert_eq!(event, 77);
        assert_eq!(close(&raw mut (*eq).fid), 0);
    }
    side.close();
}

/// This test in a process of its own, with a setting, which libfabric reads once.
fn again(name: &str, setting: (&str, &str)) -> std::process::Command {
    let mut other = std::process::Command::new(std::env::current_exe().unwrap());
    other.args([name, "--exact", "--nocapture"]).env(setting.0, setting.1);
    other.env("FI_LOG_LEVEL", "warn").env("RUST_BACKTRACE", "0");
    other
}

/// Tells the process that this test starts which host to ask for.
const ASKED_HOST: &str = "TSUMUGI_TEST_ASKED_HOST";

#[test]
fn what_is_wrong_is_said_in_one_line() {
    if host().is_none() {
        return;
    }
    if let Some(asked) = std::env::var_os(ASKED_HOST) {
        let asked = asked.to_str().filter(|name| !name.is_empty());
        let _ = Info::hints().get_at(asked, 0, FI_VERSION(1, 17));
        return;
    }
    for (name, value, asked, said) in [
        ("FI_TSUMUGI_RECEIVE_PATH", "xpd", "", "choose from auto, socket, xdp"),
        ("FI_TSUMUGI_PEER_TIMEOUT", "soon", "", "write seconds, as in 2.5"),
        (
            "FI_TSUMUGI_NETWORKS",
            "!0.0.0.0/0,!::/0",
            "",
            "see `tsumugi doctor`, FI_TSUMUGI_NETWORKS and `ip address`",
        ),
        ("FI_TSUMUGI_JOB", "1", "no such host", "check the spelling, /etc/hosts and DNS"),
        // Everybody's, which no peer has.
        ("FI_TSUMUGI_JOB", "1", "255.255.255.255", "see `ip route get 255.255.255.255`"),
    ] {
        let mut other = again("objects::what_is_wrong_is_said_in_one_line", (name, value));
        let output = other.env(ASKED_HOST, asked).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        let told = printed.lines().any(|line| line.contains("tsumugi") && line.contains(said));
        assert!(output.status.success() && told, "{name}={value}, {asked}: {printed}");
    }
}

#[test]
fn a_process_that_has_ended_leaves_nothing_in_the_folder_for_temporary_files() {
    if host().is_none() {
        return;
    }
    assert!(folder_of(std::process::id()).exists());
    let mut other = again("objects::what_is_offered_is_what_was_asked_for", ("FI_LOG_LEVEL", "warn"));
    let other = other.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let folder = folder_of(other.id());
    let output = other.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!folder.exists(), "{} is there", folder.display());
}

/// Tells the process that this test starts how many further files it may have open.
const FURTHER_FILES: &str = "TSUMUGI_TEST_FURTHER_FILES";

#[test]
fn who_may_open_too_few_files_is_told_what_to_do() {
    if host().is_none() {
        return;
    }
    if let Some(further) = std::env::var_os(FURTHER_FILES) {
        let further: u64 = further.to_str().unwrap().parse().unwrap();
        // libfabric loads the provider, which takes files as well.
        drop(Info::hints().get().unwrap());
        // The limit is on a descriptor's number, and what is opened gets the lowest that is free.
        let next = (0..).find(|number| !Path::new(&format!("/proc/self/fd/{number}")).exists()).unwrap();
        let limit = libc::rlimit { rlim_cur: next + further, rlim_max: next + further };
        // SAFETY: the limit is there.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        let pair = Pair::open(SideOptions { wait: FI_WAIT_FD, ..SideOptions::default() });
        // SAFETY: the buffer is there.
        pair.attempt(|| unsafe {
            pair.here.msg().inject.unwrap()(pair.here.ep, b"few".as_ptr().cast(), 3, pair.to_there)
        });
        return pair.close();
    }
    let mut outcomes = Vec::new();
    for further in (0..=30).step_by(3) {
        let name = "objects::who_may_open_too_few_files_is_told_what_to_do";
        let output = again(name, (FURTHER_FILES, &further.to_string())).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let lines = said.lines().filter(|line| line.contains(":tsumugi:") && line.contains("ulimit -n"));
        let told = lines.count();
        assert_eq!(told, usize::from(!output.status.success()), "with {further} files: {said}");
        outcomes.push(output.status.success());
    }
    assert!(!outcomes[0] && outcomes.is_sorted(), "more files are as good: {outcomes:?}");
    assert_eq!(outcomes.last(), Some(&true));
}

/// Tells the process that this test starts that it is that process.
const FEW_FILES: &str = "TSUMUGI_TEST_FEW_FILES";

#[test]
fn an_endpoint_that_could_not_be_enabled_is_not_and_can_be_later() {
    if host().is_none() {
        return;
    }
    if std::env::var_os(FEW_FILES).is_none() {
        let name = "objects::an_endpoint_that_could_not_be_enabled_is_not_and_can_be_later";
        let output = again(name, (FEW_FILES, "1")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let told = said.lines().filter(|line| line.contains(":tsumugi:") && line.contains("ulimit -n"));
        let last = format!("{} failures", told.count());
        assert!(output.status.success() && said.lines().any(|line| line == last), "{last}? {said}");
        return;
    }
    // With a thread, there is something left to open when all of the endpoint's own is open.
    let options = SideOptions { wait: FI_WAIT_FD, progress: FI_PROGRESS_AUTO, ..SideOptions::default() };
    // What is opened once for a process.
    Side::open(options).close();
    let mut usual = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: there is room for the limit.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut usual) }, 0);
    let set = |limit: libc::rlim_t| {
        let limit = libc::rlimit { rlim_cur: limit, ..usual };
        // SAFETY: the limit is there.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    };
    let mut failures = 0;
    for further in 0.. {
        let (side, there) = (Side::unbound(options), Side::open(options));
        side.bind_all();
        let next = (0..).find(|number| !Path::new(&format!("/proc/self/fd/{number}")).exists()).unwrap();
        set(next + further);
        let code = side.enable();
        set(usual.rlim_cur);
        if code == 0 {
            side.close();
            there.close();
            break;
        }
        failures += 1;
        let mut into = [0u8; 8];
        let receive = |into: &mut [u8; 8], ep: *mut fid_ep, ops: &fi_ops_msg| {
            let place = into.as_mut_ptr().cast();
            // SAFETY: the buffer stays until the entry is read.
            unsafe { ops.recv.unwrap()(ep, place, 8, null_mut(), FI_ADDR_UNSPEC, context(1)) }
        };
        let code = receive(&mut into, side.ep, side.msg());
        assert_eq!(code, -(FI_EOPBADSTATE as isize), "with {further} files");
        assert_eq!(side.enable(), 0, "with {further} files");
        let pair = Pair::of(side, there);
        assert_eq!(receive(&mut into, pair.here.ep, pair.here.msg()), 0);
        let inject = pair.there.msg().inject.unwrap();
        // SAFETY: the buffer is there.
        pair.attempt(|| unsafe { inject(pair.there.ep, b"late".as_ptr().cast(), 4, pair.to_here) });
        assert!(pair.wait(&pair.here).is_ok());
        assert_eq!(into, *b"late\0\0\0\0");
        pair.close();
    }
    assert!(failures > 2, "there was always room");
    eprintln!("{failures} failures");
}

#[test]
fn who_sleeps_is_woken_by_a_message_by_a_signal_and_by_time() {
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions { wait: FI_WAIT_FD, ..SideOptions::default() });
    let mut into = [0u8; 8];
    // SAFETY: open objects; the buffer stays until the entry is read.
    unsafe {
        let recv = pair.there.msg().recv.unwrap();
        let place = into.as_mut_ptr().cast::<c_void>();
        assert_eq!(recv(pair.there.ep, place, 8, null_mut(), FI_ADDR_UNSPEC, context(1)), 0);
        let ops = &*(*pair.there.cq).ops;
        let mut entry: fi_cq_tagged_entry = std::mem::zeroed();
        let place = (&raw mut entry).cast::<c_void>();
        let begun = Instant::now();
        let got = ops.sread.unwrap()(pair.there.cq, place, 1, std::ptr::null(), 50);
        assert_eq!(got, -(FI_EAGAIN as isize));
        assert!(begun.elapsed() >= Duration::from_millis(50));
        assert_eq!(ops.signal.unwrap()(pair.there.cq), 0);
        assert_eq!(ops.sread.unwrap()(pair.there.cq, place, 1, std::ptr::null(), -1), -(FI_EAGAIN as isize));
        // By the descriptor, as an event loop does.
        let mut descriptor: c_int = -1;
        let fid = &raw mut (*pair.there.cq).fid;
        assert_eq!(control(fid, FI_GETWAIT, (&raw mut descriptor).cast()), 0);
        let trywait = (*(*pair.there.fabric).ops).trywait.unwrap();
        let mut fids = [fid];
        let begun = Instant::now();
        let inject = pair.here.msg().inject.unwrap();
        pair.attempt(|| inject(pair.here.ep, b"wake".as_ptr().cast(), 4, pair.to_there));
        loop {
            assert!(begun.elapsed() < PATIENCE);
            assert!(pair.here.read().is_none());
            if trywait(pair.there.fabric, fids.as_mut_ptr(), 1) == 0 {
                let mut watched = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
                libc::poll(&raw mut watched, 1, 10);
                continue;
            }
            break;
        }
        assert_eq!(ops.sread.unwrap()(pair.there.cq, place, 1, std::ptr::null(), -1), 1);
        assert_eq!((entry.op_context, &into[..4]), (context(1), &b"wake"[..]));
        // A counter, too.
        let ops = &*(*pair.there.cntr).ops;
        assert_eq!(ops.wait.unwrap()(pair.there.cntr, 1, 1000), 0);
        assert_eq!(ops.wait.unwrap()(pair.there.cntr, 2, 20), -FI_ETIMEDOUT);
    }
    pair.close();
}

/// An endpoint that threads share.
#[derive(Clone, Copy)]
struct Shared(*mut fid_ep, *mut fid_cq);

// SAFETY: the domain was opened for threads.
unsafe impl Send for Shared {}

#[test]
fn threads_share_an_endpoint() {
    const COUNT: u64 = 2000;
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions::default());
    let (here, there) = (Shared(pair.here.ep, pair.here.cq), Shared(pair.there.ep, pair.there.cq));
    let (to, ended) = (pair.to_there, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            scope.spawn(move || {
                let Shared(ep, cq) = { here };
                for number in 0..COUNT {
                    let word = (thread << 32 | number).to_le_bytes();
                    // SAFETY: the buffer is there.
                    let inject = || unsafe {
                        (*(*ep).tagged).inject.unwrap()(ep, word.as_ptr().cast(), 8, to, thread)
                    };
                    while inject() != 0 {
                        std::thread::yield_now();
                    }
                }
                while !ended.load(Ordering::Acquire) {
                    let mut entry = [0u8; 64];
                    // SAFETY: there is room for an entry.
                    unsafe { (*(*cq).ops).read.unwrap()(cq, entry.as_mut_ptr().cast(), 1) };
                    std::thread::yield_now();
                }
            });
        }
        scope.spawn(move || {
            let Shared(ep, cq) = { there };
            for number in 0..COUNT {
                for thread in 0..3u64 {
                    let mut word = [0u8; 8];
                    // SAFETY: the buffer stays until the entry is read.
                    unsafe {
                        let place = word.as_mut_ptr().cast();
                        let recv = (*(*ep).tagged).recv.unwrap();
                        let posted = recv(ep, place, 8, null_mut(), FI_ADDR_UNSPEC, thread, 0, null_mut());
                        assert_eq!(posted, 0);
                        let mut entry = [0u8; 64];
                        while (*(*cq).ops).read.unwrap()(cq, entry.as_mut_ptr().cast(), 1) != 1 {
                            std::thread::yield_now();
                        }
                    }
                    assert_eq!(u64::from_le_bytes(word), thread << 32 | number);
                }
            }
            ended.store(true, Ordering::Release);
        });
    });
    pair.close();
}

#[test]
fn a_thread_makes_progress_where_that_is_asked_for() {
    if host().is_none() {
        return;
    }
    let pair = Pair::open(SideOptions { progress: FI_PROGRESS_AUTO, ..SideOptions::default() });
    let mut memory = vec![0u8; 64];
    let region = pair.there.register(&mut memory, FI_REMOTE_WRITE, 5);
    // SAFETY: the buffer is there.
    unsafe {
        let write = pair.here.rma().inject.unwrap();
        // What is injected is not taken before the peer has answered.
        pair.attempt(|| write(pair.here.ep, b"hello".as_ptr().cast(), 5, pair.to_there, 8, 5));
        assert_eq!(write(pair.here.ep, b"alone".as_ptr().cast(), 5, pair.to_there, 0, 5), 0);
        let begun = Instant::now();
        // Nobody calls. What a thread of the provider's writes is looked at through the kernel: it is ordered with nothing here.
        let own = std::fs::File::open("/proc/self/mem").unwrap();
        let mut last = [0];
        while last != *b"e" {
            own.read_exact_at(&mut last, memory.as_ptr().addr() as u64 + 4).unwrap();
            assert!(begun.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(close(&raw mut (*region).fid), 0);
    }
    pair.close();
}
