//! The same bytes through bare sockets that spin.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::Instant;

use rustix::net::sockopt;
use tsumugi_rail::copy::Staging;
use tsumugi_rail::set_option;

use super::super::CostsError;
use super::PATIENCE;

/// Bytes of buffers in the kernel: more than one message, with all that the kernel counts beside it.
const BUFFER_BYTES: usize = 4 << 20;
/// Looks between two looks at the clock.
const LOOKS: u32 = 4096;
/// IPv4's and UDP's headers, bytes.
const HEADERS_BYTES: usize = 28;
/// The longest UDP payload over IPv4, bytes.
const DATAGRAM_BYTES_MAX: usize = 65_507;

/// A socket to the other side.
pub(super) enum Bare {
    /// Bytes that leave with one call, and the socket.
    Udp(usize, UdpSocket),
    Tcp(TcpStream),
}

impl Bare {
    /// Has the kernel cut what this socket sends into packets for the NIC, and put together what arrives.
    pub(super) fn udp(socket: UdpSocket, mtu_bytes: usize) -> Result<Bare, CostsError> {
        let segment = mtu_bytes - HEADERS_BYTES;
        let failed = || CostsError::failed("setting a UDP socket up");
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES);
        let _ = sockopt::set_socket_send_buffer_size_force(&socket, BUFFER_BYTES);
        set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, segment as i32).map_err(failed())?;
        set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).map_err(failed())?;
        Ok(Bare::Udp(DATAGRAM_BYTES_MAX / segment * segment, socket))
    }

    pub(super) fn tcp(stream: TcpStream) -> Result<Bare, CostsError> {
        let failed = || CostsError::failed("setting a TCP socket up");
        stream.set_nodelay(true).map_err(failed())?;
        stream.set_nonblocking(true).map_err(failed())?;
        Ok(Bare::Tcp(stream))
    }

    /// Times of so many round trips, ns.
    pub(super) fn ask(&mut self, message: &mut Staging, count: usize) -> Result<Vec<u64>, CostsError> {
        let mut times = Vec::with_capacity(count);
        let mut before = Instant::now();
        for _ in 0..count {
            self.send(message)?;
            self.receive(message)?;
            let after = Instant::now();
            times.push((after - before).as_nanos() as u64);
            before = after;
        }
        Ok(times)
    }

    /// Answers so many times.
    pub(super) fn answer(&mut self, message: &mut Staging, count: usize) -> Result<(), CostsError> {
        for _ in 0..count {
            self.receive(message)?;
            self.send(message)?;
        }
        Ok(())
    }

    fn send(&mut self, message: &[u8]) -> Result<(), CostsError> {
        all(message.len(), |at| match self {
            Bare::Udp(burst, socket) => socket.send(&message[at..message.len().min(at + *burst)]),
            Bare::Tcp(stream) => stream.write(&message[at..]),
        })
    }

    fn receive(&mut self, message: &mut [u8]) -> Result<(), CostsError> {
        all(message.len(), |at| match self {
            Bare::Udp(_, socket) => socket.recv(&mut message[at..]),
            Bare::Tcp(stream) => stream.read(&mut message[at..]),
        })
    }
}

/// Moves so many bytes, from where the last call left off, spinning.
fn all(bytes: usize, mut step: impl FnMut(usize) -> std::io::Result<usize>) -> Result<(), CostsError> {
    let start = Instant::now();
    let (mut at, mut look) = (0, 0_u32);
    while at < bytes {
        match step(at) {
            Ok(0) => return Err(CostsError::Gone),
            Ok(moved) => at += moved,
            Err(error) if error.kind() == ErrorKind::WouldBlock => look = look.wrapping_add(1),
            Err(error) => return Err(CostsError::failed("talking through a bare socket")(error)),
        }
        if look % LOOKS == LOOKS - 1 && start.elapsed() > PATIENCE {
            return Err(CostsError::Lost("an answer through a bare socket is lost"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn every_byte_comes_back_through_either() {
        let bind = || UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let (near, far) = (bind(), bind());
        for (one, other) in [(&near, &far), (&far, &near)] {
            one.connect(other.local_addr().expect("an address")).expect("connect");
            one.set_nonblocking(true).expect("a socket");
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).expect("connect");
        let (accepted, _) = listener.accept().expect("accept");
        let pairs = [
            [near, far].map(|socket| Bare::udp(socket, 1500).expect("set up")),
            [stream, accepted].map(|stream| Bare::tcp(stream).expect("set up")),
        ];
        for [mut here, mut there] in pairs {
            let bytes = 64 << 10;
            let answering = std::thread::spawn(move || there.answer(&mut Staging::new(bytes, 1), 20));
            let mut message = Staging::new(bytes, 2);
            let times = here.ask(&mut message, 20).expect("twenty answers");
            answering.join().expect("no panic").expect("twenty questions");
            assert_eq!(times.len(), 20);
            assert!(message.iter().all(|byte| *byte == 2));
        }
    }
}
