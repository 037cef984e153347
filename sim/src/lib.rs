//! A seeded simulation of whole clusters in virtual time, with checkers.
//!
//! [`run`] takes a seed and makes everything of it: hosts, traffic, faults, their times. The endpoints are the
//! library's own, without socket and clock; the network is [`tsumugi_rail::sim`]. `docs/simulation.md` says what is
//! simulated and what is checked.
#![forbid(unsafe_code)]

mod application;
mod cluster;
mod dice;
mod forge;
mod host;
mod ledger;
mod memory;
mod message;
mod nic;
mod places;
mod plan;
mod trunk;
mod wire;
mod world;

pub use cluster::Report;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use wire::Wire;

/// A seed whose run broke a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The seed.
    pub seed: u64,
    /// What is wrong.
    pub what: String,
    /// What happened before, in order; empty unless asked for.
    pub trace: Vec<String>,
}

impl std::fmt::Display for Complaint {
    /// What is wrong, and how to see it again.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Complaint { seed, what, .. } = self;
        write!(
            f,
            "seed {seed}: {what}\nreplay: cargo run --release -p tsumugi-sim -- --seed {seed} --verbose"
        )
    }
}

/// Runs a seed; with `traced`, a complaint says what happened before.
///
/// # Errors
/// The first thing that is wrong.
pub fn run(seed: u64, traced: bool) -> Result<Report, Box<Complaint>> {
    let wire = Rc::new(RefCell::new(Wire::default()));
    wire.borrow_mut().trace = traced.then(Vec::new);
    let outcome = catch_unwind(AssertUnwindSafe(|| cluster::run(seed, &wire)));
    let what = match outcome {
        Ok(Ok(report)) => return Ok(report),
        Ok(Err(wrong)) => wrong,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("of an unknown kind");
            format!("panic: {text}")
        }
    };
    let trace = wire.try_borrow_mut().ok().and_then(|mut wire| wire.trace.take()).unwrap_or_default();
    Err(Box::new(Complaint { seed, what, trace }))
}
