//! What a comparison measures of the programming models: remote writes beside messages, and streams of long tagged messages beside
//! each other.

use super::entry::Entry;
use super::test::{Kind, Missing, Test};
use crate::peers::Transport;
use crate::peers::ours::Model;
use crate::row::Metric;
use crate::sizes;

/// Lengths of the writes that are compared with messages, bytes.
const WRITE_BYTES: [u64; 2] = [8, 1 << 10];
/// Lengths of the tagged messages whose streams are compared with each other, bytes. They are built in place: who has so long ones copies
/// them nowhere.
const LONG_BYTES: [u64; 4] = [1 << 20, 4 << 20, 64 << 20, 1 << 30];
/// Memory that the two sides of such a stream take, in messages: what is sent and kept, and what is received into.
const LONG_COPIES: u64 = 8;

/// The tests, in the lab and for the time of `like`, and what is left out of them and why.
pub(super) fn tests(like: &Test, missing: &Missing) -> (Vec<Test>, Option<String>) {
    let test = |kind, metric, size_bytes, entries| Test { kind, metric, size_bytes, entries, ..like.clone() };
    let ours = Entry::new(Transport::Tsumugi);
    let mut receive_paths = vec![ours.clone()];
    receive_paths.extend(missing.xdp.is_none().then(|| Entry::ours("udp", "xdp")));
    let both = |entry: &Entry| [entry.clone(), Entry { model: Model::Write, ..entry.clone() }];
    let beside: Vec<Entry> = receive_paths.iter().flat_map(both).collect();
    let mut tests: Vec<Test> =
        WRITE_BYTES.map(|bytes| test(Kind::Writes, Metric::RoundTrip, bytes, beside.clone())).into();
    let fits = |bytes: &u64| missing.memory_bytes.is_none_or(|has| bytes * LONG_COPIES <= has);
    let (long, too_long): (Vec<u64>, Vec<u64>) = LONG_BYTES.into_iter().partition(fits);
    let left_out = too_long.first().map(|&bytes| {
        let (shown, needed) = (sizes::show(bytes), sizes::show(bytes * LONG_COPIES));
        format!("streams of tagged messages of {shown} and more: they take {needed} of memory, and so much is not available")
    });
    let tagged =
        |bytes| Entry { model: Model::Message, in_place: true, size_bytes: Some(bytes), ..ours.clone() };
    if let Some(&first) = long.first() {
        tests.push(test(Kind::Long, Metric::Bandwidth, first, long.into_iter().map(tagged).collect()));
    }
    (tests, left_out)
}

#[cfg(test)]
mod test {
    use super::*;

    fn like() -> Test {
        let (kind, metric, size_bytes) = (Kind::Main, Metric::RoundTrip, 64);
        Test { kind, metric, size_bytes, offloads: true, mtu_bytes: 1500, time_s: 0.3, entries: Vec::new() }
    }

    fn names(tests: &[Test]) -> Vec<Vec<String>> {
        tests.iter().map(|test| test.entries.iter().map(Entry::name).collect()).collect()
    }

    #[test]
    fn writes_stand_beside_messages_and_long_messages_beside_long_ones() {
        let (all, left_out) = tests(&like(), &Missing::default());
        let beside = [
            "tsumugi, spin",
            "tsumugi, spin, remote writes",
            "tsumugi udp+xdp, spin",
            "tsumugi udp+xdp, spin, remote writes",
        ];
        let long = ["1 MiB", "4 MiB", "64 MiB", "1 GiB"]
            .map(|size| format!("tsumugi, spin, tagged messages, in place, {size}"));
        assert_eq!(names(&all), [&beside.map(str::to_owned)[..], &beside.map(str::to_owned), &long]);
        assert_eq!(left_out, None);
    }

    #[test]
    fn what_the_machine_has_no_memory_for_is_left_out_and_it_is_said() {
        let missing =
            Missing { memory_bytes: Some(1 << 30), xdp: Some("no program".into()), ..Missing::default() };
        let (all, left_out) = tests(&like(), &missing);
        assert_eq!(names(&all).iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 3]);
        let left_out = left_out.expect("a word about it");
        assert!(left_out.contains("1 GiB and more") && left_out.contains("8 GiB"), "{left_out}");
        let missing = Missing { memory_bytes: Some(1 << 20), ..missing };
        assert_eq!(tests(&like(), &missing).0.len(), 2);
    }
}
