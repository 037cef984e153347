//! What attaching a program costs a NIC: how the NIC is before and after, and what its driver says before.

use super::standing::Kernel;
use super::{Mode, Stranger, XdpError, nic};
use crate::netlink::{self, ForPrograms};
use crate::sys::NicFeature;
use crate::{nics, sys};
use std::collections::BTreeMap;
use std::fs;

/// What coalesces packets before a program could see them.
const COALESCING: [&str; 2] = ["rx-lro", "rx-gro-hw"];

/// How a NIC is set, and how often its link was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicState {
    /// Its driver; `None`: it has none, as a virtual NIC, or that is not shown.
    pub driver: Option<String>,
    /// Features that it can have, as `ethtool -k` calls them, and whether it uses them.
    features: BTreeMap<String, bool>,
    links_lost: Option<u64>,
    has_link: bool,
}

/// What has changed on a NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicChange {
    /// Features that are used now and were not, or are not any more.
    pub features: Vec<(String, bool)>,
    /// Whether the link was lost meanwhile.
    pub lost_link: bool,
    /// Whether there was a link, and is none now.
    pub lacks_link: bool,
}

impl NicState {
    /// How the NIC called `nic` is now.
    #[must_use]
    pub fn of(nic: &str) -> NicState {
        let folder = nics::folder(nic);
        let read = |file: &str| fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned());
        let driver = fs::read_link(folder.join("device/driver")).ok();
        let driver = driver.and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
        NicState {
            driver,
            features: features(nic).map(|NicFeature { name, is_used, .. }| (name, is_used)).collect(),
            links_lost: read("carrier_down_count").and_then(|text| text.parse().ok()),
            has_link: read("carrier").is_some_and(|text| text == "1"),
        }
    }

    /// What has changed since it was as `before` says.
    #[must_use]
    pub fn since(&self, before: &NicState) -> NicChange {
        let changed = |(name, is_used): (&String, &bool)| {
            before.features.get(name).is_some_and(|was| was != is_used).then(|| (name.clone(), *is_used))
        };
        NicChange {
            features: self.features.iter().filter_map(changed).collect(),
            lost_link: self.links_lost > before.links_lost,
            lacks_link: before.has_link && !self.has_link,
        }
    }
}

fn features(nic: &str) -> impl Iterator<Item = NicFeature> {
    sys::nic_features(nic).unwrap_or_default().into_iter()
}

/// Something that coalesces packets in a NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coalescing {
    /// The feature, as `ethtool -k` calls it.
    pub feature: String,
    /// Whether it cannot be turned off.
    pub is_fixed: bool,
}

/// What is known of a NIC before the program is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Its name.
    pub nic: String,
    /// Its driver; `None`: it has none, as a virtual NIC, or that is not shown.
    pub driver: Option<String>,
    /// Its MTU, bytes.
    pub mtu_bytes: usize,
    /// Where the program runs already.
    pub attached: Option<Mode>,
    /// Another program, which keeps ours away.
    pub taken: Option<Stranger>,
    /// Whether the driver takes programs; `None`: Linux says so from 6.3 on.
    pub native: Option<bool>,
    /// Whether the driver hands over frames in several buffers, as jumbo frames may be.
    pub pieces: Option<bool>,
    /// Whether it is a veth.
    pub is_veth: bool,
    /// What coalesces packets in the NIC now.
    pub coalescing: Vec<Coalescing>,
    /// Pairs of queues in use, and the most there can be; `None`: the driver does not say.
    pub queue_pairs: Option<(u32, u32)>,
}

impl Outlook {
    /// Looks at the NIC called `name`, which is left as it is.
    ///
    /// # Errors
    /// There is no such NIC, or the BPF file system cannot be read.
    pub fn of(name: &str, pins: &super::Pins) -> Result<Outlook, XdpError> {
        let index = nic::index_of(name)?;
        let name = nic::first_name(name);
        let ours = nic::list(pins)?.into_iter().find(|it| it.index == index && it.is_attached());
        let there = Kernel::here().xdp(index).ok().flatten();
        let taken = there.as_ref().and_then(Stranger::on).filter(|_| ours.is_none());
        let state = NicState::of(&name);
        let said = netlink::for_programs(index);
        let mtu = fs::read_to_string(nics::folder(&name).join("mtu"));
        Ok(Outlook {
            mtu_bytes: mtu.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0),
            attached: ours.map(|attached| attached.mode),
            taken: taken.map(Stranger::identified),
            native: said.map(|ForPrograms { takes, .. }| takes),
            pieces: said.filter(|said| said.takes).map(|said| said.pieces),
            is_veth: super::offload::is_veth(index),
            coalescing: features(&name)
                .filter(|feature| feature.is_used && COALESCING.contains(&&*feature.name))
                .map(|NicFeature { name, is_fixed, .. }| Coalescing { feature: name, is_fixed })
                .collect(),
            queue_pairs: sys::queue_pairs(&name).ok().filter(|(_, most)| *most > 0),
            driver: state.driver,
            nic: name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_found_and_nothing_else() {
        let before = NicState {
            features: BTreeMap::from([("rx-lro".into(), true), ("rx-gro".into(), true)]),
            links_lost: Some(2),
            has_link: true,
            driver: None,
        };
        assert_eq!(before.since(&before), NicChange::default());
        let after = NicState {
            features: BTreeMap::from([("rx-lro".into(), false), ("rx-gro".into(), true)]),
            links_lost: Some(3),
            has_link: false,
            driver: None,
        };
        let expected =
            NicChange { features: vec![("rx-lro".into(), false)], lost_link: true, lacks_link: true };
        assert_eq!(after.since(&before), expected);
    }

    #[test]
    fn a_nic_that_is_not_there_is_an_error() {
        let pins = super::super::Pins::here().unwrap();
        assert!(Outlook::of("nic9", &pins).is_err());
        let lo = Outlook::of("lo", &pins).unwrap();
        assert_eq!((lo.is_veth, lo.attached, lo.driver), (false, None, None));
    }
}
