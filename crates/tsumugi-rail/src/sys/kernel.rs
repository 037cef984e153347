//! Which kernel this is.

use std::ffi::CStr;

/// Major and minor number of the running kernel; what it does not say is 0.
#[must_use]
pub fn kernel_version() -> (u32, u32) {
    // SAFETY: all-zero is a valid `utsname` of empty texts.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes to `names` only, which outlives it; it fails only for a wrong address.
    unsafe { libc::uname(&raw mut names) };
    // SAFETY: the text ends in 0 within the array, which `names` keeps.
    let release = unsafe { CStr::from_ptr(names.release.as_ptr()) };
    parse(&release.to_string_lossy())
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
