//! The conditions of a measurement: all that somebody must know of it who compares the figures with others.

use std::fmt::Write as _;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tsumugi::{Endpoint, Report};
use tsumugi_rail::nics::{NicSettings, settings};

use crate::cpu;
use crate::machine::kernel;

/// NICs that a line of text names at most.
const NAMED_MAX: usize = 3;

/// How often and by what something was measured; in JSON the object `measured` of every measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// How often each figure was measured.
    pub rounds: u32,
    /// For how long each time, seconds; absent where something else ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_s: Option<f64>,
    /// How many messages each time, at most; absent where that is not limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The side that measures or sends first, and the other.
    pub sides: Vec<Side>,
}

/// One side. Lists have several members where figures differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Side {
    /// Names of its hosts.
    pub hosts: Vec<String>,
    /// Tsumugi's send paths as they came to be, never `auto`: `udp`, `packet`, `xsk`. Each endpoint takes which is quickest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub send: Vec<String>,
    /// Its receive path as it came to be: `xdp` or `socket`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub receive: Vec<String>,
    /// How it waits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wait: Vec<String>,
    /// The NICs that were used.
    pub nics: Vec<Nic>,
    /// Kernel name, release and architecture.
    pub kernel: String,
    /// CPUs that the process might use.
    pub cpus: u32,
}

/// A NIC as it was set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// Its driver; absent where it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Its speed in megabits a second; absent where it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_mbits: Option<u32>,
    /// Largest IP packet, bytes.
    pub mtu_bytes: u32,
    /// Its offloads that are on, by the names of `ethtool -K`: `tso`, `gso`, `gro`, `tx`, `rx`.
    pub offloads: Vec<String>,
}

impl Side {
    /// This host with the NICs that are fit, and all its CPUs.
    fn with(is_used: impl Fn(&NicSettings) -> bool) -> Side {
        Side {
            hosts: vec![rustix::system::uname().nodename().to_string_lossy().into_owned()],
            nics: settings().iter().filter(|nic| is_used(nic)).map(Nic::of).collect(),
            kernel: kernel(),
            cpus: cpu::allowed().0.len() as u32,
            ..Side::default()
        }
    }

    /// This host, and the NIC with an address.
    pub(crate) fn at(ip: IpAddr) -> Side {
        Side::with(|nic| nic.addresses.contains(&ip))
    }

    /// This host with all of its NICs.
    pub(crate) fn here() -> Side {
        Side::with(|nic| !nic.is_loopback)
    }

    /// What an endpoint uses; `ip`: the address that it is reached by, for where it names no NIC.
    pub(crate) fn reported(report: &Report, wait: &str, ip: IpAddr) -> Side {
        let is_used = |nic: &NicSettings| report.nics.iter().any(|used| used.name == nic.name);
        let side = if report.nics.is_empty() { Side::at(ip) } else { Side::with(is_used) };
        Side {
            send: report.send_paths.clone(),
            receive: vec![report.receive_path.clone()],
            wait: vec![wait.to_owned()],
            ..side
        }
    }

    /// What an endpoint in a node of a lab uses.
    pub(crate) fn of(endpoint: &Endpoint, wait: impl ToString) -> Side {
        let report = endpoint.report();
        Side::reported(&report, &wait.to_string(), report.address.ip())
    }

    /// Adds what another figure was measured by.
    pub(crate) fn add(&mut self, other: &Side) {
        add(&mut self.hosts, &other.hosts);
        add(&mut self.send, &other.send);
        add(&mut self.receive, &other.receive);
        add(&mut self.wait, &other.wait);
        add(&mut self.nics, &other.nics);
        if self.kernel.is_empty() {
            self.kernel.clone_from(&other.kernel);
        }
        self.cpus = self.cpus.max(other.cpus);
    }

    fn paths(&self) -> String {
        let named = |what: &str, words: &[String]| match words {
            [] => String::new(),
            words => format!("{what} {}, ", words.join(" or ")),
        };
        let all =
            [named("send path", &self.send), named("receive path", &self.receive), named("wait", &self.wait)];
        all.concat().trim_end_matches(", ").to_owned()
    }

    fn nics(&self) -> String {
        let (shown, more) = self.nics.split_at(self.nics.len().min(NAMED_MAX));
        let mut text = shown.iter().map(Nic::text).collect::<Vec<_>>().join(", ");
        if let [.., last] = more {
            let _ = write!(text, " and {} more, such as {}", more.len(), last.text());
        }
        text
    }
}

/// What a process tells that measures in a node of a lab.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Told<T> {
    pub(crate) side: Side,
    pub(crate) found: T,
}

fn add<T: Clone + PartialEq>(all: &mut Vec<T>, others: &[T]) {
    for other in others {
        if !all.contains(other) {
            all.push(other.clone());
        }
    }
}

impl Nic {
    fn of(settings: &NicSettings) -> Nic {
        Nic {
            name: settings.name.clone(),
            driver: settings.driver.clone(),
            speed_mbits: Some(settings.speed_mbits).filter(|speed| *speed > 0),
            mtu_bytes: settings.mtu_bytes as u32,
            offloads: settings.offloads.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn text(&self) -> String {
        let driver = self.driver.as_ref().map_or_else(String::new, |driver| format!("{driver}, "));
        let speed = match self.speed_mbits {
            None => String::new(),
            Some(speed) if speed < 1000 => format!("{speed} Mb/s, "),
            Some(speed) => format!("{} Gb/s, ", f64::from(speed) / 1000.0),
        };
        let offloads = if self.offloads.is_empty() { "none".to_owned() } else { self.offloads.join(" ") };
        format!("{} ({driver}{speed}MTU {}, offloads {offloads})", self.name, self.mtu_bytes)
    }
}

impl Conditions {
    /// So many rounds of so many seconds; sides come later.
    pub(crate) fn rounds(rounds: u32, time_s: f64) -> Conditions {
        Conditions { rounds, time_s: Some(time_s), ..Conditions::default() }
    }

    /// Adds the sides of a figure, in their order.
    pub(crate) fn add<'a>(&mut self, sides: impl IntoIterator<Item = &'a Side>) {
        for (at, side) in sides.into_iter().enumerate() {
            match self.sides.get_mut(at) {
                Some(known) => known.add(side),
                None => self.sides.push(side.clone()),
            }
        }
    }

    /// Adds what several processes tell, of which the first is a side and all others are the other.
    pub(crate) fn add_group<T>(&mut self, told: &[Told<T>]) {
        if let [first, others @ ..] = told {
            self.add([&first.side]);
            others.iter().for_each(|other| self.add([&first.side, &other.side]));
        }
    }

    /// `3 rounds × 0.5 s`.
    pub(crate) fn amount(&self) -> String {
        let rounds = if self.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", self.rounds) };
        let count = self.count.map(|count| format!("{count} messages"));
        let time = self.time_s.map(|time| format!("{time} s"));
        let limits: Vec<String> = count.into_iter().chain(time).collect();
        if limits.is_empty() { rounds } else { format!("{rounds} × {}", limits.join(" or ")) }
    }

    /// The lines above a table: a line for each side, or one for sides that are alike.
    pub(crate) fn header(&self) -> String {
        let mut text = String::new();
        let mut alike: Vec<Side> = Vec::new();
        for side in &self.sides {
            let same = |known: &&mut Side| Side { hosts: side.hosts.clone(), ..(**known).clone() } == *side;
            match alike.iter_mut().find(same) {
                Some(known) => add(&mut known.hosts, &side.hosts),
                None => alike.push(side.clone()),
            }
        }
        let one_host = alike.iter().map(|side| &side.kernel).collect::<Vec<_>>();
        let is_one_kernel = one_host.windows(2).all(|pair| pair[0] == pair[1]);
        for side in &alike {
            let _ = write!(text, "{}: ", side.hosts.join(", "));
            let paths = side.paths();
            let between = if paths.is_empty() || side.nics.is_empty() { "" } else { "; " };
            let _ = write!(text, "{paths}{between}{}; {}", side.nics(), cpus(side.cpus));
            let _ = writeln!(
                text,
                "{}",
                if is_one_kernel { String::new() } else { format!(", {}", side.kernel) }
            );
        }
        let kernel = alike.first().filter(|_| is_one_kernel).map(|side| format!("; {}", side.kernel));
        let _ = writeln!(text, "{}{}", self.amount(), kernel.unwrap_or_default());
        text
    }
}

fn cpus(cpus: u32) -> String {
    format!("{cpus} CPU{}", if cpus == 1 { "" } else { "s" })
}

#[cfg(test)]
pub(crate) mod samples {
    //! Conditions as they might have been.

    use super::*;

    /// Three rounds between two nodes.
    pub(crate) fn measured() -> Conditions {
        let mut measured = Conditions::rounds(3, 0.5);
        measured.add([&side("n0", "xdp"), &side("n1", "socket")]);
        measured
    }

    pub(super) fn side(host: &str, receive: &str) -> Side {
        let nic = Nic {
            name: "nic0".into(),
            driver: Some("veth".into()),
            speed_mbits: Some(10_000),
            mtu_bytes: 1500,
            offloads: vec!["tso".into(), "gro".into()],
        };
        Side {
            hosts: vec![host.into()],
            send: vec!["udp".into()],
            receive: vec![receive.into()],
            wait: vec!["spin".into()],
            nics: vec![nic],
            kernel: "Linux 6.18".into(),
            cpus: 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::side;
    use super::*;

    #[test]
    fn sides_that_are_alike_have_one_line() {
        let mut measured = Conditions::rounds(3, 0.5);
        measured.add([&side("n0", "socket"), &side("n1", "socket")]);
        assert_eq!(
            measured.header(),
            "n0, n1: send path udp, receive path socket, wait spin; nic0 (veth, 10 Gb/s, MTU 1500, offloads tso gro); 2 CPUs\n\
             3 rounds × 0.5 s; Linux 6.18\n"
        );
    }

    #[test]
    fn figures_that_were_measured_otherwise_are_told() {
        let mut measured = Conditions { count: Some(20), ..Conditions::rounds(1, 2.0) };
        measured.add([&side("n0", "socket"), &side("n1", "socket")]);
        measured.add([&side("n0", "xdp"), &side("n1", "socket")]);
        let header = measured.header();
        assert!(
            header.contains("n0: send path udp, receive path socket or xdp, wait spin; nic0 (veth"),
            "{header}"
        );
        assert!(header.contains("\nn1: send path udp, receive path socket, wait spin; nic0"), "{header}");
        assert!(header.ends_with("1 round × 20 messages or 2 s; Linux 6.18\n"), "{header}");
    }

    #[test]
    fn the_loopback_is_found_by_its_address() {
        let side = Side::at([127, 0, 0, 1].into());
        assert_eq!(side.nics.iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>(), ["lo"]);
        assert!(side.cpus > 0 && side.kernel.starts_with("Linux"), "{side:?}");
        assert!(Side::here().nics.iter().all(|nic| nic.name != "lo"));
    }

    #[test]
    fn it_reads_back() {
        let mut measured = Conditions::rounds(3, 0.5);
        measured.add([&side("n0", "xdp")]);
        let json = serde_json::to_value(&measured).expect("JSON");
        assert_eq!((&json["sides"][0]["receive"][0], &json["time_s"]), (&"xdp".into(), &0.5.into()));
        assert_eq!(serde_json::from_value::<Conditions>(json).expect("the same"), measured);
    }
}
