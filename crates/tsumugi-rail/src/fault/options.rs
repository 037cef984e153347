//! What goes wrong, as people write it: `loss=1%,dup=1%,reorder=5%,corrupt=0.1%,delay=50us,seed=7`.

use std::fmt;
use std::str::FromStr;
use tsumugi_wire::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};

/// How often what goes wrong. Probabilities lie between 0 and 1 and hold for each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FaultOptions {
    /// Seed of the random numbers; the same seed and packets give the same faults.
    pub seed: u64,
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Probability that a packet is sent twice.
    pub duplicate: f64,
    /// Probability that a packet is held back until a few later ones have passed.
    pub reorder: f64,
    /// Probability that one bit of a packet is flipped.
    pub corrupt: f64,
    /// Time that every packet is delayed, ns.
    pub delay_ns: u64,
    /// Whether what kernels say of silent peers is withheld, as by a firewall that drops ICMP errors and TCP.
    pub firewall: bool,
}

/// Faults that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedFaults {
    /// Not `key=value`.
    #[error("fault \"{0}\": write it as key=value, for example loss=1%")]
    NoValue(String),
    /// A fault that does not exist.
    #[error(
        "unknown fault \"{0}\": there are loss, dup, reorder, corrupt (each a probability), delay (a time), firewall (on or off) and seed"
    )]
    UnknownKey(String),
    /// A key given twice.
    #[error("fault \"{0}\" is given twice")]
    Twice(String),
    /// Not a probability.
    #[error("{key}={value}: a probability is written as 1% or 0.01, between 0 and 1")]
    Probability {
        /// The fault.
        key: String,
        /// What was given for it.
        value: String,
    },
    /// Not a time.
    #[error("delay={0}: a time is written as 500ns, 50us, 2ms or 1s, and is at most 60s")]
    Delay(String),
    /// Neither on nor off.
    #[error("firewall={0}: write on or off")]
    Firewall(String),
    /// Not a seed.
    #[error("seed={0}: a seed is a whole number from 0 to 18446744073709551615")]
    Seed(String),
}

/// Longest delay, ns. Packets that wait need memory.
const DELAY_NS_MAX: u64 = 60 * SECOND_NS;

impl FromStr for FaultOptions {
    type Err = MalformedFaults;

    fn from_str(text: &str) -> Result<FaultOptions, MalformedFaults> {
        let mut options = FaultOptions::default();
        let mut seen: Vec<&str> = Vec::new();
        for fault in text.split(',').map(str::trim).filter(|fault| !fault.is_empty()) {
            let Some((key, value)) = fault.split_once('=').map(|(key, value)| (key.trim(), value.trim()))
            else {
                return Err(MalformedFaults::NoValue(fault.into()));
            };
            let key = if key == "duplicate" { "dup" } else { key };
            if seen.contains(&key) {
                return Err(MalformedFaults::Twice(key.into()));
            }
            seen.push(key);
            match key {
                "loss" => options.loss = probability(key, value)?,
                "dup" => options.duplicate = probability(key, value)?,
                "reorder" => options.reorder = probability(key, value)?,
                "corrupt" => options.corrupt = probability(key, value)?,
                "delay" => options.delay_ns = time_ns(value)?,
                "firewall" => {
                    options.firewall = match value {
                        "on" => true,
                        "off" => false,
                        _ => return Err(MalformedFaults::Firewall(value.into())),
                    }
                }
                "seed" => options.seed = value.parse().map_err(|_| MalformedFaults::Seed(value.into()))?,
                _ => return Err(MalformedFaults::UnknownKey(key.into())),
            }
        }
        Ok(options)
    }
}

fn probability(key: &str, value: &str) -> Result<f64, MalformedFaults> {
    let parsed = match value.strip_suffix('%') {
        Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
        None => value.parse(),
    };
    match parsed {
        Ok(probability) if (0.0..=1.0).contains(&probability) => Ok(probability),
        _ => Err(MalformedFaults::Probability { key: key.into(), value: value.into() }),
    }
}

fn time_ns(value: &str) -> Result<u64, MalformedFaults> {
    let malformed = || MalformedFaults::Delay(value.into());
    let unit_at = value.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(malformed)?;
    let (number, unit) = value.split_at(unit_at);
    let unit_ns = match unit.trim() {
        "ns" => 1,
        "us" | "µs" | "μs" => MICROSECOND_NS,
        "ms" => MILLISECOND_NS,
        "s" => SECOND_NS,
        _ => return Err(malformed()),
    };
    let time_ns = number.parse::<f64>().map_err(|_| malformed())? * unit_ns as f64;
    if time_ns > DELAY_NS_MAX as f64 { Err(malformed()) } else { Ok(time_ns.round() as u64) }
}

impl fmt::Display for FaultOptions {
    /// In the form that is read back, what never happens left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultOptions { seed, loss, duplicate, reorder, corrupt, delay_ns, firewall } = *self;
        for (key, probability) in
            [("loss", loss), ("dup", duplicate), ("reorder", reorder), ("corrupt", corrupt)]
        {
            if probability > 0.0 {
                // Ten digits hide that 0.07 × 100 is 7.000000000000001.
                write!(f, "{key}={}%,", (probability * 1e12).round() / 1e10)?;
            }
        }
        match delay_ns {
            0 => {}
            _ if delay_ns % MILLISECOND_NS == 0 => write!(f, "delay={}ms,", delay_ns / MILLISECOND_NS)?,
            _ if delay_ns % MICROSECOND_NS == 0 => write!(f, "delay={}us,", delay_ns / MICROSECOND_NS)?,
            _ => write!(f, "delay={delay_ns}ns,")?,
        }
        if firewall {
            f.write_str("firewall=on,")?;
        }
        write!(f, "seed={seed}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_usual_form_is_read() {
        let options: FaultOptions =
            "loss=1%,dup=2%, reorder=5%,corrupt=0.1%,delay=50us,seed=7".parse().unwrap();
        let expected = FaultOptions {
            seed: 7,
            loss: 0.01,
            duplicate: 0.02,
            reorder: 0.05,
            corrupt: 0.001,
            delay_ns: 50_000,
            firewall: false,
        };
        assert_eq!(options, expected);
        assert_eq!(options.to_string(), "loss=1%,dup=2%,reorder=5%,corrupt=0.1%,delay=50us,seed=7");
        assert_eq!("".parse(), Ok(FaultOptions::default()));
        assert_eq!(
            "loss=0.5,delay=1.5ms".parse(),
            Ok(FaultOptions { loss: 0.5, delay_ns: 1_500_000, ..FaultOptions::default() })
        );
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| text.parse::<FaultOptions>().unwrap_err().to_string();
        for (text, hint) in [
            ("loss", "loss=1%"),
            ("lose=1%", "\"lose\": there are loss"),
            ("loss=1%,loss=2%", "\"loss\" is given twice"),
            ("dup=1%,duplicate=2%", "\"dup\" is given twice"),
            ("loss=101%", "loss=101%"),
            ("loss=-1%", "between 0 and 1"),
            ("loss=NaN", "between 0 and 1"),
            ("loss=much", "loss=much"),
            ("delay=50", "50us"),
            ("delay=5h", "delay=5h"),
            ("delay=1.2.3s", "delay=1.2.3s"),
            ("delay=90s", "at most 60s"),
            ("seed=-1", "whole number"),
            ("firewall=1", "on or off"),
        ] {
            assert!(error(text).contains(hint), "{text}: {}", error(text));
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(seed: u64, firewall: bool, loss in 0u32..=10_000, duplicate in 0u32..=10_000, corrupt in 0u32..=10_000, delay_ns in 0u64..60_000_000_000) {
            let share = |of: u32| f64::from(of) / 100.0 / 100.0;
            let options = FaultOptions { seed, loss: share(loss), duplicate: share(duplicate), reorder: 0.0, corrupt: share(corrupt), delay_ns, firewall };
            prop_assert_eq!(options.to_string().parse(), Ok(options));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}|(loss|delay|seed)=\\PC{0,10}") {
            let _ = text.parse::<FaultOptions>();
        }
    }
}
