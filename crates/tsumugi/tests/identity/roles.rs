//! An endpoint in another network namespace that does what it is told.

use crate::process::{Orders, say};
use std::time::Duration;
use tsumugi::{Config, Endpoint, PeerId, ReceiveError};

const CHANNEL: u16 = 7;
/// How long a message is waited for that must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// An endpoint with these settings (`name=value`), until the test ends.
pub(crate) fn play(settings: &str) {
    let mut config = Config::default();
    for setting in settings.split_whitespace().skip(1) {
        let (name, value) = setting.split_once('=').expect("a name and a value");
        match name {
            "port" => config.port = value.parse().expect("a port"),
            "bind" => config.bind = value.parse().expect("an address"),
            "receive" => config.receive = value.parse().expect("a receive path"),
            "networks" => config.networks = Some(value.parse().expect("a list of networks")),
            "send" => config.send = value.parse().expect("a send path"),
            _ => panic!("'{name}' is no setting"),
        }
    }
    let endpoint = Endpoint::open(config).expect("an endpoint");
    let channel = endpoint.channel(CHANNEL).expect("a channel");
    let orders = Orders::listen();
    say("open");
    loop {
        let Some(order) = orders.try_next() else {
            let _ = endpoint.wait_until(Duration::from_millis(1), || None::<()>).expect("the rail works");
            continue;
        };
        let words: Vec<&str> = order.split(' ').collect();
        let peer = |at: usize| PeerId(words[at].parse().expect("a number"));
        match words[0] {
            "add" => match endpoint.add_peer(words[1]) {
                Ok(peer) => say(peer.0),
                Err(error) => say(error),
            },
            "explain" => {
                let said = endpoint.explain(peer(1)).into_iter();
                let said: Vec<String> = said.map(|(at, why)| format!("{} {why}", at.ip())).collect();
                say(said.join("; "));
            }
            "post" => match channel.post(peer(1), words[2].as_bytes()) {
                Ok(_) => say("posted"),
                Err(error) => say(error),
            },
            "hear" => match channel.receive_timeout(PATIENCE) {
                Ok(message) => say(format!("{} {}", message.source().0, String::from_utf8_lossy(&message))),
                Err(ReceiveError::Peer(failure)) => say(format!("failed: {failure}")),
                Err(error) => say(format!("failed: {error}")),
            },
            // Nothing must come for so many milliseconds.
            "quiet" => {
                let ms = words[1].parse().expect("milliseconds");
                match channel.receive_timeout(Duration::from_millis(ms)) {
                    Err(ReceiveError::TimedOut(_)) => say("quiet"),
                    Ok(message) => say(format!("a message of {} bytes", message.len())),
                    Err(error) => say(error),
                }
            }
            "address" => say(endpoint.address().ip()),
            "uses" => say(endpoint.report()),
            "datagram" => say(endpoint.paths(peer(1))[0].datagram_bytes),
            "canonical" => say(endpoint.canonical(peer(1)).0),
            "paths" => {
                let paths = endpoint.paths(peer(1));
                let usable = paths.iter().filter(|path| path.is_usable);
                let mut addresses: Vec<String> = usable.map(|path| path.address.ip().to_string()).collect();
                addresses.sort();
                say(addresses.join(" "));
            }
            "peers" => say(endpoint.peers()),
            "lost" => say(endpoint.counters().get("peers_lost")),
            other => panic!("'{other}' is no order"),
        }
    }
}
