//! What a host's application does: it opens channels, posts, reads, keeps and gives back.

use super::{Host, Kept, Process, Reading, check_kept, taken};
use crate::ledger::Wrong;
use crate::message::LABEL_BYTES;
use crate::world::{Phase, World};
use tsumugi::PeerId;
use tsumugi::internal::Delivery;
use tsumugi_wire::Instant;

impl Host {
    /// What the application does in one call.
    pub(super) fn application(
        &mut self,
        process: &mut Process,
        world: &mut World,
        now: Instant,
    ) -> Result<(), Wrong> {
        let storm = world.phase == Phase::Storm;
        for channel in 0..usize::from(world.plan.channels) {
            if process.reading.open[channel].is_none()
                && (!storm || self.plan.reader.opens_at[channel] <= now)
            {
                process.reading.open[channel] = Some(0);
                if !process.core.open_channel(channel as u16 + 1) {
                    return Err(format!("channel {} is taken", channel + 1));
                }
                // Who keeps account of every failure.
                process.core.hear_closes(channel as u16 + 1);
            }
        }
        self.release(process, now, storm)?;
        self.errands(process, world, now)?;
        if process.reading.arrived && now >= process.reading.read_at.plus(self.plan.reader.every_ns) {
            self.read(process, world, now)?;
        }
        if storm && self.messages_left > 0 && !process.leaving && now >= self.next_post {
            self.next_post = now.plus(1000 + self.random.below(self.plan.gap_ns));
            for _ in 0..self.random.between(1, self.plan.burst_max) {
                if !self.post(process, world, now)? {
                    break;
                }
            }
            if self.random.one_in(2) {
                self.transmit(process, now)?;
            }
        }
        if world.phase == Phase::Recovery {
            self.recover(process, world, now)?;
        }
        Ok(())
    }

    fn release(&mut self, process: &mut Process, now: Instant, storm: bool) -> Result<(), Wrong> {
        let Process { core, reading: Reading { kept, .. }, .. } = process;
        while let Some(first) = kept.front() {
            if storm && first.until > now && kept.len() <= self.plan.reader.keep_max {
                break;
            }
            // Not always in the order in which they came.
            let at = self.random.below(kept.len().min(3) as u64) as usize;
            let Some(message) = kept.remove(at) else { break };
            check_kept(core, &message)?;
            core.release_message(message.payload);
        }
        Ok(())
    }

    fn read(&mut self, process: &mut Process, world: &mut World, now: Instant) -> Result<(), Wrong> {
        process.reading.read_at = now;
        process.reading.arrived = false;
        let storm = world.phase == Phase::Storm;
        for channel in 1..=world.plan.channels {
            if process.reading.open[usize::from(channel) - 1].is_none() {
                continue;
            }
            let mut left = if storm { self.plan.reader.take_max } else { u64::MAX };
            while left > 0 {
                left -= 1;
                match process.core.take(channel) {
                    None => break,
                    Some(Delivery::Failed(_)) => process.reading.heard[usize::from(channel) - 1] += 1,
                    Some(Delivery::Message { source, payload }) => {
                        let (label, bytes) = taken(
                            self.index,
                            self.incarnation,
                            &process.core,
                            world,
                            channel,
                            source,
                            &payload,
                        )?;
                        if storm && self.plan.reader.keep_max > 0 {
                            let until = now.plus(self.random.below(self.plan.reader.keep_ns));
                            process.reading.kept.push_back(Kept { payload, label, bytes, until });
                        } else {
                            process.core.release_message(payload);
                        }
                    }
                }
                process.reading.arrived |= left == 0;
            }
        }
        self.release(process, now, storm)
    }

    /// Posts a message to somebody. `false` when the application had better wait.
    fn post(&mut self, process: &mut Process, world: &mut World, now: Instant) -> Result<bool, Wrong> {
        let count = world.address_plan.hosts() as u64;
        let to = (self.index + 1 + self.random.below(count - 1) as usize) % count as usize;
        let channel = self.random.between(1, u64::from(world.plan.channels)) as u16;
        let bytes = self.size(world);
        if self.messages_left == 0 || bytes as u64 > world.bytes_left {
            self.messages_left = 0;
            return Ok(false);
        }
        let posted = if process.multicast.is_some() && self.random.one_in(2) {
            self.post_to_all(process, world, now, channel, bytes)?
        } else {
            self.post_to(process, world, now, to, channel, bytes)?
        };
        if posted {
            self.messages_left -= 1;
            world.bytes_left -= bytes as u64;
        }
        Ok(posted)
    }

    fn size(&mut self, world: &World) -> usize {
        let random = &mut self.random;
        if random.one_in(world.plan.long_one_in) {
            return random.between(1000, world.plan.message_bytes_max) as usize;
        }
        match random.below(10) {
            0 => 0,
            1..=5 => random.between(1, 64) as usize,
            // About the ends of packets.
            6 => (random.pick(&[508, 1472, 3472, 8972]) - 48 - 8 - random.below(40)) as usize,
            _ => random.between(1, 1400) as usize,
        }
    }

    fn post_to(
        &mut self,
        process: &mut Process,
        world: &mut World,
        now: Instant,
        to: usize,
        channel: u16,
        bytes: usize,
    ) -> Result<bool, Wrong> {
        let bytes_max = bytes.max(LABEL_BYTES) as u64;
        let Some(id) = self.partner(process, world, now, to, bytes_max)? else { return Ok(false) };
        let Process { core, known, .. } = process;
        let peer = known.entry(id.0).or_default();
        let connection = core.connection(id);
        let stretch = match peer.stretch {
            Some(stretch) => stretch,
            None => world.ledger.begin(self.index, self.incarnation, to, connection),
        };
        let label = world.ledger.next_label(stretch, channel);
        // The first of a stretch must be told from the next one of the stretch before.
        let bytes = if label.number == 0 { bytes.max(LABEL_BYTES) } else { bytes };
        let number = core
            .post(now, id, channel, &label.message(bytes))
            .map_err(|error| format!("host {} cannot post though it may: {error}", self.index))?;
        world
            .wire
            .borrow_mut()
            .note(now, || format!("host {} posts {label:?} {bytes} B to {to}", self.index));
        peer.stretch = Some(stretch);
        peer.connection = connection;
        if core.connection(id) != connection {
            return Err("posting began another connection".to_owned());
        }
        world.ledger.post(label, bytes, number)?;
        Ok(true)
    }

    /// Posts a message to all others at once. It shows the label that it has for the first of them.
    fn post_to_all(
        &mut self,
        process: &mut Process,
        world: &mut World,
        now: Instant,
        channel: u16,
        bytes: usize,
    ) -> Result<bool, Wrong> {
        let Some(multicast) = process.multicast else { return Ok(false) };
        let bytes = bytes.max(LABEL_BYTES);
        let mut labels = Vec::new();
        let others = (0..world.address_plan.hosts()).filter(|other| *other != self.index);
        for to in others {
            let Some(id) = self.partner(process, world, now, to, bytes as u64)? else { return Ok(false) };
            labels.push((to, id));
        }
        let mut stretches = Vec::new();
        for (to, id) in &labels {
            let peer = process.known.entry(id.0).or_default();
            let connection = process.core.connection(*id);
            let begin = || world.ledger.begin(self.index, self.incarnation, *to, connection);
            let stretch = peer.stretch.unwrap_or_else(begin);
            (peer.stretch, peer.connection) = (Some(stretch), connection);
            stretches.push(stretch);
        }
        let shown = world.ledger.next_label(stretches[0], channel);
        let posted = process.core.post_multicast(now, multicast, channel, [&shown.message(bytes), &[]]);
        let numbers = posted
            .map_err(|(_, error)| format!("host {} cannot post to all though it may: {error}", self.index))?;
        world.wire.borrow_mut().note(now, || format!("host {} posts {shown:?} {bytes} B to all", self.index));
        for (((to, id), stretch), (peer, number)) in labels.iter().zip(stretches).zip(numbers) {
            if peer != *id {
                return Err(format!("a number for {peer} instead of {id}"));
            }
            let label = world.ledger.next_label(stretch, channel);
            world.ledger.post_shown(label, shown, *to, bytes, number)?;
        }
        Ok(true)
    }

    /// Sends everybody one more message, again if the connection turns out to be of the past.
    fn recover(&mut self, process: &mut Process, world: &mut World, now: Instant) -> Result<(), Wrong> {
        for to in 0..world.address_plan.hosts() {
            if to == self.index {
                continue;
            }
            let address = world.address_plan.known_as(self.index, to);
            let id = process.core.add_peer("", address).map_err(|error| error.to_string())?;
            let peer = process.known.entry(id.0).or_default();
            let done =
                peer.tries > 0 && peer.stretch.is_some_and(|stretch| world.ledger.unreported(stretch) == 0);
            if peer.reached || done {
                peer.reached = true;
            } else if peer.tries == 0 || peer.stretch.is_none() {
                peer.tries += 1;
                peer.failed_at = None;
                if peer.tries > 5 {
                    return Err(format!(
                        "host {} cannot reach host {to} though nothing is wrong",
                        self.index
                    ));
                }
                if !self.post_to(process, world, now, to, 1, LABEL_BYTES)? {
                    return Err(format!(
                        "host {} cannot post to host {to} though all is settled",
                        self.index
                    ));
                }
            }
        }
        self.use_paths(process, world, now)?;
        self.transmit(process, now)
    }

    /// Silent paths are probed while there is something to send: keeps sending until all work again.
    fn use_paths(&mut self, process: &mut Process, world: &mut World, now: Instant) -> Result<(), Wrong> {
        let (mut back, mut missing) = (true, Vec::new());
        let Process { core, known, .. } = process;
        for index in 0..core.peers() {
            let paths = &mut known.entry(index).or_default().paths;
            let (all, asks) = paths.look_at_missing(&self.subject(), core, world, now, index)?;
            back &= all;
            if asks {
                missing.push(index);
            }
        }
        for index in missing {
            let address = process.core.address_of(PeerId(index)).ok_or("a peer without address")?;
            let to = world.address_plan.host_of(address)?;
            self.post_to(process, world, now, to, 1, LABEL_BYTES)?;
        }
        process.paths_back = back;
        Ok(())
    }
}
