//! What members of a group do and time.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// An operation of all members, or a message.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum What {
    /// From the first member to the second and back: half of that is its time.
    Message,
    Barrier,
    Broadcast,
    Reduce,
    Allreduce,
    Gather,
    Allgather,
    Scatter,
    AllToAll,
}

/// How it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum By {
    /// The switch box counts.
    Box,
    Messages,
}

/// How it is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum Timing {
    /// One behind the other, by the first member.
    InARow,
    /// All wait for all before each; from the first that begins to the last that is done.
    Apart,
}

/// A thing to be timed: `barrier/0/box/in-a-row`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) what: What,
    /// Of each member, for each other where that matters.
    pub(super) bytes: u64,
    pub(super) by: By,
    pub(super) timing: Timing,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Task { what, bytes, by, timing } = self;
        write!(f, "{what}/{bytes}/{by}/{timing}")
    }
}

/// A text that is none.
#[derive(Debug, Error)]
#[error("`{0}` is nothing to be timed")]
pub(crate) struct TaskError(String);

impl FromStr for Task {
    type Err = TaskError;

    fn from_str(text: &str) -> Result<Task, TaskError> {
        let mut words = text.split('/');
        let mut task = || {
            let mut word = || words.next().unwrap_or_default();
            Some(Task {
                what: word().parse().ok()?,
                bytes: word().parse().ok()?,
                by: word().parse().ok()?,
                timing: word().parse().ok()?,
            })
        };
        task().ok_or_else(|| TaskError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_reads_back() {
        for text in ["barrier/0/box/in-a-row", "all-to-all/1048576/messages/apart"] {
            assert_eq!(text.parse::<Task>().expect("a task").to_string(), text);
        }
        for text in ["", "barrier", "barrier/x/box/apart", "dance/0/box/apart"] {
            assert!(text.parse::<Task>().is_err(), "{text}");
        }
    }
}
