//! What users set: the same `FI_TSUMUGI_*` as for the libfabric provider, so that both use the same NICs.

use crate::say;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;
use tsumugi::{Config, Networks};

/// What is set in the environment, if it means something.
fn read<T: FromStr<Err: Display>>(name: &str) -> Option<T> {
    let name = format!("FI_TSUMUGI_{name}");
    let text = std::env::var(&name).ok()?;
    match text.trim().parse() {
        Ok(value) => Some(value),
        Err(error) => {
            say::warn(format_args!("{name}={text} is not used: {error}"));
            None
        }
    }
}

fn seconds(name: &str) -> Option<Duration> {
    read(name).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

/// What an endpoint is opened with that has so many peers at most.
pub(crate) fn config(peers_max: u32) -> Config {
    fn set<T>(field: &mut T, value: Option<T>) {
        if let Some(value) = value {
            *field = value;
        }
    }
    let mut config = Config::default();
    config.peers_max = config.peers_max.max(peers_max);
    config.faults = read("FAULTS");
    config.datagram_bytes = read("DATAGRAM_BYTES");
    config.networks = read("NETWORKS");
    set(&mut config.job, read("JOB"));
    set(&mut config.wait, read("WAIT"));
    set(&mut config.integrity, read("INTEGRITY"));
    set(&mut config.send, read("SEND_PATH"));
    set(&mut config.receive, read("RECEIVE_PATH"));
    set(&mut config.policy, read("POLICY").map(Some));
    set(&mut config.peer_timeout, seconds("PEER_TIMEOUT"));
    set(&mut config.connect_timeout, seconds("CONNECT_TIMEOUT"));
    if let Some(linger) = seconds("CLOSE_TIMEOUT") {
        (config.linger, config.flush_timeout) = (linger, linger);
    }
    config
}

/// Which NICs and networks may be used.
pub(crate) fn networks(config: &Config) -> Networks {
    config.networks.clone().unwrap_or_else(|| Networks::from_environment().unwrap_or_default())
}

/// Whether a switch box is looked for: not with `TSUMUGI_COLLECTIVES_BOX=off`, to compare.
pub(crate) fn may_use_box() -> bool {
    std::env::var("TSUMUGI_COLLECTIVES_BOX").map_or(true, |said| said.trim() != "off")
}
