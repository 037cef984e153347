//! A host's errands in others' memory, and what must come of them. The next one at a host begins when what came of the last
//! one is known.

use super::{Host, Process};
use crate::ledger::Wrong;
use crate::memory::{Errand, LANE_BYTES, Work};
use crate::world::{Phase, World};
use tsumugi::remote::{Atomic, AtomicOperation, Refused, RemoteError, Word};
use tsumugi::{PeerId, Region, SendError, Target};
use tsumugi_wire::Instant;

/// Of so many calls that may begin an errand one does.
const BEGINS_ONE_IN: u64 = 4;
/// Of so many errands one writes more than a packet takes.
const LONG_ONE_IN: u64 = 3;

impl Host {
    /// Goes on with errands, and begins one now and then.
    pub(super) fn errands(
        &mut self,
        process: &mut Process,
        world: &mut World,
        now: Instant,
    ) -> Result<(), Wrong> {
        if !world.plan.memory {
            return Ok(());
        }
        for at in (0..process.errands.len()).rev() {
            self.go_on(process, world, now, at)?;
        }
        let hosts = world.address_plan.hosts();
        let is_time = world.phase == Phase::Storm && self.messages_left > 0 && now >= self.next_errand;
        if is_time && !process.leaving && self.random.one_in(BEGINS_ONE_IN) {
            let to = (self.index + 1 + self.random.below(hosts as u64 - 1) as usize) % hosts;
            if !process.errands.iter().any(|errand| errand.to == to) {
                self.begin(process, world, now, to)?;
            }
        }
        Ok(())
    }

    fn begin(
        &mut self,
        process: &mut Process,
        world: &mut World,
        now: Instant,
        to: usize,
    ) -> Result<(), Wrong> {
        let Some(lanes) = world.hosts[to].lanes else { return Ok(()) };
        let Some(id) = self.partner(process, world, now, to, 0)? else { return Ok(()) };
        let lane = lanes.first.plus((self.index * LANE_BYTES) as u64);
        let (work, requests) = if self.random.one_in(3) {
            let atomic = Atomic { operation: AtomicOperation::Add, word: Word::U64, operand: 1, compare: 0 };
            match process.core.remote_atomic(now, id, lane, atomic) {
                Ok(promise) => (Work::Count(promise), 1),
                Err(error) => return self.blocked(&error),
            }
        } else {
            match self.write(process, now, id, lane)? {
                Some(work) => work,
                None => return Ok(()),
            }
        };
        let connection = process.core.connection(id);
        self.enter_requests(process, world, id, to, requests);
        self.next_errand = now.plus(self.plan.errand_gap_ns);
        process.errands.push(Errand { peer: id, to, connection, epoch: lanes.epoch, work });
        Ok(())
    }

    /// Writes a stretch, and something short over a part of it, which has its turn after it.
    fn write(
        &mut self,
        process: &mut Process,
        now: Instant,
        id: PeerId,
        lane: Target,
    ) -> Result<Option<(Work, u64)>, Wrong> {
        let most = if self.random.one_in(LONG_ONE_IN) { LANE_BYTES as u64 - 8 } else { 300 };
        let bytes = self.random.between(1, most) as usize;
        let at = 8 + self.random.below((LANE_BYTES - 8 - bytes + 1) as u64) as usize;
        let seed = self.random.bits();
        let mut expected: Vec<u8> =
            (0..bytes).map(|place| (seed ^ (place as u64).wrapping_mul(0x9e37)) as u8).collect();
        let from = Region::new(bytes).map_err(|error| error.to_string())?;
        from.write(0, &expected).map_err(|error| error.to_string())?;
        let to = lane.plus(at as u64);
        match process.core.remote_write(now, id, to, &from.all()) {
            Ok(_) => {}
            Err(error) => return self.blocked(&error).map(|()| None),
        }
        let patch = self.random.bits().to_le_bytes();
        let patch = &patch[..bytes.min(8)];
        let place = self.random.below((bytes - patch.len() + 1) as u64) as usize;
        let mut requests = 2;
        match process.core.remote_write_bytes(now, id, to.plus(place as u64), patch) {
            Ok(_) => expected[place..place + patch.len()].copy_from_slice(patch),
            Err(error) => {
                self.blocked(&error)?;
                requests -= 1;
            }
        }
        let into = Region::new(bytes).map_err(|error| error.to_string())?;
        Ok(Some((Work::Write { at, expected, into, read: None }, requests)))
    }

    fn blocked(&self, error: &SendError) -> Result<(), Wrong> {
        match error {
            SendError::WouldBlock => Ok(()),
            error => Err(format!("host {} cannot use memory: {error}", self.index)),
        }
    }

    fn go_on(
        &mut self,
        process: &mut Process,
        world: &mut World,
        now: Instant,
        at: usize,
    ) -> Result<(), Wrong> {
        let errand = &process.errands[at];
        let (id, to) = (errand.peer, errand.to);
        let lasts = process.core.connection(id) == errand.connection;
        let Some(outcome) = errand.outcome() else {
            if !lasts {
                if !errand.has_more() {
                    return Err(format!("host {} waits for memory of a peer that is gone", self.index));
                }
                process.errands.swap_remove(at);
            } else if errand.has_more() {
                self.read_back(process, world, now, at)?;
            }
            return Ok(());
        };
        let errand = process.errands.swap_remove(at);
        world.ledger.errands += u64::from(outcome.is_ok());
        match (outcome, errand.work) {
            (Ok(value), Work::Count(_)) => {
                let before = process.counts.insert(id.0, (errand.connection, value));
                // Nobody else counts there, and this flow counts in order.
                if before.is_some_and(|(when, last)| when == errand.connection && last + 1 != value) {
                    return Err(format!(
                        "host {} counted at host {to}: {value} came after {before:?}",
                        self.index
                    ));
                }
                Ok(())
            }
            (Ok(_), Work::Write { at, expected, into, .. }) => {
                let mut read = vec![0; expected.len()];
                into.read(0, &mut read).map_err(|error| error.to_string())?;
                match read.iter().zip(&expected).position(|(is, must)| is != must) {
                    None => Ok(()),
                    Some(place) => Err(format!(
                        "host {} wrote {} bytes at {at} of its lane at host {to}, and byte {place} is another",
                        self.index,
                        expected.len()
                    )),
                }
            }
            (Err(RemoteError::PeerGone(_)), _) if !lasts => Ok(()),
            // Its key was of an incarnation that is no more.
            (Err(RemoteError::Refused(Refused::NoSuchKey)), _)
                if world.hosts[to].lanes.is_none_or(|lanes| lanes.epoch != errand.epoch) =>
            {
                Ok(())
            }
            (Err(error), _) => Err(format!("host {}, memory of host {to}: {error}", self.index)),
        }
    }

    fn read_back(
        &mut self,
        process: &mut Process,
        world: &mut World,
        now: Instant,
        at: usize,
    ) -> Result<(), Wrong> {
        let Process { core, errands, .. } = process;
        let Errand { peer: id, to, epoch, ref mut work, .. } = errands[at];
        let Work::Write { at: place, into, read, .. } = work else { return Ok(()) };
        // With the key of then: if there is another process now, it says that it does not know it.
        let Some(lanes) = world.hosts[to].lanes.filter(|lanes| lanes.epoch == epoch) else {
            errands.swap_remove(at);
            return Ok(());
        };
        let from = lanes.first.plus((self.index * LANE_BYTES + *place) as u64);
        match core.remote_read(now, id, from, &into.all()) {
            Ok(promise) => *read = Some(promise),
            Err(error) => return self.blocked(&error),
        }
        process.acted = true;
        self.enter_requests(process, world, id, to, 1);
        Ok(())
    }

    /// Requests count as messages that are not taken from a channel.
    fn enter_requests(&self, process: &mut Process, world: &mut World, id: PeerId, to: usize, requests: u64) {
        let connection = process.core.connection(id);
        let peer = process.known.entry(id.0).or_default();
        let (from, incarnation) = (self.index, self.incarnation);
        let stretch =
            *peer.stretch.get_or_insert_with(|| world.ledger.begin(from, incarnation, to, connection));
        peer.connection = connection;
        for _ in 0..requests {
            world.ledger.post_request(stretch);
        }
    }
}
