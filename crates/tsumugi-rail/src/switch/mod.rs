//! The switch box: an Ethernet switch in XDP or tc.
//!
//! Its ports are ports of an ordinary Linux bridge, or of several, each with the program `bpf/switch.bpf.c`. The program sends on
//! what is frequent and leaves the rest to the bridge: what it does not take passes as if it were not there, and nothing is
//! lost when it goes. [`up`] makes the bridge, or takes one that is there.
//!
//! All ports have the program at the same [`Hook`]. XDP in the driver is for real NICs. A virtual one has no buffers of its own:
//! each frame that XDP is to see is copied, in the driver or behind it, so there the program is at tc's ingress.
//!
//! XDP must leave alone what lies in several buffers: see `is_scattered()` of `bpf/receive/answer.h`.

mod attach;
mod changes;
mod error;
pub mod groups;
mod hook;
mod limits;
mod port;
mod program;
mod settings;
mod status;
mod up;

pub use error::SwitchError;
pub use hook::Hook;
pub use limits::{NETWORKS_MAX, PLACES_MAX, PORTS_MAX};
pub use port::Attachment;
pub use program::{
    Counts, Forwarder, IDLE_S, LONG_S, Outcome, Place, PortEntry, Rules, SHOW_MAX_S, SHOW_S, place_key,
};
pub use settings::LostOnTheWay;
pub use status::{BridgeStatus, CountedGroup, Port, Seen, Status, status};
pub use up::{BRIDGE, Options, down, up};

use crate::xdp::pins::{entries, make_folder, remove};
use crate::xdp::{Pins, XdpError};
use changes::Changes;
use std::path::PathBuf;

/// What `up` has changed of this host.
fn changes(pins: &Pins) -> Changes {
    Changes::in_folder(pins.folder().join("changed"))
}

/// Where the rules of a box are on record.
fn rules_folder(pins: &Pins) -> PathBuf {
    pins.folder().join("rules")
}

/// The rules of the box that is there.
fn rules(pins: &Pins) -> Result<Option<Rules>, XdpError> {
    let parse = |path: PathBuf| {
        let (ageing_s, floods_per_s) = path.file_name()?.to_str()?.split_once('-')?;
        let (ageing_s, floods_per_s) = (ageing_s.parse().ok()?, floods_per_s.parse().ok()?);
        Some(Rules { ageing_s, floods_per_s, ..Rules::default() })
    };
    Ok(entries(&rules_folder(pins))?.into_iter().find_map(parse))
}

/// Puts those of a box's rules on record that were chosen.
fn note_rules(pins: &Pins, Rules { ageing_s, floods_per_s, .. }: Rules) -> Result<(), XdpError> {
    forget_rules(pins)?;
    make_folder(&rules_folder(pins).join(format!("{ageing_s}-{floods_per_s}")))
}

fn forget_rules(pins: &Pins) -> Result<(), XdpError> {
    let folder = rules_folder(pins);
    entries(&folder)?.into_iter().try_for_each(|former| remove(&former))?;
    remove(&folder)
}
