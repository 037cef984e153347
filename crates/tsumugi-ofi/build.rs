//! The library stays loaded when libfabric has closed it: a thread of the process may be in it still, and the C library calls
//! destructors of thread-local storage.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
