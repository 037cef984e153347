//! What a rail does without, because it is missing or forbidden here.
//!
//! Nothing that is optional may keep an endpoint from opening: containers, seccomp filters, a machine without /proc, /sys
//! or a BPF file system, and users without capabilities all get what is left. What they do not get is remembered here.

use crate::nics::NicReport;
use std::fmt;

/// Something optional that a rail does without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// What is lacking, as a user would call it.
    pub what: &'static str,
    /// What was tried, on what, and what the system said.
    pub why: String,
    /// What mends it; a command where there is one.
    pub remedy: String,
}

impl GivenUp {
    /// What an error that ended nothing has cost. Errors say what to do behind a semicolon; where one does not,
    /// `remedy` is what to do.
    pub(crate) fn of(what: &'static str, error: &dyn fmt::Display, remedy: &str) -> GivenUp {
        let text = error.to_string();
        let (why, remedy) = text.split_once("; ").unwrap_or((&text, remedy));
        GivenUp { what, why: why.to_owned(), remedy: remedy.to_owned() }
    }
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GivenUp { what, why, remedy } = self;
        write!(f, "{what}: {why}; {remedy}")
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_error_says_to_do_is_the_remedy() {
        let of = |text: &str| GivenUp::of("this", &text, "do that");
        let given_up = of("opening it: not permitted; run as root; or not");
        assert_eq!(given_up.why, "opening it: not permitted");
        assert_eq!(given_up.remedy, "run as root; or not");
        assert_eq!(of("opening it: gone").to_string(), "this: opening it: gone; do that");
    }
}
