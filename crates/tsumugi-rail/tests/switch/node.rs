//! A node of a lab to try the switch's program in.

use std::process::Command;
use tsumugi_lab::testing::{Watched, as_root};
use tsumugi_lab::{Lab, Spec};
use tsumugi_rail::xdp::IS_COMPILED;

/// `None`, after saying so loudly, where the program cannot be run; never where CI=true.
pub(crate) fn as_root_with_the_program(test: &str) -> Option<Watched> {
    let missing = "needs a build with the XDP program (clang and libbpf-dev)";
    as_root(test, (!IS_COMPILED).then_some(missing))
}

/// Runs in a node with so many NICs, whose queues are open for programs.
pub(crate) fn in_a_node(ports: u32, work: impl FnOnce(&[u32]) + Send) {
    let lab = Lab::up(&Spec { nics: ports, ..Spec::unique("switch") }).expect("the lab is made").guarded();
    let (lab, nics) = (&lab, &lab.nodes()[0].nics);
    std::thread::scope(|scope| {
        let within = scope.spawn(move || {
            lab.enter(0).expect("the node can be entered");
            let index = |name: &str| {
                let told = Command::new("ethtool").args(["-K", name, "gro", "on"]).status();
                assert!(told.is_ok_and(|told| told.success()), "ethtool, for {name}");
                tsumugi_rail::nics::index_of(name).expect("it is there")
            };
            let indices: Vec<u32> = nics.iter().map(|nic| index(&nic.name)).collect();
            work(&indices);
        });
        within.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
