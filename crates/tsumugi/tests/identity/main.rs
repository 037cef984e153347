//! Who is who: peers of several names and addresses, on simulated networks and between real namespaces.

mod dual;
mod ipv6;
#[path = "../common/loopback.rs"]
mod loopback;
mod numbers;
#[path = "../common/options.rs"]
mod options;
#[path = "../common/process.rs"]
mod process;
mod real;
mod roles;
mod simulated;

/// Not a test: what copies of this program do.
#[test]
fn a_role_of_another_test() {
    if let Ok(role) = std::env::var(process::ROLE) {
        roles::play(&role);
    }
}
