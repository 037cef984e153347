//! The kernel's log, as part of every verdict: what was done has failed if the kernel complained meanwhile, whatever it
//! returned. A page that the kernel freed while it was in use kills the machine later, somewhere else.
//!
//! `/dev/kmsg` has one record a read (Linux, `Documentation/ABI/testing/dev-kmsg`); a reader starts behind everything that
//! is there if it seeks to the end. Only root may read it where `kernel.dmesg_restrict` says so; who may not, sees nothing.
//!
//! Depends on the standard library only: `xtask` takes this file as it is.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

const LOG: &str = "/dev/kmsg";
/// `O_NONBLOCK` of every architecture that BPF programs are compiled for here.
const NONBLOCK: i32 = 0o4000;
/// Longer records are cut by the kernel (`PRINTKRB_RECORD_MAX`, and its prefix).
const RECORD_BYTES_MAX: usize = 8192;
/// Complaints that are kept, and shown; the rest is counted.
const KEPT_MAX: usize = 12;

/// What the kernel says when something is wrong with it.
const COMPLAINTS: [&str; 9] = [
    "WARNING:",
    "BUG:",
    "Oops",
    "refcount",
    "unregister_netdevice: waiting",
    "lockup",
    "detected stall",
    "Kernel panic",
    "general protection fault",
];

/// Whether a message of the log is a complaint.
#[must_use]
pub fn is_complaint(message: &str) -> bool {
    // page_pool_release_retry() stalled pool shutdown: id 13, 1 inflight 60 sec
    COMPLAINTS.iter().any(|complaint| message.contains(complaint))
        || message.contains("page_pool") && message.contains("stalled")
}

/// A place in the kernel's log, and what it has complained about from there on.
#[derive(Debug)]
pub struct KernelLog {
    /// `None` where it cannot be read.
    file: Option<File>,
    /// What is in a complaint that does not count.
    but_for: Option<&'static str>,
    /// The first complaints.
    kept: Vec<String>,
    count: u64,
}

impl KernelLog {
    /// Notes where the log stands. Where it cannot be read there never is a complaint.
    #[must_use]
    pub fn watch() -> KernelLog {
        let open = || {
            let mut file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(LOG)?;
            file.seek(SeekFrom::End(0))?;
            std::io::Result::Ok(file)
        };
        KernelLog { file: open().ok(), but_for: None, kept: Vec::new(), count: 0 }
    }

    /// The same, of everything but for complaints with this text in them.
    #[must_use]
    pub fn watch_but_for(text: &'static str) -> KernelLog {
        KernelLog { but_for: Some(text), ..KernelLog::watch() }
    }

    /// Whether the log can be read.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.file.is_some()
    }

    /// What the kernel has complained about since the watch began.
    #[must_use]
    pub fn complaints(&mut self) -> Option<Complaints> {
        let mut record = [0; RECORD_BYTES_MAX];
        while let Some(file) = &mut self.file {
            match file.read(&mut record) {
                Ok(0) => break,
                Ok(bytes) => self.take(&String::from_utf8_lossy(&record[..bytes])),
                // EPIPE: records were overwritten before they were read; what is left follows.
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
                Err(_) => break,
            }
        }
        (self.count > 0).then(|| Complaints { first: self.kept.clone(), count: self.count })
    }

    /// Takes a record in: `priority,sequence,microseconds,flags;message`, and lines of details that begin with a blank.
    fn take(&mut self, record: &str) {
        let Some((_, message)) = record.split_once(';') else { return };
        let message = message.lines().next().unwrap_or_default();
        if is_complaint(message) && !self.but_for.is_some_and(|text| message.contains(text)) {
            self.count += 1;
            if self.kept.len() < KEPT_MAX {
                self.kept.push(message.to_owned());
            }
        }
    }
}

/// What the kernel complained about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaints {
    /// The first of them, as they stand in the log.
    pub first: Vec<String>,
    /// How many there are.
    pub count: u64,
}

impl fmt::Display for Complaints {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "the kernel complained meanwhile, {} times (see `dmesg`):", self.count)?;
        self.first.iter().try_for_each(|line| write!(to, "\n  {line}"))
    }
}

impl std::error::Error for Complaints {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_told_from_what_a_kernel_says_otherwise() {
        for message in [
            "WARNING: CPU: 0 PID: 9173 at include/net/page_pool/helpers.h:129 page_pool_alloc_frag_netmem+0x1",
            "BUG: Bad page state in process tsumugi  pfn:0a3b5",
            "Oops: general protection fault, probably for non-canonical address",
            "page_pool_release_retry() stalled pool shutdown: id 13, 1 inflight 60 sec",
            "refcount_t: underflow; use-after-free.",
            "unregister_netdevice: waiting for nic0 to become free. Usage count = 2",
            "watchdog: BUG: soft lockup - CPU#1 stuck for 26s!",
        ] {
            assert!(is_complaint(message), "{message}");
        }
        for message in ["nic0: entered promiscuous mode", "page_pool: 3 pools", "eth0: renamed from veth1"] {
            assert!(!is_complaint(message), "{message}");
        }
    }

    #[test]
    fn a_record_is_its_first_line() {
        let mut log = KernelLog { file: None, but_for: Some("tsumugi-test"), kept: Vec::new(), count: 0 };
        log.take("6,1,2,-;unregister_netdevice: waiting for tsumugi-test0 to become free. Usage count = 1\n");
        log.take("6,1,2,-;nic0: up\n SUBSYSTEM=WARNING:\n");
        log.take("no record");
        assert_eq!(log.complaints(), None);
        for number in 0..20 {
            log.take(&format!("4,{number},2,-;BUG: {number}\n DEVICE=n1\n"));
        }
        let complaints = log.complaints().expect("20");
        assert_eq!((complaints.count, complaints.first.len()), (20, KEPT_MAX));
        assert!(
            complaints.to_string().contains("20 times (see `dmesg`):\n  BUG: 0\n  BUG: 1\n"),
            "{complaints}"
        );
    }
}
