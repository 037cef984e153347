//! What endpoints without a socket and a clock are opened with.

use tsumugi::Repeat;
use tsumugi::internal::EndpointOptions;
use tsumugi_wire::time::SECOND_NS;

/// For a few small hosts; what a test is about it says itself.
pub(crate) fn options(seed: u64) -> EndpointOptions {
    EndpointOptions {
        job: 0,
        accept_unknown: true,
        peers_max: 8,
        repeat: Repeat::Selective,
        peer_timeout_ns: 5 * SECOND_NS,
        connect_timeout_ns: 5 * SECOND_NS,
        listens: false,
        integrity: tsumugi::Integrity::Crc32c,
        message_bytes_max: 1 << 20,
        receive_bytes: 1 << 20,
        send_bytes: 1 << 20,
        datagram_bytes: 1472,
        seed: Some(seed),
    }
}
