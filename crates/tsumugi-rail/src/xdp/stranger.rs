//! Somebody else's program where ours is wanted.

use super::mode::Mode;
use super::{PROGRAM, SWITCH_PROGRAM};
use crate::netlink::XdpOn;
use aya::programs::links::LinkType;
use aya::programs::{loaded_links, loaded_programs};
use std::fmt;

/// Somebody else's program on a NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// The NIC's name.
    pub nic: String,
    /// The program's number in the kernel.
    pub id: u32,
    /// Its name, where the caller may ask.
    pub name: Option<String>,
    /// Where it runs; `None`: in the NIC itself.
    pub mode: Option<Mode>,
    /// Number of the link that attaches it; `None`: netlink, or the caller may not ask.
    pub link: Option<u32>,
}

impl Stranger {
    /// The program on a NIC, if there is one.
    pub(super) fn on(nic: &XdpOn) -> Option<Stranger> {
        let native = nic.native.map(|id| (id, Some(Mode::Native)));
        let generic = nic.generic.map(|id| (id, Some(Mode::Generic)));
        let (id, mode) = native.or(generic).or_else(|| nic.hardware.map(|id| (id, None)))?;
        Some(Stranger { nic: nic.nic.clone(), id, name: None, mode, link: None })
    }

    /// With what only root may ask for.
    pub(super) fn identified(self) -> Stranger {
        let mut programs = loaded_programs().filter_map(Result::ok);
        let program = programs.find(|program| program.id() == self.id);
        let name = program.and_then(|it| it.name_as_str().map(str::to_owned)).filter(|it| !it.is_empty());
        let mut links = loaded_links().filter_map(Result::ok);
        let link = links.find(|link| {
            link.program_id() == self.id && link.link_type().is_ok_and(|kind| kind == LinkType::Xdp)
        });
        Stranger { name, link: link.map(|link| link.id()), ..self }
    }

    /// What takes it off the NIC.
    #[must_use]
    pub fn remedy(&self) -> String {
        let Stranger { nic, mode, .. } = self;
        match (self.link, mode) {
            (Some(_), _) if self.name.as_deref() == Some(SWITCH_PROGRAM) => {
                format!("{nic} is a port of Tsumugi's switch: `tsumugi switch down {nic}` takes it out")
            }
            (Some(link), _) if self.name.as_deref() == Some(PROGRAM) => format!(
                "if it is Tsumugi's, `tsumugi down {nic}` where it was attached, for another BPF file system is mounted there, or `bpftool link detach id {link}`"
            ),
            (Some(link), _) => format!(
                "if nobody needs it, end the process that holds link {link}, or `bpftool link detach id {link}`"
            ),
            (None, Some(Mode::Native)) => format!("if nobody needs it, `ip link set dev {nic} xdpdrv off`"),
            (None, Some(Mode::Generic)) => {
                format!("if nobody needs it, `ip link set dev {nic} xdpgeneric off`")
            }
            (None, None) => format!("if nobody needs it, `ip link set dev {nic} xdpoffload off`"),
        }
    }
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stranger { nic, id, name, mode, link } = self;
        write!(f, "{nic} has another XDP program attached: ")?;
        if let Some(name) = name {
            write!(f, "'{name}', ")?;
        }
        write!(f, "number {id}, ")?;
        match mode {
            Some(mode) => write!(f, "{mode}")?,
            None => f.write_str("in the NIC")?,
        }
        match link {
            Some(link) => write!(f, ", by link {link}"),
            None if name.is_some() => f.write_str(", by netlink"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_remedy_fits_the_way_it_is_attached() {
        let nic = XdpOn { nic: "eth1".into(), native: None, generic: Some(7), hardware: None };
        let stranger = Stranger::on(&nic).expect("it has a program");
        assert_eq!(stranger.to_string(), "eth1 has another XDP program attached: number 7, generic");
        assert!(stranger.remedy().contains("`ip link set dev eth1 xdpgeneric off`"), "{}", stranger.remedy());
        let named = Stranger { name: Some("filter".into()), ..stranger.clone() };
        assert!(named.to_string().ends_with("'filter', number 7, generic, by netlink"), "{named}");
        let linked = Stranger { link: Some(9), ..named };
        assert!(linked.to_string().ends_with(", generic, by link 9"), "{linked}");
        assert!(linked.remedy().contains("`bpftool link detach id 9`"), "{}", linked.remedy());
        let ours = Stranger { name: Some(PROGRAM.into()), ..linked };
        assert!(ours.remedy().contains("`tsumugi down eth1`"), "{}", ours.remedy());
        let port = Stranger { name: Some(SWITCH_PROGRAM.into()), ..ours };
        assert!(port.remedy().contains("`tsumugi switch down eth1`"), "{}", port.remedy());
    }
}
