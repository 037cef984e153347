//! What several tests ask of the machine.

use tsumugi_lab::testing::{Watched, as_root};

/// Lets a test run where the XDP receive path can be tried; see [`as_root`].
pub(crate) fn with_xdp(test: &str) -> Option<Watched> {
    let missing = "needs a build with the XDP program (clang and libbpf-dev)";
    as_root(test, (!tsumugi_rail::xdp::IS_COMPILED).then_some(missing))
}
