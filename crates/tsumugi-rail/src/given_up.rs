//! What a rail does without, because it is missing or forbidden here.
//!
//! Nothing that is optional may keep an endpoint from opening: containers, seccomp filters, a machine without /proc, /sys
//! or a BPF file system, and users without capabilities all get what is left. What they do not get is remembered here.

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
