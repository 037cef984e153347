//! One `xsk` engine for each NIC that leads to a peer.

use super::{XskEngine, XskEngineError, XskError};
use crate::engine::Engine;
use crate::route::Routes;
use crate::{Packet, RailError};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tsumugi_wire::Instant;

/// Frames that may wait to be sent by a NIC: two windows of a flow.
const FRAMES: u32 = 2048;
/// Queues of a NIC that are tried, the first that is free being taken.
const QUEUES_MAX: u32 = 64;

/// `xsk` engines by NIC, opened when the first peer behind the NIC is met.
#[derive(Debug)]
pub struct XskEngines {
    local: SocketAddr,
    routes: Routes,
    /// A NIC's index, and its engine; `None`: it has no queue to give.
    by_nic: Vec<(u32, Option<XskEngine>)>,
}

impl XskEngines {
    /// Opens nothing yet, but sees whether AF_XDP sockets are permitted.
    ///
    /// # Errors
    /// They are not, or the kernel cannot be asked for routes.
    pub fn open(local: SocketAddr) -> Result<XskEngines, XskEngineError> {
        super::supported()?;
        Ok(XskEngines { local, routes: Routes::open(local)?, by_nic: Vec::new() })
    }

    /// Opens an engine on the first free queue of a NIC.
    fn engine(&self, nic: u32) -> Option<XskEngine> {
        for queue in 0..QUEUES_MAX {
            // Another queue, or another engine, will do.
            match XskEngine::open_within(self.local, nic, queue, FRAMES, Duration::ZERO) {
                Ok(engine) => return Some(engine),
                Err(XskEngineError::Socket(XskError::Busy { .. })) => {}
                Err(_) => return None,
            }
        }
        None
    }
}

impl Engine for XskEngines {
    fn name(&self) -> &'static str {
        "xsk"
    }

    fn send(
        &mut self,
        now: Instant,
        to: SocketAddr,
        burst: &[Packet<'_>],
    ) -> Result<Option<usize>, RailError> {
        for engine in self.by_nic.iter_mut().filter_map(|(_, engine)| engine.as_mut()) {
            if let Some(taken) = engine.send(now, to, burst)? {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    fn meet(&mut self, peer: SocketAddr, local: Option<IpAddr>) {
        let nic = self.routes.nic_to(peer).ok().flatten().filter(|nic| nic.ethernet);
        if let Some(nic) = nic.map(|nic| nic.interface)
            && !self.by_nic.iter().any(|(known, _)| *known == nic)
        {
            let engine = self.engine(nic);
            self.by_nic.push((nic, engine));
        }
        for engine in self.by_nic.iter_mut().filter_map(|(_, engine)| engine.as_mut()) {
            engine.meet(peer, local);
        }
    }

    fn part(&mut self, peer: SocketAddr) {
        for engine in self.by_nic.iter_mut().filter_map(|(_, engine)| engine.as_mut()) {
            engine.part(peer);
        }
    }
}
