//! Bonds of the kernel in a lab: what P2 measured, where the kernel has the driver.
//!
//! Both nodes bond their NICs. The receiving one must take what comes by any NIC, and its acknowledgements must come back
//! by the one NIC that balance-tlb receives by: a backup bond whose idle NICs receive all the same. Ties are made by
//! address and port, because the receivers, which P2 had on a host each, are on one.

use std::process::Command;

use tsumugi_lab::{Lab, LabError, Spec};

use super::contender::Bond;
use super::{EvalError, LAB_STEM};

/// The addresses of the bonds.
pub(super) const ADDRESSES: [&str; 2] = ["10.78.0.1", "10.78.0.2"];
/// Their name in both nodes.
const NAME: &str = "bond0";

impl Bond {
    /// What `ip` calls it, with its options.
    const fn options(self) -> &'static str {
        match self {
            Bond::RoundRobin => "mode balance-rr miimon 100",
            Bond::Tlb => "mode balance-tlb xmit_hash_policy layer3+4 miimon 100",
        }
    }
}

/// Why the kernel has no bonds; `None` when it has. Tried in a lab of its own.
pub(super) fn missing() -> Result<Option<String>, EvalError> {
    let lab = Lab::up(&Spec::unique(LAB_STEM))?.guarded();
    match ip(&lab, 0, &format!("link add {NAME} type bond")) {
        Ok(()) => Ok(None),
        Err(EvalError::Tool { said, .. }) => Ok(Some(format!("the kernel has no bonding driver ({said})"))),
        Err(error) => Err(error),
    }
}

/// Bonds the NICs of both nodes.
pub(super) fn make(lab: &Lab, bond: Bond) -> Result<(), EvalError> {
    for (node, (address, options)) in ADDRESSES
        .into_iter()
        .zip([bond.options(), "mode active-backup all_slaves_active 1 miimon 100"])
        .enumerate()
    {
        ip(lab, node, &format!("link add {NAME} type bond {options}"))?;
        for nic in &lab.nodes()[node].nics {
            ip(lab, node, &format!("addr flush dev {}", nic.name))?;
            ip(lab, node, &format!("link set {} down", nic.name))?;
            ip(lab, node, &format!("link set {} master {NAME}", nic.name))?;
        }
        if bond == Bond::Tlb || node == 1 {
            ip(lab, node, &format!("link set {NAME} type bond primary {}", lab.nodes()[node].nics[0].name))?;
        }
        ip(lab, node, &format!("link set {NAME} up"))?;
        ip(lab, node, &format!("addr add {address}/24 dev {NAME}"))?;
    }
    Ok(())
}

/// Runs `ip` in a node.
fn ip(lab: &Lab, node: usize, arguments: &str) -> Result<(), EvalError> {
    let failed = |said: String| EvalError::Tool { command: format!("ip {arguments}"), said };
    let program =
        tsumugi_lab::find_tool("ip").ok_or_else(|| failed("not found; install iproute2".to_owned()))?;
    let mut command: Command = lab.command(node, program).map_err(|error: LabError| EvalError::Lab(error))?;
    let output = command.args(arguments.split(' ')).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
