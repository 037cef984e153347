//! What an endpoint uses, and what it does without.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use tsumugi_rail::RailReport;

/// What an endpoint uses, and what it does without because it is missing or forbidden here ([`Endpoint::report`]).
///
/// Written as text it is one line.
///
/// [`Endpoint::report`]: crate::Endpoint::report
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The address that the endpoint is bound to; `::` is every address of both families.
    pub address: SocketAddr,
    /// The receive path: `xdp`, the XDP program, or `socket`, the library from its sockets.
    pub receive_path: String,
    /// The send paths: `udp`, `packet`, `xsk`. Where there are several, each sends what it has proved quickest at.
    pub send_paths: Vec<String>,
    /// The NICs that peers can reach it by, once in each family; empty where they are not known, and on the loopback
    /// interface.
    pub nics: Vec<NicInUse>,
    /// NICs that peers could reach it by, were their links not down. Who is behind them is waited for.
    #[serde(default)]
    pub links_down: Vec<String>,
    /// What the endpoint does without. Empty for the best that there is.
    pub given_up: Vec<GivenUp>,
}

/// A NIC by which peers can reach an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicInUse {
    /// Its name.
    pub name: String,
    /// Its address.
    pub ip: IpAddr,
    /// Its MTU, bytes.
    pub mtu_bytes: usize,
    /// Speed that it says it has, megabits a second; 0: it does not say.
    pub speed_mbits: u32,
}

/// Something optional that an endpoint does without.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    /// What is lacking.
    pub what: String,
    /// What was tried, on what, and what the system said.
    pub why: String,
    /// What mends it; a command where there is one.
    pub remedy: String,
}

impl Report {
    pub(crate) fn new(
        address: SocketAddr,
        uses_xdp: bool,
        rail: RailReport,
        turned_away: Option<(u64, SocketAddr, u32)>,
    ) -> Report {
        let nics = rail.nics.into_iter().map(|nic| NicInUse {
            name: nic.name,
            ip: nic.address.ip,
            mtu_bytes: nic.mtu_bytes,
            speed_mbits: nic.address.speed_mbits,
        });
        let given_up = rail.given_up.into_iter().map(|it| GivenUp {
            what: it.what.to_owned(),
            why: it.why,
            remedy: it.remedy,
        });
        let turned_away = turned_away.map(|(count, from, peers_max)| GivenUp {
            what: format!("peers beyond {peers_max}"),
            why: format!("{count} connections were refused for want of room, the last from {from}"),
            remedy: "raise Config::peers_max".to_owned(),
        });
        Report {
            address,
            receive_path: if uses_xdp { "xdp" } else { "socket" }.to_owned(),
            send_paths: rail.send_paths.into_iter().map(str::to_owned).collect(),
            nics: nics.collect(),
            links_down: rail.links_down,
            given_up: given_up.chain(turned_away).collect(),
        }
    }

    /// The event that an endpoint has opened. What it does without was not asked for by name, so nothing is wrong.
    pub(crate) fn tell(&self) {
        tracing::info!("{self}");
    }
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}; {})", self.what, self.why, self.remedy)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { address, receive_path, send_paths, nics, links_down, given_up } = self;
        write!(f, "endpoint {address}: receive path {receive_path}, send paths {}", send_paths.join(" "))?;
        for (nth, nic) in nics.iter().enumerate() {
            if nics[..nth].iter().all(|before| before.name != nic.name) {
                write!(f, "{} {}", if nth == 0 { ", NICs" } else { "" }, nic.name)?;
            }
        }
        for (nth, nic) in links_down.iter().enumerate() {
            write!(f, "{} {nic}", if nth == 0 { "; no link on" } else { "," })?;
        }
        for (nth, lack) in given_up.iter().enumerate() {
            write!(f, "{} {lack}", if nth == 0 { "; without" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_line_that_names_everything() {
        let lack =
            |what: &str| GivenUp { what: what.into(), why: "forbidden".into(), remedy: "permit it".into() };
        let report = Report {
            address: "0.0.0.0:7411".parse().unwrap(),
            receive_path: "socket".into(),
            send_paths: vec!["udp".into(), "packet".into()],
            nics: vec![NicInUse {
                name: "eth0".into(),
                ip: "10.0.0.1".parse().unwrap(),
                mtu_bytes: 1500,
                speed_mbits: 0,
            }],
            links_down: vec!["eth1".into()],
            given_up: vec![lack("this"), lack("that")],
        };
        assert_eq!(
            report.to_string(),
            "endpoint 0.0.0.0:7411: receive path socket, send paths udp packet, NICs eth0; \
             no link on eth1; \
             without this (forbidden; permit it), that (forbidden; permit it)"
        );
    }
}
