//! What a lab should look like, and whether that can be made.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Most nodes of one lab. An address is `10.77.NIC.NODE+1`, and the switch keeps 254 for itself.
pub const NODES_MAX: u32 = 64;
/// Most NICs of one node.
pub const NICS_MAX: u32 = 8;
/// Smallest MTU, in bytes: what every IPv4 host must accept (RFC 791).
pub const MTU_BYTES_MIN: u32 = 576;
/// Largest MTU, in bytes: what a veth takes.
pub const MTU_BYTES_MAX: u32 = 65_535;
/// Longest name of a lab, in bytes.
pub const NAME_BYTES_MAX: usize = 32;
const RATE_MIN: u64 = 64_000;
const RATE_MAX: u64 = 400_000_000_000;

/// How the nodes' NICs are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Wire {
    /// One veth pair between exactly two nodes, for each NIC index: the fastest wire there is, without a
    /// port that could be limited.
    Direct,
    /// A switch node: a namespace with one Linux bridge per NIC index and one port per node. Costs a
    /// second veth and the bridge on every packet. Where the kernel has no bridge, a router is made
    /// instead.
    Switch,
    /// The same switch with the program of `tsumugi switch` on its ports. It is a node that can be entered, `switch`.
    XdpSwitch,
    /// A switch node that forwards by host routes and answers ARP for everybody (proxy ARP): for kernels
    /// without bridges. Unlike a bridge it decrements the TTL and carries IPv4 only.
    Router,
}

/// A link rate, in bits per second; read from texts such as `1gbit`, `2.5gbit`, `100mbit`, `512kbit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate {
    /// Bits per second.
    pub bits_per_s: u64,
}

impl Rate {
    /// How many bytes pass in so many microseconds.
    pub(crate) fn bytes_in_us(self, us: u64) -> u64 {
        // At most 4e11 * 1e7 / 8e6, far from overflowing in 128 bits.
        (u128::from(self.bits_per_s) * u128::from(us) / 8_000_000) as u64
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.bits_per_s;
        match bits {
            _ if bits.is_multiple_of(1_000_000_000) => write!(f, "{}gbit", bits / 1_000_000_000),
            _ if bits.is_multiple_of(1_000_000) => write!(f, "{}mbit", bits / 1_000_000),
            _ if bits.is_multiple_of(1_000) => write!(f, "{}kbit", bits / 1_000),
            _ => write!(f, "{bits}bit"),
        }
    }
}

impl FromStr for Rate {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Rate, SpecError> {
        let unreadable = || SpecError::Rate { text: text.to_owned() };
        let lower = text.trim().to_ascii_lowercase();
        let bits = lower.strip_suffix("bit").unwrap_or(&lower);
        let units = [('g', 1e9), ('m', 1e6), ('k', 1e3)];
        let (number, unit) = units
            .iter()
            .find_map(|(suffix, unit)| bits.strip_suffix(*suffix).map(|number| (number, *unit)))
            .unwrap_or((bits, 1.0));
        let bits = number.trim().parse::<f64>().map_err(|_| unreadable())? * unit;
        if !bits.is_finite() || bits < RATE_MIN as f64 || bits > RATE_MAX as f64 {
            return Err(SpecError::RateRange { text: text.to_owned() });
        }
        Ok(Rate { bits_per_s: bits.round() as u64 })
    }
}

/// A share of packets that are lost; read from texts such as `0.1%`, `5%`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Loss {
    /// Of a million packets.
    pub per_million: u32,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.per_million) / 1e4)
    }
}

impl FromStr for Loss {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Loss, SpecError> {
        let percent = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        match percent.map(|percent| (percent * 1e4).round()) {
            Some(per_million) if (1.0..=500_000.0).contains(&per_million) => {
                Ok(Loss { per_million: per_million as u32 })
            }
            _ => Err(SpecError::Loss { text: text.to_owned() }),
        }
    }
}

/// What to make. [`Spec::new`] is two nodes with one NIC each, joined by one veth pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The lab's name: lower-case letters, digits and hyphens.
    pub name: String,
    /// How many nodes; they are called `n0`, `n1`, …
    pub nodes: u32,
    /// How many NICs each node has; they are called `nic0`, `nic1`, … and NIC *k* reaches NIC *k* of the
    /// others only.
    pub nics: u32,
    /// The NICs' MTU, in bytes.
    pub mtu: u32,
    /// The rate of every link in each direction; `None` is as fast as the machine goes.
    pub rate: Option<Rate>,
    /// Which share of the packets every link loses in each direction. What the kernel has not cut up yet is one packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Whether NICs segment, coalesce and checksum for the stack (TSO, GSO, GRO, …). `true` leaves what
    /// the kernel gives a fresh veth, `false` turns everything off at both ends.
    pub offloads: bool,
    /// How the NICs are joined; `None` is [`Wire::Direct`] for two nodes without a rate or losses and
    /// [`Wire::Switch`] otherwise.
    pub wire: Option<Wire>,
    /// Whether it is to end with the process that makes it: [`crate::remove_abandoned`] removes it when that has died.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub temporary: bool,
}

impl Spec {
    /// Two nodes with one NIC of MTU 1500 each, no rate limit, offloads on.
    pub fn new(name: impl Into<String>) -> Spec {
        let name = name.into();
        Spec {
            name,
            nodes: 2,
            nics: 1,
            mtu: 1500,
            rate: None,
            loss: None,
            offloads: true,
            wire: None,
            temporary: false,
        }
    }

    /// Like [`Spec::new`], with a name that no other process and no earlier call here uses, for tests and measurements: it is
    /// [temporary](Spec::temporary).
    pub fn unique(stem: &str) -> Spec {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Spec { temporary: true, ..Spec::new(format!("{stem}-{}-{count}", std::process::id())) }
    }

    /// The wire that is asked for, with the default put in.
    pub fn wire_wanted(&self) -> Wire {
        match self.wire {
            Some(wire) => wire,
            None if self.nodes == 2 && self.rate.is_none() && self.loss.is_none() => Wire::Direct,
            None => Wire::Switch,
        }
    }

    /// Whether such a lab can be made at all.
    pub fn check(&self) -> Result<(), SpecError> {
        check_name(&self.name)?;
        if !(1..=NODES_MAX).contains(&self.nodes) {
            return Err(SpecError::Nodes { nodes: self.nodes });
        }
        if !(1..=NICS_MAX).contains(&self.nics) {
            return Err(SpecError::Nics { nics: self.nics });
        }
        if !(MTU_BYTES_MIN..=MTU_BYTES_MAX).contains(&self.mtu) {
            return Err(SpecError::Mtu { mtu: self.mtu });
        }
        if let Some(rate) = self.rate
            && !(RATE_MIN..=RATE_MAX).contains(&rate.bits_per_s)
        {
            return Err(SpecError::RateRange { text: rate.to_string() });
        }
        if self.wire == Some(Wire::XdpSwitch) && (self.rate.is_some() || self.loss.is_some()) {
            return Err(SpecError::XdpSwitch);
        }
        if self.wire == Some(Wire::Direct) {
            if self.nodes != 2 {
                return Err(SpecError::DirectNodes { nodes: self.nodes });
            }
            if self.rate.is_some() {
                return Err(SpecError::DirectRate);
            }
            if self.loss.is_some() {
                return Err(SpecError::DirectLoss);
            }
        }
        Ok(())
    }
}

/// Whether this can be the name of a lab. It becomes part of file and namespace names.
pub(crate) fn check_name(name: &str) -> Result<(), SpecError> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let sound = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(allowed)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if sound { Ok(()) } else { Err(SpecError::Name { name: name.to_owned() }) }
}

/// Why such a lab cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Not usable in file and namespace names.
    #[error(
        "'{name}' cannot be the name of a lab: use 1 to {NAME_BYTES_MAX} lower-case letters, digits and \
         inner hyphens"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// None, or too many.
    #[error("a lab cannot have {nodes} nodes: ask for 1 to {NODES_MAX}")]
    Nodes {
        /// The number asked for.
        nodes: u32,
    },
    /// None, or too many.
    #[error("a node cannot have {nics} NICs: ask for 1 to {NICS_MAX}")]
    Nics {
        /// The number asked for.
        nics: u32,
    },
    /// Outside of what IPv4 demands and a veth takes.
    #[error("an MTU of {mtu} B cannot be set: ask for {MTU_BYTES_MIN} to {MTU_BYTES_MAX}")]
    Mtu {
        /// The MTU asked for, in bytes.
        mtu: u32,
    },
    /// Not a rate.
    #[error(
        "'{text}' is not a rate: write bits per second, for example 1gbit, 2.5G, 100mbit, 200M or 512kbit"
    )]
    Rate {
        /// What was given.
        text: String,
    },
    /// A rate that cannot be kept.
    #[error("a rate of {text} is outside of what a port can be limited to: ask for 64kbit to 400gbit")]
    RateRange {
        /// What was given.
        text: String,
    },
    /// A veth pair has two ends.
    #[error("a direct wire joins exactly 2 nodes, not {nodes}: use --wire switch")]
    DirectNodes {
        /// The number asked for.
        nodes: u32,
    },
    /// Only a switch has ports that everything passes, including frames that bypass the sender's queue.
    #[error("a direct wire has no port whose rate could be limited: use --wire switch with --rate")]
    DirectRate,
    /// What the switch's program sends passes no filter of the port, and with XDP no queue.
    #[error(
        "the program of an xdp-switch passes by the filters that lose packets, and with XDP by the queues that limit rates: use --wire \
         switch with --rate or --loss"
    )]
    XdpSwitch,
    /// Not a share of packets, or none that a job could live with.
    #[error("'{text}' is not a share of packets to lose: write 0.0001% to 50%, for example 0.1%")]
    Loss {
        /// What was given.
        text: String,
    },
    /// Only a switch has ports that everything passes.
    #[error("a direct wire has no port that could lose packets: use --wire switch with --loss")]
    DirectLoss,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read_and_written() {
        for (text, per_million) in [("0.1%", 1000), ("5 %", 50_000), ("0.0001%", 1), ("50%", 500_000)] {
            let loss = text.parse::<Loss>().unwrap();
            assert_eq!(loss.per_million, per_million, "{text}");
            assert_eq!(loss.to_string().parse(), Ok(loss));
        }
        for wrong in ["", "1", "-1%", "0%", "51%", "x%", "nan%"] {
            assert!(wrong.parse::<Loss>().is_err(), "{wrong}");
        }
        let spec = Spec { loss: Some(Loss { per_million: 1 }), ..Spec::new("lab") };
        assert_eq!((spec.wire_wanted(), spec.check()), (Wire::Switch, Ok(())));
        assert_eq!(Spec { wire: Some(Wire::Direct), ..spec }.check(), Err(SpecError::DirectLoss));
    }

    #[test]
    fn rates_are_read_and_written() {
        for (text, bits) in [
            ("1gbit", 1_000_000_000),
            ("2.5G", 2_500_000_000),
            ("200M", 200_000_000),
            ("1000000", 1_000_000),
            ("2.5Gbit", 2_500_000_000),
            ("100 mbit", 100_000_000),
            ("64kbit", 64_000),
        ] {
            assert_eq!(text.parse::<Rate>().map(|r| r.bits_per_s), Ok(bits), "{text}");
        }
        assert_eq!(Rate { bits_per_s: 2_500_000_000 }.to_string(), "2500mbit");
        assert_eq!(Rate { bits_per_s: 1_000_000_000 }.bytes_in_us(1000), 125_000);
        for text in ["", "fast", "gbit", "-1gbit", "nangbit", "0mbit", "1", "1gb", "900gbit"] {
            assert!(text.parse::<Rate>().is_err(), "{text} was taken for a rate");
        }
    }

    #[test]
    fn impossible_labs_are_refused() {
        let wrong: [fn(&mut Spec); 12] = [
            |s| s.nodes = 0,
            |s| s.nodes = 65,
            |s| s.nics = 0,
            |s| s.nics = 9,
            |s| s.mtu = 575,
            |s| s.mtu = 65_536,
            |s| s.name = String::new(),
            |s| s.name = "../etc".into(),
            |s| s.name = "x".repeat(33),
            |s| (s.nodes, s.wire) = (3, Some(Wire::Direct)),
            |s| (s.rate, s.wire) = (Some(Rate { bits_per_s: 1_000_000 }), Some(Wire::Direct)),
            |s| (s.loss, s.wire) = (Some(Loss { per_million: 1 }), Some(Wire::XdpSwitch)),
        ];
        assert_eq!(Spec::new("a").check(), Ok(()));
        for (index, change) in wrong.iter().enumerate() {
            let mut spec = Spec::new("a");
            change(&mut spec);
            assert!(spec.check().is_err(), "case {index}: {spec:?}");
        }
    }

    #[test]
    fn two_nodes_without_a_rate_get_a_direct_wire() {
        let mut spec = Spec::new("a");
        assert_eq!(spec.wire_wanted(), Wire::Direct);
        spec.nodes = 3;
        assert_eq!(spec.wire_wanted(), Wire::Switch);
        spec.nodes = 2;
        spec.rate = Some(Rate { bits_per_s: 1_000_000_000 });
        assert_eq!(spec.wire_wanted(), Wire::Switch);
    }
}
