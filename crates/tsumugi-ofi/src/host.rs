//! The libfabric that has loaded this library, called the host here: its functions, its log and its parameters.
//!
//! There may be several libfabrics in one process, and one may be embedded in an MPI: so the host is whoever calls
//! [`fi_prov_ini`](crate::fi_prov_ini), found by the call's return address, and nothing is linked to.

use crate::abi::*;
use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

/// The host's functions.
pub(crate) struct Host {
    /// What it knows of us.
    provider: &'static Provider,
    /// Its version, as [`FI_VERSION`] has it.
    pub(crate) version: u32,
    dupinfo: fi_dupinfo_fn,
    freeinfo: fi_freeinfo_fn,
    strerror: fi_strerror_fn,
    log_enabled: fi_log_enabled_fn,
    log: fi_log_fn,
    param_define: fi_param_define_fn,
    param_get: fi_param_get_fn,
}

static HOST: OnceLock<Host> = OnceLock::new();

/// What the host knows of us. It keeps notes of its own in there.
pub(crate) struct Provider(UnsafeCell<fi_provider>);

// SAFETY: written by `fi_prov_ini`, which the host calls once and first, and by the host; we only take its address.
unsafe impl Sync for Provider {}

impl Provider {
    pub(crate) const fn new(value: fi_provider) -> Provider {
        Provider(UnsafeCell::new(value))
    }

    pub(crate) fn get(&self) -> *mut fi_provider {
        self.0.get()
    }
}

/// The provider's version.
pub(crate) const VERSION: u32 = FI_VERSION(0, 1);

/// The host. Only [`fi_prov_ini`](crate::fi_prov_ini) lets anybody in, and not without one.
pub(crate) fn host() -> &'static Host {
    HOST.get().expect("fi_prov_ini has found it")
}

/// Finds the host among who calls now. It knows us by `provider`.
pub(crate) fn find(provider: &'static Provider) -> Result<&'static Host, String> {
    if let Some(host) = HOST.get() {
        return Ok(host);
    }
    let object = caller().and_then(|name| open_loaded(&name));
    let object = object.or_else(|| open_loaded(c"libfabric.so.1")).ok_or("no libfabric is loaded")?;
    let host = Host::of(object, provider)?;
    Ok(HOST.get_or_init(|| host))
}

/// The file of the first object among the callers that is not this one.
fn caller() -> Option<CString> {
    let mut frames = [ptr::null_mut::<c_void>(); 32];
    // SAFETY: there is room for so many.
    let found = unsafe { libc::backtrace(frames.as_mut_ptr(), frames.len() as c_int) };
    let own = object_of(caller as *const c_void)?.0;
    let objects = frames[..found.max(0) as usize].iter().filter_map(|&frame| object_of(frame));
    objects.into_iter().find(|(base, _)| *base != own).map(|(_, name)| name)
}

/// Where the object that an address lies in begins, and its file.
fn object_of(address: *const c_void) -> Option<(usize, CString)> {
    // SAFETY: all zeroes is such a struct, and it is filled in before it is read.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    if unsafe { libc::dladdr(address, &raw mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the linker's string, which lives as long as the object is loaded.
    Some((found.dli_fbase.addr(), unsafe { CStr::from_ptr(found.dli_fname) }.to_owned()))
}

/// An object that is loaded already, and stays while it is the caller's.
fn open_loaded(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: nothing is loaded, so no constructor runs.
    NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) })
}

impl Host {
    fn of(object: NonNull<c_void>, provider: &'static Provider) -> Result<Host, String> {
        macro_rules! function {
            ($name:literal, $kind:ty) => {{
                // SAFETY: the object is open.
                let address = unsafe { libc::dlsym(object.as_ptr(), $name.as_ptr()) };
                if address.is_null() {
                    return Err(format!("the libfabric that loads it has no {:?}", $name));
                }
                // SAFETY: the function has this type in every version (tests/abi.rs).
                unsafe { std::mem::transmute::<*mut c_void, $kind>(address) }
            }};
        }
        let version = function!(c"fi_version", fi_version_fn);
        Ok(Host {
            provider,
            // SAFETY: it takes nothing.
            version: unsafe { version() },
            dupinfo: function!(c"fi_dupinfo", fi_dupinfo_fn),
            freeinfo: function!(c"fi_freeinfo", fi_freeinfo_fn),
            strerror: function!(c"fi_strerror", fi_strerror_fn),
            log_enabled: function!(c"fi_log_enabled", fi_log_enabled_fn),
            log: function!(c"fi_log", fi_log_fn),
            param_define: function!(c"fi_param_define", fi_param_define_fn),
            param_get: function!(c"fi_param_get", fi_param_get_fn),
        })
    }

    /// A new [`fi_info`] with all its attributes, which are zeroes; `None`: there is no memory.
    pub(crate) fn new_info(&self) -> Option<Info> {
        // SAFETY: of null it makes a new one.
        NonNull::new(unsafe { (self.dupinfo)(ptr::null()) }).map(Info)
    }

    /// What an error code means.
    pub(crate) fn meaning(&self, code: i32) -> &'static CStr {
        // SAFETY: of any number it returns a string that stays.
        unsafe { CStr::from_ptr((self.strerror)(code)) }
    }

    /// Whether a line would be shown.
    pub(crate) fn logs(&self, level: fi_log_level, part: fi_log_subsys) -> bool {
        // SAFETY: the provider is the one that the host was given.
        unsafe { (self.log_enabled)(self.provider.get(), level, part) != 0 }
    }

    /// Writes a line to the host's log, if it is to be shown.
    pub(crate) fn log(&self, level: fi_log_level, part: fi_log_subsys, place: (&str, u32), text: &str) {
        if !self.logs(level, part) {
            return;
        }
        let whole = |text: &str| CString::new(text.replace('\0', "")).unwrap_or_default();
        let (function, line, text) = (whole(place.0), place.1 as c_int, whole(text));
        let provider = self.provider.get();
        // SAFETY: the format takes one string.
        unsafe {
            (self.log)(provider, level, part, function.as_ptr(), line, c"%s\n".as_ptr(), text.as_ptr());
        }
    }

    /// Tells the host of a parameter.
    pub(crate) fn define(&self, name: &CStr, kind: fi_param_type, help: &str) {
        let help = CString::new(help).unwrap_or_default();
        // SAFETY: the format takes one string.
        unsafe {
            (self.param_define)(self.provider.get(), name.as_ptr(), kind, c"%s".as_ptr(), help.as_ptr());
        }
    }

    /// A parameter's text, if it is set.
    pub(crate) fn text(&self, name: &CStr) -> Option<String> {
        let mut value: *const c_char = ptr::null();
        // SAFETY: of a parameter that was defined as text, a pointer is written.
        let found = unsafe { (self.param_get)(self.provider.get(), name.as_ptr(), (&raw mut value).cast()) };
        if found != FI_SUCCESS || value.is_null() {
            return None;
        }
        // SAFETY: a string of the environment, which is copied at once.
        Some(unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
    }
}

/// A list of [`fi_info`] that is ours until it is given to the host.
pub(crate) struct Info(NonNull<fi_info>);

impl Info {
    pub(crate) fn into_raw(self) -> *mut fi_info {
        std::mem::ManuallyDrop::new(self).0.as_ptr()
    }

    pub(crate) fn get(&mut self) -> &mut fi_info {
        // SAFETY: made by the host, and nobody else has it.
        unsafe { self.0.as_mut() }
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: made by the host's `fi_dupinfo`.
        unsafe { (host().freeinfo)(self.0.as_ptr()) };
    }
}

/// Lines of the library go to the host's log.
pub(crate) struct Log;

impl log::Log for Log {
    fn enabled(&self, of: &log::Metadata<'_>) -> bool {
        // What an endpoint does without is told with the rest of what it uses, as information: nothing is wrong.
        let is_report = of.target() == "tsumugi::report";
        !is_report && HOST.get().is_some_and(|host| host.logs(level_of(of.level()), FI_LOG_CORE))
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata())
            && let Some(host) = HOST.get()
        {
            let place = (record.module_path().unwrap_or("tsumugi"), record.line().unwrap_or(0));
            host.log(level_of(record.level()), FI_LOG_CORE, place, &record.args().to_string());
        }
    }

    fn flush(&self) {}
}

fn level_of(level: log::Level) -> fi_log_level {
    match level {
        log::Level::Error | log::Level::Warn => FI_LOG_WARN,
        log::Level::Info => FI_LOG_INFO,
        log::Level::Debug => FI_LOG_DEBUG,
        log::Level::Trace => FI_LOG_TRACE,
    }
}

/// Writes a line to the host's log: `say!(FI_LOG_WARN, FI_LOG_AV, "…", …)`.
macro_rules! say {
    ($level:expr, $part:expr, $($text:tt)*) => {{
        let host = $crate::host::host();
        if host.logs($level, $part) {
            host.log($level, $part, (module_path!(), line!()), &format!($($text)*));
        }
    }};
}
pub(crate) use say;
