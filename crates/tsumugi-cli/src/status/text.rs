//! Endpoints of processes as text, in the manner of `ss -ti`: a line for each, and below it what belongs to it.

use super::processes::View;
use super::rates::{PeerRates, Rates, verdicts};
use super::units::{bytes, count, time};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use tsumugi::PathReport;
use tsumugi::snapshot::PeerSnapshot;

/// Peers and paths that are shown of an endpoint.
const PEERS_MAX: usize = 16;

/// The text for all of them.
pub(crate) fn processes(views: &[View]) -> String {
    let mut text = String::new();
    for view in views {
        process(&mut text, view);
        let rates = view.rates.as_ref().map_or(&[][..], |rates| &rates.peers);
        for peer in view.endpoint.peers.iter().take(PEERS_MAX) {
            show_peer(&mut text, peer, rates.iter().find(|rates| rates.number == peer.number));
        }
        let further = (view.endpoint.peers_known as usize).saturating_sub(PEERS_MAX);
        if further > 0 {
            _ = writeln!(text, "    {further} further peers, with less traffic");
        }
    }
    text
}

fn process(text: &mut String, view: &View) {
    let (endpoint, report) = (&view.endpoint, &view.endpoint.report);
    let elsewhere = if view.is_in_our_network_namespace { "" } else { ", in another network namespace" };
    _ = writeln!(
        text,
        "{} {}: port {}, receive path {}, send paths {}, wait {}, {}{elsewhere}",
        view.pid,
        clipped(&view.command, 60),
        view.port(),
        report.receive_path,
        report.send_paths.join(" "),
        endpoint.wait,
        view.doing.word(),
    );
    _ = writeln!(text, "    limit: {}", view.limit);
    let counter = |name: &str| endpoint.counters.get(name).copied().unwrap_or(0) as f64;
    _ = writeln!(
        text,
        "    sent {} in {} messages and {} packets; received {} in {} messages",
        bytes(counter("bytes_sent")),
        count(counter("messages_sent")),
        count(counter("packets_sent")),
        bytes(counter("bytes_received")),
        count(counter("messages_received")),
    );
    if let Some(Rates { seconds, bytes_sent, bytes_received, messages_sent, messages_received, .. }) =
        view.rates.as_ref().filter(|rates| rates.seconds > 0.0)
    {
        _ = writeln!(
            text,
            "    now: {}/s and {} messages/s out, {}/s and {} messages/s in, over {seconds:.1} s{}",
            bytes(*bytes_sent),
            count(*messages_sent),
            bytes(*bytes_received),
            count(*messages_received),
            view.cpus.map_or(String::new(), |cpus| format!(", {cpus:.2} CPUs")),
        );
    }
    list(text, "sent again", endpoint.resent.iter().map(|(name, value)| (name.as_str(), *value)));
    list(text, "receive path", verdicts(&endpoint.counters));
    for nic in &endpoint.nics {
        _ = writeln!(
            text,
            "    through {}: {} packets delivered, {} lost, {} paths, {} silent",
            nic.ip, nic.delivered, nic.lost, nic.paths, nic.silent
        );
    }
}

/// One line of what is not 0; none if all is.
fn list<'n>(text: &mut String, what: &str, counts: impl Iterator<Item = (&'n str, u64)>) {
    let shown: Vec<String> =
        counts.filter(|(_, value)| *value > 0).map(|(name, value)| format!("{name} {value}")).collect();
    if !shown.is_empty() {
        _ = writeln!(text, "    {what}: {}", shown.join(", "));
    }
}

fn show_peer(text: &mut String, peer: &PeerSnapshot, rates: Option<&PeerRates>) {
    let name = if peer.name == peer.address.to_string() { String::new() } else { format!("{} ", peer.name) };
    _ = writeln!(
        text,
        "    peer {} {name}{} {}: sent {}, received {}; {} wait, {} packets under way, credit for {}",
        peer.number,
        peer.address,
        peer.state,
        bytes(peer.bytes_sent as f64),
        bytes(peer.bytes_received as f64),
        bytes(peer.waiting_bytes as f64),
        peer.outstanding,
        peer.credit,
    );
    if let Some(rates) = rates.filter(|rates| rates.bytes_sent + rates.bytes_received > 0.0) {
        _ = writeln!(
            text,
            "        now: {}/s out, {}/s in, {} packets/s again",
            bytes(rates.bytes_sent),
            bytes(rates.bytes_received),
            count(rates.resent)
        );
    }
    let held = in_words(&peer.held_ns);
    if !held.is_empty() {
        _ = writeln!(text, "        messages waited for: {held}");
    }
    list_paths(text, &peer.paths);
}

fn in_words(held_ns: &BTreeMap<String, u64>) -> String {
    let held = held_ns.iter().filter(|(_, ns)| **ns > 0);
    held.map(|(by, ns)| format!("{by} {}", time(*ns))).collect::<Vec<_>>().join(", ")
}

fn list_paths(text: &mut String, paths: &[PathReport]) {
    for path in paths {
        let through = path.nic.map_or(String::new(), |nic| format!(" through {nic}"));
        let least = path.rtt_ns_min.map_or(String::new(), |ns| format!(", least {}", time(ns)));
        _ = writeln!(
            text,
            "        path to {}{through} {}: round trip {} ± {}{least}; window {} packets, {} under way; sent {}, {} packets \
             delivered, {} lost; datagrams of {} B",
            path.address,
            if path.is_usable { "in use" } else { "silent" },
            time(path.srtt_ns),
            time(path.rttvar_ns),
            path.cwnd_packets,
            path.in_flight,
            bytes(path.bytes_sent as f64),
            path.delivered,
            path.lost,
            path.datagram_bytes,
        );
    }
}

/// At most so many characters, with an ellipsis where it was longer.
pub(crate) fn clipped(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn an_endpoint_is_an_outline() {
        let mut view = sample::view(4711);
        view.endpoint.peers_known = 70;
        let text = processes(&[view]);
        for part in [
            "4711 /usr/bin/program --with",
            "port 7411, receive path socket",
            "limit: nothing: everything",
            "now: 977 KiB/s and 1.00 k messages/s out",
            "sent again: overtaken 6",
            "receive path: deposited 15000",
            "peer 0 n1 10.77.0.2:7411 connected: sent 3.81 MiB",
            "path to 10.77.1.2:7411 through 10.77.0.1 silent: round trip 45.3 µs",
            "54 further peers",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }
}
