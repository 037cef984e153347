//! The provider and its fabric, `fi_provider(3)` and `fi_fabric(3)`, and what the host exports to providers.

use super::{
    fi_context, fi_eq_attr, fi_fabric_attr, fi_info, fi_wait_attr, fid, fid_domain, fid_eq, fid_pep, fid_wait,
};
use std::ffi::{c_char, c_int, c_void};

/// How urgent a log line is: `FI_LOG_WARN` and so on.
pub type fi_log_level = u32;
/// What a log line is about: `FI_LOG_CORE` and so on.
pub type fi_log_subsys = u32;
/// Of what type a parameter is: `FI_PARAM_*`.
pub type fi_param_type = u32;

structs! { FABRIC_STRUCTS
    /// What `fi_prov_ini` returns. The host writes to it and keeps it until [`cleanup`](Self::cleanup).
    pub struct fi_provider {
        /// The provider's version, [`FI_VERSION`](super::FI_VERSION).
        pub version: u32,
        /// The API version that the provider meets. The host refuses less than 1.3, and passes over a
        /// provider that has less than the caller asks for.
        pub fi_version: u32,
        /// The host's: zero.
        pub context: fi_context,
        /// The provider's name.
        pub name: *const c_char,
        /// `fi_getinfo(3)`: a list for the host to free, or `-FI_ENODATA`. Versions are the caller's; hints
        /// may be null.
        pub getinfo: Option<
            unsafe extern "C" fn(
                version: u32,
                node: *const c_char,
                service: *const c_char,
                flags: u64,
                hints: *const fi_info,
                info: *mut *mut fi_info,
            ) -> c_int,
        >,
        /// `fi_fabric(3)`.
        pub fabric: Option<
            unsafe extern "C" fn(
                attr: *mut fi_fabric_attr,
                fabric: *mut *mut fid_fabric,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// The last call. The library is unloaded after it.
        pub cleanup: Option<unsafe extern "C" fn()>,
    }

    /// A fabric: the network that endpoints reach each other on.
    pub struct fid_fabric {
        /// What every object has.
        pub fid: fid,
        /// What a fabric can do.
        pub ops: *mut fi_ops_fabric,
        /// The API version that the caller asked for, `fi_fabric_attr::api_version`. The host sets it after
        /// [`fi_provider::fabric`] has returned. By it one knows how long the caller's structs are.
        pub api_version: u32,
    }

    /// What a fabric can do.
    pub struct fi_ops_fabric {
        /// Size of this table in bytes.
        pub size: usize,
        /// `fi_domain(3)`.
        pub domain: Option<
            unsafe extern "C" fn(
                fabric: *mut fid_fabric,
                info: *mut fi_info,
                dom: *mut *mut fid_domain,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_passive_ep`, `fi_endpoint(3)`.
        pub passive_ep: Option<
            unsafe extern "C" fn(
                fabric: *mut fid_fabric,
                info: *mut fi_info,
                pep: *mut *mut fid_pep,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_eq_open`, `fi_eq(3)`.
        pub eq_open: Option<
            unsafe extern "C" fn(
                fabric: *mut fid_fabric,
                attr: *mut fi_eq_attr,
                eq: *mut *mut fid_eq,
                context: *mut c_void,
            ) -> c_int,
        >,
        /// `fi_wait_open`, `fi_poll(3)`.
        pub wait_open: Option<
            unsafe extern "C" fn(
                fabric: *mut fid_fabric,
                attr: *mut fi_wait_attr,
                waitset: *mut *mut fid_wait,
            ) -> c_int,
        >,
        /// `fi_trywait`, `fi_poll(3)`: whether one may block on the objects' descriptors.
        pub trywait: Option<
            unsafe extern "C" fn(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int,
        >,
        /// `fi_domain2`: `fi_domain` with flags.
        pub domain2: Option<
            unsafe extern "C" fn(
                fabric: *mut fid_fabric,
                info: *mut fi_info,
                dom: *mut *mut fid_domain,
                flags: u64,
                context: *mut c_void,
            ) -> c_int,
        >,
    }
}

constants! { FABRIC_CONSTANTS
    /// Something is wrong.
    pub const FI_LOG_WARN: fi_log_level = 0;
    /// What happens at every call.
    pub const FI_LOG_TRACE: fi_log_level = 1;
    /// What was chosen, and why.
    pub const FI_LOG_INFO: fi_log_level = 2;
    /// For who works on the provider.
    pub const FI_LOG_DEBUG: fi_log_level = 3;

    /// Loading, parameters and `fi_getinfo`.
    pub const FI_LOG_CORE: fi_log_subsys = 0;
    /// Fabrics.
    pub const FI_LOG_FABRIC: fi_log_subsys = 1;
    /// Domains.
    pub const FI_LOG_DOMAIN: fi_log_subsys = 2;
    /// Opening, enabling and closing endpoints.
    pub const FI_LOG_EP_CTRL: fi_log_subsys = 3;
    /// What endpoints transfer.
    pub const FI_LOG_EP_DATA: fi_log_subsys = 4;
    /// Address vectors.
    pub const FI_LOG_AV: fi_log_subsys = 5;
    /// Completion queues.
    pub const FI_LOG_CQ: fi_log_subsys = 6;
    /// Event queues.
    pub const FI_LOG_EQ: fi_log_subsys = 7;
    /// Registered memory.
    pub const FI_LOG_MR: fi_log_subsys = 8;
    /// Counters.
    pub const FI_LOG_CNTR: fi_log_subsys = 9;

    /// `*const c_char`, the host's.
    pub const FI_PARAM_STRING: fi_param_type = 0;
    /// `c_int`.
    pub const FI_PARAM_INT: fi_param_type = 1;
    /// `c_int`, 0 or 1.
    pub const FI_PARAM_BOOL: fi_param_type = 2;
    /// `usize`.
    pub const FI_PARAM_SIZE_T: fi_param_type = 3;
}

functions! { FABRIC_FUNCTIONS
    /// `fi_version(3)`: the host's version.
    pub type fi_version_fn = unsafe extern "C" fn() -> u32;
    /// `fi_dupinfo`, `fi_getinfo(3)`: a copy; of null, a new `fi_info` with all its attributes, zeroed and as
    /// long as the host has them. The newest version of this symbol, which `dlsym` finds, does not cut them
    /// short.
    pub type fi_dupinfo_fn = unsafe extern "C" fn(info: *const fi_info) -> *mut fi_info;
    /// `fi_freeinfo`, `fi_getinfo(3)`: frees a list with all that it points to.
    pub type fi_freeinfo_fn = unsafe extern "C" fn(info: *mut fi_info);
    /// `fi_strerror(3)`: what a code means; the host's string.
    pub type fi_strerror_fn = unsafe extern "C" fn(errnum: c_int) -> *const c_char;
    /// `fi_log_enabled`, `fi_provider(3)`: whether a line would be shown.
    pub type fi_log_enabled_fn = unsafe extern "C" fn(
        prov: *const fi_provider,
        level: fi_log_level,
        subsys: fi_log_subsys,
    ) -> c_int;
    /// `fi_log_ready`, `fi_provider(3)`: as `fi_log_enabled`, for a line that is shown now and then only.
    pub type fi_log_ready_fn = unsafe extern "C" fn(
        prov: *const fi_provider,
        level: fi_log_level,
        subsys: fi_log_subsys,
        showtime: *mut u64,
    ) -> c_int;
    /// `fi_log`, `fi_provider(3)`: shows a line, whether enabled or not. Format as `printf` has it.
    pub type fi_log_fn = unsafe extern "C" fn(
        prov: *const fi_provider,
        level: fi_log_level,
        subsys: fi_log_subsys,
        func: *const c_char,
        line: c_int,
        fmt: *const c_char,
        ...
    );
    /// `fi_param_define`, `fi_provider(3)`: a parameter, set by `FI_`, the provider's name, `_` and its name
    /// in the environment. The help may be a format.
    pub type fi_param_define_fn = unsafe extern "C" fn(
        provider: *const fi_provider,
        param_name: *const c_char,
        kind: fi_param_type,
        help_string_fmt: *const c_char,
        ...
    ) -> c_int;
    /// `fi_param_get`, `fi_provider(3)`: a parameter's value, or `-FI_ENODATA` if it is not set.
    pub type fi_param_get_fn = unsafe extern "C" fn(
        provider: *mut fi_provider,
        param_name: *const c_char,
        value: *mut c_void,
    ) -> c_int;
}
