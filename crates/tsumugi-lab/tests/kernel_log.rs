//! The watch over the kernel's log bites: a complaint fails the test during which it appears.
//!
//! A test program of its own, because nothing else may be watching meanwhile. Needs root.

use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tsumugi_lab::kernel_log::KernelLog;
use tsumugi_lab::testing::{Watched, as_root};

/// What a kernel says whose NIC cannot go; the name tells where it comes from.
const COMPLAINT: &str = "unregister_netdevice: waiting for tsumugi-test0 to become free. Usage count = 1";

fn write(line: &str) {
    let mut log = OpenOptions::new().write(true).open("/dev/kmsg").expect("root may write into the log");
    log.write_all(format!("<6>{line}\n").as_bytes()).expect("a line in the log");
}

#[test]
fn a_complaint_fails_the_test_during_which_it_appears() {
    let Some(watched) = as_root("a_complaint_fails_the_test_during_which_it_appears", None) else { return };
    // This test is to see what others must not.
    std::mem::forget(watched);
    let fails = |line: &str| {
        let watched = Watched::new("some_test");
        write(line);
        let failed = catch_unwind(AssertUnwindSafe(|| drop(watched))).err()?;
        Some(failed.downcast_ref::<String>().expect("a message").clone())
    };
    assert_eq!(fails("tsumugi-test0: nothing to complain about"), None);
    let verdict = fails(COMPLAINT).expect("a failure");
    assert!(verdict.starts_with("some_test: ") && verdict.contains(COMPLAINT), "{verdict}");

    let mut log = KernelLog::watch();
    assert!(log.is_readable());
    assert_eq!(log.complaints(), None, "what was there before is nobody's fault");
    write(COMPLAINT);
    assert_eq!(log.complaints().expect("a complaint").first, [COMPLAINT]);
}

#[test]
fn a_test_that_fails_for_another_reason_fails_for_that() {
    let failed = catch_unwind(|| {
        let _watched = Watched::new("some_test");
        panic!("the reason");
    });
    assert_eq!(failed.expect_err("it fails").downcast_ref::<&str>(), Some(&"the reason"));
}
