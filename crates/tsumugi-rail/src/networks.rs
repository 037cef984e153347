//! Which NICs and networks may be used: a list of what is wanted and what is not.

use crate::family;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// Networks between containers or virtual machines of one host, which lead nowhere else, by the names that the programs give
/// them that make them.
const HOST_ONLY: [&str; 12] = [
    "docker*",
    "br-*",
    "virbr*",
    "lxcbr*",
    "lxdbr*",
    "incusbr*",
    "podman*",
    "cni*",
    "cbr*",
    "kube-bridge",
    "vboxnet*",
    "vmnet*",
];
/// Networks laid over others, by the usual names. Those without a link layer of their own are known by that.
const OVERLAYS: [&str; 12] = [
    "flannel*",
    "cali*",
    "cilium*",
    "weave*",
    "vxlan*",
    "geneve*",
    "gre*",
    "wg*",
    "tun*",
    "tap*",
    "tailscale*",
    "zt*",
];

/// NICs and networks to use and not to use; empty: the usual ones.
///
/// Entries are separated by commas: the name of a NIC (`eth0`, also with `*` and `?`), an address, or a network
/// (`10.1.0.0/16`, `fd00::/8`). With `!` before it, what it names is not used. If there are entries without `!`, only what
/// they name is used. What an entry without `!` names by its NIC is used even if it usually would not be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    text: String,
    excludes: bool,
    matcher: Matcher,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Matcher {
    Name(String),
    Net(IpAddr, u8),
}

/// An entry of a list of networks that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{entry}' in the list of networks '{list}'{source_of} is {why}; write names of NICs (eth0, ib*), addresses or networks (10.1.0.0/16), with ! before what is not to be used, and commas between them"
)]
pub struct NetworksError {
    entry: String,
    list: String,
    why: &'static str,
    source_of: &'static str,
}

/// What a list says of a NIC or an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    /// An entry names the NIC.
    Named,
    /// Nothing speaks against it.
    Free,
    /// This entry excludes it.
    Excluded(&'a str),
    /// It is none of those that are to be used.
    NotListed,
}

impl Networks {
    /// The environment variable that is asked where a program's configuration says nothing.
    pub const VARIABLE: &'static str = "TSUMUGI_NETWORKS";

    /// What the environment says.
    ///
    /// # Errors
    /// Says which entry means nothing, and how to write it.
    pub fn from_environment() -> Result<Networks, NetworksError> {
        let list = std::env::var(Networks::VARIABLE).unwrap_or_default();
        list.parse().map_err(|error| NetworksError { source_of: " (TSUMUGI_NETWORKS)", ..error })
    }

    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What is said of an address that a NIC of ours has.
    pub(crate) fn judge(&self, nic: &str, ip: IpAddr) -> Verdict<'_> {
        let names = |entry: &&Entry| match &entry.matcher {
            Matcher::Name(pattern) => matches_pattern(pattern, nic),
            Matcher::Net(net, bits) => is_within(ip, *net, *bits),
        };
        if let Some(entry) = self.entries.iter().filter(|entry| entry.excludes).find(names) {
            return Verdict::Excluded(&entry.text);
        }
        let mut included = self.entries.iter().filter(|entry| !entry.excludes);
        let listed = |entry: &&Entry| !entry.excludes && names(entry);
        match self.entries.iter().filter(listed).map(|entry| &entry.matcher).next() {
            Some(Matcher::Name(_)) => Verdict::Named,
            // A network says nothing against what usually is not used but by chance lies in it.
            Some(Matcher::Net(..)) => Verdict::Free,
            None if included.next().is_none() => Verdict::Free,
            None => Verdict::NotListed,
        }
    }

    /// Why a peer may not be sent to at this address, if so.
    #[must_use]
    pub fn refusal(&self, ip: IpAddr) -> Option<String> {
        let is_in =
            |entry: &&Entry| matches!(entry.matcher, Matcher::Net(net, bits) if is_within(ip, net, bits));
        if let Some(entry) = self.entries.iter().filter(|entry| entry.excludes).find(is_in) {
            return Some(format!("excluded by '{}'", entry.text));
        }
        // Where NICs are named, too, it may be behind one of them.
        let mut included = self.entries.iter().filter(|entry| !entry.excludes).peekable();
        let only_nets =
            included.peek().is_some() && included.all(|entry| matches!(entry.matcher, Matcher::Net(..)));
        let listed = self.entries.iter().filter(|entry| !entry.excludes).find(is_in).is_some();
        (only_nets && !listed && !ip.is_loopback()).then(|| format!("in none of the networks '{self}'"))
    }
}

/// Whether a NIC's name says that it leads to containers or virtual machines of this host only.
pub(crate) fn is_host_only(nic: &str) -> bool {
    HOST_ONLY.iter().any(|pattern| matches_pattern(pattern, nic))
}

/// Whether a NIC's name says that its network lies over another.
pub(crate) fn is_overlay(nic: &str) -> bool {
    OVERLAYS.iter().any(|pattern| matches_pattern(pattern, nic))
}

/// What kind of network an address is of. Traffic stays on the kind that the user has named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkKind {
    /// Of this host.
    Loopback,
    /// Of one link.
    LinkLocal,
    /// Of one site.
    Private,
    /// Of the world.
    Public,
}

impl NetworkKind {
    /// The kind of network that `ip` is of.
    #[must_use]
    pub fn of(ip: IpAddr) -> NetworkKind {
        match ip {
            ip if ip.is_loopback() => NetworkKind::Loopback,
            IpAddr::V4(four) if four.is_link_local() => NetworkKind::LinkLocal,
            // With what carriers and overlays use for themselves, 100.64.0.0/10.
            IpAddr::V4(four)
                if four.is_private() || four.octets()[0] == 100 && four.octets()[1] & 0xc0 == 64 =>
            {
                NetworkKind::Private
            }
            IpAddr::V6(six) if six.is_unicast_link_local() => NetworkKind::LinkLocal,
            IpAddr::V6(six) if six.is_unique_local() => NetworkKind::Private,
            _ => NetworkKind::Public,
        }
    }
}

impl fmt::Display for NetworkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NetworkKind::Loopback => "loopback",
            NetworkKind::LinkLocal => "link-local",
            NetworkKind::Private => "private",
            NetworkKind::Public => "public",
        })
    }
}

impl FromStr for Networks {
    type Err = NetworksError;

    fn from_str(list: &str) -> Result<Self, Self::Err> {
        let words = list.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty());
        let entry = |word: &str| {
            let (excludes, name) = match word.strip_prefix(['!', '^']) {
                Some(rest) => (true, rest),
                None => (false, word),
            };
            let wrong =
                |why| NetworksError { entry: word.to_owned(), list: list.to_owned(), why, source_of: "" };
            Ok(Entry { text: word.to_owned(), excludes, matcher: matcher(name).map_err(wrong)? })
        };
        Ok(Networks { entries: words.map(entry).collect::<Result<_, _>>()? })
    }
}

fn matcher(name: &str) -> Result<Matcher, &'static str> {
    if let Some((net, bits)) = name.split_once('/') {
        let net: IpAddr = net.parse().map_err(|_| "no network: its address is none")?;
        let most = if net.is_ipv4() { 32 } else { 128 };
        let bits = bits.parse().ok().filter(|bits| *bits <= most);
        return bits
            .map(|bits| Matcher::Net(net, bits))
            .ok_or("no network: its prefix has more bits than an address");
    }
    if let Ok(ip) = name.parse::<IpAddr>() {
        return Ok(Matcher::Net(ip, if ip.is_ipv4() { 32 } else { 128 }));
    }
    let is_number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    if name.is_empty() {
        return Err("nothing");
    }
    if name.bytes().all(is_number) || name.parse::<Ipv6Addr>().is_err() && name.contains("::") {
        return Err("neither an address nor the name of a NIC");
    }
    let in_a_name = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b'!';
    // The kernel's limit; patterns may be longer than what they match.
    if name.len() > 32 || !name.bytes().all(in_a_name) {
        return Err("no name that a NIC can have");
    }
    Ok(Matcher::Name(name.to_owned()))
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, entry) in self.entries.iter().enumerate() {
            write!(f, "{}{}", if nth == 0 { "" } else { "," }, entry.text)?;
        }
        Ok(())
    }
}

fn is_within(ip: IpAddr, net: IpAddr, bits: u8) -> bool {
    family::reaches(net, bits, ip)
}

/// Whether a name is of a pattern with `*` for any letters and `?` for one.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut tried) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while tried < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, tried));
                at += 1;
            }
            Some(letter) if *letter == b'?' || *letter == name[tried] => (at, tried) = (at + 1, tried + 1),
            _ => match &mut star {
                // The last star takes one letter more.
                Some((after, from)) => {
                    *from += 1;
                    (at, tried) = (*after + 1, *from);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, matches) in [
            ("eth0", "eth0", true),
            ("eth0", "eth01", false),
            ("eth*", "eth", true),
            ("e*0", "enp1s0", true),
            ("e*0", "enp1s0f1", false),
            ("*s*f?", "enp1s0f1", true),
            ("?th0", "eth0", true),
            ("eth?", "eth", false),
            ("*", "lo", true),
        ] {
            assert_eq!(matches_pattern(pattern, name), matches, "{pattern} {name}");
        }
    }

    #[test]
    fn exclusion_wins_and_a_list_is_all_there_is() {
        let networks: Networks = "eth*, 10.1.0.0/16,!eth9,!10.1.9.0/24".parse().unwrap();
        let judge = |nic, at: &str| networks.judge(nic, ip(at));
        assert_eq!(judge("eth0", "192.168.0.1"), Verdict::Named);
        assert_eq!(judge("ib0", "10.1.2.3"), Verdict::Free);
        assert_eq!(judge("ib0", "10.2.2.3"), Verdict::NotListed);
        assert_eq!(judge("eth9", "10.1.2.3"), Verdict::Excluded("!eth9"));
        assert_eq!(judge("eth0", "10.1.9.3"), Verdict::Excluded("!10.1.9.0/24"));
        assert_eq!(Networks::default().judge("eth0", ip("fd00::1")), Verdict::Free);
        let without: Networks = "^eth1".parse().unwrap();
        assert_eq!(without.judge("eth0", ip("10.0.0.1")), Verdict::Free);
    }

    #[test]
    fn peers_elsewhere_are_refused_and_the_entry_named() {
        let networks: Networks = "10.1.0.0/16,!10.1.9.0/24".parse().unwrap();
        assert_eq!(networks.refusal(ip("10.1.2.3")), None);
        assert_eq!(networks.refusal(ip("127.0.0.1")), None);
        assert_eq!(networks.refusal(ip("10.1.9.3")).unwrap(), "excluded by '!10.1.9.0/24'");
        assert!(networks.refusal(ip("10.2.0.1")).unwrap().contains("none of the networks"));
        let named: Networks = "eth0,10.1.0.0/16".parse().unwrap();
        assert_eq!(named.refusal(ip("10.2.0.1")), None, "it may be behind eth0");
    }

    #[test]
    fn what_means_nothing_is_named_with_what_to_write() {
        for (list, entry) in [
            ("eth0,10.0.0.0/33", "10.0.0.0/33"),
            ("10.0.0", "10.0.0"),
            ("!", "!"),
            ("eth0/24", "eth0/24"),
            ("fd00::/129", "fd00::/129"),
            ("fd00::x", "fd00::x"),
            ("a!b", "a!b"),
        ] {
            let error = list.parse::<Networks>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{entry}' in the list of networks '{list}'")), "{error}");
            assert!(error.contains("10.1.0.0/16"), "{error}");
        }
        assert_eq!("".parse::<Networks>(), Ok(Networks::default()));
    }

    #[test]
    fn kinds_are_told_by_addresses() {
        for (at, kind) in [
            ("10.0.0.1", NetworkKind::Private),
            ("100.100.0.1", NetworkKind::Private),
            ("172.31.0.1", NetworkKind::Private),
            ("8.8.8.8", NetworkKind::Public),
            ("169.254.0.1", NetworkKind::LinkLocal),
            ("127.0.1.1", NetworkKind::Loopback),
            ("fe80::1", NetworkKind::LinkLocal),
            ("fd00::1", NetworkKind::Private),
            ("2001:db8::1", NetworkKind::Public),
        ] {
            assert_eq!(NetworkKind::of(ip(at)), kind, "{at}");
        }
    }
}
