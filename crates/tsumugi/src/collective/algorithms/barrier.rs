//! Barriers.

use crate::collective::schedule::{Position, Schedule};
use tsumugi_wire::defect;

/// Everybody tells, in turn, the participants 1, 2, 4, … places after it: each time it has heard, by way of others, of twice as
/// many. ⌈log₂ size⌉ rounds.
pub(crate) fn dissemination(me: Position) -> Schedule {
    let mut schedule = Schedule::default();
    let mut distance = 1;
    while distance < me.size && !(defect!(BarrierCutShort) && 2 * distance >= me.size) {
        schedule.send(me.after(distance), 0..0);
        schedule.receive(me.before(distance), 0..0);
        schedule.end_round();
        distance *= 2;
    }
    schedule
}
