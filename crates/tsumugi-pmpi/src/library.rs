//! The MPI library of this process, found when it is first needed: nothing is linked with one.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

/// A library that is loaded.
pub(crate) struct Library {
    handle: *mut c_void,
}

// SAFETY: the handle is only given to `dlsym`, which any thread may call.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// The one that has the MPI's functions: behind this one in the order in which symbols are looked for, or, where an interpreter has
    /// loaded it for a module of its own, among all that are loaded.
    pub(crate) fn find() -> Option<Library> {
        let next = Library { handle: libc::RTLD_NEXT };
        if next.symbol(c"PMPI_Barrier").is_some() {
            return Some(next);
        }
        let mut names: Vec<CString> = Vec::new();
        // SAFETY: the function is called only meanwhile, with the address of the names.
        unsafe { libc::dl_iterate_phdr(Some(add_name), (&raw mut names).cast()) };
        names.iter().find_map(|name| {
            // SAFETY: a string; what is loaded already stays so.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
            let library = Library { handle };
            (!handle.is_null() && library.symbol(c"PMPI_Barrier").is_some()).then_some(library)
        })
    }

    /// Where a function is.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<usize> {
        // SAFETY: a handle of a library, and a string.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!found.is_null()).then_some(found as usize)
    }

    /// Where a variable is: a program may have it in itself (a copy relocation), and everybody uses it there.
    pub(crate) fn variable(&self, name: &CStr) -> Option<usize> {
        let everywhere = Library { handle: libc::RTLD_DEFAULT };
        everywhere.symbol(name).or_else(|| self.symbol(name))
    }

    /// The file that the MPI's functions are in.
    pub(crate) fn file(&self) -> String {
        let Some(place) = self.symbol(c"PMPI_Barrier") else { return String::new() };
        let mut found = libc::Dl_info {
            dli_fname: ptr::null(),
            dli_fbase: ptr::null_mut(),
            dli_sname: ptr::null(),
            dli_saddr: ptr::null_mut(),
        };
        // SAFETY: an address of a function; what is found is a string of the loader's.
        unsafe {
            if libc::dladdr(place as *const c_void, &raw mut found) == 0 || found.dli_fname.is_null() {
                return String::new();
            }
            CStr::from_ptr(found.dli_fname).to_string_lossy().into_owned()
        }
    }
}

/// Adds a library's name to the list, if it may be an MPI's.
unsafe extern "C" fn add_name(info: *mut libc::dl_phdr_info, _: libc::size_t, names: *mut c_void) -> c_int {
    // SAFETY: the loader gives what it says, and the names are those of `find`.
    let (name, names): (*const c_char, &mut Vec<CString>) =
        unsafe { ((*info).dlpi_name, &mut *names.cast::<Vec<CString>>()) };
    if !name.is_null() {
        // SAFETY: a string of the loader's.
        let name = unsafe { CStr::from_ptr(name) };
        if name.to_bytes().windows(6).any(|part| part == b"libmpi") {
            names.push(name.to_owned());
        }
    }
    0
}
