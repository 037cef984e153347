//! Policies that keep next to nothing.

use super::{Pick, Policy, usable};
use crate::sender::Path;
use tsumugi_wire::Instant;
use tsumugi_wire::defect;

/// Packets that [`RoundRobin`] sends over a path in a row: together they cost the sender little more than one.
const TURN_PACKETS: u32 = 16;

/// The path as long as it has room.
fn filled(path: u8, of: &Path) -> Option<Pick> {
    let packets = of.room();
    (packets > 0).then_some(Pick { path, packets })
}

/// One path after the other, whatever they carry: a slow one holds up all, as in bonding's balance-rr.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    next: u8,
    /// Packets of the present turn that were sent.
    sent: u32,
}

impl Policy for RoundRobin {
    fn pick(&mut self, _: Instant, _: u32, paths: &[Path], _: u32) -> Option<Pick> {
        if self.sent >= TURN_PACKETS || !paths.get(usize::from(self.next)).is_some_and(Path::is_usable) {
            let after = usable(paths).find(|(number, _)| *number > self.next);
            self.next = after.or_else(|| usable(paths).next())?.0;
            self.sent = 0;
        }
        let path = &paths[usize::from(self.next)];
        filled(self.next, path)
            .map(|pick| Pick { packets: pick.packets.min(TURN_PACKETS - self.sent), ..pick })
    }

    fn on_sent(&mut self, _: u32, path: u8, packets: u32, _: u64) {
        if path == self.next {
            self.sent += packets >> u32::from(defect!(TurnsForgotten));
        }
    }
}

/// The first path that works.
#[derive(Clone, Copy, Debug)]
pub struct ActiveBackup;

impl Policy for ActiveBackup {
    fn pick(&mut self, _: Instant, _: u32, paths: &[Path], _: u32) -> Option<Pick> {
        let (number, path) = usable(paths).next()?;
        filled(number, path)
    }
}

/// Each flow over one path, by its number.
#[derive(Clone, Copy, Debug)]
pub struct Hash;

impl Policy for Hash {
    fn pick(&mut self, _: Instant, flow: u32, paths: &[Path], _: u32) -> Option<Pick> {
        let count = usable(paths).count();
        let (number, path) = usable(paths).nth(flow as usize % count.max(1))?;
        filled(number, path)
    }
}

/// Every packet over every path: as fast as the slowest, as safe as all of them together.
#[derive(Clone, Copy, Debug)]
pub struct Broadcast;

impl Policy for Broadcast {
    fn pick(&mut self, now: Instant, flow: u32, paths: &[Path], waiting: u32) -> Option<Pick> {
        ActiveBackup.pick(now, flow, paths, waiting)
    }

    fn is_copied(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_robin_takes_turns_and_waits_for_the_slow() {
        let mut policy = RoundRobin::default();
        let mut paths = [Path::default(), Path::default()];
        for turn in [0, 1, 0, 1] {
            for left in (1..=TURN_PACKETS).rev() {
                let picked = policy.pick(Instant(0), 0, &paths, 9);
                assert_eq!(picked, Some(Pick { path: turn, packets: left }));
                policy.on_sent(0, turn, 1, 1472);
            }
        }
        paths[0].in_flight = paths[0].congestion.cwnd_packets;
        assert_eq!(policy.pick(Instant(0), 0, &paths, 9), None, "it is the first's turn, and it is full");
    }

    #[test]
    fn a_backup_is_used_only_while_the_first_is_silent() {
        let mut paths = [Path::default(), Path::default()];
        let picked = |paths: &[Path]| ActiveBackup.pick(Instant(0), 0, paths, 1).map(|it| it.path);
        assert_eq!(picked(&paths), Some(0));
        paths[0].suspend(Instant(0));
        assert_eq!(picked(&paths), Some(1));
        paths[0].revive(Instant(0));
        assert_eq!(picked(&paths), Some(0));
    }

    #[test]
    fn flows_are_spread_by_their_numbers() {
        let paths = [Path::default(), Path::default(), Path::default()];
        let picked = |flow| Hash.pick(Instant(0), flow, &paths, 1).map(|it| it.path);
        assert_eq!([0, 1, 2, 3].map(picked), [Some(0), Some(1), Some(2), Some(0)]);
    }
}
