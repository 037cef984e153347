//! What is to be said of this host's NICs: which of them multirail uses, and what keeps it from using them well.

use std::fmt::Write as _;
use tsumugi_rail::nics::NicReport;

/// The NICs in a line: names, addresses, speeds.
pub fn list(nics: &[NicReport]) -> String {
    let mut text = String::new();
    let used = || nics.iter().filter(|nic| nic.behind.is_none());
    for (nth, nic) in used().enumerate() {
        if used().take(nth).any(|before| before.name == nic.name) {
            continue; // said with its address of the other family
        }
        let between = if text.is_empty() { "" } else { ", " };
        _ = write!(text, "{between}{}", nic.name);
        for of_it in used().filter(|of_it| of_it.name == nic.name) {
            _ = write!(text, " {}", of_it.address.ip);
        }
        match nic.address.speed_mbits {
            0 => {}
            mbits if mbits < 1000 => _ = write!(text, " ({mbits} Mb/s)"),
            mbits => _ = write!(text, " ({} Gb/s)", f64::from(mbits) / 1000.0),
        }
    }
    text
}

/// A NIC that carries nothing because another is on the same link, or has the same address: what is wrong, and what
/// mends it.
pub fn idle(nics: &[NicReport]) -> Option<(String, String)> {
    let is_used = |name: &str| nics.iter().any(|nic| nic.name == name && nic.behind.is_none());
    let idle = nics.iter().filter(|nic| !is_used(&nic.name));
    let (nic, behind) = idle.filter_map(|nic| nic.behind.as_ref().map(|behind| (nic, behind))).next()?;
    let (name, ip) = (&nic.name, nic.address.ip);
    let same = nics.iter().any(|other| other.name == *behind && other.address.ip == ip);
    let found = if same {
        format!("{name} has the address of {behind}, {ip}: it carries nothing")
    } else {
        format!("{name} is on the subnet of {behind}: the kernel sends through {behind} for both")
    };
    let bits = nic.address.prefix_bits;
    let action = format!("a subnet for each: ip address replace ADDRESS dev {name}, and del {ip}/{bits}");
    Some((found, action))
}

/// Rails whose MTUs differ: what follows, and what mends it.
pub fn uneven_mtus(nics: &[NicReport]) -> Option<(String, String)> {
    let used = || nics.iter().filter(|nic| nic.behind.is_none());
    let (short, long) = (used().min_by_key(|nic| nic.mtu_bytes)?, used().max_by_key(|nic| nic.mtu_bytes)?);
    if short.mtu_bytes == long.mtu_bytes {
        return None;
    }
    let found = format!(
        "{} has an MTU of {}, {} of {}: packets on both are as long as the shorter takes",
        short.name, short.mtu_bytes, long.name, long.mtu_bytes
    );
    Some((found, format!("ip link set dev {} mtu {}, if its link takes it", short.name, long.mtu_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tsumugi_rail::NicAddress;

    fn nic(name: &str, ip: &str, mtu_bytes: usize, behind: Option<&str>) -> NicReport {
        let address = NicAddress {
            ip: ip.parse().unwrap(),
            prefix_bits: 24,
            speed_mbits: 2500,
            is_overlay: false,
            nic: 0,
        };
        NicReport { name: name.into(), address, mtu_bytes, behind: behind.map(str::to_owned) }
    }

    #[test]
    fn sound_rails_are_a_line() {
        let nics = [nic("a", "10.0.0.1", 1500, None), nic("b", "10.0.1.1", 1500, None)];
        assert_eq!(list(&nics), "a 10.0.0.1 (2.5 Gb/s), b 10.0.1.1 (2.5 Gb/s)");
        assert_eq!((idle(&nics), uneven_mtus(&nics)), (None, None));
    }

    #[test]
    fn a_nic_with_addresses_of_both_families_is_one() {
        let both = |behind| {
            [
                nic("a", "10.0.0.1", 1500, None),
                nic("b", "10.0.1.1", 1500, None),
                nic("a", "fd00::1", 1500, None),
                nic("b", "fd00::2", 1500, behind),
            ]
        };
        assert_eq!(list(&both(None)), "a 10.0.0.1 fd00::1 (2.5 Gb/s), b 10.0.1.1 fd00::2 (2.5 Gb/s)");
        assert_eq!(list(&both(Some("a"))), "a 10.0.0.1 fd00::1 (2.5 Gb/s), b 10.0.1.1 (2.5 Gb/s)");
        assert_eq!(idle(&both(Some("a"))), None, "b carries packets of IPv4");
    }

    #[test]
    fn what_keeps_a_nic_idle_is_named_with_what_mends_it() {
        let behind = |ip| [nic("a", "10.0.0.1", 1500, None), nic("b", ip, 9000, Some("a"))];
        let (found, action) = idle(&behind("10.0.0.1")).unwrap();
        assert!(found.contains("b has the address of a, 10.0.0.1") && action.contains("dev b"), "{found}");
        let (found, _) = idle(&behind("10.0.0.2")).unwrap();
        assert!(found.contains("b is on the subnet of a"), "{found}");
        assert_eq!(uneven_mtus(&behind("10.0.0.2")), None, "who carries nothing shortens nothing");
    }

    #[test]
    fn the_shorter_mtu_rules() {
        let nics = [nic("a", "10.0.0.1", 9000, None), nic("b", "10.0.1.1", 1500, None)];
        let (found, action) = uneven_mtus(&nics).unwrap();
        assert!(found.starts_with("b has an MTU of 1500, a of 9000"), "{found}");
        assert!(action.contains("dev b mtu 9000"), "{action}");
    }
}
