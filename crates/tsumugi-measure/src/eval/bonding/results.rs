//! What was measured of a case, and the row that is told of it.

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::contender::Contender;
use super::flow::{BUCKET_NS, MESSAGE_BYTES};
use crate::row::{Metric, Row, rounded};

/// Buckets in a second.
const BUCKETS_PER_S: f64 = 1e9 / BUCKET_NS as f64;
/// Flows that differ from their mean by no more than this share are even.
pub(crate) const EVEN: f64 = 0.05;
/// Over how many buckets that is looked at: one second.
const EVEN_BUCKETS: usize = BUCKETS_PER_S as usize;
/// A run that is shorter is told in tenths of a second, not in seconds.
const SHORT_S: f64 = 3.0;

/// What was counted in a case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) case: Case,
    pub(crate) contender: Contender,
    pub(crate) is_simulated: bool,
    /// How long the first flow sent alone, and then all of them, seconds.
    pub(crate) times_s: (f64, f64),
    /// Payload bytes that arrived of each flow, by bucket since the beginning; may end early.
    pub(crate) bytes: Vec<Vec<u64>>,
    /// Packets of each flow that each NIC delivered while all flows sent.
    pub(crate) packets: Vec<Vec<u64>>,
    /// Packets found lost meanwhile.
    pub(crate) lost: u64,
    /// CPU time of the sender and of all receivers while all flows sent, ns; none in simulated time.
    pub(crate) cpu_ns: Option<(u64, u64)>,
    /// The send path.
    pub(crate) send: String,
}

/// A row of the evaluation: the row of all measurements, and what only this one has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseRow {
    /// `2x4@100M`, …
    pub case: String,
    /// A path policy, or a mode of the kernel's bonding.
    pub policy: Contender,
    /// Whether it was measured in simulated time.
    pub simulated: bool,
    /// Flows, and the processes that receive them.
    pub senders: u32,
    /// NICs of each host.
    pub nics: u32,
    /// Of each NIC, bits a second.
    pub rate_bits_per_s: u64,
    /// What all measurements tell.
    #[serde(flatten)]
    pub row: Row,
    /// CPU time of the sending process while all flows sent, as a share of a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_cpu: Option<f64>,
    /// The same of all receiving processes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_cpu: Option<f64>,
    /// Length of the intervals, seconds.
    pub interval_s: f64,
    /// Payload of each flow in each interval, 10⁹ bits a second.
    pub flows_gbit_s: Vec<Vec<f64>>,
    /// Packets of each flow over each NIC while all flows sent.
    pub packets: Vec<Vec<u64>>,
    /// Packets found lost meanwhile.
    pub lost: u64,
    /// When all flows had begun, seconds.
    pub joined_s: f64,
    /// How long after that the flows were even, and stayed so, seconds: the beginning of the first second from which on
    /// each second saw every flow within 5 % of their mean. Absent when that never came about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub even_after_s: Option<f64>,
    /// From a second after all had begun: the largest difference of a flow from the flows' mean, as a share of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deviation: Option<f64>,
}

impl Run {
    fn joined(&self) -> usize {
        (self.times_s.0 * BUCKETS_PER_S).round() as usize
    }

    fn ended(&self) -> usize {
        ((self.times_s.0 + self.times_s.1) * BUCKETS_PER_S).round() as usize
    }

    /// Bytes of each flow in some buckets.
    fn bytes_in(&self, from: usize, to: usize) -> Vec<u64> {
        let sum = |flow: &Vec<u64>| flow.iter().take(to).skip(from).sum();
        self.bytes.iter().map(sum).collect()
    }

    /// Payload of each flow in each interval, of so many buckets.
    fn intervals(&self, buckets: usize) -> Vec<Vec<f64>> {
        let seconds = buckets as f64 / BUCKETS_PER_S;
        let starts = || (0..self.ended()).step_by(buckets).filter(|from| from + buckets <= self.ended());
        let all: Vec<Vec<u64>> = starts().map(|from| self.bytes_in(from, from + buckets)).collect();
        let of =
            |flow: usize| all.iter().map(|bytes| rounded(bytes[flow] as f64 * 8.0 / 1e9 / seconds)).collect();
        (0..self.bytes.len()).map(of).collect()
    }

    /// How long after all flows had begun they were even for good, seconds.
    fn even_after_s(&self) -> Option<f64> {
        let (joined, last) = (self.joined(), self.ended().checked_sub(EVEN_BUCKETS)?);
        let uneven = |from: &usize| {
            !deviation(&self.bytes_in(*from, from + EVEN_BUCKETS)).is_some_and(|it| it <= EVEN)
        };
        let from = (joined..=last).rev().find(uneven).map_or(joined, |from| from + 1);
        (from <= last).then(|| rounded((from - joined) as f64 / BUCKETS_PER_S))
    }

    /// The row.
    pub(crate) fn row(&self) -> CaseRow {
        let (joined, ended, time_s) = (self.joined(), self.ended(), self.times_s.1);
        let bytes: u64 = self.bytes_in(joined, ended).iter().sum();
        let per_interval = if self.case.is_uneven || time_s < SHORT_S { 1 } else { BUCKETS_PER_S as usize };
        let share = |ns: u64| rounded(ns as f64 / 1e9 / time_s);
        let cpu_ns = self.cpu_ns.map(|(send, receive)| send + receive).filter(|_| bytes > 0);
        let is_ours = matches!(self.contender, Contender::Ours(_));
        let late = self.bytes_in(joined + EVEN_BUCKETS, ended);
        CaseRow {
            case: self.case.to_string(),
            policy: self.contender,
            simulated: self.is_simulated,
            senders: self.case.senders,
            nics: self.case.nics,
            rate_bits_per_s: self.case.rate.bits_per_s,
            row: Row {
                transport: if is_ours { "tsumugi" } else { "tcp-block" }.to_owned(),
                send: is_ours.then(|| self.send.clone()),
                receive: is_ours.then(|| "socket".to_owned()),
                wait: (is_ours && !self.is_simulated).then(|| "adaptive".to_owned()),
                metric: Metric::Bandwidth,
                size_bytes: MESSAGE_BYTES as u64,
                gbit_s: Some(rounded(bytes as f64 * 8.0 / 1e9 / time_s)),
                per_s: Some(rounded(bytes as f64 / MESSAGE_BYTES as f64 / time_s)),
                cpu_ns_per_kib: cpu_ns.map(|ns| rounded(ns as f64 * 1024.0 / bytes as f64)),
                ..Row::default()
            },
            send_cpu: self.cpu_ns.map(|(send, _)| share(send)),
            receive_cpu: self.cpu_ns.map(|(_, receive)| share(receive)),
            interval_s: per_interval as f64 / BUCKETS_PER_S,
            flows_gbit_s: self.intervals(per_interval),
            packets: self.packets.clone(),
            lost: self.lost,
            joined_s: self.times_s.0,
            even_after_s: self.case.is_uneven.then(|| self.even_after_s()).flatten(),
            deviation: deviation(&late).map(rounded),
        }
    }
}

impl CaseRow {
    /// Payload of all flows in each interval, 10⁹ bits a second.
    pub(crate) fn total_gbit_s(&self) -> Vec<f64> {
        let intervals = self.flows_gbit_s.first().map_or(0, Vec::len);
        let sum = |at: usize| self.flows_gbit_s.iter().map(|flow| flow[at]).sum();
        (0..intervals).map(sum).collect()
    }

    /// NICs that carried at least a twentieth of their share; `None` where nobody counted.
    pub(crate) fn nics_used(&self) -> Option<usize> {
        let carried = |nic: usize| -> u64 { self.packets.iter().filter_map(|flow| flow.get(nic)).sum() };
        let all: u64 = self.packets.iter().flatten().sum();
        let nics = self.nics as usize;
        (all > 0).then(|| (0..nics).filter(|&nic| carried(nic) * 20 * nics as u64 > all).count())
    }

    /// The NICs that carried at least a tenth of a flow's packets.
    pub(crate) fn nics_of(&self, flow: usize) -> Vec<usize> {
        let packets = self.packets.get(flow).map_or(&[][..], Vec::as_slice);
        let all: u64 = packets.iter().sum();
        let much = packets.iter().enumerate().filter(|(_, carried)| *carried * 10 > all);
        much.map(|(nic, _)| nic).collect()
    }
}

/// The largest difference from the mean, as a share of it; `None` when there is nothing.
fn deviation(values: &[u64]) -> Option<f64> {
    let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
    let differences = values.iter().map(|&value| (value as f64 - mean).abs() / mean);
    differences.reduce(f64::max).filter(|it| it.is_finite())
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use tsumugi::Policy;

    /// A run in which each flow of the case brought so many bytes in each bucket from when it began.
    pub(crate) fn run(case: Case, policy: Policy, bytes: &[u64]) -> Run {
        let times_s = case.times_s(2.0);
        let mut run = Run {
            case,
            contender: Contender::Ours(policy),
            is_simulated: false,
            times_s,
            bytes: Vec::new(),
            packets: bytes.iter().map(|_| vec![100; case.nics as usize]).collect(),
            lost: 0,
            cpu_ns: Some((1_000_000_000, 500_000_000)),
            send: "udp".to_owned(),
        };
        let (joined, ended) = (run.joined(), run.ended());
        let flow = |(index, &bytes): (usize, &u64)| {
            let begins = if index == 0 { 0 } else { joined };
            (0..ended).map(|at| if at < begins { 0 } else { bytes }).collect()
        };
        run.bytes = bytes.iter().enumerate().map(flow).collect();
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tsumugi::Policy;

    #[test]
    fn a_row_tells_means_and_intervals() {
        let run = samples::run(Case::ALL[0], Policy::Adaptive, &[1_000_000, 3_000_000]);
        let row = run.row();
        assert_eq!((row.case.as_str(), row.policy), ("2x4@100M", Contender::Ours(Policy::Adaptive)));
        assert_eq!(row.row.gbit_s, Some(0.32));
        assert_eq!((row.send_cpu, row.receive_cpu), (Some(0.5), Some(0.25)));
        // 1.5 s of CPU for 80 MB.
        assert_eq!(row.row.cpu_ns_per_kib, Some(19_200.0));
        assert_eq!(row.total_gbit_s(), vec![0.32; 20]);
        assert_eq!((row.deviation, row.even_after_s), (Some(0.5), None));
        assert_eq!(row.nics_used(), Some(4));
        let json = serde_json::to_value(&row).expect("JSON");
        assert_eq!((&json["metric"], &json["size_bytes"]), (&"bandwidth".into(), &1024.into()));
        assert_eq!(json["policy"], "adaptive");
        assert_eq!(serde_json::from_value::<CaseRow>(json).expect("the same row"), row);
    }

    #[test]
    fn what_ends_early_counts_as_nothing() {
        let mut run = samples::run(Case::ALL[0], Policy::Tlb, &[1_000_000, 1_000_000]);
        run.bytes[1].truncate(10);
        assert_eq!(run.row().row.gbit_s, Some(0.12));
        assert_eq!(run.row().flows_gbit_s[1][10..], [0.0; 10]);
    }

    #[test]
    fn flows_are_even_from_when_no_second_is_uneven_any_more() {
        let mut run = samples::run(Case::UNEVEN, Policy::Adaptive, &[100; 4]);
        assert_eq!(run.even_after_s(), Some(0.0));
        // Uneven until 1.2 s after all have begun.
        run.bytes[2][100..112].fill(10);
        let settled = run.even_after_s().expect("they become even");
        assert!((1.0..=1.2).contains(&settled), "{settled}");
        // And at the end once more.
        run.bytes[3][155..].fill(10);
        assert_eq!(run.even_after_s(), None);
        assert_eq!(run.row().even_after_s, None);
    }

    #[test]
    fn a_tie_is_seen_in_the_packets() {
        let mut run = samples::run(Case::ALL[0], Policy::Tlb, &[1; 2]);
        run.packets = vec![vec![1000, 0, 0, 3], vec![0, 900, 0, 0]];
        let row = run.row();
        assert_eq!((row.nics_used(), row.nics_of(0), row.nics_of(1)), (Some(2), vec![0], vec![1]));
    }
}
