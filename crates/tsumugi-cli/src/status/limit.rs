//! What limits an endpoint now, in a sentence.

use super::doing::Doing;
use super::rates::Rates;
use super::units::{bytes, time};
use tsumugi::snapshot::{PeerSnapshot, Snapshot};

/// Share of the time in which messages wait for something that is worth a word.
const SHARE_MIN: f64 = 0.2;
/// Share of a receive side's room in use that means that the program does not take what arrives.
const FULL: f64 = 0.9;
/// Share of a CPU, and of time in calls that find nothing, of a program that could do no more.
const CPU_MIN: f64 = 0.9;
const IDLE_MAX: f64 = 0.1;

/// Says what limits an endpoint, of which `rates` are known if it was looked at before.
pub(crate) fn sentence(
    now: &Snapshot,
    rates: Option<&Rates>,
    doing: Doing,
    cpus: Option<f64>,
    age_s: f64,
) -> String {
    let meanwhile = if now.report.receive_path == "xdp" {
        "the XDP program takes in what arrives meanwhile"
    } else {
        "what arrives waits meanwhile"
    };
    let ago = time((age_s * 1e9) as u64);
    match doing {
        Doing::Stopped => return format!("nobody calls: the process is stopped; {meanwhile}"),
        Doing::Computing => return format!("nobody calls: it computes, for {ago} now; {meanwhile}"),
        Doing::Elsewhere => {
            return format!("nobody calls: it waits for something else, for {ago} now; {meanwhile}");
        }
        Doing::Calling | Doing::Asleep | Doing::EventLoop => {}
    }
    if let Some((peer, by, share)) = longest_hold(now, rates) {
        let often = share.map_or(String::new(), |share| format!(" ({:.0} % of the time)", 100.0 * share));
        return format!("{}{often}", because(peer, by));
    }
    let receive = &now.receive;
    let is_full = |used: u64, of: u64| of > 0 && used as f64 >= FULL * of as f64;
    if is_full(receive.queue_used_bytes, receive.queue_bytes)
        || is_full(receive.held_bytes, receive.held_bytes_max)
    {
        let waits = bytes((receive.queue_used_bytes.saturating_add(receive.held_bytes)) as f64);
        return format!("receiver full: {waits} have arrived, and the program does not receive them");
    }
    let is_busy = cpus.is_some_and(|cpus| cpus >= CPU_MIN)
        && rates.is_some_and(|rates| rates.seconds > 0.0 && rates.idle < IDLE_MAX);
    if is_busy {
        return format!("CPU: its thread is busy all the time ({:.1} CPUs)", cpus.unwrap_or(0.0));
    }
    let moves = rates.is_some_and(|rates| rates.bytes_sent + rates.bytes_received > 0.0);
    match (moves, rates, doing) {
        (true, ..) => "nothing: everything leaves and is taken as it comes".to_owned(),
        (false, Some(_), _) => "nothing is under way".to_owned(),
        (false, None, Doing::EventLoop | Doing::Asleep) => {
            "nothing waits: it sleeps until something comes".to_owned()
        }
        (false, None, _) => "nothing waits".to_owned(),
    }
}

/// The peer for which messages waited longest since the last look, what for, and for which share of the time. Without an earlier
/// look, one for which they wait now.
fn longest_hold<'s>(
    now: &'s Snapshot,
    rates: Option<&'s Rates>,
) -> Option<(&'s PeerSnapshot, &'s str, Option<f64>)> {
    let Some(rates) = rates.filter(|rates| rates.seconds > 0.0) else {
        let held = now.peers.iter().find(|peer| !matches!(&*peer.held_by, "nothing" | "other"))?;
        return Some((held, &held.held_by, None));
    };
    let all =
        rates.peers.iter().flat_map(|its| its.held.iter().map(move |(by, share)| (its.number, by, *share)));
    let (number, by, share) =
        all.filter(|(.., share)| *share >= SHARE_MIN).max_by(|a, b| a.2.total_cmp(&b.2))?;
    let peer = now.peers.iter().find(|peer| peer.number == number)?;
    Some((peer, by, Some(share)))
}

fn because(peer: &PeerSnapshot, by: &str) -> String {
    let name = &peer.name;
    match by {
        "xoff" => {
            format!("receiver full: {name} has refused packets, its program does not receive fast enough")
        }
        "credit" if peer.outstanding == 0 => {
            format!("receiver full: {name} grants no credit, its program does not receive")
        }
        "credit" => format!(
            "receiver: {} packets are under way to {name}, and it has room for no more",
            peer.outstanding
        ),
        "bitmap" => {
            format!("flow: as many packets are under way to {name} as there may be, {}", peer.outstanding)
        }
        "silence" => format!("silence: {name} answers on no path"),
        "congestion" => {
            let cwnd: u64 = peer
                .paths
                .iter()
                .filter(|path| path.is_usable)
                .map(|path| u64::from(path.cwnd_packets))
                .sum();
            let srtt_ns = peer.paths.iter().map(|path| path.srtt_ns).max().unwrap_or(0);
            format!(
                "congestion window: {cwnd} packets may be under way to {name}, round trip {}",
                time(srtt_ns)
            )
        }
        "nic" => format!("NIC: its queue is full of packets to {name}"),
        "handshake" => format!("connection: {name} has not answered yet"),
        _ => format!("messages to {name} wait: what was lost goes first, or a faster path is waited for"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn said(change: impl FnOnce(&mut Snapshot), doing: Doing, cpus: f64) -> String {
        let (before, mut now) = (sample::snapshot(1), sample::snapshot(2));
        change(&mut now);
        let rates = Rates::between(&before, &now);
        sentence(&now, Some(&rates), doing, Some(cpus), 3.2)
    }

    /// Half a second of waiting.
    fn held(by: &'static str) -> impl FnOnce(&mut Snapshot) {
        move |now| {
            now.peers[0].held_ns.insert(by.to_owned(), 500_000_000);
        }
    }

    #[test]
    fn each_limit_has_its_sentence() {
        let calling = |change| said(change, Doing::Calling, 0.3);
        assert_eq!(
            said(held("credit"), Doing::Calling, 0.3),
            "receiver: 12 packets are under way to n1, and it has room for no more (50 % of the time)"
        );
        assert!(said(held("xoff"), Doing::Calling, 0.3).starts_with("receiver full: n1 has refused packets"));
        assert_eq!(
            said(held("congestion"), Doing::Calling, 0.3),
            "congestion window: 64 packets may be under way to n1, round trip 45.3 µs (50 % of the time)"
        );
        assert!(said(held("nic"), Doing::Calling, 0.3).starts_with("NIC: its queue is full"));
        assert!(said(held("silence"), Doing::Calling, 0.3).starts_with("silence: n1 answers on no path"));
        fn full(now: &mut Snapshot) {
            now.receive.queue_used_bytes = now.receive.queue_bytes;
        }
        assert!(calling(full as fn(&mut Snapshot)).starts_with("receiver full: 1.00 MiB have arrived"));
        assert!(calling(|_| ()).starts_with("nothing: everything leaves"));
        let busy = said(|now| now.idle_ns = sample::snapshot(1).idle_ns, Doing::Calling, 0.99);
        assert!(busy.starts_with("CPU: "), "{busy}");
        assert!(calling(|_| ()).starts_with("nothing: "), "who spins and finds nothing is not short of CPU");
    }

    #[test]
    fn who_does_not_call_is_told_first() {
        let computes = said(held("credit"), Doing::Computing, 1.0);
        assert_eq!(computes, "nobody calls: it computes, for 3.20 s now; what arrives waits meanwhile");
        let by_xdp = said(|now| now.report.receive_path = "xdp".into(), Doing::Stopped, 0.0);
        assert!(by_xdp.ends_with("the process is stopped; the XDP program takes in what arrives meanwhile"));
    }

    #[test]
    fn a_first_look_tells_what_there_is_to_tell() {
        let mut now = sample::snapshot(1);
        assert_eq!(sentence(&now, None, Doing::Calling, None, 0.0), "nothing waits");
        now.peers[0].held_by = "congestion".into();
        assert!(sentence(&now, None, Doing::Asleep, None, 0.0).starts_with("congestion window: 64 packets"));
    }
}
