//! Which kernel this is, and its clock.

use rustix::time::{ClockId, clock_gettime};

/// Major and minor number of the running kernel; what it does not say is 0.
#[must_use]
pub fn kernel_version() -> (u32, u32) {
    parse(&rustix::system::uname().release().to_string_lossy())
}

/// The clock that programs read with `bpf_ktime_get_coarse_ns`, whole seconds, modulo 2³².
pub(crate) fn monotonic_s() -> u32 {
    clock_gettime(ClockId::MonotonicCoarse).tv_sec as u32
}

fn parse(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(parse("6.18.44-fc-v657"), (6, 18));
        assert_eq!(parse("5.4"), (5, 4));
        assert_eq!(parse("6"), (6, 0));
        assert_eq!(parse(""), (0, 0));
        assert!(parse("5.4.0") < (5, 18) && parse("5.18.0-rc1+") >= (5, 18));
        assert!(kernel_version() > (0, 0));
    }
}
