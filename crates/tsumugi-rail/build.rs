//! Compiles the XDP programs, which become a part of the library, so that `tsumugi up` needs no compiler.
//!
//! Without clang or libbpf's headers the library is built all the same, and says so when a program is asked for.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The programs, each `bpf/NAME.bpf.c`.
const PROGRAMS: [&str; 6] = ["receive", "switch", "redirect", "discard", "bounce", "write"];

fn main() {
    // As cargo says now, not as it did when this was compiled: a checkout may have moved.
    let folder = |name| std::env::var_os(name).map(PathBuf::from);
    let (Some(package), Some(out)) = (folder("CARGO_MANIFEST_DIR"), folder("OUT_DIR")) else { return };
    let source = package.join("../../bpf");
    println!("cargo::rerun-if-changed={}", source.display());
    for name in PROGRAMS {
        let object = out.join(format!("{name}.bpf.o"));
        if let Err(why) = compile(&source.join(format!("{name}.bpf.c")), &object) {
            println!("cargo::warning=left out: the XDP program '{name}': {why}");
            // What is not there has changed, for cargo: the next build tries again.
            println!("cargo::rerun-if-changed={}", object.with_extension("missing").display());
            // An empty file stands for a program that was not compiled.
            if let Err(error) = std::fs::write(&object, []) {
                println!("cargo::error=writing {}: {error}", object.display());
            }
        }
    }
}

fn compile(source: &Path, object: &Path) -> Result<(), String> {
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let machine = if architecture == "x86_64" { "-D__TARGET_ARCH_x86" } else { "-D__TARGET_ARCH_other" };
    let status = Command::new("clang")
        // Debian's clang 14; -g for the type information that maps are described by; atomics that return what
        // was there (-mcpu=v3, Linux 5.12). The kernel's headers lie where the machine's architecture says; BPF
        // has no folder of its own.
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror", machine])
        .arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("clang: {status} (libbpf-dev brings the headers it needs)")),
        Err(error) => Err(format!("clang: {error}; install clang and libbpf-dev and build again")),
    }
}
