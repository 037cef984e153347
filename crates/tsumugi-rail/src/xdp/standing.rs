//! What the kernel says of a NIC that the program was attached to.
//!
//! A pin outlives what it stands for. The NIC may be gone, and another have its name or its number; somebody may have
//! detached the link; and another program may be there by now. So the kernel is asked which program a NIC has, and that
//! number is compared with those of the programs that `up` has loaded (`xdp/pins.rs`).

use super::program::PROGRAM;
use super::{Mode, XdpError};
use crate::netlink::{Questions, XdpOn};
use crate::{nics, sys};
use aya::programs::links::LinkType;
use aya::programs::{loaded_links, loaded_programs};
use std::fmt;
use std::io;

/// What became of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The program is attached.
    Attached,
    /// The NIC is gone. One that has its name by now is another.
    NicGone,
    /// Nothing is attached to the NIC any more.
    Detached,
    /// Another program is attached to the NIC.
    Replaced(Stranger),
    /// The kernel cannot be asked; it is believed that the program is attached.
    Unknown,
}

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

impl Standing {
    /// Whether the program can be believed to be attached.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        matches!(self, Standing::Attached | Standing::Unknown)
    }
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

/// The kernel, as far as it can be asked.
#[derive(Debug)]
pub(super) struct Kernel(io::Result<Questions>);

impl Kernel {
    /// Asks about the NICs of the network namespace that the calling thread is in.
    pub(super) fn here() -> Kernel {
        Kernel(Questions::open())
    }

    /// What is attached to the NIC with this index; an error where that cannot be known.
    pub(super) fn xdp(&mut self, index: u32) -> io::Result<Option<XdpOn>> {
        match &mut self.0 {
            Ok(questions) => questions.xdp(index),
            Err(error) => Err(io::Error::from(error.kind())),
        }
    }

    /// The name of a NIC, and what became of the program on it, which has one of these numbers, in this mode.
    pub(super) fn standing(
        &mut self,
        index: u32,
        mode: Mode,
        programs: &[u32],
    ) -> (Option<String>, Standing) {
        let Ok(found) = self.xdp(index) else {
            let nic = sys::interface_name(index);
            let standing = if nic.is_some() { Standing::Unknown } else { Standing::NicGone };
            return (nic, standing);
        };
        let Some(found) = found else { return (None, Standing::NicGone) };
        let there = match mode {
            Mode::Native => found.native,
            Mode::Generic => found.generic,
        };
        let standing = match Stranger::on(&found) {
            _ if there.is_some_and(|id| programs.contains(&id)) => Standing::Attached,
            Some(stranger) => Standing::Replaced(stranger),
            None => Standing::Detached,
        };
        (Some(found.nic), standing)
    }
}

/// What other programs than these the NICs here have.
pub(super) fn strangers(ours: &[u32]) -> Vec<Stranger> {
    let mut kernel = Kernel::here();
    let indices = nics::names().into_iter().filter_map(|name| sys::interface_index(&name));
    let found = indices.filter_map(|index| Stranger::on(&kernel.xdp(index).ok()??));
    found.filter(|stranger| !ours.contains(&stranger.id)).map(Stranger::identified).collect()
}

/// The error that a NIC has another program, which is asked for.
pub(super) fn taken(index: u32) -> XdpError {
    let nic = || sys::interface_name(index).unwrap_or_else(|| format!("NIC {index}"));
    let found = Kernel::here().xdp(index).ok().flatten();
    match found.as_ref().and_then(Stranger::on) {
        Some(stranger) => XdpError::NicTaken(Box::new(stranger.identified())),
        // It went away just now, or netlink is forbidden.
        None => XdpError::NicBusy(nic()),
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
    }

    #[test]
    fn what_became_of_an_attachment_is_asked_of_the_kernel() {
        let mut kernel = Kernel::here();
        assert_eq!(kernel.standing(1, Mode::Native, &[7]), (Some("lo".to_owned()), Standing::Detached));
        assert_eq!(kernel.standing(0x7fff_fff0, Mode::Native, &[7]), (None, Standing::NicGone));
        let mut forbidden = Kernel(Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(forbidden.standing(1, Mode::Native, &[7]), (Some("lo".to_owned()), Standing::Unknown));
        assert_eq!(forbidden.standing(0x7fff_fff0, Mode::Native, &[7]), (None, Standing::NicGone));
    }
}
