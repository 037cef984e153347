use super::timer::RTO_NS_MIN;
use super::*;
use alloc::vec::Vec;
use tsumugi_wire::ack::Sack;
use tsumugi_wire::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};

const US: u64 = MICROSECOND_NS;

fn sack(ack: u64, psns: &[u64]) -> Sack {
    let mut sack = Sack { echo: Psn(u64::MAX), ..Sack::EMPTY };
    for psn in psns {
        let distance = psn - ack / 32 * 32;
        sack.bitmap[(distance / 32) as usize] |= 1 << (distance % 32);
        sack.words = sack.words.max((distance / 32) as usize + 1);
    }
    sack
}

fn resends(sender: &mut Sender<u64>, now: Instant) -> Vec<u64> {
    let mut psns = Vec::new();
    while let Some((psn, packet)) = sender.resend(now, 0) {
        assert_eq!(psn.0, *packet);
        psns.push(psn.0);
    }
    psns
}

/// Packets sent again, by the causes that there were.
fn resent(sender: &Sender<u64>) -> Vec<(Cause, u64)> {
    let all = Cause::ALL.into_iter().zip(sender.resent());
    all.filter(|(_, count)| *count > 0).map(|((cause, _), count)| (cause, count)).collect()
}

fn sender(repeat: Repeat, packets: u64) -> Sender<u64> {
    let mut sender = Sender::new(repeat, 1, 992);
    sender.sample(0, 20 * US);
    for packet in 0..packets {
        assert!(sender.room(0) > 0);
        sender.send(Instant(packet * US), 0, packet);
    }
    sender
}

#[test]
fn contents_come_back_once_in_order() {
    let mut sender = sender(Repeat::Selective, 10);
    let mut back = Vec::new();
    let mut take = |(psn, packet): (Psn, u64)| {
        assert_eq!(psn, Psn(packet));
        back.push(packet);
    };
    sender.on_answer(Instant(30 * US), Answer::Ack, Psn(3), 992, Some(&sack(3, &[5, 6])), &mut take).unwrap();
    sender.on_answer(Instant(31 * US), Answer::Ack, Psn(3), 992, Some(&sack(3, &[5, 6])), &mut take).unwrap();
    sender.on_answer(Instant(32 * US), Answer::Ack, Psn(10), 992, None, &mut take).unwrap();
    assert_eq!(back, [0, 1, 2, 5, 6, 3, 4, 7, 8, 9]);
    assert_eq!((sender.outstanding(), sender.paths()[0].in_flight), (0, 0));
    assert_eq!(sender.timeout(), Instant::NEVER);
}

#[test]
fn what_was_overtaken_is_lost_after_the_time_for_reordering_and_not_before() {
    let mut sender = sender(Repeat::Selective, 5);
    sender.on_answer(Instant(25 * US), Answer::Ack, Psn(1), 992, Some(&sack(1, &[2, 3, 4])), drop).unwrap();
    assert_eq!(resends(&mut sender, Instant(25 * US)), [0u64; 0]);
    let due = sender.timeout();
    assert!(due > Instant(25 * US) && due < Instant(100 * US), "{due:?}");
    sender.on_timeout(due);
    assert_eq!(resends(&mut sender, due), [1]);
    assert_eq!(resent(&sender), [(Cause::Overtaken, 1)]);
}

#[test]
fn a_lost_tail_is_probed_then_the_head() {
    let mut sender = sender(Repeat::Selective, 5);
    let first = sender.timeout();
    sender.on_timeout(first);
    assert_eq!(resends(&mut sender, first), [4]);
    let second = sender.timeout();
    assert!(second.since(first) >= RTO_NS_MIN);
    sender.on_timeout(second);
    assert_eq!(resends(&mut sender, second), [0]);
    let third = sender.timeout();
    assert!(third.since(second) >= 2 * RTO_NS_MIN, "backs off");
    // The answer to the probe proves the rest lost at once.
    sender.on_answer(second.plus(60 * US), Answer::Ack, Psn(1), 992, Some(&sack(1, &[4])), drop).unwrap();
    assert_eq!(resends(&mut sender, second.plus(60 * US)), [1, 2, 3]);
    assert_eq!(resent(&sender), [(Cause::Overtaken, 3), (Cause::TimedOut, 2)]);
}

#[test]
fn only_what_is_acknowledged_measures_a_round_trip() {
    let echo = |ack: u64, psns: &[u64], echo| {
        let mut sender = Sender::new(Repeat::Selective, 1, 992);
        (0..4).for_each(|packet| _ = sender.send(Instant(0), 0, packet));
        let sack = Sack { echo: Psn(echo), ..sack(ack, psns) };
        sender.on_answer(Instant(7 * US), Answer::Ack, Psn(ack), 992, Some(&sack), drop).unwrap();
        sender.paths()[0].rtt.min_ns == 7 * US
    };
    assert!(echo(1, &[], 0) && echo(1, &[2], 2));
    assert!(!echo(0, &[], 0) && !echo(1, &[3], 2));
}

/// What is sent again over a path whose queue takes 24 ms when four packets pass by the queue, and some do not arrive.
fn resent_when_some_pass_by(missing: &[u64]) -> Vec<u64> {
    const EVERY_NS: u64 = 400 * US;
    const QUEUE_NS: u64 = 60 * EVERY_NS;
    let mut sender = Sender::new(Repeat::Selective, 1, 992);
    (0..40).for_each(|_| sender.sample(0, QUEUE_NS));
    let (mut arrivals, mut resent) = (Vec::new(), Vec::new());
    for packet in 0..64 {
        let sent_ns = packet.min(60) * EVERY_NS;
        sender.send(Instant(sent_ns), 0, packet);
        arrivals.push((sent_ns + if packet < 60 { QUEUE_NS } else { MILLISECOND_NS }, packet));
    }
    arrivals.retain(|(_, packet)| !missing.contains(packet));
    arrivals.sort_unstable();
    let mut arrived = Vec::new();
    for (at, packet) in arrivals {
        arrived.push(packet);
        let ack = (0..).find(|psn| !arrived.contains(psn)).unwrap();
        let beyond: Vec<u64> = arrived.iter().copied().filter(|psn| *psn > ack).collect();
        let sack = Sack { echo: Psn(packet), ..sack(ack, &beyond) };
        if sender.timeout() <= Instant(at) {
            sender.on_timeout(Instant(at));
        }
        sender.on_answer(Instant(at), Answer::Ack, Psn(ack), 992, Some(&sack), drop).unwrap();
        resent.extend(resends(&mut sender, Instant(at)));
    }
    let due = sender.timeout();
    if due < Instant(2 * QUEUE_NS + MILLISECOND_NS) {
        sender.on_timeout(due);
        resent.extend(resends(&mut sender, due));
    }
    assert_eq!(sender.paths()[0].lost, missing.len() as u64);
    assert!(sender.paths()[0].congestion.cwnd_packets >= 64, "{}", sender.paths()[0].congestion.cwnd_packets);
    resent
}

#[test]
fn packets_that_pass_by_a_long_queue_prove_nothing_lost_but_what_is() {
    assert_eq!(resent_when_some_pass_by(&[]), [0u64; 0]);
    assert_eq!(resent_when_some_pass_by(&[30]), [30]);
}

#[test]
fn our_own_absence_is_no_round_trip() {
    let mut sender = sender(Repeat::Selective, 1);
    let sack = Sack { echo: Psn(0), ..sack(1, &[]) };
    sender.on_answer(Instant(3 * SECOND_NS), Answer::Ack, Psn(1), 992, Some(&sack), drop).unwrap();
    assert!(sender.paths()[0].rtt.srtt_ns < 10 * MILLISECOND_NS, "{} ns", sender.paths()[0].rtt.srtt_ns);
}

#[test]
fn xoff_holds_everything_and_xon_sends_what_was_refused() {
    let mut sender = sender(Repeat::Selective, 6);
    sender.on_answer(Instant(20 * US), Answer::Xoff, Psn(2), 992, Some(&sack(2, &[])), drop).unwrap();
    assert_eq!((sender.room(0), sender.barred()), (0, Some(Barred::Xoff)));
    assert_eq!(resends(&mut sender, Instant(21 * US)), [0u64; 0]);
    sender.on_answer(Instant(90 * US), Answer::Xon, Psn(2), 992, Some(&sack(2, &[])), drop).unwrap();
    assert_eq!(resends(&mut sender, Instant(91 * US)), [2, 3, 4, 5]);
    assert_eq!(resent(&sender), [(Cause::Refused, 4)]);
    assert!(sender.room(0) > 0 && sender.barred().is_none());
}

#[test]
fn what_keeps_packets_back_is_told() {
    let filled = |credit| {
        let mut sender = Sender::new(Repeat::Selective, 1, credit);
        while sender.room(0) > 0 {
            assert_eq!(sender.barred(), None);
            let psn = sender.next();
            sender.send(Instant(0), 0, psn.0);
        }
        sender
    };
    let mut sender = filled(10);
    assert_eq!(sender.barred(), Some(Barred::Credit));
    sender.grant(11);
    assert_eq!(sender.barred(), None);
    sender.suspend(Instant(US), 0);
    assert_eq!(sender.barred(), Some(Barred::Silence));
    assert_eq!(filled(992).barred(), Some(Barred::Congestion));
}

#[test]
fn a_lost_xon_is_made_up_for_by_a_probe_that_gets_through() {
    let mut sender = sender(Repeat::Selective, 3);
    sender.on_answer(Instant(20 * US), Answer::Xoff, Psn(0), 992, Some(&sack(0, &[])), drop).unwrap();
    let due = sender.timeout();
    sender.on_timeout(due);
    assert_eq!(resends(&mut sender, due).len(), 1);
    assert_eq!(sender.room(0), 0, "XOFF still holds");
    sender.on_answer(due.plus(US), Answer::Ack, Psn(0), 992, Some(&sack(0, &[2])), drop).unwrap();
    assert_eq!(resends(&mut sender, due.plus(US)), [0, 1]);
}

#[test]
fn go_back_n_goes_back_once_for_a_run_of_naks() {
    let mut sender = sender(Repeat::GoBackN, 8);
    for _ in 0..4 {
        sender.on_answer(Instant(20 * US), Answer::Nak, Psn(3), 992, None, drop).unwrap();
    }
    assert_eq!(resends(&mut sender, Instant(21 * US)), [3, 4, 5, 6, 7]);
    sender.on_answer(Instant(22 * US), Answer::Nak, Psn(3), 992, None, drop).unwrap();
    assert_eq!(resends(&mut sender, Instant(22 * US)), [0u64; 0]);
    assert_eq!(resent(&sender), [(Cause::WentBack, 5)]);
}

#[test]
fn go_back_n_goes_back_more_and_more_seldom_where_that_does_not_help() {
    let mut sender = sender(Repeat::GoBackN, 8);
    let (mut runs, mut last) = (Vec::new(), Instant(0));
    // Whatever comes behind a packet arrives, and the packet does not.
    for us in 20..1_000_000 {
        let now = Instant(us * US);
        sender.on_answer(now, Answer::Nak, Psn(3), 992, None, drop).unwrap();
        if !resends(&mut sender, now).is_empty() {
            runs.push(now.since(last));
            last = now;
        }
    }
    assert!((8..30).contains(&runs.len()), "{} runs in a second", runs.len());
    assert!(runs[2..].is_sorted(), "{runs:?}");
    // As soon as it has, the next is as urgent as the first was.
    let now = last.plus(US);
    sender.on_answer(now, Answer::Nak, Psn(4), 992, None, drop).unwrap();
    assert_eq!(resends(&mut sender, now), [4, 5, 6, 7]);
}

#[test]
fn no_credit_means_no_packet_but_a_probe_in_time() {
    let mut sender: Sender<u64> = Sender::new(Repeat::Selective, 1, 1);
    sender.send(Instant(0), 0, 0);
    sender.on_answer(Instant(10), Answer::Ack, Psn(1), 0, None, drop).unwrap();
    assert_eq!(sender.room(0), 0);
    sender.starve(Instant(20));
    let due = sender.timeout();
    assert!(due < Instant::NEVER);
    sender.on_timeout(due);
    assert!(sender.take_probe() && !sender.take_probe());
    sender.on_answer(due.plus(10), Answer::Ack, Psn(1), 4, None, drop).unwrap();
    assert_eq!(sender.room(0), 4);
}

#[test]
fn waiting_for_credit_makes_nobody_wait_longer_for_what_is_lost() {
    let mut sender: Sender<u64> = Sender::new(Repeat::Selective, 1, 1);
    sender.send(Instant(0), 0, 0);
    sender.on_answer(Instant(10), Answer::Ack, Psn(1), 0, None, drop).unwrap();
    sender.starve(Instant(20));
    for _ in 0..6 {
        sender.on_timeout(sender.timeout());
    }
    let now = sender.timeout();
    sender.on_answer(now, Answer::Ack, Psn(1), 4, None, drop).unwrap();
    sender.send(now, 0, 1);
    assert!(sender.timeout() < now.plus(RTO_NS_MIN), "{:?} after {now:?}", sender.timeout());
}

#[test]
fn an_impossible_ack_is_refused_and_changes_nothing() {
    let mut sender = sender(Repeat::Selective, 2);
    assert!(sender.on_answer(Instant(1), Answer::Ack, Psn(3), 992, None, |_| panic!()).is_err());
    assert_eq!(sender.outstanding(), 2);
}

#[test]
fn what_counted_as_lost_and_was_only_late_is_not_sent_again() {
    let mut sender = sender(Repeat::Selective, 4);
    let due = sender.timeout();
    sender.on_timeout(due);
    sender.on_answer(due, Answer::Ack, Psn(4), 992, None, drop).unwrap();
    assert!(!sender.has_lost());
    assert_eq!(sender.paths()[0].in_flight, 0);
}

#[test]
fn a_time_out_that_was_answered_asks_for_nothing_more() {
    let mut sender = sender(Repeat::Selective, 4);
    let due = sender.timeout();
    sender.on_timeout(due);
    assert!(sender.is_urgent());
    // It had only been late.
    sender.on_answer(due, Answer::Ack, Psn(4), 992, None, drop).unwrap();
    assert!(!sender.is_urgent());
    sender.on_answer(due, Answer::Xoff, Psn(4), 992, Some(&sack(4, &[])), drop).unwrap();
    sender.starve(due);
    let due = sender.timeout();
    sender.on_timeout(due);
    assert!(sender.is_urgent());
    sender.on_answer(due, Answer::Xon, Psn(4), 992, Some(&sack(4, &[])), drop).unwrap();
    assert!(!sender.is_urgent());
}

#[test]
fn credit_that_came_before_the_time_out_for_want_of_it_was_seen_is_used_as_ever() {
    let mut sender: Sender<u64> = Sender::new(Repeat::Selective, 1, 1);
    let psn = sender.send(Instant(0), 0, 0);
    sender.on_answer(Instant(20 * US), Answer::Ack, psn.next(), 0, None, drop).unwrap();
    sender.starve(Instant(20 * US));
    let due = sender.timeout();
    sender.on_answer(due, Answer::Ack, psn.next(), 8, None, drop).unwrap();
    sender.on_timeout(due);
    assert!(!sender.is_urgent() && sender.room(0) == 8 && !sender.take_probe());
}

#[test]
fn a_lost_xon_is_found_out_though_nothing_is_outstanding() {
    let mut sender = sender(Repeat::Selective, 3);
    sender.on_answer(Instant(30 * US), Answer::Xoff, Psn(3), 992, Some(&sack(3, &[])), drop).unwrap();
    assert_eq!((sender.room(0), sender.outstanding()), (0, 0));
    sender.starve(Instant(31 * US));
    let due = sender.timeout();
    assert!(due < Instant(SECOND_NS), "{due:?}");
    sender.on_timeout(due);
    assert_eq!(sender.room(0), 1);
    let psn = sender.send(due, 0, 3);
    assert_eq!(sender.room(0), 0, "one is enough to find out");
    sender.on_answer(due.plus(20 * US), Answer::Ack, psn.next(), 992, None, drop).unwrap();
    assert!(sender.room(0) > 1);
}

/// Two paths, over which so many packets went in turn, the even ones over the first.
fn two_paths(packets: u64) -> Sender<u64> {
    let mut sender = sender(Repeat::Selective, 0);
    assert_eq!((sender.add_path(0), sender.room(1)), (1, 0), "nothing is sent before a sign of life");
    sender.revive(Instant(0), 1);
    sender.sample(1, 20 * US);
    for packet in 0..packets {
        sender.send(Instant(packet * US), (packet % 2) as u8, packet);
    }
    sender
}

#[test]
fn a_path_may_be_slower_than_another_for_a_while() {
    let mut sender = two_paths(6);
    let even = sack(1, &[2, 4]);
    sender.on_answer(Instant(30 * US), Answer::Ack, Psn(1), 992, Some(&even), drop).unwrap();
    assert_eq!(resends(&mut sender, Instant(1000 * US)), [0u64; 0]);
    sender.on_answer(Instant(1000 * US), Answer::Ack, Psn(6), 992, None, drop).unwrap();
    assert!(sender.paths()[1].is_usable() && sender.paths()[1].lost == 0);
}

#[test]
fn a_silent_path_is_left_and_what_it_lost_goes_over_the_other() {
    let mut sender = two_paths(8);
    let even = sack(1, &[2, 4, 6]);
    sender.on_answer(Instant(30 * US), Answer::Ack, Psn(1), 992, Some(&even), drop).unwrap();
    let mut now = Instant(30 * US);
    let mut again = Vec::new();
    // The tail is tried at once.
    while sender.paths()[1].is_usable() {
        now = sender.timeout();
        assert!(now < Instant(10_000 * US), "{now:?}");
        sender.on_timeout(now);
        again.append(&mut resends(&mut sender, now));
    }
    again.sort_unstable();
    assert_eq!(again, [1, 3, 5, 7]);
    assert!(sender.paths()[0].is_usable());
    assert_eq!((sender.room(1), sender.paths()[1].in_flight), (0, 0));
    sender.on_answer(now.plus(30 * US), Answer::Ack, Psn(8), 992, None, drop).unwrap();
    sender.revive(Instant(0), 1);
    assert!(sender.room(1) > 0 && sender.outstanding() == 0);
}

#[test]
fn a_path_that_delivers_some_is_not_given_up_for_what_it_loses() {
    let mut sender = two_paths(8);
    // 3 is lost; 1, 5 and 7 arrive.
    sender
        .on_answer(Instant(30 * US), Answer::Ack, Psn(3), 992, Some(&sack(3, &[4, 5, 6, 7])), drop)
        .unwrap();
    sender.on_timeout(sender.timeout());
    assert!(sender.paths()[1].is_usable());
    assert_eq!(resends(&mut sender, Instant(5000 * US)), [3]);
}

#[test]
fn when_nobody_is_heard_no_path_is_to_blame() {
    let mut sender = two_paths(8);
    let mut now = Instant(8 * US);
    for _ in 0..20 {
        now = sender.timeout();
        sender.on_timeout(now);
        resends(&mut sender, now);
    }
    assert!(now > Instant(SECOND_NS) && sender.paths().iter().all(Path::is_usable));
}

#[test]
fn a_path_that_lost_what_another_then_delivered_is_silent_after_a_while() {
    for (again_over, silent) in [(1, true), (0, false)] {
        let mut sender = two_paths(0);
        let mut now = Instant(0);
        // One packet at a time, first over the first path.
        while sender.paths()[0].is_usable() && now < Instant(20_000 * US) {
            let psn = sender.send(now, 0, 0);
            while !sender.has_lost() {
                now = sender.timeout();
                sender.on_timeout(now);
            }
            assert_eq!(sender.lost_on(), Some(0));
            sender.resend(now, again_over).unwrap();
            now = now.plus(30 * US);
            sender.on_answer(now, Answer::Ack, psn.next(), 992, None, drop).unwrap();
        }
        let [first, second] = [0, 1].map(|path: usize| sender.paths()[path].is_usable());
        assert_eq!((first, second), (!silent, true));
        let left_at = now;
        assert!(
            !silent || (5000 * US..7000 * US).contains(&left_at.0),
            "left at {left_at:?}: it may merely be slow"
        );
    }
}

#[test]
fn what_was_refused_on_arrival_shows_which_path_works() {
    let mut sender = two_paths(0);
    let (mut now, mut last_over) = (Instant(0), 0);
    let psn = sender.send(now, 0, 0);
    while sender.paths()[0].is_usable() {
        assert!(now < Instant(60_000 * US), "the first path loses everything, and is still used");
        if last_over == 1 {
            let at = now.plus(30 * US);
            sender.on_refused(at, psn, 1);
            sender.on_answer(at, Answer::Xoff, psn, 992, None, drop).unwrap();
        }
        while !sender.has_lost() {
            now = sender.timeout();
            sender.on_timeout(now);
            if !sender.paths()[0].is_usable() {
                return;
            }
        }
        last_over = 1 - sender.lost_on().unwrap_or(last_over);
        sender.resend(now, last_over).unwrap();
    }
}

#[test]
fn time_outs_back_off_when_every_path_has_had_its_turn() {
    let mut sender = two_paths(0);
    for path in [2, 3] {
        sender.add_path(0);
        sender.revive(Instant(0), path);
    }
    sender.send(Instant(0), 0, 0);
    let (mut now, mut waits) = (Instant(0), Vec::new());
    for time_out in 1..10 {
        let due = sender.timeout();
        waits.push(due.since(now) / RTO_NS_MIN);
        now = due;
        sender.on_timeout(now);
        assert!(sender.resend(now, time_out % 4).is_some());
    }
    assert_eq!(waits[1..], [1, 1, 1, 1, 2, 2, 2, 2]);
}

#[test]
fn a_slow_path_that_is_not_used_puts_no_time_out_off() {
    let mut sender = two_paths(0);
    (0..8).for_each(|_| sender.sample(1, 40 * MILLISECOND_NS));
    sender.send(Instant(0), 0, 0);
    let mut waits = Vec::new();
    let mut now = Instant(0);
    for _ in 0..4 {
        let due = sender.timeout();
        waits.push(due.since(now));
        now = due;
        sender.on_timeout(now);
        assert!(sender.resend(now, 0).is_some());
    }
    assert_eq!(waits[1..], [RTO_NS_MIN, RTO_NS_MIN, 2 * RTO_NS_MIN]);
}

#[test]
fn another_path_may_take_the_place_of_a_silent_one() {
    let mut sender = two_paths(4);
    sender.suspend(Instant(10 * US), 1);
    sender.replace_path(1, 7);
    assert_eq!((sender.room(1), sender.paths()[1].speed_bits), (0, 7));
    assert_eq!(resends(&mut sender, Instant(20 * US)), [1, 3]);
    sender.on_answer(Instant(50 * US), Answer::Ack, Psn(4), 992, None, drop).unwrap();
    sender.revive(Instant(60 * US), 1);
    assert!(sender.room(1) > 0 && sender.paths()[1].in_flight == 0);
}

#[test]
fn every_time_out_tries_another_path_whatever_waits_to_be_sent_again() {
    let mut sender = two_paths(0);
    (0..4).for_each(|packet| _ = sender.send(Instant(0), 0, packet));
    sender.suspend(Instant(1), 0);
    sender.revive(Instant(2), 0);
    let mut tried = Vec::new();
    for _ in 0..4 {
        let now = sender.timeout();
        sender.on_timeout(now);
        let path = 1 - sender.lost_on().unwrap();
        assert!(sender.resend(now, path).is_some());
        tried.push(path);
    }
    assert_eq!(tried, [1, 0, 1, 0]);
}
