//! The path on which the next packet is expected to arrive first.

use super::{Pick, Policy, usable};
use crate::receive_bitmap::REACH_PACKETS;
use crate::sender::Path;
use tsumugi_wire::Instant;

/// Packets that are picked for at a time while several paths work: so many that they cost the sender little more than
/// one, so few that the next pick sees what they changed.
const RUN_PACKETS: u32 = 16;
/// How much later a packet may arrive than the last of those that wait would on the best path, which has no room, to be
/// sent all the same: otherwise it waits for the best one. One in so many.
const WORTH_WAITING: u64 = 4;
/// Of those that wait so many count: a quarter of what may be under way, or the best path would soon wait for the slow one.
const AHEAD_PACKETS_MAX: u32 = REACH_PACKETS as u32 / 4;

/// Sends over the path with the least expected completion time: what is under way there and the next packet, at the
/// rate at which the path has been delivering, and half an empty round trip. So the shares follow what really arrives,
/// whatever NICs say of their speed; a path that is congested by others, or loses packets, gets less. A slow path gets
/// what it delivers before the best one would have delivered all that waits.
#[derive(Clone, Copy, Debug)]
pub struct Adaptive;

/// When the last of so many further packets would arrive over the path, ns from now.
fn completion_ns(path: &Path, now: Instant, packets: u32) -> u64 {
    let rate = path.rate_expected(now).max(1);
    let queue = u64::from(path.in_flight + packets);
    path.rtt.empty_ns() / 2 + queue.saturating_mul(1_000_000_000) / rate
}

impl Policy for Adaptive {
    fn pick(&mut self, now: Instant, _: u32, paths: &[Path], waiting: u32) -> Option<Pick> {
        let expected = |path: &Path| completion_ns(path, now, waiting.clamp(1, RUN_PACKETS));
        let last = |path: &Path| completion_ns(path, now, waiting.clamp(1, AHEAD_PACKETS_MAX));
        let last_ns = usable(paths).map(|(_, path)| last(path)).min()?;
        let (number, path) = usable(paths)
            .filter(|(_, path)| path.room() > 0)
            .min_by_key(|(_, path)| expected(path))
            .filter(|(_, path)| expected(path) <= last_ns + last_ns / WORTH_WAITING)?;
        let alone = usable(paths).nth(1).is_none();
        let packets = if alone { path.room() } else { path.room().min(RUN_PACKETS) };
        Some(Pick { path: number, packets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// The policy picks, for a while, among paths that deliver `rates` packets a second, each packet after 100 µs, with
    /// more to send than they carry. Returns how many packets each has delivered.
    fn shares(rates: &[u64], milliseconds: u64) -> Vec<u64> {
        let mut paths: Vec<Path> = rates.iter().map(|_| Path::default()).collect();
        let mut policy = Adaptive;
        // When each path's wire is free again, and what is on it: arrival and transmission number.
        let (mut free, mut flying) = (vec![0u64; rates.len()], vec![Vec::<(u64, u64)>::new(); rates.len()]);
        let (mut delivered, mut order) = (vec![0; rates.len()], 1);
        for now in (0..milliseconds * 1_000_000).step_by(10_000) {
            for (path, flying) in paths.iter_mut().zip(&mut flying) {
                while flying.first().is_some_and(|(arrival, _)| *arrival <= now) {
                    let (arrival, number) = flying.remove(0);
                    path.sample(arrival.saturating_sub(number >> 32 << 10).max(100_000));
                    path.acked(Instant(now), number & 0xffff_ffff, Instant(arrival), order, 992);
                }
            }
            while let Some(pick) = policy.pick(Instant(now), 0, &paths, 1000) {
                let at = usize::from(pick.path);
                for _ in 0..pick.packets {
                    free[at] = free[at].max(now) + 1_000_000_000 / rates[at];
                    flying[at].push((free[at] + 100_000, order | (now >> 10) << 32));
                    paths[at].sent(Instant(now));
                    delivered[at] += 1;
                    order += 1;
                }
            }
        }
        for (flying, delivered) in flying.iter().zip(&mut delivered) {
            *delivered -= flying.len() as u64;
        }
        delivered
    }

    #[test]
    fn equal_paths_carry_equal_shares() {
        let shares = shares(&[83_000, 83_000], 400);
        for share in &shares {
            assert!(*share >= 83_000 * 4 / 10 * 95 / 100, "{shares:?}");
        }
    }

    #[test]
    fn a_slow_path_carries_what_it_can_and_holds_nobody_up() {
        let rates = [83_000, 8_300];
        let shares = shares(&rates, 1000);
        for (share, rate) in shares.iter().zip(rates) {
            assert!(*share >= rate * 9 / 10, "{shares:?}");
        }
    }

    #[test]
    fn a_path_that_was_slow_once_is_tried_again() {
        let (mut slow, mut quick) = (Path::default(), Path::default());
        (0..50).for_each(|_| quick.sent(Instant(0)));
        slow.sent(Instant(0));
        slow.acked(Instant(100_000_000), 0, Instant(0), 1, 992);
        let paths = [quick, slow];
        let picked = |now| Adaptive.pick(Instant(now), 0, &paths, 16).map(|it| it.path);
        assert_eq!((picked(100_000_000), picked(20_000_000_000)), (Some(0), Some(1)));
    }

    #[test]
    fn a_lone_packet_takes_the_shorter_way() {
        let mut paths = [Path::default(), Path::default()];
        paths[0].sample(200_000);
        paths[1].sample(50_000);
        assert_eq!(Adaptive.pick(Instant(0), 0, &paths, 1).map(|it| it.path), Some(1));
    }
}
