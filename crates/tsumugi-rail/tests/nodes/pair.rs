//! A send path between two nodes.

use super::{Nodes, eventually, four, six};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use tsumugi_rail::{Packet, SendPath};
use tsumugi_wire::Instant;
use tsumugi_wire::time::MILLISECOND_NS;

/// Between calls: enough for news to be looked for, but not for answers to be doubted without them.
const STEP_NS: u64 = 10 * MILLISECOND_NS;

/// A send path in node 0, the socket beside it, and a peer's ordinary socket in node 1.
pub(crate) struct Pair<'a, S> {
    pub(crate) nodes: &'a Nodes,
    pub(crate) send_path: S,
    pub(crate) beside: UdpSocket,
    pub(crate) peer: UdpSocket,
    pub(crate) to: SocketAddr,
    pub(crate) now: Instant,
}

impl<S: SendPath> Pair<'_, S> {
    /// `wildcard`: the send path, which `open` makes in node 0, is not told its own address.
    pub(crate) fn open(
        nodes: &Nodes,
        ipv4: bool,
        wildcard: bool,
        open: impl FnOnce(SocketAddr) -> S + Send,
    ) -> Pair<'_, S>
    where
        S: Send,
    {
        let at = |node| if ipv4 { four(node, 0) } else { six(node, 0) };
        let beside = nodes.inside(0, || UdpSocket::bind(at(0))).unwrap();
        let peer = nodes.inside(1, || UdpSocket::bind(at(1))).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        set_socket_recv_buffer_size_force(&peer, 8 << 20).unwrap(); // every burst fits
        let mut local = beside.local_addr().unwrap();
        if wildcard {
            local.set_ip(if ipv4 { "0.0.0.0" } else { "::" }.parse().unwrap());
        }
        let mut send_path = nodes.inside(0, || open(local));
        let to = peer.local_addr().unwrap();
        send_path.connect(to, None);
        Pair { nodes, send_path, beside, peer, to, now: Instant(0) }
    }

    /// Sends as a rail would: through the send path or, where that leaves it, through the socket.
    /// Returns how many packets the send path took.
    pub(crate) fn send(&mut self, burst: &[Packet<'_>]) -> Option<usize> {
        self.now = self.now.plus(STEP_NS);
        let taken = self.send_path.send(self.now, self.to, burst).unwrap();
        if taken.is_none() {
            for Packet { head, body } in burst {
                // Whether it gets through does not matter: it makes the kernel look for the peer.
                let _ = self.beside.send_to(&[*head, *body].concat(), self.to);
            }
        }
        taken
    }

    /// Sends and receives until a packet that the send path took has arrived.
    pub(crate) fn reach(&mut self) {
        let mut number = 0u32;
        self.peer.set_nonblocking(true).unwrap();
        let mut taken_by_send_path = Vec::new();
        eventually("a packet through the send path", || {
            number += 1;
            let body = number.to_be_bytes();
            if self.send(&[Packet { head: b"reach", body: &body }]) == Some(1) {
                taken_by_send_path.push(number);
            }
            let mut buffer = [0; 100];
            while let Ok((bytes, from)) = self.peer.recv_from(&mut buffer) {
                assert_eq!(from, self.beside.local_addr().unwrap());
                let number = buffer[..bytes].strip_prefix(b"reach").expect("one of ours");
                if taken_by_send_path.iter().any(|sent| sent.to_be_bytes() == number) {
                    return Some(());
                }
            }
            None
        });
        self.drain();
        self.peer.set_nonblocking(false).unwrap();
    }

    /// Takes a datagram that is not a straggler of [`Pair::reach`], in which the socket had its part.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> (usize, SocketAddr) {
        loop {
            let (bytes, from) = self.peer.recv_from(buffer).unwrap();
            if !buffer[..bytes].starts_with(b"reach") {
                return (bytes, from);
            }
        }
    }

    /// Takes what else has arrived out of the peer's socket.
    pub(crate) fn drain(&self) {
        self.peer.set_nonblocking(true).unwrap();
        while self.peer.recv(&mut [0; 100]).is_ok() {}
        self.peer.set_nonblocking(false).unwrap();
    }

    /// Sends packets of these sizes through the send path, and fails unless all arrive whole and in order from
    /// the right address.
    pub(crate) fn pass(&mut self, sizes: &[usize]) {
        let bodies = bodies(sizes);
        assert_eq!(self.send(&packets(&bodies)), Some(sizes.len()));
        self.expect(&bodies);
    }

    /// Fails unless these datagrams arrive next, and nothing else.
    pub(crate) fn expect(&self, bodies: &[Vec<u8>]) {
        let mut buffer = vec![0; 70_000];
        for body in bodies {
            let (bytes, from) = self.receive(&mut buffer);
            assert_eq!(from, self.beside.local_addr().unwrap());
            assert_eq!(buffer[..bytes], body[..], "{} bytes", body.len());
        }
        self.peer.set_nonblocking(true).unwrap();
        let more = self.peer.recv(&mut buffer).map_err(|error| error.kind());
        assert_eq!(more, Err(ErrorKind::WouldBlock), "nothing else");
        self.peer.set_nonblocking(false).unwrap();
    }
}

/// As many packets as `sizes`, no two alike.
pub(crate) fn bodies(sizes: &[usize]) -> Vec<Vec<u8>> {
    let body = |(n, size): (usize, &usize)| (0..*size).map(|at| (n * 7 + at * 13) as u8).collect();
    sizes.iter().enumerate().map(body).collect()
}

/// The same in two pieces each.
pub(crate) fn packets(bodies: &[Vec<u8>]) -> Vec<Packet<'_>> {
    let cut = |body: &[u8]| body.len() / 3;
    bodies.iter().map(|body| Packet { head: &body[..cut(body)], body: &body[cut(body)..] }).collect()
}
