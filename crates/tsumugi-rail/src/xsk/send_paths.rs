//! One `xsk` send path for each NIC that leads to a peer.

use super::{XskError, XskSendPath, XskSendPathError};
use crate::route::Routes;
use crate::send_path::SendPath;
use crate::{Packet, RailError};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tsumugi_wire::Instant;

/// Frames that may wait to be sent by a NIC: twice what the receive bitmap of a flow covers.
const FRAMES: u32 = 2048;
/// Queues of a NIC that are tried, the first that is free being taken.
const QUEUES_MAX: u32 = 64;

/// `xsk` send paths by NIC, opened with the first connection to a peer behind the NIC.
#[derive(Debug)]
pub struct XskSendPaths {
    local: SocketAddr,
    routes: Routes,
    /// A NIC's index, and its send path; `None`: it has no queue to give.
    by_nic: Vec<(u32, Option<XskSendPath>)>,
}

impl XskSendPaths {
    /// Opens nothing yet, but sees whether AF_XDP sockets are permitted.
    ///
    /// # Errors
    /// They are not, or the kernel cannot be asked for routes.
    pub fn open(local: SocketAddr) -> Result<XskSendPaths, XskSendPathError> {
        super::supported()?;
        Ok(XskSendPaths { local, routes: Routes::open(local)?, by_nic: Vec::new() })
    }

    /// Opens a send path on the first free queue of a NIC.
    fn send_path(&self, nic: u32) -> Option<XskSendPath> {
        for queue in 0..QUEUES_MAX {
            // Another queue, or another send path, will do.
            match XskSendPath::open_within(self.local, nic, queue, FRAMES, Duration::ZERO) {
                Ok(send_path) => return Some(send_path),
                Err(XskSendPathError::Socket(XskError::Busy { .. })) => {}
                Err(_) => return None,
            }
        }
        None
    }
}

impl SendPath for XskSendPaths {
    fn name(&self) -> &'static str {
        "xsk"
    }

    fn send(
        &mut self,
        now: Instant,
        to: SocketAddr,
        burst: &[Packet<'_>],
    ) -> Result<Option<usize>, RailError> {
        for send_path in self.by_nic.iter_mut().filter_map(|(_, send_path)| send_path.as_mut()) {
            if let Some(taken) = send_path.send(now, to, burst)? {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    fn connect(&mut self, peer: SocketAddr, local: Option<IpAddr>) {
        let nic = self.routes.nic_to(peer).ok().flatten().filter(|nic| nic.ethernet);
        if let Some(nic) = nic.map(|nic| nic.interface)
            && !self.by_nic.iter().any(|(known, _)| *known == nic)
        {
            let send_path = self.send_path(nic);
            self.by_nic.push((nic, send_path));
        }
        for send_path in self.by_nic.iter_mut().filter_map(|(_, send_path)| send_path.as_mut()) {
            send_path.connect(peer, local);
        }
    }

    fn disconnect(&mut self, peer: SocketAddr) {
        for send_path in self.by_nic.iter_mut().filter_map(|(_, send_path)| send_path.as_mut()) {
            send_path.disconnect(peer);
        }
    }
}
