//! Endpoints of processes in Prometheus' text format, as its node exporter reads it from a file.

use super::processes::View;
use std::fmt::Write as _;
use tsumugi::PathReport;
use tsumugi::snapshot::PeerSnapshot;

/// A metric's name without prefix, its kind, and what it says.
type Named = (&'static str, &'static str, &'static str);

const DOING: Named = ("endpoint_doing", "gauge", "1 for what the program that has the endpoint is doing");
const AGE: Named = ("endpoint_age_seconds", "gauge", "Time since the endpoint has shown what it does");
const IDLE: Named = ("idle_seconds_total", "counter", "Time in calls that found nothing");
const COUNTED: Named = ("counted_total", "counter", "What the endpoint has counted, by name");
const RESENT: Named = ("packets_resent_total", "counter", "Packets sent again, by cause");
const QUEUE: Named = ("receive_queue_bytes", "gauge", "Bytes of the receive queue that are in use");
const HELD: Named = ("receive_held_bytes", "gauge", "Bytes of messages outside the receive queue");
const PEERS: Named = ("peers", "gauge", "Peers that are known");
const PEER_SENT: Named = ("peer_bytes_sent_total", "counter", "Bytes of packets sent to a peer");
const PEER_RECEIVED: Named =
    ("peer_bytes_received_total", "counter", "Bytes of packets received from a peer");
const WAITING: Named = ("peer_waiting_bytes", "gauge", "Bytes of messages that wait to be sent to a peer");
const WAITED: Named =
    ("peer_held_seconds_total", "counter", "Time for which messages to a peer have waited, by what for");
const PATH_SENT: Named = ("path_bytes_sent_total", "counter", "Bytes of packets sent over a path");
const DELIVERED: Named = ("path_packets_delivered_total", "counter", "Packets that a path has delivered");
const LOST: Named = ("path_packets_lost_total", "counter", "Packets found lost on a path");
const RTT: Named = ("path_round_trip_seconds", "gauge", "Smoothed round trip of a path");
const CWND: Named = ("path_window_packets", "gauge", "Packets that may be under way over a path");
const USABLE: Named = ("path_usable", "gauge", "1 for a path that is in use, 0 for one that is silent");

/// The text: every metric with what it says, once, and a line for each value.
pub(crate) fn metrics(views: &[View]) -> String {
    let mut text = String::new();
    let mut metric = |name: Named, samples: &mut dyn Iterator<Item = Sample>| {
        let (name, kind, help) = name;
        _ = writeln!(text, "# HELP tsumugi_{name} {help}.\n# TYPE tsumugi_{name} {kind}");
        for Sample { labels, value } in samples {
            let labels: Vec<String> =
                labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
            _ = writeln!(text, "tsumugi_{name}{{{}}} {value}", labels.join(","));
        }
    };
    let each = |of: fn(&View) -> f64| views.iter().map(move |view| Sample::of(view, of(view)));
    metric(DOING, &mut views.iter().map(|view| Sample::of(view, 1.0).with("doing", view.doing.word())));
    metric(AGE, &mut each(|view| view.age_s));
    metric(IDLE, &mut each(|view| view.endpoint.idle_ns as f64 / 1e9));
    metric(COUNTED, &mut named(views, "name", |view| &view.endpoint.counters));
    metric(RESENT, &mut named(views, "cause", |view| &view.endpoint.resent));
    metric(QUEUE, &mut each(|view| view.endpoint.receive.queue_used_bytes as f64));
    metric(HELD, &mut each(|view| view.endpoint.receive.held_bytes as f64));
    metric(PEERS, &mut each(|view| f64::from(view.endpoint.peers_known)));
    metric(PEER_SENT, &mut peers(views, |peer| peer.bytes_sent as f64));
    metric(PEER_RECEIVED, &mut peers(views, |peer| peer.bytes_received as f64));
    metric(WAITING, &mut peers(views, |peer| peer.waiting_bytes as f64));
    let waited = views.iter().flat_map(|view| {
        view.endpoint.peers.iter().flat_map(move |peer| {
            let held = peer.held_ns.iter();
            held.map(move |(by, ns)| Sample::of_peer(view, peer, *ns as f64 / 1e9).with("by", by))
        })
    });
    metric(WAITED, &mut { waited });
    metric(PATH_SENT, &mut paths(views, |path| path.bytes_sent as f64));
    metric(DELIVERED, &mut paths(views, |path| path.delivered as f64));
    metric(LOST, &mut paths(views, |path| path.lost as f64));
    metric(RTT, &mut paths(views, |path| path.srtt_ns as f64 / 1e9));
    metric(CWND, &mut paths(views, |path| f64::from(path.cwnd_packets)));
    metric(USABLE, &mut paths(views, |path| f64::from(u8::from(path.is_usable))));
    text
}

/// One value of a metric.
struct Sample {
    labels: Vec<(&'static str, String)>,
    value: f64,
}

impl Sample {
    fn of(view: &View, value: f64) -> Sample {
        let labels = [
            ("pid", view.pid.to_string()),
            ("command", view.program().to_owned()),
            ("port", view.port().to_string()),
            ("receive_path", view.endpoint.report.receive_path.clone()),
        ];
        Sample { labels: labels.to_vec(), value }
    }

    fn of_peer(view: &View, peer: &PeerSnapshot, value: f64) -> Sample {
        Sample::of(view, value).with("peer", &format!("{} {}", peer.number, peer.name))
    }

    fn with(mut self, label: &'static str, value: &str) -> Sample {
        self.labels.push((label, value.to_owned()));
        self
    }
}

fn named<'v>(
    views: &'v [View],
    label: &'static str,
    of: fn(&View) -> &std::collections::BTreeMap<String, u64>,
) -> impl Iterator<Item = Sample> + 'v {
    views.iter().flat_map(move |view| {
        of(view).iter().map(move |(name, value)| Sample::of(view, *value as f64).with(label, name))
    })
}

fn peers<'v>(views: &'v [View], of: fn(&PeerSnapshot) -> f64) -> impl Iterator<Item = Sample> + 'v {
    views.iter().flat_map(move |view| {
        view.endpoint.peers.iter().map(move |peer| Sample::of_peer(view, peer, of(peer)))
    })
}

fn paths<'v>(views: &'v [View], of: fn(&PathReport) -> f64) -> impl Iterator<Item = Sample> + 'v {
    views.iter().flat_map(move |view| {
        view.endpoint.peers.iter().flat_map(move |peer| {
            peer.paths.iter().map(move |path| {
                Sample::of_peer(view, peer, of(path)).with("path", &path.address.to_string())
            })
        })
    })
}

/// A label's value as the format has it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_line_is_what_the_format_has() {
        let text = metrics(&[sample::view(1), sample::view(2)]);
        let mut typed = HashSet::new();
        let mut series = HashSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a kind");
                assert!(["counter", "gauge"].contains(&kind) && typed.insert(name.to_owned()), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            } else if !line.starts_with("# HELP ") {
                let (labelled, value) = line.rsplit_once("} ").expect("labels and a value");
                let (name, labels) = labelled.split_once('{').expect("labels");
                assert!(typed.contains(name), "{line}: of no kind");
                assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
                assert!(series.insert(labelled.to_owned()), "{line}: twice");
                assert!(labels.split("\",").all(|label| label.contains("=\"")), "{line}");
            }
        }
        assert!(text.contains("tsumugi_path_usable{pid=\"2\",command=\"program\",port=\"7411\",receive_path=\"socket\",peer=\"0 n1\",path=\"10.77.1.2:7411\"} 0"), "{text}");
        assert!(text.contains("name=\"bytes_sent\"} 3000000"), "{text}");
    }

    #[test]
    fn labels_may_hold_anything() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
