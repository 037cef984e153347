//! Opening the rail: its main socket, and what it does without.

use super::asked::Asked;
use super::polling::Polling;
use super::send::Sender;
use super::sockets::{MAIN, Sockets, socket};
use super::{BUFFER_BYTES, Udp, UdpCounters, UdpError, UdpOptions, mtu};
use crate::copy::Staging;
use crate::given_up::GivenUp;
use crate::liveness::Errors;
use crate::nics;
use crate::port::when_free;
use crate::sys::{self, Epoll};
use rustix::io::Errno;
use rustix::net::{self, sockopt};
use std::net::UdpSocket;
use std::os::fd::AsFd;

impl Udp {
    /// As [`Udp::open`], and waits [for a moment](crate::port) for a port that is taken.
    ///
    /// # Errors
    /// See [`UdpError`]; each says what to do.
    pub fn open_when_free(options: &UdpOptions) -> Result<Udp, UdpError> {
        when_free(|| Udp::open(options), |error| matches!(error, UdpError::PortTaken(_)))
    }

    /// Opens the rail.
    ///
    /// # Errors
    /// See [`UdpError`]; each says what to do.
    pub fn open(options: &UdpOptions) -> Result<Udp, UdpError> {
        let address = nics::to_bind(options.address, options.port);
        let mut given_up = Vec::new();
        let datagram_bytes = mtu::datagram_bytes(address, options.datagram_bytes, &mut given_up)?;
        let system = |doing| move |source| UdpError::System { doing, on: address.to_string(), source };

        // No SO_REUSEADDR here: with it, a second process could bind the same port and take our datagrams.
        let main = socket(address, options).map_err(system("making a UDP socket"))?;
        net::bind(&*main, &address).map_err(|error| match error {
            Errno::ADDRINUSE => UdpError::PortTaken(address),
            Errno::ADDRNOTAVAIL => UdpError::NoSuchAddress(address.ip()),
            Errno::ACCESS => UdpError::PortForbidden(address),
            _ => system("binding a UDP socket")(error.into()),
        })?;
        let address = main.local_addr().map_err(system("asking for the port"))?;
        if address.ip().is_unspecified() {
            // Where that is forbidden, answers leave from the address that the kernel prefers.
            let _ = sys::tell_local(main.as_fd(), address.ip());
        }
        let probe = sys::udp_socket(address).map_err(system("making a UDP socket"))?;
        let epoll = Epoll::new().and_then(|epoll| epoll.add(main.as_fd(), MAIN as u64).map(|()| epoll));
        let epoll = epoll.map_err(|error| {
            let remedy = "allow this program epoll_create1(2) and epoll_ctl(2)";
            given_up.push(GivenUp::of(
                "a socket for each peer",
                &format!("asking for epoll: {error}"),
                remedy,
            ));
        });
        let sender = Sender::new(probe.as_fd(), options.offloads);
        lacking(&main, &sender, options, &mut given_up);
        Ok(Udp {
            address,
            datagram_bytes,
            sockets: Sockets::new(address, options.clone(), main),
            polling: Polling::new(epoll.ok()),
            buffer: Staging::new(BUFFER_BYTES, 0),
            sender,
            asked: Asked::default(),
            errors: Errors::default(),
            too_long: Vec::new(),
            counters: UdpCounters::default(),
            given_up,
        })
    }
}

/// Says what of the sockets' options the kernel did not take.
fn lacking(main: &UdpSocket, sender: &Sender, options: &UdpOptions, given_up: &mut Vec<GivenUp>) {
    const OFFLOADS: &str = "run Linux 5.0 or later, without a sandbox that forbids it";
    let mut lacks =
        |what, why: &dyn std::fmt::Display, remedy: &str| given_up.push(GivenUp::of(what, why, remedy));
    if options.offloads {
        if let Some(error) = sender.refused() {
            lacks("UDP GSO", &format!("the kernel refuses UDP_SEGMENT: {error}"), OFFLOADS);
        }
        if let Err(error) = sys::set_option(main.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1) {
            lacks("UDP GRO", &format!("the kernel refuses UDP_GRO: {error}"), OFFLOADS);
        }
    }
    let (receive, send) = (sockopt::socket_recv_buffer_size(main), sockopt::socket_send_buffer_size(main));
    for (bytes, what, setting) in [(receive, "receive", "rmem_max"), (send, "send", "wmem_max")] {
        // The kernel doubles what it is asked for, for its own needs.
        let bytes = bytes.map_or(0, |bytes| bytes as u32 / 2);
        if bytes < options.queue_bytes {
            let why = format!("the {what} buffer has {} KiB of {}", bytes >> 10, options.queue_bytes >> 10);
            let remedy = format!("sysctl -w net.core.{setting}={}, or CAP_NET_ADMIN", options.queue_bytes);
            lacks("long socket queues", &why, &remedy);
        }
    }
}
