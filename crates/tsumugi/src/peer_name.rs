//! What callers write for a peer.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// By what a peer is added: text that is resolved, or an address.
///
/// The text is `host`, `host:port`, `address:port`, `[IPv6 address]:port` or, for a peer on the link of a NIC,
/// `[fe80::…%NIC]:port`. Without a port the [default](crate::DEFAULT_PORT) is meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerName {
    /// A name or an address in words.
    Text(String),
    /// An address.
    Address(SocketAddr),
}

impl From<&str> for PeerName {
    fn from(text: &str) -> PeerName {
        PeerName::Text(text.to_owned())
    }
}

impl From<String> for PeerName {
    fn from(text: String) -> PeerName {
        PeerName::Text(text)
    }
}

impl From<&String> for PeerName {
    fn from(text: &String) -> PeerName {
        PeerName::from(text.as_str())
    }
}

impl From<SocketAddr> for PeerName {
    fn from(address: SocketAddr) -> PeerName {
        PeerName::Address(address)
    }
}

impl From<(IpAddr, u16)> for PeerName {
    fn from(address: (IpAddr, u16)) -> PeerName {
        PeerName::Address(address.into())
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerName::Text(text) => f.write_str(text),
            PeerName::Address(address) => address.fmt(f),
        }
    }
}
