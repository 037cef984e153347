//! What every receive half must do with the same packets, whoever wrote it and in whatever language.
//!
//! [`steps`] makes random sequences; [`Model`] says, in the plainest way, what must come of each step; and
//! [`Model::check`] compares receive memory with it. Nothing here knows `tsumugi-proto`: a test of another
//! receiver takes this folder in by `#[path]`.

mod model;
mod steps;

pub(crate) use model::{Model, View};
pub(crate) use steps::{Step, steps};
use tsumugi_wire::memory::Geometry;

/// Receive memory of the sequences: small, so that it is often full. Four flows, of which the last is never opened.
pub(crate) const GEOMETRY: Geometry = Geometry::plain(4, 4096);
