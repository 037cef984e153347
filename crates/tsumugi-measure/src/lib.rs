//! Measurements of messages on a wire, and how they are shown.
//!
//! [`perf`] measures one transport between two hosts, [`compare`] all of them beside each other, [`eval`] what the papers
//! measured. What they print is made of [rows](row), which a script, or a program of ours, reads back.
//!
//! Each is a part of the `tsumugi` command, with its options and its help. A measurement of several processes starts the program
//! that it runs in again, so that program must have these commands under the names that the command gives them.

/// As the standard library's, but that nobody hears it is no reason to die.
macro_rules! eprintln {
    ($($said:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($said)*);
    }};
}

pub mod choices;
pub mod compare;
pub mod conditions;
mod costs;
mod cpu;
pub mod eval;
mod exchange;
mod forwarding;
mod groups;
pub mod log;
pub mod machine;
pub mod nics;
pub mod output;
mod own_lab;
mod peers;
pub mod perf;
mod progress;
mod ratio;
pub mod report;
#[cfg(test)]
mod reports_in_browser;
pub mod row;
mod seconds;
mod side;
pub mod sizes;
pub mod statistics;
mod translate;

pub use output::CommandResult;
pub use ratio::Better;
