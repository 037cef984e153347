//! Finding peers: by address, by name, by host file.

use crate::error::PeerError;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::path::Path;
use tsumugi_rail::{family, nics};
use tsumugi_wire::limits::DEFAULT_PORT;

/// Splits `host`, `host:port`, `address:port`, `[v6]:port` or `[v6%nic]:port` and resolves it to an address that an
/// endpoint bound to `bound` reaches.
///
/// Of a name with several addresses it is one that there is a route to, and of those rather one of IPv4: so the peer is
/// reached also if it is on a host without IPv6, or bound to IPv4 only.
pub(crate) fn resolve(
    peer: &str,
    bound: IpAddr,
    mut has_route: impl FnMut(SocketAddr) -> bool,
) -> Result<SocketAddr, PeerError> {
    let syntax = || PeerError::Syntax(peer.to_owned());
    let (host, port) = split(peer).ok_or_else(syntax)?;
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(syntax)?,
    };
    if let Some(address) = parse(host)? {
        return scoped(address, port);
    }
    let is_name = !peer.starts_with('[') && !host.contains(|c: char| c.is_whitespace() || ":/[]".contains(c));
    if host.is_empty() || !is_name {
        return Err(syntax());
    }
    let unknown = |source| PeerError::UnknownHost { name: host.to_owned(), source };
    let addresses: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .map_err(|error| unknown(Some(error)))?
        .map(family::canonical)
        .collect();
    let served = addresses.iter().filter(|address| family::serves(bound, address.ip()));
    let best = served.min_by_key(|address| (!has_route(**address), !address.is_ipv4()));
    best.or(addresses.first()).copied().ok_or_else(|| unknown(None))
}

/// The host and, if it is there, the port. An IPv6 address with a port stands in brackets.
fn split(peer: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = peer.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None => rest.is_empty().then_some((host, None)),
        };
    }
    match peer.split_once(':') {
        Some((host, port)) if !port.contains(':') => Some((host, Some(port))),
        _ => Some((peer, None)),
    }
}

/// An IP address and the scope that is written behind it, by number or by the name of a NIC; `None`: it is a name.
fn parse(host: &str) -> Result<Option<(IpAddr, u32)>, PeerError> {
    let Some((address, nic)) = host.split_once('%') else {
        return Ok(host.parse().ok().map(|address: IpAddr| (address.to_canonical(), 0)));
    };
    let Ok(address) = address.parse::<Ipv6Addr>() else {
        return Err(PeerError::Syntax(host.to_owned()));
    };
    let scope = nic.parse().ok().filter(|scope| *scope != 0).or_else(|| nics::index_of(nic));
    let scope = scope.ok_or_else(|| PeerError::NoSuchNic { address, nic: nic.to_owned(), there: there() })?;
    Ok(Some((IpAddr::V6(address), scope)))
}

/// The address and the port. A link-local address is one on some NIC's link: where there is only one NIC, on its.
fn scoped((address, scope): (IpAddr, u32), port: u16) -> Result<SocketAddr, PeerError> {
    match address {
        IpAddr::V4(four) => Ok(SocketAddr::from((four, port))),
        IpAddr::V6(six) if six.is_unicast_link_local() && scope == 0 => {
            let nics = nics::names();
            match nics.as_slice() {
                [only] => Ok(SocketAddrV6::new(six, port, 0, nics::index_of(only).unwrap_or(0)).into()),
                _ => Err(PeerError::NoScope { address: six, there: there() }),
            }
        }
        IpAddr::V6(six) => Ok(SocketAddrV6::new(six, port, 0, scope).into()),
    }
}

/// The NICs that an address may be on, for an error.
fn there() -> String {
    match nics::names().join(", ") {
        none if none.is_empty() => "none".to_owned(),
        names => names,
    }
}

/// A host file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostFileError {
    /// It cannot be read.
    #[error("cannot read the host file {path}")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A line is no peer.
    #[error("{path}, line {line}: '{text}' is not a peer; write one host or host:port to a line")]
    Line {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
}

/// Reads a host file: one `host` or `host:port` to a line; blank lines and what follows `#` are passed over,
/// and so is what follows the first word (`slots=4`), so that the host files of MPI launchers serve as they are.
///
/// # Errors
/// Says which line of which file is wrong.
pub fn parse_host_file(path: &Path) -> Result<Vec<String>, HostFileError> {
    let name = path.display().to_string();
    let text =
        std::fs::read_to_string(path).map_err(|source| HostFileError::Read { path: name.clone(), source })?;
    let mut hosts = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let Some(host) = line.split_whitespace().next() else { continue };
        let valid = |c: char| c.is_ascii_alphanumeric() || "-._:[]%".contains(c);
        if !host.chars().all(valid) {
            return Err(HostFileError::Line { path: name, line: index + 1, text: host.to_owned() });
        }
        hosts.push(host.to_owned());
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn resolve(peer: &str, bound: IpAddr) -> Result<SocketAddr, PeerError> {
        super::resolve(peer, bound, |_| true)
    }

    #[test]
    fn addresses_and_names_with_and_without_port() {
        assert_eq!(resolve("10.1.2.3:99", V4).unwrap().to_string(), "10.1.2.3:99");
        assert_eq!(resolve("10.1.2.3", V4).unwrap().to_string(), "10.1.2.3:7411");
        assert_eq!(resolve("[::1]:5", V4).unwrap().to_string(), "[::1]:5");
        assert_eq!(resolve("::1", V4).unwrap().port(), 7411);
        assert_eq!(resolve("localhost:12", V4).unwrap().to_string(), "127.0.0.1:12");
        assert_eq!(resolve("[2001:db8::1]", V4).unwrap().to_string(), "[2001:db8::1]:7411");
        assert_eq!(resolve("[::ffff:10.1.2.3]:99", V4).unwrap().to_string(), "10.1.2.3:99", "mapped");
    }

    #[test]
    fn a_link_local_address_is_on_the_link_of_a_nic() {
        let lo = nics::index_of("lo").unwrap();
        let scope = |text: &str| match resolve(text, V4) {
            Ok(SocketAddr::V6(v6)) => v6.scope_id(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(scope("[fe80::1%lo]:7411"), lo);
        assert_eq!(scope("fe80::1%lo"), lo);
        assert_eq!(scope("fe80::1%77"), 77);
        let error = resolve("[fe80::1%nic-that-is-not]:5", V4).unwrap_err().to_string();
        assert!(error.contains("nic-that-is-not"), "{error}");
        match resolve("fe80::1", V4) {
            Ok(SocketAddr::V6(v6)) => assert_ne!(v6.scope_id(), 0),
            Err(PeerError::NoScope { .. }) => {}
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nonsense_and_strangers_are_refused_with_what_to_do() {
        for peer in [
            "",
            ":7",
            "host:",
            "host:99999",
            "host:0",
            "a b",
            "http://x",
            "[::1",
            "[::1]7",
            "[::1]:0",
            "x%lo",
            "[x]",
        ] {
            assert!(matches!(resolve(peer, V4), Err(PeerError::Syntax(_))), "{peer}");
        }
        let error = resolve("no-such-host.invalid", V4).unwrap_err();
        assert!(matches!(error, PeerError::UnknownHost { .. }), "{error}");
        assert!(error.to_string().contains("/etc/hosts"));
    }

    #[test]
    fn a_host_file_of_an_mpi_launcher_serves() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "# cluster\nn0 slots=4\n\nn1:7500 # second\n[fe80::1]:9").unwrap();
        assert_eq!(parse_host_file(file.path()).unwrap(), ["n0", "n1:7500", "[fe80::1]:9"]);
        writeln!(file, "n2;rm").unwrap();
        let error = parse_host_file(file.path()).unwrap_err();
        assert!(error.to_string().contains("line 6"), "{error}");
    }
}
