//! Compiles the program that runs in NIC drivers.

use std::path::Path;

/// Compiles `bpf/receive.bpf.c` to `target/bpf/receive.bpf.o`, and says whether that succeeded.
pub(crate) fn compile(root: &Path) -> bool {
    let target = root.join("target/bpf");
    if let Err(error) = std::fs::create_dir_all(&target) {
        eprintln!("xtask: cannot make {}: {error}", target.display());
        return false;
    }
    // The kernel's headers lie where the machine's architecture says; BPF has no folder of its own.
    let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let machine = if cfg!(target_arch = "x86_64") { "-D__TARGET_ARCH_x86" } else { "-D__TARGET_ARCH_other" };
    let arguments = [
        // Debian's clang 14; -g for the type information that maps are described by.
        "-O2",
        "-g",
        "-target",
        "bpf",
        // Atomics that return what was there (Linux 5.12).
        "-mcpu=v3",
        "-Wall",
        "-Wextra",
        "-Werror",
        machine,
        &headers,
        "-Ibpf",
        "-c",
        "bpf/receive.bpf.c",
        "-o",
        "target/bpf/receive.bpf.o",
    ];
    crate::run("clang", &arguments, &[])
}
