//! `tsumugi up`, `down` and `status`: the XDP receive path on this host's NICs.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use nix::unistd::{Gid, Group, Uid, User};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::net::IpAddr;
use std::process::ExitCode;
use tsumugi_measure::choices::words;
use tsumugi_rail::xdp::{
    self, Access, Attached, Mode, Pins, PoolOptions, PortStatus, RailStatus, Stranger, XdpError,
};
use tsumugi_wire::memory::{Geometry, PAGE_BYTES};

const UP_HELP: &str = "\
After this, every process that may open an endpoint memory receives through the XDP program, without \
any privilege of its own. TCP/IP and everything else on these NICs goes on as before.

An endpoint memory belongs to one UDP port; one process has it at a time. Its owner, group and permissions are \
those of files: --owner alice gives it to alice alone. Called again, 'up' adds NICs and endpoints, and puts its own \
program in the place of the one that is attached, while processes use it.

All of it is pinned in /sys/fs/bpf, or, where that is not mounted or shut to those who are to use it (systemd mounts it for \
root alone), in /run/tsumugi/bpf, which 'up' mounts and 'down' takes away.

  sudo tsumugi up eth1                          16 endpoints for you (the user who called sudo)
  sudo tsumugi up eth1 eth2 --mode 666          two NICs, for everyone on this host
  sudo tsumugi up eth1 --owner bob --port 7500 --endpoints 4    four more, for bob";

/// What to attach to and what to make.
#[derive(Args)]
#[command(after_help = UP_HELP)]
pub(crate) struct Up {
    /// The NICs, as in `ip link`.
    #[arg(required = true, value_name = "NIC")]
    nics: Vec<String>,
    /// UDP port of the first endpoint; the others have the ports behind it.
    #[arg(long, default_value_t = PoolOptions::default().first_port)]
    port: u16,
    /// How many endpoints: processes that can receive through the XDP program at once.
    #[arg(long, default_value_t = PoolOptions::default().endpoints)]
    endpoints: u16,
    /// How many peers an endpoint can have [default: 1024, or as those that are there].
    #[arg(long)]
    flows: Option<u32>,
    /// Bytes of an endpoint's receive queue, a power of two [default: 2097152, or as those that are there].
    #[arg(long, value_name = "BYTES")]
    queue: Option<u64>,
    /// Bytes of an endpoint's window, memory that the XDP program writes though no process runs; whole pages
    /// [default: 1310720, or as those that are there].
    #[arg(long, value_name = "BYTES")]
    window: Option<u64>,
    /// Pages of a window that the XDP program can write at a time; it leaves the others to the process. 0 leaves all of
    /// them to it [default: as many as the window has].
    #[arg(long, value_name = "PAGES")]
    translations: Option<u32>,
    /// User who may use the endpoints, by name or number [default: who called sudo, else root].
    #[arg(long)]
    owner: Option<String>,
    /// Group that may use them, by name or number, where --mode lets it [default: the owner's].
    #[arg(long)]
    group: Option<String>,
    /// Permissions, as for chmod. Who may use an endpoint can read what its other users receive.
    #[arg(long, default_value = "600", value_parser = permissions)]
    mode: u32,
    /// Where the program runs [default: native where it can].
    #[arg(long, value_parser = PossibleValuesParser::new(words::<Mode>()).try_map(|word| word.parse::<Mode>()))]
    xdp: Option<Mode>,
    /// Set the NICs so that a process that waits with `busy-poll` runs their poll and needs no interrupt; undone by
    /// `down`. Programs on these NICs that do not busy-poll may then wait up to 2 ms longer for a packet.
    #[arg(long)]
    busy_poll: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What to detach from.
#[derive(Args)]
pub(crate) struct Down {
    /// The NICs; all of them if none is named.
    #[arg(value_name = "NIC")]
    nics: Vec<String>,
}

/// What to show.
#[derive(Args)]
pub(crate) struct StatusArguments {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

fn permissions(word: &str) -> Result<u32, String> {
    match u32::from_str_radix(word, 8) {
        Ok(mode) if mode & !0o666 == 0 => Ok(mode),
        _ => Err("write three digits as for chmod, without execution: 600, 660, 666".to_owned()),
    }
}

/// Why the command did not do its work.
#[derive(Debug, thiserror::Error)]
enum XdpCommandError {
    #[error("only root can do that: `sudo tsumugi {0} …`")]
    NotRoot(&'static str),
    #[error("there is no {kind} '{name}' here")]
    NoSuch { kind: &'static str, name: String },
}

pub(crate) fn up(options: &Up) -> tsumugi_measure::CommandResult {
    require_root("up")?;
    let owner = match &options.owner {
        Some(name) => Some(user(name)?),
        None => std::env::var("SUDO_UID").ok().and_then(|uid| user(&uid).ok()),
    };
    let group = match &options.group {
        Some(name) => Some(group(name)?),
        None => owner.as_ref().map(|(_, group)| group.as_raw()),
    };
    let default = PoolOptions::GEOMETRY;
    let window_pages =
        options.window.map(|bytes| bytes.div_ceil(PAGE_BYTES as u64).min(u64::from(u32::MAX)) as u32);
    let sized = options.flows.is_some() || options.queue.is_some() || window_pages.is_some();
    let geometry = (sized || options.translations.is_some()).then(|| {
        let pages = window_pages.unwrap_or(default.window_pages);
        Geometry {
            flows: options.flows.unwrap_or(default.flows),
            ring_bytes: options.queue.unwrap_or(default.ring_bytes),
            window_pages: pages,
            translations: options.translations.unwrap_or(pages),
        }
    });
    let pool = PoolOptions {
        first_port: options.port,
        endpoints: options.endpoints,
        geometry,
        access: Access { owner: owner.map(|(user, _)| user.as_raw()), group, mode: options.mode },
        mode: options.xdp,
        busy_poll: options.busy_poll,
    };
    let pins = Pins::here()?;
    // What stands for nothing any more goes.
    let dead = xdp::status(&pins)?.nics.into_iter().filter(|attached| !attached.is_attached());
    let dead: Vec<Attached> = dead.collect();
    // Half a second; what is begun is brought to an end, so that nothing half-made stays behind.
    let all = crate::uninterrupted(|| xdp::up(&pins, &options.nics, &pool))?;
    for attached in &dead {
        eprintln!("tsumugi: forgot an attachment: {attached}");
    }
    for caution in all.iter().filter_map(caution) {
        eprintln!("tsumugi: {caution}");
    }
    // Where the first `up` has put it.
    show(&xdp::status(&Pins::here()?)?, None, options.json)
}

/// What is wrong with a NIC to which the program is attached.
fn caution(attached: &Attached) -> Option<String> {
    let nic = attached.nic.clone()?;
    if let Some(reason) = attached.native_refused.as_ref().filter(|_| xdp::mtu_excess(&nic).is_none()) {
        return Some(format!(
            "{nic} takes no program in its driver: {reason}; it runs behind it now (generic)"
        ));
    }
    if let Some(reason) = &attached.answers_dropped {
        return Some(format!(
            "{nic}: {reason}, or a program there, too; until then the processes answer themselves, or with `--xdp generic` the program"
        ));
    }
    let excess = xdp::mtu_excess(&nic)?;
    // Lower, it could be native; but nothing is lost meanwhile.
    let then = match attached.mode {
        Mode::Native => String::new(),
        Mode::Generic => {
            format!("; then `tsumugi down {nic}` and `up`, for it is behind the driver (generic) now")
        }
    };
    Some(XdpError::Mtu { nic, excess }.to_string() + &then)
}

pub(crate) fn down(options: &Down) -> tsumugi_measure::CommandResult {
    require_root("down")?;
    let pins = Pins::here()?;
    let users = xdp::status(&pins)?.ports.iter().filter(|port| port.claimed).count();
    let gone = crate::uninterrupted(|| xdp::down(&pins, &options.nics))?;
    tsumugi_lab::deferred::give_back();
    for attached in &gone {
        if attached.is_attached() {
            eprintln!("detached from {}", nic(attached));
        } else {
            eprintln!("forgot an attachment: {attached}");
        }
    }
    if xdp::status(&pins)?.nics.is_empty() && users > 0 {
        eprintln!(
            "in use: {users} endpoints; they go on through their sockets, but for those that demand the XDP receive path"
        );
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn status(options: &StatusArguments) -> tsumugi_measure::CommandResult {
    show(&xdp::status(&Pins::here()?)?, Some(&Here::tried()), options.json)
}

/// What an endpoint that the caller opens here and now uses beside the XDP receive path, and does without.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Here {
    Report(tsumugi::Report),
    Error(String),
}

impl Here {
    /// By its sockets, because an endpoint of the pool would begin anew for it.
    fn tried() -> Here {
        let config = tsumugi::Config::default().port(0).receive(tsumugi::ReceiveChoice::Socket);
        match tsumugi::Endpoint::open(config) {
            Ok(endpoint) => Here::Report(endpoint.report()),
            Err(error) => Here::Error(error.to_string()),
        }
    }

    fn lines(&self) -> String {
        let report = match self {
            Here::Report(report) => report,
            Here::Error(error) => return format!("No endpoint opens here: {error}\n"),
        };
        let mut nics: Vec<&str> = Vec::new();
        for nic in &report.nics {
            if !nics.contains(&&*nic.name) {
                nics.push(&nic.name); // once, though it may have addresses of both families
            }
        }
        let nics = if nics.is_empty() { "loopback only".to_owned() } else { nics.join(" ") };
        let mut lines = format!(
            "Endpoints of yours send by {}, and are reached by {nics}\n",
            report.send_paths.join(", ")
        );
        for nic in &report.links_down {
            _ = writeln!(lines, "  no link on {nic}: it is off or has no carrier; see `ip link show {nic}`");
        }
        for lack in &report.given_up {
            _ = writeln!(lines, "  without {}: {}; {}", lack.what, lack.why, lack.remedy);
        }
        lines
    }
}

fn require_root(command: &'static str) -> Result<(), XdpCommandError> {
    if Uid::effective().is_root() { Ok(()) } else { Err(XdpCommandError::NotRoot(command)) }
}

fn user(name: &str) -> Result<(Uid, Gid), XdpCommandError> {
    let found = match name.parse() {
        Ok(number) => User::from_uid(Uid::from_raw(number)),
        Err(_) => User::from_name(name),
    };
    match (found, name.parse()) {
        (Ok(Some(user)), _) => Ok((user.uid, user.gid)),
        // A number needs no name.
        (_, Ok(number)) => Ok((Uid::from_raw(number), Gid::from_raw(number))),
        _ => Err(XdpCommandError::NoSuch { kind: "user", name: name.to_owned() }),
    }
}

fn group(name: &str) -> Result<u32, XdpCommandError> {
    match (name.parse(), Group::from_name(name)) {
        (Ok(number), _) => Ok(number),
        (_, Ok(Some(group))) => Ok(group.gid.as_raw()),
        _ => Err(XdpCommandError::NoSuch { kind: "group", name: name.to_owned() }),
    }
}

/// The answer of `--json`.
#[derive(Serialize)]
struct Report<'a> {
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
    #[serde(skip_serializing_if = "Option::is_none")]
    here: Option<&'a Here>,
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rails: Vec<Rail>,
}

/// What an endpoint says of one of its NICs: packets, and paths.
#[derive(Serialize)]
struct Rail {
    ip: IpAddr,
    delivered: u64,
    lost: u64,
    paths: u32,
    silent: u32,
}

impl From<&RailStatus> for Rail {
    fn from(&RailStatus { ip, delivered, lost, paths, silent }: &RailStatus) -> Rail {
        Rail { ip, delivered, lost, paths, silent }
    }
}

impl<'a> Report<'a> {
    fn new(status: &xdp::PoolStatus, here: Option<&'a Here>) -> Report<'a> {
        let nics = status.nics.iter().map(|attached| Nic {
            name: attached.nic.clone(),
            index: attached.index,
            xdp: attached.mode.to_string(),
            busy_polling: attached.before_busy_polling.is_some(),
            attached: attached.is_attached(),
            found: (!attached.is_attached()).then(|| attached.to_string()),
        });
        let others = status.strangers.iter().cloned();
        let others = others.map(|Stranger { nic, id, name, link, .. }| Other { nic, id, name, link });
        let endpoints = status.ports.iter().map(|endpoint| Endpoint {
            port: endpoint.port,
            owner: endpoint.access.owner.unwrap_or(0),
            group: endpoint.access.group.unwrap_or(0),
            mode: format!("{:03o}", endpoint.access.mode),
            claimed: endpoint.claimed,
            counters: endpoint.counters.iter().copied().collect(),
            rails: endpoint.rails.iter().map(Rail::from).collect(),
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
            here,
        }
    }
}

fn show(status: &xdp::PoolStatus, here: Option<&Here>, json: bool) -> tsumugi_measure::CommandResult {
    let mut out = tsumugi_measure::output::output();
    if json {
        writeln!(out, "{}", serde_json::to_string(&Report::new(status, here))?)?;
    } else {
        out.write_all(table(status).as_bytes())?;
        out.write_all(here.map(Here::lines).unwrap_or_default().as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// An outline of NICs, endpoints and what they counted: lines of different kinds, which no one table holds.
fn table(status: &xdp::PoolStatus) -> String {
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
        for RailStatus { ip, delivered, lost, paths, silent } in &port.rails {
            let sent = format!("{delivered} delivered, {lost} lost, {paths} paths, {silent} silent");
            _ = writeln!(text, "    through {:<12} {sent}", ip.to_string());
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

fn access(port: &PortStatus) -> String {
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
    fn permissions_are_those_of_files() {
        assert_eq!(permissions("660"), Ok(0o660));
        for wrong in ["777", "rw", "", "1666"] {
            assert!(permissions(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn free_ports_are_shown_together() {
        let access = Access { owner: Some(0), group: Some(0), mode: 0o600 };
        let port = |port, claimed, deposited| PortStatus {
            port,
            access,
            claimed,
            epoch: 0,
            counters: vec![("deposited", deposited), ("malformed", 0)],
            rails: vec![RailStatus {
                ip: IpAddr::from([10, 0, 0, 1]),
                delivered: 7,
                lost: 2,
                paths: 1,
                silent: 0,
            }],
        };
        let status = xdp::PoolStatus {
            nics: Vec::new(),
            strangers: Vec::new(),
            geometry: Some(PoolOptions::GEOMETRY),
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
        assert!(text.contains("through 10.0.0.1     7 delivered, 2 lost, 1 paths, 0 silent"), "{text}");
        assert!(text.contains("7412-7413") && text.contains("ports 7415 "), "{text}");
    }
}
