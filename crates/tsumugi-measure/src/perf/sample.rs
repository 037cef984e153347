//! What is timed: round trips, streams, the halves of a message's overhead, waiting for nothing, and computing while a
//! message arrives.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use tsumugi_rail::copy::Staging;

use super::control::OVERLAP_QUESTION_BYTES;
use crate::cpu::process_cpu_time;
use crate::peers::{Failure, Peer, StopReason, Stream, Streamed, Until, Watch};
use crate::row::{Metric, Row, rounded};
use crate::statistics::Percentiles;

/// Most samples kept of one round (16 MiB): some ten seconds of the fastest round trips.
const SAMPLES_MAX: u64 = 2_000_000;

/// Fewest transfers that the length of the computation is chosen by: the first of all is far slower than the rest.
const FIRST_MIN: usize = 16;

/// Round trips that may be lost by a transport without repetition before a round is given up.
const LOST_MAX: u64 = 100;

/// What a session's client side found.
pub(super) enum Measured {
    Samples {
        samples: Vec<u64>,
        elapsed_ns: u64,
        lost: u64,
        bytes: u64,
    },
    Streamed(Streamed),
    Overhead {
        send: Vec<u64>,
        receive: Vec<u64>,
    },
    Idle(Streamed),
    /// Samples with and without a computation of `compute_ns`.
    Overlap {
        transfer: Vec<u64>,
        both: Vec<u64>,
        compute_ns: u64,
    },
}

/// Warms up and measures one round of messages of `size` bytes.
pub(super) fn measure(
    metric: Metric,
    peer: &mut dyn Peer,
    size: u64,
    until: Until,
    control: &TcpStream,
    silence_max: Duration,
) -> Result<Measured, Failure> {
    let mut watch = Watch::new(Some(control), silence_max);
    let Until { time, messages } = until;
    // A fifth of the round, at most half a second: caches, branch predictors, TCP's window, CPU frequency.
    let warm_up = Until { time: (time / 5).min(Duration::from_millis(500)), messages: messages / 5 + 1 };
    match metric {
        Metric::RoundTrip => {
            round_trips(peer, size, warm_up, &mut watch)?;
            round_trips(peer, size, until, &mut watch)
        }
        Metric::Overhead => {
            let Measured::Samples { mut samples, .. } = round_trips(peer, size, warm_up, &mut watch)? else {
                return Err(Failure::Stopped(StopReason::Control));
            };
            let round_trip_ns = Percentiles::of(&mut samples)
                .map_or(0, |percentiles| percentiles.p99.unwrap_or(percentiles.max));
            overhead(peer, size, until, round_trip_ns, &mut watch)
        }
        Metric::Bandwidth | Metric::Rate => {
            let stream = Stream::of(size);
            peer.stream(stream, warm_up, &mut watch)?;
            peer.stream(stream, until, &mut watch).map(Measured::Streamed)
        }
        Metric::Overlap => overlap(peer, size, warm_up, until, &mut watch),
        Metric::Idle => {
            let (start, cpu) = (Instant::now(), process_cpu_time());
            peer.idle(time, &mut Watch::new(Some(control), Duration::MAX))?;
            Ok(Measured::Idle(Streamed {
                elapsed_ns: start.elapsed().as_nanos() as u64,
                cpu_ns: (process_cpu_time() - cpu).as_nanos() as u64,
                ..Streamed::default()
            }))
        }
    }
}

fn round_trips(
    peer: &mut dyn Peer,
    size: u64,
    until: Until,
    watch: &mut Watch<'_>,
) -> Result<Measured, Failure> {
    let mut message = Staging::new(size as usize, 0x5a);
    let mut samples = Vec::with_capacity(until.messages.min(SAMPLES_MAX) as usize);
    let mut lost = 0;
    let start = Instant::now();
    let mut before = start;
    while (samples.len() as u64) < until.messages.min(SAMPLES_MAX) && (before - start) < until.time
        || samples.is_empty()
    {
        peer.send(&mut message, watch)?;
        let arrived = peer.receive(message.len(), watch)?;
        let after = Instant::now();
        if arrived {
            samples.push((after - before).as_nanos() as u64);
        } else {
            lost += 1;
            if lost > LOST_MAX {
                return Err(Failure::Refused(format!("{lost} of {} round trips were lost", samples.len())));
            }
        }
        before = after;
    }
    Ok(Measured::Samples { samples, elapsed_ns: start.elapsed().as_nanos() as u64, lost, bytes: size })
}

/// LogP's o_s and o_r after Culler et al. ("LogP performance assessment of fast network interfaces", IEEE Micro
/// 1996): a message is sent, the processor computes for longer than a round trip, and then the answer, which
/// has long arrived, is received. What the two calls take is CPU time and nothing else. On a veth pair o_s
/// contains the receiver's interrupt work, because the kernel does that on the sender's CPU.
fn overhead(
    peer: &mut dyn Peer,
    size: u64,
    until: Until,
    round_trip_ns: u64,
    watch: &mut Watch<'_>,
) -> Result<Measured, Failure> {
    let compute = Duration::from_nanos(round_trip_ns.min(10_000_000) * 2) + Duration::from_micros(20);
    let clock = clock_cost();
    let mut message = Staging::new(size as usize, 0x5a);
    let (mut send, mut receive) = (Vec::new(), Vec::new());
    let start = Instant::now();
    while send.is_empty()
        || (send.len() as u64) < until.messages.min(SAMPLES_MAX) && start.elapsed() < until.time
    {
        let before = Instant::now();
        peer.send(&mut message, watch)?;
        let sent = Instant::now();
        while sent.elapsed() < compute {
            std::hint::spin_loop();
        }
        let computed = Instant::now();
        let arrived = peer.receive(message.len(), watch)?;
        let after = Instant::now();
        if arrived {
            send.push((sent - before).saturating_sub(clock).as_nanos() as u64);
            receive.push((after - computed).saturating_sub(clock).as_nanos() as u64);
        }
    }
    Ok(Measured::Overhead { send, receive })
}

/// Asks for a message and takes it in, computing for `compute` in between; nanoseconds. `None` when it was lost.
fn fetch(
    peer: &mut dyn Peer,
    size: u64,
    compute: Option<Duration>,
    watch: &mut Watch<'_>,
) -> Result<Option<u64>, Failure> {
    let mut question = [0x5a; OVERLAP_QUESTION_BYTES];
    let before = Instant::now();
    peer.send(&mut question, watch)?;
    if let Some(compute) = compute {
        let asked = Instant::now();
        while asked.elapsed() < compute {
            std::hint::spin_loop();
        }
    }
    let arrived = peer.receive(size as usize, watch)?;
    Ok(arrived.then(|| before.elapsed().as_nanos() as u64))
}

/// What the receiver's computation hides of a transfer, after the definition of most overlap benchmarks: the
/// computation is longer than the transfer, so that a message that needs nothing of the receiver is there when it
/// ends.
fn overlap(
    peer: &mut dyn Peer,
    size: u64,
    warm_up: Until,
    until: Until,
    watch: &mut Watch<'_>,
) -> Result<Measured, Failure> {
    let mut first = Vec::new();
    let start = Instant::now();
    while first.len() < FIRST_MIN || (first.len() as u64) < warm_up.messages && start.elapsed() < warm_up.time
    {
        first.extend(fetch(peer, size, None, watch)?);
    }
    let transfer_ns = Percentiles::of(&mut first).map_or(0, |percentiles| percentiles.p50);
    let compute = Duration::from_nanos(2 * transfer_ns);
    let (mut transfer, mut both) = (Vec::new(), Vec::new());
    let start = Instant::now();
    while both.is_empty()
        || (both.len() as u64) < until.messages.min(SAMPLES_MAX) && start.elapsed() < until.time
    {
        // In turn, so that a disturbance meets both.
        transfer.extend(fetch(peer, size, None, watch)?);
        both.extend(fetch(peer, size, Some(compute), watch)?);
    }
    Ok(Measured::Overlap { transfer, both, compute_ns: 2 * transfer_ns })
}

/// What reading the clock adds to an interval: the shortest of many empty ones.
fn clock_cost() -> Duration {
    let empty = || {
        let before = Instant::now();
        before.elapsed()
    };
    (0..1000).map(|_| empty()).min().unwrap_or_default()
}

/// The row of one round of messages of `size` bytes, from what both sides saw.
pub(super) fn row(metric: Metric, size: u64, measured: &Measured, theirs: &Streamed) -> Row {
    let mut row = Row { metric, ..Row::default() };
    match measured {
        Measured::Samples { samples, elapsed_ns, lost, bytes } => {
            if let Some(percentiles) = Percentiles::of(&mut samples.clone()) {
                row.min_ns = Some(percentiles.min as f64);
                row.p50_ns = Some(percentiles.p50 as f64);
                row.p99_ns = percentiles.p99.map(|ns| ns as f64);
                row.p999_ns = percentiles.p999.map(|ns| ns as f64);
                row.max_ns = Some(percentiles.max as f64);
            }
            row.per_s = Some(rounded(per_second(samples.len() as u64, *elapsed_ns)));
            row.lost_bytes = (*lost > 0).then_some(lost * bytes);
        }
        Measured::Streamed(ours) => {
            row.gbit_s = Some(rounded(ours.bytes as f64 * 8.0 / ours.elapsed_ns.max(1) as f64));
            row.per_s = Some(rounded(per_second(ours.messages, ours.elapsed_ns)));
            // Of short messages a KiB has many, each of which costs something.
            if size < 1024 {
                row.cpu_ns_per_message = cpu_per(ours, theirs, |side| side.messages as f64);
            } else {
                row.cpu_ns_per_kib = cpu_per(ours, theirs, |side| side.bytes as f64 / 1024.0);
            }
            row.lost_bytes = (ours.lost_bytes > 0).then_some(ours.lost_bytes);
        }
        Measured::Overhead { send, receive } => {
            let mut both: Vec<u64> = send.iter().zip(receive).map(|(send, receive)| send + receive).collect();
            let middle = |samples: &mut [u64]| Percentiles::of(samples).map(|of| of.p50 as f64);
            row.send_ns = middle(&mut send.clone());
            row.receive_ns = middle(&mut receive.clone());
            if let Some(percentiles) = Percentiles::of(&mut both) {
                row.min_ns = Some(percentiles.min as f64);
                row.p50_ns = Some(percentiles.p50 as f64);
                row.p99_ns = percentiles.p99.map(|ns| ns as f64);
            }
        }
        Measured::Overlap { transfer, both, compute_ns } => {
            let middle = |samples: &[u64]| Percentiles::of(&mut samples.to_vec()).map(|of| of.p50 as f64);
            let compute = *compute_ns as f64;
            row.transfer_ns = middle(transfer);
            row.compute_ns = Some(compute);
            row.both_ns = middle(both);
            if let (Some(transfer), Some(both)) = (row.transfer_ns, row.both_ns) {
                row.overlap = Some(rounded(((transfer + compute - both) / transfer).clamp(0.0, 1.0)));
            }
        }
        Measured::Idle(ours) => {
            let share = |side: &Streamed| side.cpu_ns as f64 / side.elapsed_ns.max(1) as f64;
            row.cpu_share = Some(rounded(share(ours).max(share(theirs))));
        }
    }
    row
}

fn per_second(messages: u64, elapsed_ns: u64) -> f64 {
    messages as f64 * 1e9 / elapsed_ns.max(1) as f64
}

/// CPU time of both sides for each of what there are so many of; the receiver's includes the warm-up, and so do its messages.
fn cpu_per(ours: &Streamed, theirs: &Streamed, units: impl Fn(&Streamed) -> f64) -> Option<f64> {
    let of = |side: &Streamed| side.cpu_ns as f64 / units(side);
    Some(rounded(of(ours) + of(theirs))).filter(|cpu| cpu.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_bits_per_second_and_cpu_time_of_both_sides() {
        let ours = Streamed { messages: 4, bytes: 4096, elapsed_ns: 1000, cpu_ns: 800, lost_bytes: 0 };
        let theirs = Streamed { messages: 8, bytes: 8192, elapsed_ns: 2000, cpu_ns: 4000, lost_bytes: 0 };
        let row = row(Metric::Bandwidth, 1024, &Measured::Streamed(ours), &theirs);
        assert_eq!(row.gbit_s, Some(32.768));
        assert_eq!(row.per_s, Some(4e6));
        assert_eq!(row.cpu_ns_per_kib, Some(200.0 + 500.0));
        assert_eq!((row.lost_bytes, row.cpu_ns_per_message), (None, None));
        let short = |side: Streamed| Streamed { bytes: 8 * side.messages, ..side };
        let row = super::row(Metric::Rate, 8, &Measured::Streamed(short(ours)), &short(theirs));
        assert_eq!((row.cpu_ns_per_kib, row.cpu_ns_per_message), (None, Some(200.0 + 500.0)));
    }

    #[test]
    fn idleness_is_the_busier_side() {
        let side = |cpu_ns| Streamed { elapsed_ns: 1000, cpu_ns, ..Streamed::default() };
        let row = row(Metric::Idle, 0, &Measured::Idle(side(5)), &side(7));
        assert_eq!(row.cpu_share, Some(0.007));
    }

    #[test]
    fn overlap_is_the_hidden_share_of_the_transfer() {
        let of = |transfer: &[u64], both: &[u64]| {
            let measured =
                Measured::Overlap { transfer: transfer.into(), both: both.into(), compute_ns: 200 };
            row(Metric::Overlap, 64, &measured, &Streamed::default())
        };
        let half = of(&[90, 100, 500], &[250, 249, 900]);
        assert_eq!(
            (half.transfer_ns, half.compute_ns, half.both_ns),
            (Some(100.0), Some(200.0), Some(250.0))
        );
        assert_eq!(half.overlap, Some(0.5));
        assert_eq!(half.value(), Some(0.5));
        assert_eq!(of(&[100], &[200]).overlap, Some(1.0));
        assert_eq!(
            of(&[100], &[190]).overlap,
            Some(1.0),
            "the computation was chosen by an earlier transfer"
        );
        assert_eq!(of(&[100], &[310]).overlap, Some(0.0));
    }

    #[test]
    fn overhead_is_send_plus_receive() {
        let measured = Measured::Overhead { send: vec![10, 20, 30], receive: vec![5, 5, 50] };
        let row = row(Metric::Overhead, 64, &measured, &Streamed::default());
        assert_eq!((row.send_ns, row.receive_ns, row.p50_ns), (Some(20.0), Some(5.0), Some(25.0)));
    }
}
