//! Finding peers: by address, by name, by host file.

use crate::error::PeerError;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use tsumugi_wire::limits::DEFAULT_PORT;

/// Splits `host`, `host:port`, `address:port` or `[v6]:port` and resolves it to an address of the
/// family of `like`.
pub(crate) fn resolve(peer: &str, like: IpAddr) -> Result<SocketAddr, PeerError> {
    if let Ok(address) = peer.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(address) = peer.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, DEFAULT_PORT));
    }
    let (host, port) = match peer.rsplit_once(':') {
        Some((host, port)) => {
            let port = port.parse::<u16>().map_err(|_| PeerError::Syntax(peer.to_owned()))?;
            (host, port)
        }
        None => (peer, DEFAULT_PORT),
    };
    if host.is_empty() || port == 0 || host.contains(|c: char| c.is_whitespace() || c == ':' || c == '/') {
        return Err(PeerError::Syntax(peer.to_owned()));
    }
    let unknown = |source| PeerError::UnknownHost { name: host.to_owned(), source };
    let addresses: Vec<SocketAddr> =
        (host, port).to_socket_addrs().map_err(|error| unknown(Some(error)))?.collect();
    let same_family = addresses.iter().find(|address| address.is_ipv4() == like.is_ipv4());
    same_family.or(addresses.first()).copied().ok_or_else(|| unknown(None))
}

/// A host file that cannot be used.
#[derive(Debug, thiserror::Error)]
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

    #[test]
    fn addresses_and_names_with_and_without_port() {
        assert_eq!(resolve("10.1.2.3:99", V4).unwrap().to_string(), "10.1.2.3:99");
        assert_eq!(resolve("10.1.2.3", V4).unwrap().to_string(), "10.1.2.3:7411");
        assert_eq!(resolve("[::1]:5", V4).unwrap().to_string(), "[::1]:5");
        assert_eq!(resolve("::1", V4).unwrap().port(), 7411);
        assert_eq!(resolve("localhost:12", V4).unwrap().to_string(), "127.0.0.1:12");
    }

    #[test]
    fn nonsense_and_strangers_are_refused_with_what_to_do() {
        for peer in ["", ":7", "host:", "host:99999", "host:0", "a b", "http://x"] {
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
