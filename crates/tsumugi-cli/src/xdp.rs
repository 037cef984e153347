//! `tsumugi up` and `down`, and the pool's part of `status`: the XDP receive path on this host's NICs.

use clap::Args;
use nix::unistd::{Uid, User};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use tsumugi_rail::xdp::{self, Access, Attached, Pins, PortStatus, Stranger};
use tsumugi_wire::memory::{Geometry, PAGE_BYTES};

/// What to detach from.
#[derive(Args)]
pub(crate) struct Down {
    /// The NICs; all of them if none is named.
    #[arg(value_name = "NIC")]
    nics: Vec<String>,
    /// Print one JSON object: what was taken off, and what is left.
    #[arg(long)]
    json: bool,
}

mod cost;
mod settings;
mod up;

pub(crate) use up::{Up, up};

/// Why the command did not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum XdpCommandError {
    #[error("only root can do that: `sudo tsumugi {0} …`")]
    NotRoot(&'static str),
}

pub(crate) fn down(options: &Down) -> tsumugi_measure::CommandResult {
    require_root("down")?;
    let pins = Pins::here()?;
    let users = xdp::status(&pins)?.ports.iter().filter(|port| port.claimed).count();
    let gone = crate::uninterrupted(|| xdp::down(&pins, &options.nics))?;
    tsumugi_lab::deferred::give_back();
    let left = xdp::status(&pins)?;
    if options.json {
        return show_json(&Gone { gone: gone.iter().map(Nic::from).collect(), left: Report::new(&left) });
    }
    for attached in &gone {
        if attached.is_attached() {
            eprintln!("detached from {}", nic(attached));
        } else {
            eprintln!("forgot an attachment: {attached}");
        }
    }
    if left.nics.is_empty() && users > 0 {
        eprintln!(
            "in use: {users} endpoints; they go on through their sockets, but for those that demand the XDP receive path"
        );
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn require_root(command: &'static str) -> Result<(), XdpCommandError> {
    if Uid::effective().is_root() { Ok(()) } else { Err(XdpCommandError::NotRoot(command)) }
}

/// The NICs and the pool's endpoints, as JSON has them.
#[derive(Serialize)]
pub(crate) struct Report {
    nics: Vec<Nic>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<Other>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flows: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    translations: Option<u32>,
    endpoints: Vec<Endpoint>,
}

#[derive(Serialize)]
struct Nic {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    index: u32,
    xdp: String,
    busy_polling: bool,
    /// What the kernel says now.
    attached: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<String>,
}

impl From<&Attached> for Nic {
    fn from(attached: &Attached) -> Nic {
        Nic {
            name: attached.nic.clone(),
            index: attached.index,
            xdp: attached.mode.to_string(),
            busy_polling: attached.before_busy_polling.is_some(),
            attached: attached.is_attached(),
            found: (!attached.is_attached()).then(|| attached.to_string()),
        }
    }
}

/// The answer of `down --json`: the NICs as they were, and what is there now.
#[derive(Serialize)]
struct Gone {
    gone: Vec<Nic>,
    #[serde(flatten)]
    left: Report,
}

/// Somebody else's program.
#[derive(Serialize)]
struct Other {
    nic: String,
    id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<u32>,
}

#[derive(Serialize)]
struct Endpoint {
    port: u16,
    owner: u32,
    group: u32,
    mode: String,
    claimed: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    counters: BTreeMap<&'static str, u64>,
}

impl Report {
    pub(crate) fn new(status: &xdp::PoolStatus) -> Report {
        let nics = status.nics.iter().map(Nic::from);
        let others = status.strangers.iter().cloned();
        let others = others.map(|Stranger { nic, id, name, link, .. }| Other { nic, id, name, link });
        let endpoints = status.ports.iter().map(|endpoint| Endpoint {
            port: endpoint.port,
            owner: endpoint.access.owner.unwrap_or(0),
            group: endpoint.access.group.unwrap_or(0),
            mode: format!("{:03o}", endpoint.access.mode),
            claimed: endpoint.claimed,
            counters: endpoint.counters.iter().copied().collect(),
        });
        Report {
            nics: nics.collect(),
            others: others.collect(),
            flows: status.geometry.map(|geometry| geometry.flows),
            queue_bytes: status.geometry.map(|geometry| geometry.ring_bytes),
            window_bytes: status
                .geometry
                .map(|geometry| u64::from(geometry.window_pages) * PAGE_BYTES as u64),
            translations: status.geometry.map(|geometry| geometry.translations),
            endpoints: endpoints.collect(),
        }
    }
}

fn show_json(answer: &impl Serialize) -> tsumugi_measure::CommandResult {
    tsumugi_measure::output::line(serde_json::to_string(answer)?)?;
    Ok(ExitCode::SUCCESS)
}

fn show(status: &xdp::PoolStatus) -> tsumugi_measure::CommandResult {
    tsumugi_measure::output::text(table(status))?;
    Ok(ExitCode::SUCCESS)
}
/// An outline of NICs, endpoints and what they counted: lines of different kinds, which no one table holds.
pub(crate) fn table(status: &xdp::PoolStatus) -> String {
    let mut text = String::new();
    if status.nics.is_empty() && status.ports.is_empty() {
        text += "The XDP receive path is on no NIC here; as root: tsumugi up NIC\n";
    }
    for stranger in &status.strangers {
        _ = writeln!(text, "{stranger}; {}", stranger.remedy());
    }
    for attached in &status.nics {
        if !attached.is_attached() {
            _ = writeln!(text, "NOT ATTACHED any more: {attached}; as root: tsumugi up NIC");
            continue;
        }
        let busy_polling = if attached.before_busy_polling.is_some() { ", set for busy polling" } else { "" };
        _ = writeln!(text, "NIC {:<16} {}{busy_polling}", nic(attached), attached.mode);
    }
    if let Some(Geometry { flows, ring_bytes, window_pages, translations }) = status.geometry {
        let (count, queue, window) = (status.ports.len(), ring_bytes >> 10, window_pages * 4);
        _ = writeln!(
            text,
            "{count} endpoints of {flows} flows, {queue} KiB of queue and {window} KiB of window each"
        );
        _ = writeln!(text, "of a window {translations} pages are translated at a time");
    }
    let (used, unused): (Vec<&PortStatus>, Vec<&PortStatus>) =
        status.ports.iter().partition(|port| port.claimed || counted(port).next().is_some());
    for port in used {
        let state = if port.claimed { "in use" } else { "free" };
        _ = writeln!(text, "  port {:<6} {state:<7} {}", port.port, access(port));
        for (name, value) in counted(port) {
            _ = writeln!(text, "    {name:<20} {value}");
        }
    }
    for run in unused.chunk_by(|one, next| one.port + 1 == next.port && one.access == next.access) {
        let ports = match run {
            [one] => one.port.to_string(),
            [first, .., last] => format!("{}-{}", first.port, last.port),
            [] => continue,
        };
        _ = writeln!(text, "  ports {ports:<12} free    {}", access(run[0]));
    }
    text
}

fn counted(port: &PortStatus) -> impl Iterator<Item = (&'static str, u64)> + '_ {
    port.counters.iter().copied().filter(|(_, value)| *value > 0)
}

/// Who may use an endpoint.
pub(crate) fn access(port: &PortStatus) -> String {
    let Access { owner, group, mode } = port.access;
    let name = |uid: u32| match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    };
    format!("{} (group {}) {mode:03o}", name(owner.unwrap_or(0)), group.unwrap_or(0))
}

fn nic(attached: &Attached) -> String {
    attached.nic.clone().unwrap_or_else(|| format!("{} (gone)", attached.index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_are_shown_together() {
        let access = Access { owner: Some(0), group: Some(0), mode: 0o600 };
        let port = |port, claimed, deposited| PortStatus {
            port,
            access,
            claimed,
            epoch: 0,
            counters: vec![("deposited", deposited), ("malformed", 0)],
        };
        let status = xdp::PoolStatus {
            nics: Vec::new(),
            strangers: Vec::new(),
            geometry: Some(xdp::PoolOptions::GEOMETRY),
            ports: vec![
                port(7411, true, 5),
                port(7412, false, 0),
                port(7413, false, 0),
                port(7415, false, 0),
            ],
        };
        let text = table(&status);
        assert!(text.contains("port 7411   in use"), "{text}");
        assert!(text.contains("deposited            5") && !text.contains("malformed"), "{text}");
        assert!(text.contains("7412-7413") && text.contains("ports 7415 "), "{text}");
    }
}
