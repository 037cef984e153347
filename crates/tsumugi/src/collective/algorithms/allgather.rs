//! Gathering at all participants.

use crate::collective::schedule::{Position, Schedule, blocks};

/// Every block goes around the ring.
pub(crate) fn ring(me: Position, lengths: &[usize]) -> Schedule {
    let mut schedule = Schedule::default();
    let all = schedule.allocate(lengths.iter().sum());
    let blocks = blocks(lengths);
    schedule.input = blocks[me.rank].start;
    for step in 0..me.size - 1 {
        schedule.send(me.after(1), blocks[me.before(step)].clone());
        schedule.receive(me.before(1), blocks[me.before(step + 1)].clone());
        schedule.end_round();
    }
    schedule.output = Some(all);
    schedule
}

/// Everybody sends all it has to the participants 1, 2, 4, … places before it, and so has twice as many blocks each time
/// (Bruck). ⌈log₂ size⌉ rounds. Blocks have the same length.
pub(crate) fn bruck_allgather(me: Position, bytes: usize) -> Schedule {
    let mut schedule = Schedule::default();
    // From our own rank on.
    let turned = schedule.allocate(me.size * bytes);
    let mut have = 1;
    while have < me.size {
        let more = have.min(me.size - have);
        schedule.send(me.before(have), 0..more * bytes);
        schedule.receive(me.after(have), have * bytes..(have + more) * bytes);
        schedule.end_round();
        have += more;
    }
    if me.rank == 0 {
        schedule.output = Some(turned);
        return schedule;
    }
    let output = schedule.allocate(me.size * bytes);
    let end = (me.size - me.rank) * bytes;
    schedule.copy(0..end, output.start + me.rank * bytes);
    schedule.copy(end..turned.end, output.start);
    schedule.end_round();
    schedule.output = Some(output);
    schedule
}
