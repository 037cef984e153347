//! Packages of what users install: a wheel and a Debian package.

use crate::built::{beside_the_tests, target};
use crate::{root, run};
use std::fs;
use std::path::Path;
use std::process::Command;

pub(crate) const WHEEL_HELP: &str = "\
cargo xtask wheel [--quick]

  Makes a wheel, in target/wheel: the commands, and the provider where they look for it. It runs on
  every Linux with glibc 2.28 or later, for it is linked with zig. --quick: without zig and unoptimised, for this machine's glibc,
  which is what the tests install.

  maturin, zig and cargo-zigbuild are taken from PyPI into a virtual environment in target/wheel.";

/// The oldest glibc that the wheel runs with: that of manylinux_2_28.
const GLIBC: &str = "2.28";

/// Makes the wheel.
pub(crate) fn wheel(quick: bool) -> bool {
    let folder = target().join("wheel");
    let programs = folder.join("venv/bin");
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (python, maturin) = (text(&programs.join("python3")), text(&programs.join("maturin")));
    if !programs.join("pip").exists() && !run("python3", &["-m", "venv", &text(&folder.join("venv"))], &[]) {
        return false;
    }
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "maturin>=1.8,<2"];
    let further: &[&str] = if quick { &[] } else { &["cargo-zigbuild", "ziglang"] };
    if !run(&python, &[&install, further].concat(), &[]) {
        return false;
    }
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let into = folder.join("build");
    let cargo = beside_the_tests(&into).map(|(name, path)| (name, text(&path)));
    let cargo = cargo.each_ref().map(|(name, path)| (*name, path.as_str()));
    let environment = [&[("PATH", path.as_str())], &cargo[..]].concat();
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let (oldest, policy) = (format!("{triple}.{GLIBC}"), format!("manylinux_{}", GLIBC.replace('.', "_")));
    let (build, built, options) = if quick {
        (vec!["build", "--quiet"], "debug".to_owned(), vec!["--quiet", "--profile", "dev"])
    } else {
        let zig = vec!["--release", "--zig", "--target", &triple, "--compatibility", &policy];
        (vec!["zigbuild", "--release", "--target", &oldest], format!("{triple}/release"), zig)
    };
    let built = into.join(built);
    let packages = ["--package", "tsumugi-ofi", "--package", "tsumugi-pmpi"];
    if !run("cargo", &[&build[..], &packages].concat(), &environment) {
        return false;
    }
    let lies_in = root().join("packaging/python/data/data/lib/tsumugi");
    for (from, to) in [("libtsumugi_fi.so", "libtsumugi-fi.so"), ("libtsumugi_pmpi.so", "libtsumugi-pmpi.so")]
    {
        let from = built.join(from);
        if let Err(error) = fs::create_dir_all(&lies_in).and_then(|()| fs::copy(&from, lies_in.join(to))) {
            eprintln!("xtask: copying {} into {}: {error}", from.display(), lies_in.display());
            return false;
        }
    }
    let out = text(&folder);
    let made = ["-C", "packaging/python", &maturin, "build", "--strip", "--out", &out];
    run("env", &[&made[..], &options].concat(), &environment)
}

/// Makes the Debian package of what is built.
pub(crate) fn deb() -> bool {
    let stage = root().join("packaging/stage");
    let _ = fs::remove_dir_all(&stage);
    let (stage, built) = (stage.to_string_lossy(), target().join("release"));
    let environment = [("DESTDIR", &*stage), ("PREFIX", "/usr"), ("BUILT", &*built.to_string_lossy())];
    if !run("sh", &["packaging/install.sh", "install"], &environment) {
        return false;
    }
    let files = [
        "usr/bin/tsumugi",
        "usr/bin/tsumugi-mpiexec",
        "usr/lib/tsumugi/libtsumugi-fi.so",
        "usr/lib/tsumugi/libtsumugi-pmpi.so",
    ];
    let files = files.map(|file| format!("packaging/stage/{file}"));
    if !run("strip", &[&["--strip-debug"][..], &files.each_ref().map(String::as_str)].concat(), &[]) {
        return false;
    }
    if !Command::new("cargo-deb").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("xtask: cargo-deb is not installed: cargo install cargo-deb");
        return false;
    }
    run("cargo", &["deb", "--no-build", "--package", "tsumugi-cli"], &[])
}
