//! What the XDP receive path gives and costs on a NIC, in words: before `up`, and after it.

use super::show_json;
use serde::Serialize;
use std::fmt::Write as _;
use std::process::ExitCode;
use tsumugi_measure::output;
use tsumugi_rail::xdp::{self, Attached, Coalescing, Mode, MtuExcess, NicChange, NicState, Outlook, Pins};

/// A driver that gives each CPU a queue of its own for what a program sends, if it has so many; else they share one under a lock, and
/// that stops coalescing by its host (`virtnet_xdp_set` in drivers/net/virtio_net.c).
const VIRTIO: &str = "virtio_net";
/// Longest IP packet that every driver hands to a program in one buffer, bytes.
const ONE_BUFFER_MTU_BYTES: usize = 1500;

/// How a NIC was before `up`.
pub(super) struct Before {
    nic: String,
    state: NicState,
    coalesces: bool,
}

impl Before {
    pub(super) fn of(nic: &str, pins: &Pins) -> Option<Before> {
        // One that has the program already costs nothing more.
        let outlook = Outlook::of(nic, pins).ok().filter(|outlook| outlook.attached.is_none())?;
        let state = NicState::of(&outlook.nic);
        Some(Before { state, coalesces: !outlook.coalescing.is_empty(), nic: outlook.nic })
    }

    /// What it has cost, now that the program is attached.
    pub(super) fn cost(&self, all: &[Attached]) -> Option<Cost> {
        let attached = all.iter().find(|attached| attached.nic.as_deref() == Some(&*self.nic))?;
        let now = NicState::of(&self.nic);
        let is_virtio = now.driver.as_deref() == Some(VIRTIO);
        let mut costs = changes(&now.since(&self.state));
        if is_virtio && self.coalesces && attached.mode == Mode::Native {
            costs.push("its host coalesces packets no more: TCP's streams come in shorter pieces".to_owned());
        }
        costs.extend(veth(attached));
        Some(Cost { nic: self.nic.clone(), driver: now.driver, mode: attached.mode.to_string(), costs })
    }
}

/// What attaching the program to a NIC has cost.
#[derive(Serialize)]
pub(super) struct Cost {
    nic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
    mode: String,
    costs: Vec<String>,
}

impl Cost {
    pub(super) fn line(&self) -> String {
        let driver = self.driver.as_ref().map_or_else(String::new, |driver| format!(" {driver}"));
        let place = match self.mode.as_str() {
            "native" => {
                format!("in its driver{driver} (native), before the kernel has made anything of a frame")
            }
            _ => {
                format!("behind its driver{driver} (generic), when the kernel has made a packet of the frame")
            }
        };
        let costs = if self.costs.is_empty() {
            "no setting of the NIC has changed, and its link stayed up".to_owned()
        } else {
            self.costs.join("; ")
        };
        format!("{}: messages are taken in and acknowledged {place}. It costs: {costs}", self.nic)
    }
}

/// What streams into a veth pay, and what they could have instead.
fn veth(attached: &Attached) -> Option<String> {
    let nic = attached.nic.as_ref().filter(|_| xdp::costs_segmentation(attached))?;
    Some(format!(
        "{nic} is a veth, which gets every packet by itself now, so that streams into it, TCP's too, may fall to a sixth. Behind the \
         driver (`tsumugi down {nic}; tsumugi up {nic} --xdp generic`) they stay at half and short messages are as fast, but long ones \
         are taken in only while their process makes calls"
    ))
}

fn changes(change: &NicChange) -> Vec<String> {
    let mut said: Vec<String> = change
        .features
        .iter()
        .map(|(feature, is_used)| format!("{feature} is {} now", if *is_used { "on" } else { "off" }))
        .collect();
    if change.lacks_link {
        said.push(
            "its link is down while the driver makes its queues anew; it comes back by itself".to_owned(),
        );
    } else if change.lost_link {
        said.push("its link was down for a moment, while the driver made its queues anew".to_owned());
    }
    said
}

/// The answer of `up --dry-run --json`.
#[derive(Serialize)]
struct Report {
    nics: Vec<Prospect>,
}

/// What is to be expected on a NIC.
#[derive(Serialize)]
struct Prospect {
    nic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
    mtu_bytes: usize,
    /// Where the program would run, as far as the kernel says.
    #[serde(skip_serializing_if = "Option::is_none")]
    xdp: Option<String>,
    notes: Vec<String>,
}

/// Says what would come of `up`, and changes nothing.
pub(super) fn dry_run(nics: &[String], wanted: Option<Mode>, json: bool) -> tsumugi_measure::CommandResult {
    let pins = Pins::here()?;
    let prospects: Result<Vec<Prospect>, xdp::XdpError> =
        nics.iter().map(|nic| Outlook::of(nic, &pins).map(|outlook| prospect(&outlook, wanted))).collect();
    let report = Report { nics: prospects? };
    if json {
        show_json(&report)?;
    } else {
        output::text(text(&report))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for Prospect { nic, driver, mtu_bytes, notes, .. } in &report.nics {
        let driver =
            driver.as_deref().map_or_else(|| "no driver of hardware".to_owned(), |it| format!("driver {it}"));
        _ = writeln!(text, "{nic}  {driver}, MTU {mtu_bytes}");
        notes.iter().for_each(|note| _ = writeln!(text, "  {note}"));
    }
    text + "Nothing was changed.\n"
}

fn prospect(outlook: &Outlook, wanted: Option<Mode>) -> Prospect {
    let Outlook { nic, driver, mtu_bytes, .. } = outlook;
    // Its host coalesces and cannot be told to stop.
    let refuses = driver.as_deref() == Some(VIRTIO) && outlook.coalescing.iter().any(|it| it.is_fixed);
    let mode = outlook.attached.or(wanted).or(match outlook.native {
        Some(true) if refuses => Some(Mode::Generic),
        Some(true) => Some(Mode::Native),
        Some(false) => Some(Mode::Generic),
        None => None,
    });
    let notes = match (&outlook.taken, outlook.attached) {
        (Some(stranger), _) => vec![format!("refused: {stranger}; {}", stranger.remedy())],
        (None, Some(mode)) => {
            vec![format!("it has the program already ({mode}): it is replaced, and no packet is lost")]
        }
        (None, None) => expected(outlook, mode, wanted.is_some()),
    };
    let xdp = mode.map(|mode| mode.to_string());
    Prospect { nic: nic.clone(), driver: driver.clone(), mtu_bytes: *mtu_bytes, xdp, notes }
}

/// What a NIC without a program is to expect.
fn expected(outlook: &Outlook, mode: Option<Mode>, is_wanted: bool) -> Vec<String> {
    let Outlook { nic, driver, mtu_bytes, native, pieces, is_veth, coalescing, queue_pairs, .. } = outlook;
    let mut notes = vec![place(mode, is_wanted, *native).to_owned()];
    let is_native = mode != Some(Mode::Generic);
    let is_virtio = driver.as_deref() == Some(VIRTIO);
    if let Some(MtuExcess { max_bytes, .. }) = xdp::mtu_excess(nic).filter(|_| is_native) {
        notes.push(format!(
            "its driver would drop packets of more than {max_bytes} bytes: lower the MTU first, or run Linux 6.3"
        ));
    } else if is_native && *mtu_bytes > ONE_BUFFER_MTU_BYTES {
        let note = match pieces {
            Some(true) => "jumbo frames go on: the driver hands over frames in several buffers",
            _ => "jumbo frames: a driver that hands over only what lies in one buffer may refuse the program",
        };
        notes.push(note.to_owned());
    }
    notes.extend(coalescing.iter().map(|it| coalesced(nic, it, is_virtio, is_native)));
    if *is_veth && is_native {
        let note = "a veth: streams into it, TCP's too, reach it packet by packet then; --xdp generic costs them less";
        notes.push(note.to_owned());
    }
    if let Some((used, most)) = queue_pairs.filter(|_| is_virtio && is_native) {
        let cpus = cpus_possible();
        if used + cpus > most {
            notes.push(format!(
                "{used} of at most {most} queues are in use, and its driver wants one more for each of {cpus} CPUs for what \
                 programs send: they share the others under a lock"
            ));
        }
    }
    if is_native && driver.is_some() && !is_virtio {
        let note = "many drivers make their queues anew when a program comes or goes: the link may be down for a moment";
        notes.push(note.to_owned());
    }
    notes
}

/// Where the program runs, and why.
const fn place(mode: Option<Mode>, is_wanted: bool, native: Option<bool>) -> &'static str {
    match (mode, is_wanted, native) {
        (Some(Mode::Native), true, Some(false)) => {
            "refused: its driver takes no program, and native is asked for"
        }
        (Some(Mode::Native), true, None) => {
            "native, as it is asked for: refused if its driver takes no program"
        }
        (Some(Mode::Native), ..) => "native: its driver takes programs",
        (Some(Mode::Generic), true, _) => {
            "generic, as it is asked for: the kernel runs the program behind the driver"
        }
        (Some(Mode::Generic), ..) => {
            "generic: its driver does not take the program, and the kernel runs it behind the driver"
        }
        (None, ..) => {
            "native if its driver takes the program, else generic (from Linux 6.3 on the kernel says which)"
        }
    }
}

/// What becomes of coalescing in the NIC. What the kernel does for a program behind a driver is in generic_xdp_install of
/// net/core/dev.c.
fn coalesced(
    nic: &str,
    Coalescing { feature, is_fixed }: &Coalescing,
    is_virtio: bool,
    is_native: bool,
) -> String {
    match (is_fixed, is_native) {
        (true, true) => {
            format!("{feature} is on and fixed: the driver may refuse the program, which is generic then")
        }
        (true, false) => {
            format!("{feature} is on and fixed: the kernel will warn in its log that it cannot turn it off")
        }
        (false, true) if is_virtio => {
            format!("{feature} is on: the driver has the host stop it while the program is there")
        }
        (false, true) => {
            format!("{feature} is on: drivers turn it off, or refuse until `ethtool -K {nic} {feature} off`")
        }
        (false, false) => format!("{feature} is on: the kernel turns it off for the program"),
    }
}

/// How many CPUs the kernel reckons with: one more than the last of a list such as `0-3`.
fn cpus_possible() -> u32 {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    list.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<u32>().ok()).map_or(1, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outlook() -> Outlook {
        Outlook {
            nic: "eth1".into(),
            driver: Some("ixgbe".into()),
            mtu_bytes: 9000,
            attached: None,
            taken: None,
            native: Some(true),
            pieces: Some(false),
            is_veth: false,
            coalescing: vec![Coalescing { feature: "rx-lro".into(), is_fixed: false }],
            queue_pairs: Some((4, 4)),
        }
    }

    fn notes(outlook: &Outlook, wanted: Option<Mode>) -> String {
        prospect(outlook, wanted).notes.join("\n")
    }

    #[test]
    fn what_is_to_be_expected_is_said() {
        let said = notes(&outlook(), None);
        for words in [
            "native: its driver takes programs",
            "in one buffer",
            "`ethtool -K eth1 rx-lro off`",
            "link may be down",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(!said.contains("queues are in use"), "{said}");
        let said = notes(&outlook(), Some(Mode::Generic));
        assert!(said.contains("the kernel turns it off for") && !said.contains("link may be down"), "{said}");
        let said = notes(&Outlook { native: Some(false), ..outlook() }, None);
        assert!(said.starts_with("generic: its driver does not take"), "{said}");
        let said = notes(&Outlook { driver: Some(VIRTIO.into()), ..outlook() }, None);
        assert!(said.contains("4 of at most 4 queues are in use"), "{said}");
        let said = notes(&Outlook { attached: Some(Mode::Native), ..outlook() }, None);
        assert_eq!(said.lines().count(), 1, "{said}");
    }

    #[test]
    fn what_has_changed_is_said() {
        let change =
            NicChange { features: vec![("rx-lro".into(), false)], lost_link: true, lacks_link: false };
        let costs = changes(&change);
        assert_eq!(costs[0], "rx-lro is off now");
        assert!(costs[1].contains("down for a moment"), "{costs:?}");
        let cost = Cost { nic: "eth1".into(), driver: Some("igb".into()), mode: "native".into(), costs };
        assert!(
            cost.line().contains("in its driver igb (native)") && cost.line().contains("rx-lro is off now")
        );
    }
}
