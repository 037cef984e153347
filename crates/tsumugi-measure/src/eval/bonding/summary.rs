//! What the evaluation says, in a few sentences: what one NIC carries, and what several would.

use tsumugi::Policy;

use super::Evaluation;
use super::case::Case;
use super::contender::Contender;
use super::results::CaseRow;
use crate::report::units::{self, three_digits};
use crate::report::words::{MEASURE_AGAIN, busy, place};

/// A policy that carries so much more than the default one is worth telling of.
const MORE: f64 = 1.05;

/// Paragraphs; none where the default policy was not measured.
pub(super) fn paragraphs(evaluation: &Evaluation) -> Vec<String> {
    let matrix = || evaluation.cases().filter(|case| !case.is_uneven);
    let mut rates: Vec<u64> = matrix().map(|case| case.rate.bits_per_s).collect();
    rates.sort_unstable();
    rates.dedup();
    let by_rate = rates.into_iter().filter_map(|rate| {
        // Of each rate the case with the most NICs.
        let most = matrix().filter(|case| case.rate.bits_per_s == rate).max_by_key(|case| case.nics)?;
        several(evaluation, most)
    });
    let mut paragraphs: Vec<String> = by_rate.collect();
    paragraphs
        .extend(evaluation.cases().find(|case| case.is_uneven).and_then(|case| uneven(evaluation, case)));
    if let Some(first) = paragraphs.first_mut() {
        *first = format!("{first} {}", place(&evaluation.machine));
        let busy = busy(&evaluation.machine).map(|busy| format!("{busy} {MEASURE_AGAIN}"));
        let is_kernel = |row: &CaseRow| matches!(row.policy, Contender::Kernel(_));
        let missing = (!evaluation.rows.iter().any(is_kernel))
            .then(|| "TCP over a bond of the kernel is not among what was measured.".to_owned());
        let remarks: Vec<String> = missing.into_iter().chain(busy).collect();
        if !remarks.is_empty() {
            paragraphs.push(remarks.join(" "));
        }
    }
    paragraphs
}

/// What several NICs carry, beside one.
fn several(evaluation: &Evaluation, case: &Case) -> Option<String> {
    let carried = |contender: Contender| {
        evaluation.rows_of(case).find(|row| row.policy == contender).and_then(|row| row.row.gbit_s)
    };
    let ours = carried(Contender::default())?;
    let one = carried(Contender::Ours(Policy::ActiveBackup)).filter(|one| *one > 0.0);
    let rate = units::bandwidth(case.rate.bits_per_s as f64 / 1e9);
    let now = one.map(|one| {
        let senders =
            if case.senders == 1 { "a sender".to_owned() } else { format!("{} senders", case.senders) };
        format!(
            "Today, over one NIC of {rate}, {senders} get {} together (active-backup). ",
            units::bandwidth(one)
        )
    });
    let times = one.map_or(String::new(), |one| format!(", {} times as much", three_digits(ours / one)));
    let then = format!(
        "Over {} of them Tsumugi's default policy carries {}{times}: {} of what they can.",
        case.nics,
        units::bandwidth(ours),
        units::percent(ours / case.gbit_s())
    );
    let others = evaluation.rows_of(case).filter(|row| row.policy != Contender::default());
    let others = others.filter_map(|row| Some((row.policy, row.row.gbit_s?)));
    let best = others.max_by(|(_, one), (_, other)| one.total_cmp(other));
    let more = best.filter(|(_, gbit_s)| *gbit_s > ours * MORE);
    let more = more.map_or(String::new(), |(contender, gbit_s)| {
        format!(" {contender} carries more: {}.", units::bandwidth(gbit_s))
    });
    Some(now.unwrap_or_default() + &then + &more)
}

/// Whether senders get the same when one of them was there before.
fn uneven(evaluation: &Evaluation, case: &Case) -> Option<String> {
    let even = |policy: Policy| {
        let row = evaluation.rows_of(case).find(|row| row.policy == Contender::Ours(policy))?;
        Some(match row.even_after_s {
            None => "never while it was measured".to_owned(),
            Some(seconds) if seconds < 0.05 => "at once".to_owned(),
            Some(seconds) => format!("after {seconds:.1} s"),
        })
    };
    let ours = even(Policy::default())?;
    let tlb = even(Policy::Tlb).map_or(String::new(), |tlb| format!(", by balance-tlb {tlb}"));
    Some(format!(
        "Where one sender begins before the others, all get the same by the default policy {ours}{tlb}."
    ))
}

#[cfg(test)]
mod tests {
    use super::super::page::samples;
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn one_nic_and_several_are_told_for_each_rate() {
        let paragraphs = paragraphs(&samples::evaluation());
        assert!(
            paragraphs[0].starts_with(
                "Today, over one NIC of 100 Mb/s, 2 senders get 91.1 Mb/s together (active-backup). Over 4 of them \
                 Tsumugi's default policy carries 364 Mb/s, 4.00 times as much: 91.1 % of what they can. Measured"
            ),
            "{paragraphs:?}"
        );
        assert!(paragraphs[1].contains("NIC of 1.00 Gb/s"), "{paragraphs:?}");
        assert!(paragraphs[2].contains("by the default policy at once"), "{paragraphs:?}");
        assert!(paragraphs[3].contains("a bond of the kernel is not among"), "{paragraphs:?}");
    }

    #[test]
    fn what_carries_more_is_told() {
        let mut evaluation = samples::evaluation();
        let other = evaluation.rows.iter_mut().find(|row| row.policy == Contender::Ours(Policy::Hash));
        other.expect("a row").row.gbit_s = Some(0.39);
        assert!(paragraphs(&evaluation)[0].contains("hash carries more: 390 Mb/s."));
    }

    #[test]
    fn without_the_default_policy_nothing_is_said() {
        let evaluation = Evaluation::new(
            vec![Case::ALL[0]],
            Vec::new(),
            crate::conditions::Conditions::default(),
            Machine::default(),
        );
        assert!(paragraphs(&evaluation).is_empty());
    }
}
