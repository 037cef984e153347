//! The second packet socket: its frames go through the NIC's queueing discipline, as everybody's do, and behind that
//! the kernel cuts up what the NIC cannot (`validate_xmit_skb`, net/core/dev.c).

use crate::Packet;
use crate::ether::{Template, UDP_CHECKSUM_OFFSET};
use crate::run::SEGMENTS_MAX;
use crate::sys::{self, Own, RawAddress};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes in front of each frame: `struct virtio_net_hdr` (include/uapi/linux/virtio_net.h). All zeros: the frame is to
/// be sent as it is.
pub(super) const PREFIX_BYTES: usize = 10;
/// The checksum is to be completed (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
const COMPLETE_CHECKSUM: u8 = 1;
/// What lies behind the UDP header is to be cut up (`VIRTIO_NET_HDR_GSO_UDP_L4`, Linux 6.2).
const CUT_UDP: u8 = 5;
/// Bodies from this length on are copied by the kernel only, though it must then gather pieces. µs a run, put
/// together and in pieces, towards a NIC without offloads: 44 × 1,472 B 27.6 and 27.4 out of a cache, 31.8 and 35.8 out
/// of memory; 7 × 8,972 B 11.0 and 9.6, 15.0 and 16.0. What is sent is in the cache: its checksum was just computed.
const PIECE_BYTES_MIN: usize = 4096;

/// The socket, and what is known about it.
#[derive(Debug)]
pub(super) struct Queue {
    socket: Own<OwnedFd>,
    /// Whether something was sent since the kernel last had nothing of ours.
    used: bool,
    /// NICs that take no runs, by index.
    refusing: Vec<u32>,
}

impl Queue {
    /// Takes `socket`, a new one.
    pub(super) fn new(socket: Own<OwnedFd>) -> io::Result<Queue> {
        sys::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        Ok(Queue { socket, used: false, refusing: Vec::new() })
    }

    /// Whether runs may be tried on this NIC.
    pub(super) fn takes_runs(&self, interface: u32) -> bool {
        !self.refusing.contains(&interface)
    }

    /// Says that this NIC takes no runs.
    pub(super) fn give_up(&mut self, interface: u32) {
        self.refusing.push(interface);
    }

    /// The socket, if something of ours still waits: what is sent past the queueing discipline now would overtake it.
    pub(super) fn waiting(&mut self) -> Option<BorrowedFd<'_>> {
        // Who cannot know must wait.
        self.used = self.used && sys::has_unsent(self.socket.as_fd()).unwrap_or(true);
        self.used.then(|| self.socket.as_fd())
    }

    /// Sends a [run](crate::run) in one frame. All or nothing.
    ///
    /// Where others would complete the checksums, they are left to them; where nobody would, the kernel's copying
    /// into frames completes them.
    pub(super) fn send_run(
        &mut self,
        template: &Template,
        run: &[Packet<'_>],
        scratch: &mut [u8],
    ) -> io::Result<()> {
        let run_bytes = run.iter().map(Packet::bytes).sum();
        let (prefix, rest) = scratch.split_at_mut(PREFIX_BYTES);
        let Some(header_bytes) = template.write_uncut(run_bytes, rest) else {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        };
        prefix.copy_from_slice(&prefix_of(template, run[0].bytes()));
        let interface = RawAddress::interface(template.interface());
        let (mut end, in_pieces) = (PREFIX_BYTES + header_bytes, run[0].body.len() >= PIECE_BYTES_MIN);
        let packets = run.iter().flat_map(|packet| [packet.head, packet.body]);
        if !in_pieces {
            for bytes in packets.clone() {
                scratch[end..end + bytes.len()].copy_from_slice(bytes);
                end += bytes.len();
            }
        }
        let mut pieces = [IoSlice::new(&[]); 1 + 2 * SEGMENTS_MAX];
        let mut count = 1;
        pieces[0] = IoSlice::new(&scratch[..end]);
        if in_pieces {
            for (piece, bytes) in pieces[1..].iter_mut().zip(packets) {
                *piece = IoSlice::new(bytes);
                count += 1;
            }
        }
        sys::send_pieces(self.socket.as_fd(), Some(&interface), &pieces[..count])?;
        self.used = true;
        Ok(())
    }
}

/// What stands in front of a frame that is to be cut into packets of `packet_bytes`. The numbers are in the machine's
/// byte order (`vio_le`, net/packet/af_packet.c).
fn prefix_of(template: &Template, packet_bytes: usize) -> [u8; PREFIX_BYTES] {
    let numbers = [
        template.header_bytes(), // what the kernel keeps in one place; it takes the rest page by page
        packet_bytes,
        template.udp_offset(),
        UDP_CHECKSUM_OFFSET,
    ];
    let mut prefix = [COMPLETE_CHECKSUM, CUT_UDP, 0, 0, 0, 0, 0, 0, 0, 0];
    for (place, number) in prefix[2..].chunks_exact_mut(2).zip(numbers) {
        place.copy_from_slice(&(number as u16).to_ne_bytes());
    }
    prefix
}
