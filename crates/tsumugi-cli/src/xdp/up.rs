//! `tsumugi up`: puts the XDP receive path on NICs.

use super::cost::{Before, Cost, dry_run};
use super::settings::{Settings, permissions};
use super::{Report, require_root, show, show_json};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use nix::unistd::{Gid, Group, Uid, User};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use tsumugi_measure::choices::words;
use tsumugi_measure::log::{self, Level};
use tsumugi_measure::sizes::bytes;
use tsumugi_rail::xdp::{self, Access, Attached, Mode, Pins, PoolOptions, XdpError};
use tsumugi_wire::memory::{Geometry, PAGE_BYTES};

const UP_HELP: &str = "\
After this, every process that may open an endpoint memory receives through the XDP program, without \
any privilege of its own. TCP/IP and everything else on these NICs goes on as before.

An endpoint memory belongs to one UDP port; one process has it at a time. Its owner, group and permissions are \
those of files: --owner alice gives it to alice alone. Called again, 'up' adds NICs and endpoints, and puts its own \
program in the place of the one that is attached, while processes use it. Endpoints that a process has stay with who may use \
them; others get a new memory when they are given to somebody else.

All of it is pinned in /sys/fs/bpf, or, where that is not mounted or shut to those who are to use it (systemd mounts it for \
root alone), in /run/tsumugi/bpf, which 'up' mounts and 'down' takes away.

  sudo tsumugi up eth1                          16 endpoints for you (the user who called sudo)
  sudo tsumugi up eth1 eth2 --mode 666          two NICs, for everyone on this host
  sudo tsumugi up eth1 --owner bob --port 7500 --endpoints 4    four more, for bob
  sudo tsumugi up --config /etc/tsumugi/up.toml                 what the file says, as at boot
  tsumugi up eth1 --dry-run                                     what it would give and cost there

The file has the options by their names, and what is given here as well counts instead:

  nics = [\"eth1\", \"eth2\"]
  mode = \"666\"
  endpoints = 32";

/// What to attach to and what to make.
#[derive(Args, Clone)]
#[command(after_help = UP_HELP)]
pub(crate) struct Up {
    /// The NICs, as in `ip link` [default: those that the file of --config names].
    #[arg(required_unless_present = "config", value_name = "NIC")]
    nics: Vec<String>,
    /// Take what is not given here from this file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Leave NICs alone that the file does not name: what is run for each NIC that appears.
    #[arg(long, requires = "config", requires = "nics")]
    if_listed: bool,
    /// UDP port of the first endpoint; the others have the ports behind it [default: 7411].
    #[arg(long)]
    port: Option<u16>,
    /// How many endpoints: processes that can receive through the XDP program at once [default: 16].
    #[arg(long)]
    endpoints: Option<u16>,
    /// How many peers an endpoint can have [default: 1024, or as those that are there].
    #[arg(long)]
    flows: Option<u32>,
    /// Bytes of an endpoint's receive queue, a power of two [default: 2M, or as those that are there].
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    queue: Option<u64>,
    /// Bytes of an endpoint's window, memory that the XDP program writes though no process runs; whole pages
    /// [default: 1280K, or as those that are there].
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
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
    /// Permissions, as for chmod. Who may use an endpoint can read what its other users receive [default: 600].
    #[arg(long, value_parser = permissions)]
    mode: Option<u32>,
    /// Where the program runs [default: native where it can].
    #[arg(long, value_parser = PossibleValuesParser::new(words::<Mode>()).try_map(|word| word.parse::<Mode>()))]
    xdp: Option<Mode>,
    /// Set the NICs so that a process that waits with `busy-poll` runs their poll and needs no interrupt; undone by
    /// `down`. Programs on these NICs that do not busy-poll may then wait up to 2 ms longer for a packet.
    #[arg(long)]
    busy_poll: bool,
    /// Say what is to be expected on each NIC, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The answer of `--json`: as that of `status`, and what each NIC that the program is new on has paid.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    status: Report,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    costs: Vec<Cost>,
}

/// A user or group that this host does not have.
#[derive(Debug, thiserror::Error)]
#[error("there is no {kind} '{name}' here")]
struct NoSuch {
    kind: &'static str,
    name: String,
}

impl Up {
    /// What is given, and for the rest what a file says.
    fn over(mut self, file: &Settings) -> Up {
        if self.nics.is_empty() {
            self.nics.clone_from(&file.nics);
        } else if self.if_listed {
            let listed: Vec<String> = file.nics.iter().map(|nic| xdp::first_name(nic)).collect();
            self.nics.retain(|nic| listed.contains(&xdp::first_name(nic)));
        }
        Up {
            port: self.port.or(file.port),
            endpoints: self.endpoints.or(file.endpoints),
            flows: self.flows.or(file.flows),
            queue: self.queue.or(file.queue),
            window: self.window.or(file.window),
            translations: self.translations.or(file.translations),
            owner: self.owner.or_else(|| file.owner.clone()),
            group: self.group.or_else(|| file.group.clone()),
            mode: self.mode.or(file.mode),
            xdp: self.xdp.or(file.xdp),
            busy_poll: self.busy_poll || file.busy_poll,
            ..self
        }
    }
}

pub(crate) fn up(options: &Up) -> tsumugi_measure::CommandResult {
    if !options.dry_run {
        require_root("up")?;
    }
    let from_file;
    let options = match &options.config {
        Some(file) => {
            let settings = Settings::read(file)?;
            from_file = options.clone().over(&settings);
            if from_file.nics.is_empty() {
                let names = if options.nics.is_empty() {
                    "names no NIC".to_owned()
                } else {
                    format!("does not name {}", options.nics.join(" or "))
                };
                log::say(Level::INFO, format_args!("{} {names}: nothing to do", file.display()));
                return Ok(ExitCode::SUCCESS);
            }
            &from_file
        }
        None => options,
    };
    if options.dry_run {
        return dry_run(&options.nics, options.xdp, options.json);
    }
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
        first_port: options.port.unwrap_or(PoolOptions::default().first_port),
        endpoints: options.endpoints.unwrap_or(PoolOptions::default().endpoints),
        geometry,
        access: Access {
            owner: owner.map(|(user, _)| user.as_raw()),
            group,
            mode: options.mode.unwrap_or(0o600),
        },
        mode: options.xdp,
        busy_poll: options.busy_poll,
    };
    let pins = Pins::here()?;
    // What stands for nothing any more goes.
    let dead = xdp::status(&pins)?.nics.into_iter().filter(|attached| !attached.is_attached());
    let dead: Vec<Attached> = dead.collect();
    let before: Vec<Before> = options.nics.iter().filter_map(|nic| Before::of(nic, &pins)).collect();
    // Half a second; what is begun is brought to an end, so that nothing half-made stays behind.
    let all = crate::uninterrupted(|| xdp::up(&pins, &options.nics, &pool))?;
    for attached in &dead {
        log::say(Level::INFO, format_args!("forgot an attachment: {attached}"));
    }
    for caution in all.iter().filter_map(caution) {
        log::say(Level::WARN, caution);
    }
    // Where the first `up` has put it.
    let status = xdp::status(&Pins::here()?)?;
    let asked = |port: u16| port.checked_sub(pool.first_port).is_some_and(|nth| nth < pool.endpoints);
    let kept =
        status.ports.iter().filter(|port| asked(port.port) && !port.access.is_same(pool.access)).count();
    if kept > 0 {
        log::say(
            Level::WARN,
            format_args!(
                "endpoints that a process has, and that stay with who may use them now: {kept}; `tsumugi status` shows whose they are"
            ),
        );
    }
    let costs: Vec<Cost> = before.iter().filter_map(|before| before.cost(&all)).collect();
    if options.json {
        return show_json(&Answer { status: Report::new(&status), costs });
    }
    costs.iter().for_each(|cost| log::say(Level::INFO, cost.line()));
    show(&status)
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

fn user(name: &str) -> Result<(Uid, Gid), NoSuch> {
    let found = match name.parse() {
        Ok(number) => User::from_uid(Uid::from_raw(number)),
        Err(_) => User::from_name(name),
    };
    match (found, name.parse()) {
        (Ok(Some(user)), _) => Ok((user.uid, user.gid)),
        // A number needs no name.
        (_, Ok(number)) => Ok((Uid::from_raw(number), Gid::from_raw(number))),
        _ => Err(NoSuch { kind: "user", name: name.to_owned() }),
    }
}

fn group(name: &str) -> Result<u32, NoSuch> {
    match (name.parse(), Group::from_name(name)) {
        (Ok(number), _) => Ok(number),
        (_, Ok(Some(group))) => Ok(group.gid.as_raw()),
        _ => Err(NoSuch { kind: "group", name: name.to_owned() }),
    }
}
