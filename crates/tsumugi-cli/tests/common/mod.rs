//! What several tests ask of the machine.

/// Whether the driver depositor can be tried here; says so where it cannot, and never in CI.
pub(crate) fn has_driver(test: &str) -> bool {
    let missing = if !nix::unistd::geteuid().is_root() {
        "needs root"
    } else if !tsumugi_rail::xdp::IS_COMPILED {
        "needs a build with the driver program (clang and libbpf-dev)"
    } else {
        return true;
    };
    assert!(std::env::var_os("CI").is_none(), "{test} {missing}, and CI skips nothing");
    eprintln!("SKIPPED: {test} {missing}");
    false
}
