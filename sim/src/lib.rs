//! A seeded simulation of whole clusters in virtual time, with checkers.
//!
//! [`run`] takes a seed and makes everything of it: hosts, traffic, faults, their times. The endpoints are the
//! library's own, without socket and clock; the network is [`tsumugi_rail::sim`]. [`run_models`] does the same with whole
//! endpoints that use every programming model at once, [`run_groups`] with switch boxes that count for groups. `docs/simulation.md` says what is simulated and what is checked.
//!
//! From the bottom up: a *plan* says what a run is like, and the *planner* makes one of the seed. The *wire* watches what
//! hosts send, the *ledger* what they were promised. The *world* is what all hosts share, and a *check* says what must hold
//! of one of them. A *host* acts in the world and calls the checks. A *cluster* runs them all.
#![forbid(unsafe_code)]

mod addresses;
mod check;
mod cluster;
pub mod defects;
mod forge;
mod groups;
mod host;
mod ledger;
mod memory;
mod message;
mod models;
mod plan;
mod planner;
mod random;
mod switch_box;
mod wire;
mod world;

pub use cluster::Report;
pub use groups::scale::{Costs, Scale, scale};
pub use groups::{GroupsPlan, GroupsReport};
pub use models::ModelsReport;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use tsumugi_wire::defect::Defect;
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
    /// Of which simulation it is a seed.
    pub of: Simulation,
}

/// The simulations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simulation {
    /// [`run`].
    Clusters,
    /// [`run_models`].
    Models,
    /// [`run_groups`].
    Groups,
}

impl std::fmt::Display for Complaint {
    /// What is wrong, and how to see it again.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Complaint { seed, what, of, .. } = self;
        let how = match of {
            Simulation::Clusters => "--verbose",
            Simulation::Models => "--models",
            Simulation::Groups => "--groups",
        };
        let (features, defect) = match Defect::current() {
            Some(defect) => (" --features defects", format!("--defect {} ", defects::name(defect))),
            None => ("", String::new()),
        };
        write!(
            f,
            "seed {seed}: {what}\nreplay: cargo run --release -p tsumugi-sim{features} -- {defect}--seed {seed} {how}"
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
    let what = match caught(|| cluster::run(seed, &wire)) {
        Ok(report) => return Ok(report),
        Err(wrong) => wrong,
    };
    let trace = wire.try_borrow_mut().ok().and_then(|mut wire| wire.trace.take()).unwrap_or_default();
    Err(Box::new(Complaint { seed, what, trace, of: Simulation::Clusters }))
}

/// Runs a seed of a cluster whose hosts use all programming models.
///
/// # Errors
/// The first thing that is wrong.
pub fn run_models(seed: u64) -> Result<ModelsReport, Box<Complaint>> {
    caught(|| models::run(seed))
        .map_err(|what| Box::new(Complaint { seed, what, trace: Vec::new(), of: Simulation::Models }))
}

/// Runs a seed of a group that switch boxes count for.
///
/// # Errors
/// The first thing that is wrong.
pub fn run_groups(seed: u64) -> Result<GroupsReport, Box<Complaint>> {
    caught(|| groups::run(seed, GroupsPlan::of_seed(seed)))
        .map_err(|what| Box::new(Complaint { seed, what, trace: Vec::new(), of: Simulation::Groups }))
}

/// Memory of hosts that a thread keeps for the next run, bytes, at most.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// What a run gives; a panic is something wrong like any other.
fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    tsumugi_rail::memory::keep_mappings(KEPT_BYTES_MAX);
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("of an unknown kind");
        Err(format!("panic: {text}"))
    })
}
