//! Every bound of the format in one place.

/// Version of the packet format and of the receive-memory layout. Packets of another are counted and dropped.
pub const VERSION: u8 = 1;

/// What precedes the version in the file of a library that speaks it.
pub const VERSION_MARK: &str = "tsumugi wire protocol ";

/// The mark, the version and a zero. Libraries have it in them for whoever looks into their file without loading it: `tsumugi-mpiexec`
/// does, on every node of a job.
pub const MARKED_VERSION: [u8; VERSION_MARK.len() + 2] = {
    assert!(VERSION < 10, "make room for another digit");
    let mut text = [0; VERSION_MARK.len() + 2];
    let (mark, version) = text.split_at_mut(VERSION_MARK.len());
    mark.copy_from_slice(VERSION_MARK.as_bytes());
    version[0] = b'0' + VERSION;
    text
};

/// Bytes of IPv4 and UDP headers in front of a Tsumugi packet.
pub const IPV4_UDP_BYTES: usize = 20 + 8;
/// Bytes of IPv6 and UDP headers in front of a Tsumugi packet.
pub const IPV6_UDP_BYTES: usize = 40 + 8;

/// Smallest datagram payload that a path must carry, bytes: IPv4's guaranteed 576 less its longest headers.
pub const DATAGRAM_BYTES_MIN: usize = 508;
/// Largest datagram payload we send, bytes: a jumbo frame of 9000 less IPv4 and UDP.
pub const DATAGRAM_BYTES_MAX: usize = 9000 - IPV4_UDP_BYTES;

/// Longest datagram payload that every driver receives in one buffer, bytes: that of a standard Ethernet frame over IPv4.
/// A longer one may lie in several, and then carries no answer back.
pub const ONE_BUFFER_BYTES: usize = 1500 - IPV4_UDP_BYTES;

/// PSNs that a flow may have outstanding: the length of the receive bitmap, and of the sender's retransmission store.
pub const BITMAP_PACKETS: u64 = 1024;

/// Longest message, bytes. A limit on what a header may announce, far above what memory will take.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 40;

/// Unit in which the receive queue is claimed, bytes: a cache line, which no two records share and no record's header
/// straddles.
pub const RECORD_ALIGN: u64 = 64;

/// NICs of an endpoint that its peers are told of, at most; and so the paths to a peer.
pub const RAILS_MAX: usize = 8;

/// Bytes of an entry in the list of them.
pub const RAIL_BYTES: usize = 24;

/// Port that tools use when none is given.
pub const DEFAULT_PORT: u16 = 7411;
