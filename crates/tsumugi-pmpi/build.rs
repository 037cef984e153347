//! The library stays loaded: its thread may be in it still when a program ends, and the C library calls destructors of
//! thread-local storage.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
