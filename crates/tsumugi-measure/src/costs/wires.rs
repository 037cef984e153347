//! The lab that costs are measured in: two nodes, joined by one veth pair for each thing that can become of a frame.

use std::net::{IpAddr, SocketAddr};

use tsumugi_lab::{Lab, LabGuard, Spec, find_tool};
use tsumugi_rail::nics::index_of;
use tsumugi_rail::xdp::{self, Attached, Discard, Mode, Pins, PoolOptions};

use super::CostsError;
use super::bare::{Link, PORT};
use tsumugi_lab::interrupt::interrupted;

/// How the lab is called: `costs-PID-NUMBER`.
pub(super) const LAB_STEM: &str = "costs";
/// Largest IP packet of NICs that take what is sent.
pub(super) const MTU_BYTES: u32 = 1500;
/// Of those that refuse it: the smallest of IPv4. ARP still passes.
const REFUSING_MTU_BYTES: &str = "68";
/// Endpoints that a node needs: one for each send path.
const ENDPOINTS: u16 = 4;

/// A pair of NICs, by what becomes of a frame at the far one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// The XDP receive path takes it.
    Deposits = 0,
    /// A program drops it at once.
    Drops = 1,
    /// It is longer than the far NIC takes, which is found out behind everything that the near NIC's driver does.
    Refuses = 2,
    /// As [`Wire::Drops`]; another, because an AF_XDP socket has a queue of a NIC to itself.
    DropsToo = 3,
    /// No program is attached on either side.
    Plain = 4,
}

impl Wire {
    /// How many there are.
    pub(super) const COUNT: u32 = Wire::ALL.len() as u32;
    const ALL: [Wire; 5] = [Wire::Deposits, Wire::Drops, Wire::Refuses, Wire::DropsToo, Wire::Plain];

    fn nic(self) -> String {
        format!("nic{}", self as u32)
    }
}

/// Makes a lab with so many NICs per node; it goes when this is dropped.
pub(super) fn lab(nics: u32) -> Result<LabGuard, CostsError> {
    let spec = Spec { nics, mtu: MTU_BYTES, ..Spec::unique(LAB_STEM) };
    match Lab::up_watched(&spec, &mut |_| !interrupted()) {
        Ok(lab) => Ok(lab.guarded()),
        Err(_) if interrupted() => Err(CostsError::Interrupted),
        Err(error) => Err(error.into()),
    }
}

/// What a thread has of the node that it is in.
pub(super) struct Side {
    node: usize,
    addresses: [[IpAddr; Wire::ALL.len()]; 2],
    deposits: Attached,
    discards: Vec<Discard>,
}

impl Side {
    /// Moves this thread into a node and attaches programs to its NICs. Node 0 sends, node 1 takes what is sent.
    pub(super) fn enter(lab: &Lab, node: usize) -> Result<Side, CostsError> {
        lab.enter(node)?;
        // Both ends of each wire have a program, or neither: the kernel treats a NIC differently that has one.
        let dropping: &[Wire] = if node == 1 { &[Wire::Drops, Wire::DropsToo] } else { &[] };
        let up = Wire::ALL.into_iter().filter(|wire| *wire != Wire::Plain && !dropping.contains(wire));
        let nics: Vec<String> = up.map(Wire::nic).collect();
        let options =
            PoolOptions { endpoints: ENDPOINTS, mode: Some(Mode::Native), ..PoolOptions::default() };
        let attached = xdp::up(&Pins::here()?, &nics, &options)?;
        let deposits = attached.into_iter().find(|attached| attached.nic == Some(Wire::Deposits.nic()));
        let deposits = deposits.ok_or(CostsError::Lost("the XDP receive path is not attached"))?;
        let discard = |wire: &Wire| {
            let discard = Discard::attach(index(*wire)?, Mode::Native);
            discard.map_err(CostsError::failed("having packets dropped"))
        };
        let discards = dropping.iter().map(discard).collect::<Result<_, CostsError>>()?;
        if node == 1 {
            refuse(lab)?;
        }
        let of = |node: usize| Wire::ALL.map(|wire| lab.nodes()[node].nics[wire as usize].address.into());
        Ok(Side { node, addresses: [of(0), of(1)], deposits, discards })
    }

    /// This node's address on a wire.
    pub(super) fn address(&self, wire: Wire) -> IpAddr {
        self.addresses[self.node][wire as usize]
    }

    /// The other node's.
    pub(super) fn address_there(&self, wire: Wire) -> IpAddr {
        self.addresses[1 - self.node][wire as usize]
    }

    /// The link over a wire.
    pub(super) fn link(&self, wire: Wire) -> Result<Link, CostsError> {
        let on = |address| SocketAddr::new(address, PORT);
        Ok(Link {
            nic: index(wire)?,
            mtu_bytes: MTU_BYTES as usize,
            here: on(self.address(wire)),
            there: on(self.address_there(wire)),
        })
    }

    /// Runs of the XDP program here.
    pub(super) fn deposits(&self) -> Result<xdp::Runs, CostsError> {
        Ok(self.deposits.runs()?)
    }

    /// Runs of the program that drops, at the far end of [`Wire::Drops`].
    pub(super) fn drops(&self) -> Result<xdp::Runs, CostsError> {
        let discard = self.discards.first().ok_or(CostsError::Lost("nothing drops here"))?;
        Ok(discard.runs()?)
    }
}

/// Index of a NIC in this thread's network namespace.
fn index(wire: Wire) -> Result<u32, CostsError> {
    index_of(wire.nic().as_str()).ok_or(CostsError::Lost("the lab's NIC is not there"))
}

/// Has node 1's end of [`Wire::Refuses`] refuse what is longer than its MTU (`is_skb_forwardable`, net/core/dev.c).
fn refuse(lab: &Lab) -> Result<(), CostsError> {
    let ip = find_tool("ip").ok_or(CostsError::Lost("there is no `ip`: install iproute2"))?;
    let mut command = lab.command(1, ip)?;
    command.args(["link", "set", "dev", &Wire::Refuses.nic(), "mtu", REFUSING_MTU_BYTES]);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(CostsError::Lost("the kernel did not set a NIC's MTU")),
        Err(error) => Err(CostsError::failed("running ip")(error)),
    }
}
