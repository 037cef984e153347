//! What a rail tells of itself.

use crate::given_up::GivenUp;
use crate::nics::NicReport;

/// What a rail uses, and what it does without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RailReport {
    /// What sends, in the order of preference until one has proved to be quicker.
    pub send_paths: Vec<&'static str>,
    /// The NICs that peers can reach it by; empty where they are not known, and on the loopback interface.
    pub nics: Vec<NicReport>,
    /// NICs that peers could reach it by, were their links not down.
    pub links_down: Vec<String>,
    /// What it does without.
    pub given_up: Vec<GivenUp>,
}
