//! What is evaluated: Tsumugi with one of its policies, or TCP over a bond of the kernel.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tsumugi::Policy;

/// A mode of the kernel's bonding driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bond {
    /// balance-rr.
    RoundRobin,
    /// balance-tlb.
    Tlb,
}

/// What carries the messages of a case. In JSON and on the command line its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Contender {
    /// Tsumugi, with one of its policies.
    Ours(Policy),
    /// TCP over a bond of the kernel.
    Kernel(Bond),
}

impl Default for Contender {
    fn default() -> Contender {
        Contender::Ours(Policy::default())
    }
}

impl From<Contender> for String {
    fn from(contender: Contender) -> String {
        contender.to_string()
    }
}

impl TryFrom<String> for Contender {
    type Error = UnknownContender;

    fn try_from(name: String) -> Result<Contender, UnknownContender> {
        name.parse()
    }
}

/// A word that names nothing that could be evaluated.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("there is no policy `{0}`; choose from {all}", all = Contender::names())]
pub struct UnknownContender(String);

impl Contender {
    /// Everything, ours first.
    pub(crate) fn all() -> Vec<Contender> {
        let ours = Policy::ALL.iter().copied().map(Contender::Ours);
        ours.chain([Bond::RoundRobin, Bond::Tlb].map(Contender::Kernel)).collect()
    }

    fn names() -> String {
        let names: Vec<String> = Contender::all().iter().map(Contender::to_string).collect();
        names.join(", ")
    }

    /// Its name, and the class that gives it its colour in a report.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Contender::Ours(policy) => policy.into(),
            Contender::Kernel(Bond::RoundRobin) => "kernel-rr",
            Contender::Kernel(Bond::Tlb) => "kernel-tlb",
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.class())
    }
}

impl FromStr for Contender {
    type Err = UnknownContender;

    fn from_str(text: &str) -> Result<Contender, UnknownContender> {
        let named = Contender::all().into_iter().find(|contender| contender.to_string() == text);
        named.ok_or_else(|| UnknownContender(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_are_read_and_written() {
        for contender in Contender::all() {
            assert_eq!(contender.to_string().parse(), Ok(contender));
            assert_eq!(contender.class(), contender.to_string());
        }
        let error = "fastest".parse::<Contender>().expect_err("no policy").to_string();
        assert!(error.contains("`fastest`") && error.contains("adaptive, round-robin, tlb"), "{error}");
    }
}
