//! The XDP receive path between hosts: namespaces with NICs, the program attached to them, processes that are killed,
//! confined, busy and attacked. Needs root and the compiled program.

mod attaching;
mod bridged;
mod cluster;
mod computing;
mod counting;
mod failing;
mod filling;
mod forking;
mod hostile;
mod losing;
mod messages;
mod multirail;
mod pool;
#[path = "../common/process.rs"]
mod process;
mod refusing;
mod remote;
mod repairing;
mod roles;
mod traffic;
mod windows;

use process::ROLE;

/// Not a test: what copies of this program do.
#[test]
fn a_role_of_another_test() {
    if let Ok(role) = std::env::var(ROLE) {
        roles::play(&role);
    }
}
