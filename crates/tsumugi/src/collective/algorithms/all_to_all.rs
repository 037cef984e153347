//! Everybody's block for everybody.

use crate::collective::schedule::{Position, Schedule, blocks};

/// In round i everybody sends to the participant i places after it and receives from the one i places before.
pub(crate) fn pairwise(me: Position, sent: &[usize], received: &[usize]) -> Schedule {
    let mut schedule = Schedule::default();
    let sent = blocks(sent);
    let input = schedule.allocate(sent.last().map_or(0, |last| last.end));
    let output = schedule.allocate(received.iter().sum());
    let place = |block: &std::ops::Range<usize>| input.end + block.start..input.end + block.end;
    let received: Vec<_> = blocks(received).iter().map(place).collect();
    schedule.copy(sent[me.rank].clone(), received[me.rank].start);
    schedule.end_round();
    for distance in 1..me.size {
        let (to, from) = (me.after(distance), me.before(distance));
        schedule.send(to, sent[to].clone());
        schedule.receive(from, received[from].clone());
        schedule.end_round();
    }
    schedule.output = Some(output);
    schedule
}

/// Blocks travel 1, 2, 4, … places at a time, together with the others that have as far to go (Bruck): ⌈log₂ size⌉ messages of
/// half of the blocks. Blocks have the same length.
pub(crate) fn bruck_all_to_all(me: Position, bytes: usize) -> Schedule {
    let mut schedule = Schedule::default();
    let input = schedule.allocate(me.size * bytes);
    // The blocks by how far they have to go.
    let by_distance = schedule.allocate(me.size * bytes);
    let block =
        |distance: usize| by_distance.start + distance * bytes..by_distance.start + (distance + 1) * bytes;
    schedule.copy(me.rank * bytes..input.end, by_distance.start);
    schedule.copy(0..me.rank * bytes, block(me.size - me.rank).start);
    let mut hop = 1;
    while hop < me.size {
        let travelling: Vec<usize> = (0..me.size).filter(|distance| distance & hop != 0).collect();
        let packed = schedule.allocate(travelling.len() * bytes);
        for (at, distance) in travelling.iter().enumerate() {
            schedule.copy(block(*distance), packed.start + at * bytes);
        }
        schedule.end_round();
        let arrived = schedule.allocate(travelling.len() * bytes);
        schedule.send(me.after(hop), packed);
        schedule.receive(me.before(hop), arrived.clone());
        for (at, distance) in travelling.iter().enumerate() {
            let from = arrived.start + at * bytes;
            schedule.copy(from..from + bytes, block(*distance).start);
        }
        hop *= 2;
    }
    let output = schedule.allocate(me.size * bytes);
    for rank in 0..me.size {
        // What came from so far before us has come so far.
        schedule.copy(block(me.relative_to(rank)), output.start + rank * bytes);
    }
    schedule.end_round();
    schedule.output = Some(output);
    schedule
}
