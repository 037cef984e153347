//! Endpoints in an application's event loop: the example, which would stand still without timers behind the descriptor.

#[allow(dead_code, reason = "the example's main is not for a test")]
#[path = "../examples/event_loop.rs"]
mod event_loop;

#[test]
fn an_event_loop_goes_on_though_packets_are_lost() {
    for faults in ["loss=20%", "loss=10%,dup=5%,reorder=10%,seed=3"] {
        println!("{:?} with {faults}", event_loop::run(300, faults).unwrap());
    }
}
