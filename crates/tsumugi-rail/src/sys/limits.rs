//! What a process may have. rustix takes for granted that `getrlimit` succeeds, which a filter of system calls may make untrue.

use super::checked;
use std::io;

/// Bytes that the process may keep in memory; `None`: as many as it likes.
///
/// # Errors
/// The system does not say.
pub fn pinned_bytes_max() -> io::Result<Option<u64>> {
    limit(libc::RLIMIT_MEMLOCK)
}

/// Files that the process may have open; `None`: as many as it likes.
///
/// # Errors
/// The system does not say.
pub(crate) fn open_files_max() -> io::Result<Option<u64>> {
    limit(libc::RLIMIT_NOFILE)
}

fn limit(resource: libc::__rlimit_resource_t) -> io::Result<Option<u64>> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes the structure that it is given.
    checked(unsafe { libc::getrlimit(resource, &raw mut limit) })?;
    Ok((limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_limited() {
        assert!(open_files_max().unwrap().is_none_or(|files| files > 0));
        assert!(pinned_bytes_max().is_ok());
    }
}
