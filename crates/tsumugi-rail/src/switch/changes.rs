//! What `up` has changed of this host, beside attaching programs: on record before it is done, so that `down` finds it whatever
//! came between, and as names in the BPF file system, which lives as long as the kernel and stores nothing else.

use super::SwitchError;
use crate::netlink::Questions;
use crate::sys;
use crate::xdp::XdpError;
use crate::xdp::pins::{entries, make_folder, remove};
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

/// What was changed. NICs are given by their indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum Change {
    /// The bridge was made.
    Made,
    /// The NIC was made a port of the bridge.
    Joined,
    /// The NIC was switched on.
    SwitchedOn,
    /// The NIC was told to leave VLAN tags where they are.
    TagsLeft,
    /// The NIC was told not to join frames to longer ones.
    FramesLeft,
}

/// The record.
#[derive(Debug)]
pub(super) struct Changes {
    folder: PathBuf,
}

impl Changes {
    /// The record in a folder, which need not be there.
    pub(super) fn in_folder(folder: PathBuf) -> Changes {
        Changes { folder }
    }

    /// Puts a change on record.
    pub(super) fn note(&self, change: Change, nic: u32) -> Result<(), XdpError> {
        make_folder(&self.path(change, nic))
    }

    /// What is on record.
    pub(super) fn list(&self) -> Result<Vec<(Change, u32)>, XdpError> {
        let parse = |path: PathBuf| {
            let (change, nic) = path.file_name()?.to_str()?.rsplit_once('-')?;
            Some((Change::from_str(change).ok()?, nic.parse().ok()?))
        };
        Ok(entries(&self.folder)?.into_iter().filter_map(parse).collect())
    }

    /// Whether a bridge was made.
    pub(super) fn has_made(&self, bridge: u32) -> Result<bool, XdpError> {
        Ok(self.list()?.contains(&(Change::Made, bridge)))
    }

    /// Undoes what was changed of the NICs that `which` says, and forgets it. A NIC that is gone has taken it along.
    pub(super) fn undo(&self, which: impl Fn(u32) -> bool) -> Result<(), SwitchError> {
        for (change, nic) in self.list()?.into_iter().filter(|(_, nic)| which(*nic)) {
            match undo(change, nic) {
                Err(error) if !matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EOPNOTSUPP)) => {
                    let nic = sys::interface_name(nic).unwrap_or_else(|| nic.to_string());
                    return Err(SwitchError::Netlink { doing: "restoring", nic, source: error });
                }
                _ => remove(&self.path(change, nic))?,
            }
        }
        Ok(())
    }

    /// Forgets all, for a host that is gone.
    pub(super) fn forget(&self) -> Result<(), XdpError> {
        self.list()?.into_iter().try_for_each(|(change, nic)| remove(&self.path(change, nic)))?;
        remove(&self.folder)
    }

    fn path(&self, change: Change, nic: u32) -> PathBuf {
        self.folder.join(format!("{change}-{nic}"))
    }
}

fn undo(change: Change, nic: u32) -> io::Result<()> {
    let mut questions = Questions::open()?;
    match change {
        Change::Made => questions.remove(nic),
        Change::Joined => questions.set_controller(nic, None),
        Change::SwitchedOn => questions.switch(nic, false),
        Change::TagsLeft => sys::interface_name(nic).map_or(Ok(()), |nic| sys::take_vlan_tags(&nic, true)),
        Change::FramesLeft => sys::interface_name(nic).map_or(Ok(()), |nic| sys::join_frames(&nic, true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_record_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let changes = Changes::in_folder(folder.path().join("changed"));
        assert_eq!(changes.list().expect("nothing"), []);
        let all = [(Change::Made, 11), (Change::SwitchedOn, 7), (Change::TagsLeft, 7)];
        for (change, nic) in all {
            changes.note(change, nic).expect("it is noted");
        }
        let mut found = changes.list().expect("a list");
        found.sort_by_key(|(change, nic)| (*nic, change.to_string()));
        assert_eq!(found, [all[1], all[2], all[0]]);
        changes.forget().expect("it is forgotten");
        assert!(!folder.path().join("changed").exists());
    }
}
