//! Whether a libfabric loads our provider, by having it do so.
//!
//! It is asked in a process of its own: whatever a strange library does when it is loaded happens there.

use crate::provider;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The argument with which a program of ours becomes that process: [`answer`]. Behind it comes the library.
pub const ASKED: &str = "--try-libfabric";

/// A version of libfabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Before the dot.
    pub major: u32,
    /// Behind it.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The least that our provider asks of libfabric.
const VERSION_MIN: Version = Version { major: 1, minor: 17 };

/// Why a libfabric does not use our provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLoaded {
    /// There is none, or none that can be loaded.
    #[error("{0}")]
    NoLibfabric(String),
    /// It is older than what the provider was made for.
    #[error("its libfabric is {0}, and {VERSION_MIN} is needed")]
    TooOld(Version),
    /// It is there, and does not find the provider or cannot load it.
    #[error("its libfabric {version} does not load the provider: {why}; see FI_LOG_LEVEL=debug")]
    Refused {
        /// Of libfabric.
        version: Version,
        /// In libfabric's words.
        why: String,
    },
}

/// The version of a libfabric that loads our provider from a folder.
///
/// # Errors
/// [`NotLoaded`]
pub fn loads_provider(library: &Path, folder: &Path) -> Result<Version, NotLoaded> {
    let failed = |why: String| NotLoaded::NoLibfabric(why);
    let own = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(own);
    command.arg(ASKED).arg(library).stdin(Stdio::null());
    command.env("FI_PROVIDER", "tsumugi").env(provider::PATH, folder).env_remove("FI_LOG_LEVEL");
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    understand(&said)
        .unwrap_or_else(|| Err(failed(format!("loading {} ended by {}", library.display(), output.status))))
}

/// What the process has said: the version, and behind it what went wrong.
fn understand(said: &str) -> Option<Result<Version, NotLoaded>> {
    let (version, why) = said.trim_end().split_once(' ').unwrap_or((said.trim_end(), ""));
    if version == "none" {
        return Some(Err(NotLoaded::NoLibfabric(why.to_owned())));
    }
    let (major, minor) = version.split_once('.')?;
    let version = Version { major: major.parse().ok()?, minor: minor.parse().ok()? };
    Some(if version < VERSION_MIN {
        Err(NotLoaded::TooOld(version))
    } else if why.is_empty() {
        Ok(version)
    } else {
        Err(NotLoaded::Refused { version, why: why.to_owned() })
    })
}

/// If this process was started to load a libfabric, what it has to say.
#[must_use]
pub fn answer() -> Option<String> {
    let mut arguments = std::env::args_os().skip(1);
    let asked = arguments.next()? == OsStr::new(ASKED);
    let library = PathBuf::from(arguments.next().filter(|_| asked)?);
    Some(match load(&library) {
        Ok((version, None)) => version.to_string(),
        Ok((version, Some(why))) => format!("{version} {why}"),
        Err(why) => format!("none {why}"),
    })
}

type FiVersion = unsafe extern "C" fn() -> u32;
/// `fi_getinfo(3)`; what it takes and gives is not looked into.
type FiGetinfo = unsafe extern "C" fn(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const c_void,
    info: *mut *mut c_void,
) -> c_int;
type FiStrerror = unsafe extern "C" fn(code: c_int) -> *const c_char;

/// The library's version, and why it offers nothing with the providers that the environment leaves it, if it does not.
fn load(library: &Path) -> Result<(Version, Option<String>), String> {
    let name = CString::new(library.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: names that end with a zero; what the library does when it is loaded is what this process is for.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: dlopen has just failed, so there is a message.
        let why = unsafe { CStr::from_ptr(libc::dlerror()) };
        return Err(why.to_string_lossy().into_owned());
    }
    let find = |name: &CStr| {
        // SAFETY: the library is loaded, and stays so.
        let function = unsafe { libc::dlsym(handle, name.as_ptr()) };
        if function.is_null() { Err(format!("it has no {}", name.to_string_lossy())) } else { Ok(function) }
    };
    let (version, getinfo, strerror) = (find(c"fi_version")?, find(c"fi_getinfo")?, find(c"fi_strerror")?);
    // SAFETY: the library's functions of these names have these signatures, in all of its versions.
    let (version, getinfo, strerror) = unsafe {
        (
            std::mem::transmute::<*mut c_void, FiVersion>(version),
            std::mem::transmute::<*mut c_void, FiGetinfo>(getinfo),
            std::mem::transmute::<*mut c_void, FiStrerror>(strerror),
        )
    };
    // SAFETY: it takes nothing.
    let number = unsafe { version() };
    let version = Version { major: number >> 16, minor: number & 0xffff };
    let mut info = std::ptr::null_mut();
    // SAFETY: without hints it lists what there is. The list is left to the end of this process.
    let code =
        unsafe { getinfo(number, std::ptr::null(), std::ptr::null(), 0, std::ptr::null(), &raw mut info) };
    if code == 0 {
        return Ok((version, None));
    }
    // SAFETY: it gives a string for every number.
    let why = unsafe { CStr::from_ptr(strerror(-code)) };
    Ok((version, Some(why.to_string_lossy().into_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(major: u32, minor: u32) -> Version {
        Version { major, minor }
    }

    #[test]
    fn what_the_process_says_is_understood() {
        assert_eq!(understand("1.22\n"), Some(Ok(v(1, 22))));
        assert_eq!(understand("2.4\n"), Some(Ok(v(2, 4))));
        assert_eq!(understand("1.6\n"), Some(Err(NotLoaded::TooOld(v(1, 6)))));
        let refused = NotLoaded::Refused { version: v(1, 20), why: "No data available".to_owned() };
        assert_eq!(understand("1.20 No data available\n"), Some(Err(refused)));
        assert_eq!(
            understand("none x: no such file"),
            Some(Err(NotLoaded::NoLibfabric("x: no such file".to_owned())))
        );
        assert_eq!(understand("Segmentation fault"), None);
        assert_eq!(understand(""), None);
    }

    #[test]
    fn a_library_that_is_none_is_no_libfabric() {
        assert!(load(Path::new("/nonexistent/libfabric.so.1")).unwrap_err().contains("nonexistent"));
        assert!(load(Path::new("libm.so.6")).unwrap_err().contains("fi_version"));
    }
}
