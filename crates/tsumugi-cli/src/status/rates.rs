//! What has changed between two looks at an endpoint, per second.

use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use tsumugi::PathReport;
use tsumugi::snapshot::{PeerSnapshot, Snapshot};
use tsumugi_wire::memory::Counter;

/// What an endpoint has done between two looks, per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Rates {
    /// Time between what the endpoint showed at the two looks, s; 0: it has shown nothing new.
    pub(crate) seconds: f64,
    pub(crate) bytes_sent: f64,
    pub(crate) bytes_received: f64,
    pub(crate) messages_sent: f64,
    pub(crate) messages_received: f64,
    pub(crate) packets_sent: f64,
    /// Packets sent again, by cause; those that there were.
    pub(crate) resent: BTreeMap<String, f64>,
    /// What receive paths decided of packets; what there was.
    pub(crate) verdicts: BTreeMap<String, f64>,
    /// Share of the time in which calls found nothing.
    pub(crate) idle: f64,
    pub(crate) peers: Vec<PeerRates>,
}

/// The same of one peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct PeerRates {
    pub(crate) number: u32,
    pub(crate) bytes_sent: f64,
    pub(crate) bytes_received: f64,
    pub(crate) resent: f64,
    /// Share of the time in which messages waited, by what for; what there was.
    pub(crate) held: BTreeMap<String, f64>,
    pub(crate) paths: Vec<PathRates>,
}

/// The same of one path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PathRates {
    pub(crate) address: SocketAddr,
    pub(crate) bytes_sent: f64,
    pub(crate) packets_delivered: f64,
    pub(crate) packets_lost: f64,
}

/// The counters of a snapshot that say what receive paths decided of packets.
pub(crate) fn verdicts(counters: &BTreeMap<String, u64>) -> impl Iterator<Item = (&'static str, u64)> {
    Counter::ALL.into_iter().map(|(_, name)| (name, counters.get(name).copied().unwrap_or(0)))
}

/// Differences of counters, per second.
struct Span(f64);

impl Span {
    fn rate(&self, before: u64, now: u64) -> f64 {
        if self.0 > 0.0 { now.saturating_sub(before) as f64 / self.0 } else { 0.0 }
    }

    /// Those that are not 0.
    fn rates<'n>(
        &self,
        before: &BTreeMap<String, u64>,
        now: impl Iterator<Item = (&'n str, u64)>,
    ) -> BTreeMap<String, f64> {
        let rates =
            now.map(|(name, now)| (name.to_owned(), self.rate(before.get(name).copied().unwrap_or(0), now)));
        rates.filter(|(_, rate)| *rate > 0.0).collect()
    }
}

impl Rates {
    /// What came between two snapshots of one endpoint.
    pub(crate) fn between(before: &Snapshot, now: &Snapshot) -> Rates {
        let span = Span(now.taken_ns.saturating_sub(before.taken_ns) as f64 / 1e9);
        let counter = |snapshot: &Snapshot, name| snapshot.counters.get(name).copied().unwrap_or(0);
        let rate = |name| span.rate(counter(before, name), counter(now, name));
        let peers = now.peers.iter().filter_map(|peer| {
            let former = before.peers.iter().find(|former| former.number == peer.number)?;
            Some(PeerRates::between(&span, former, peer))
        });
        Rates {
            seconds: span.0,
            bytes_sent: rate("bytes_sent"),
            bytes_received: rate("bytes_received"),
            messages_sent: rate("messages_sent"),
            messages_received: rate("messages_received"),
            packets_sent: rate("packets_sent"),
            resent: span.rates(&before.resent, pairs(&now.resent)),
            verdicts: span.rates(&before.counters, verdicts(&now.counters)),
            idle: span.rate(before.idle_ns, now.idle_ns) / 1e9,
            peers: peers.collect(),
        }
    }

    /// The same, with verdicts that were looked up so many seconds apart.
    pub(crate) fn with_verdicts_of(mut self, before: &Snapshot, now: &Snapshot, seconds: f64) -> Rates {
        self.verdicts = Span(seconds).rates(&before.counters, verdicts(&now.counters));
        self
    }

    /// All packets sent again.
    pub(crate) fn resent(&self) -> f64 {
        self.resent.values().sum()
    }
}

impl PeerRates {
    fn between(span: &Span, before: &PeerSnapshot, now: &PeerSnapshot) -> PeerRates {
        let path = |path: &PathReport| {
            let former = before.paths.iter().find(|former| former.address == path.address);
            let rate = |of: fn(&PathReport) -> u64| span.rate(former.map_or(0, of), of(path));
            PathRates {
                address: path.address,
                bytes_sent: rate(|path| path.bytes_sent),
                packets_delivered: rate(|path| path.delivered),
                packets_lost: rate(|path| path.lost),
            }
        };
        let held = span.rates(&before.held_ns, pairs(&now.held_ns));
        let sum = |counts: &BTreeMap<String, u64>| counts.values().copied().fold(0, u64::saturating_add);
        PeerRates {
            number: now.number,
            bytes_sent: span.rate(before.bytes_sent, now.bytes_sent),
            bytes_received: span.rate(before.bytes_received, now.bytes_received),
            resent: span.rate(sum(&before.resent), sum(&now.resent)),
            held: held.into_iter().map(|(name, ns)| (name, (ns / 1e9).min(1.0))).collect(),
            paths: now.paths.iter().map(path).collect(),
        }
    }
}

fn pairs(counts: &BTreeMap<String, u64>) -> impl Iterator<Item = (&str, u64)> {
    counts.iter().map(|(name, value)| (name.as_str(), *value))
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn differences_are_per_second() {
        let (before, mut now) = (sample::snapshot(1), sample::snapshot(3));
        now.peers[0].bytes_sent += 500;
        now.peers[0].paths[1].lost += 4;
        now.peers[0].held_ns.insert("credit".into(), 1_000_000_000);
        let rates = Rates::between(&before, &now);
        assert_eq!((rates.seconds, rates.bytes_sent, rates.bytes_received), (2.0, 1e6, 3e6));
        assert_eq!((rates.messages_sent, rates.idle, rates.resent()), (1e3, 0.5, 2.0));
        assert_eq!(
            rates.verdicts.iter().map(|(name, rate)| (&**name, *rate)).collect::<Vec<_>>(),
            [("deposited", 5e3)]
        );
        let its = &rates.peers[0];
        assert_eq!((its.bytes_sent, its.paths[1].packets_lost, its.held["credit"]), (250.0, 2.0, 0.5));
    }

    #[test]
    fn verdicts_may_be_newer_than_all_else() {
        let (before, mut now) = (sample::snapshot(3), sample::snapshot(3));
        now.counters.insert("deposited".into(), 5_000 * 3 + 40);
        let rates = Rates::between(&before, &now).with_verdicts_of(&before, &now, 0.5);
        assert_eq!((rates.seconds, rates.verdicts["deposited"]), (0.0, 80.0));
    }

    #[test]
    fn nothing_new_and_counters_that_began_anew_make_no_rates() {
        let (before, now) = (sample::snapshot(3), sample::snapshot(3));
        assert_eq!(Rates::between(&before, &now).bytes_sent, 0.0);
        let mut anew = sample::snapshot(5);
        anew.peers[0].bytes_sent = 10;
        assert_eq!(Rates::between(&before, &anew).peers[0].bytes_sent, 0.0);
        anew.peers[0].number = 9;
        assert!(Rates::between(&before, &anew).peers.is_empty());
    }
}
