//! What can go wrong with a lab.

use crate::spec::SpecError;
use std::io;
use std::path::PathBuf;

/// Why a lab could not be made, entered or removed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Such a lab cannot exist.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// Namespaces need root.
    #[error("a lab is made of namespaces and needs root: run it again with sudo")]
    NotRoot,
    /// A program that is called is not installed.
    #[error("'{tool}' is not installed: apt-get install {package}")]
    ToolMissing {
        /// The program.
        tool: &'static str,
        /// Debian's package.
        package: &'static str,
    },
    /// A program that is called failed.
    #[error("'{command}' failed: {output}")]
    Tool {
        /// What was run, with the line of a batch that failed where that is known.
        command: String,
        /// What the program said.
        output: String,
    },
    /// The name is taken.
    #[error(
        "lab '{name}' exists already{}: remove it with 'tsumugi lab down --name {name}' or choose another --name",
        if *.half_made { " (left half-made)" } else { "" }
    )]
    Exists {
        /// The lab's name.
        name: String,
        /// Whether its making was never completed.
        half_made: bool,
    },
    /// There is no such lab.
    #[error("there is no lab '{name}': make it with 'tsumugi lab up --name {name}' (labs here: {known})")]
    NotFound {
        /// The name asked for.
        name: String,
        /// The labs that exist.
        known: String,
    },
    /// The lab's making was interrupted, or its state is unreadable.
    #[error("lab '{name}' is not complete ({reason}): remove it with 'tsumugi lab down --name {name}'")]
    HalfMade {
        /// The lab's name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no such node.
    #[error("lab '{name}' has no node '{node}': its nodes are n0 to n{last}")]
    NoNode {
        /// The lab's name.
        name: String,
        /// The node asked for.
        node: String,
        /// The highest node number.
        last: u32,
    },
    /// The lab has no switch that could be entered.
    #[error("lab '{name}' has no switch that can be entered: make it with --wire xdp-switch")]
    NoSwitch {
        /// The lab's name.
        name: String,
    },
    /// The switch was not given its program.
    #[error("the switch of lab '{name}': {source}")]
    Switch {
        /// The lab's name.
        name: String,
        /// What stands in the way.
        source: Box<tsumugi_rail::switch::SwitchError>,
    },
    /// The caller asked to stop; what had been made is gone again.
    #[error("making lab '{name}' was interrupted; what had been made is removed again")]
    Interrupted {
        /// The lab's name.
        name: String,
    },
    /// The caller runs inside the lab it wants to remove.
    #[error("this process runs in a node of lab '{name}', which cannot be removed from inside")]
    Inside {
        /// The lab's name.
        name: String,
    },
    /// Processes in the lab outlived SIGKILL.
    #[error("processes {pids:?} in lab '{name}' do not end, even by SIGKILL: try again later")]
    Stubborn {
        /// The lab's name.
        name: String,
        /// Their process ids.
        pids: Vec<i32>,
    },
    /// NICs did not come up.
    #[error("in lab '{name}' these NICs have no carrier: {nics}")]
    NoCarrier {
        /// The lab's name.
        name: String,
        /// Which, as `node/nic`.
        nics: String,
    },
    /// The system refused.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Making failed, and so did cleaning up.
    #[error("{first}; cleaning up failed too: {second}")]
    Twice {
        /// What failed first.
        first: Box<LabError>,
        /// What failed while undoing.
        second: Box<LabError>,
    },
}

/// Adds what was tried, and on what, to an error of the system.
pub(crate) trait Context<T> {
    fn context(self, what: &'static str, path: impl Into<PathBuf>) -> Result<T, LabError>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn context(self, what: &'static str, path: impl Into<PathBuf>) -> Result<T, LabError> {
        self.map_err(|source| LabError::System { what, path: path.into(), source: source.into() })
    }
}
