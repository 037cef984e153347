//! The machine a measurement was made on, in as many words as a reader needs to judge the figures.

use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::fs;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// What [`name_version`] was told.
static VERSION: OnceLock<&str> = OnceLock::new();

/// Has measurements say that they are of this version, where that is more than the number of this package.
pub fn name_version(version: &'static str) {
    // Whoever was first has said it.
    let _ = VERSION.set(version);
}

/// Where and when the figures were measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Name of the host.
    pub host: String,
    /// Kernel name, release and architecture.
    pub kernel: String,
    /// Model of the CPU.
    pub cpu: String,
    /// CPUs this process may use.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Whether the CPU says that it runs under a hypervisor.
    pub virtual_machine: bool,
    /// Runnable processes over the last minute when this was written: more than none before a measurement
    /// means that others disturbed it.
    pub load_average: f64,
    /// Version of this command.
    pub tsumugi: String,
    /// When the measurement was made, in seconds since 1970-01-01 UTC.
    pub time_unix_s: u64,
    /// What the messages crossed: `lab`, `loopback`, or the peer's address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub wire: String,
    /// Largest IP packet of that wire in bytes, when it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u32>,
}

impl Machine {
    /// Describes this machine; what cannot be read is left empty.
    pub fn here() -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Machine {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            kernel: kernel(),
            cpu: field(&cpuinfo, "model name").unwrap_or_default(),
            cpus: super::cpu::allowed().0.len() as u32,
            memory_bytes: kib(&meminfo, "MemTotal") * 1024,
            virtual_machine: field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            load_average: load_average(),
            tsumugi: VERSION.get().copied().unwrap_or(env!("CARGO_PKG_VERSION")).to_owned(),
            time_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map(|time| time.as_secs()).unwrap_or(0),
            wire: String::new(),
            mtu_bytes: None,
        }
    }

    /// One line for a table's foot.
    pub fn line(&self) -> String {
        format!(
            "{}, {} CPUs{}, {:.0} GiB, {}",
            if self.cpu.is_empty() { "unknown CPU" } else { &self.cpu },
            self.cpus,
            if self.virtual_machine { " (virtual machine)" } else { "" },
            self.memory_bytes as f64 / f64::from(1 << 30),
            self.kernel,
        )
    }
}

/// Kernel name, release and architecture.
pub(crate) fn kernel() -> String {
    let names = rustix::system::uname();
    let [system, release, machine] =
        [names.sysname(), names.release(), names.machine()].map(CStr::to_string_lossy);
    format!("{system} {release} {machine}")
}

/// Memory that processes may take before others have to give some up, bytes; `None` when the kernel does not say.
pub(crate) fn memory_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    Some(kib(&meminfo, "MemAvailable") * 1024).filter(|bytes| *bytes > 0)
}

/// Runnable processes over the last minute; 0 when the kernel does not say.
pub fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// The value of `name : value` in a /proc file.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// A field of /proc/meminfo in KiB; 0 when it is not there.
fn kib(text: &str, name: &str) -> u64 {
    field(text, name).and_then(|value| value.split(' ').next()?.parse().ok()).unwrap_or(0)
}

/// `2026-11-20 12:34 UTC` from seconds since 1970 (Howard Hinnant's civil-from-days).
pub fn utc(unix_s: u64) -> String {
    let days = unix_s / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let second = unix_s % 86_400;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3600, second % 3600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_and_a_cpu() {
        let machine = Machine::here();
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
        assert!(machine.cpus > 0);
        assert!(machine.memory_bytes > 0);
    }

    #[test]
    fn fields_of_proc_files() {
        let text = "MemTotal:       24576 kB\nmodel name\t: A CPU: fast\n";
        assert_eq!(kib(text, "MemTotal"), 24576);
        assert_eq!(kib(text, "SwapTotal"), 0);
        assert_eq!(field(text, "model name").as_deref(), Some("A CPU: fast"));
    }

    #[test]
    fn times_are_civil() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_795_178_096), "2026-11-20 12:34 UTC");
    }
}
