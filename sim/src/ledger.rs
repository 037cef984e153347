//! Who was promised what: every message from acceptance to delivery, and the checks on the way.
//!
//! The unit is the *stretch*: what one incarnation of a host sends to one peer from the beginning of an
//! connection to its end. Within a stretch every channel's messages must be taken in order and without a gap, by
//! one incarnation of the receiver; a later stretch never before an earlier one.

use crate::message::Label;
use std::collections::BTreeMap;

/// A message that was accepted.
#[derive(Clone, Copy, Debug)]
struct Posted {
    channel: u16,
    taken: bool,
    /// Something done to memory, which nobody takes.
    request: bool,
}

/// The messages of a stretch on one channel.
#[derive(Debug, Default)]
struct Lane {
    /// Length and number in the stretch of each, and the label that it shows.
    posted: Vec<(u32, u32, Label)>,
    taken: u32,
}

/// What one incarnation sent to one peer during one connection.
#[derive(Debug)]
pub(crate) struct Stretch {
    pub(crate) from: usize,
    incarnation: u32,
    pub(crate) to: usize,
    pub(crate) connection: u32,
    posted: Vec<Posted>,
    lanes: BTreeMap<u16, Lane>,
    /// Incarnation that took its first message.
    taken_by: Option<u32>,
    /// Messages of which the sender was told that they are delivered.
    reported: u64,
    /// The sender was told that it is over, or is no more.
    over: bool,
    /// A packet that was acknowledged was damaged, and one of the two was gone before it had come again.
    damaged: bool,
}

/// What is wrong.
pub(crate) type Wrong = String;

/// Everything that was promised in a run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    stretches: Vec<Stretch>,
    /// Stretch from which a receiving (host, incarnation) took last from a host, by channel.
    cursors: BTreeMap<(usize, u32, usize, u16), u32>,
    /// The label of a message by the stretch, the channel and the number that it shows, and the host that it is for.
    shown: BTreeMap<(u32, u16, u32, usize), Label>,
    pub(crate) taken: u64,
    pub(crate) posted: u64,
    pub(crate) failed: u64,
    /// Errands in others' memory that were done.
    pub(crate) errands: u64,
}

impl Ledger {
    /// Begins a stretch.
    pub(crate) fn begin(&mut self, from: usize, incarnation: u32, to: usize, connection: u32) -> u32 {
        self.stretches.push(Stretch {
            from,
            incarnation,
            to,
            connection,
            posted: Vec::new(),
            lanes: BTreeMap::new(),
            taken_by: None,
            reported: 0,
            over: false,
            damaged: false,
        });
        self.stretches.len() as u32 - 1
    }

    pub(crate) fn stretch(&self, stretch: u32) -> &Stretch {
        &self.stretches[stretch as usize]
    }

    /// The label of the next message of a stretch on a channel.
    pub(crate) fn next_label(&self, stretch: u32, channel: u16) -> Label {
        let lane = self.stretches[stretch as usize].lanes.get(&channel);
        Label { stretch, channel, number: lane.map_or(0, |lane| lane.posted.len() as u32) }
    }

    /// A message was accepted, as number `accepted` of its connection.
    pub(crate) fn post(&mut self, label: Label, bytes: usize, accepted: u64) -> Result<(), Wrong> {
        let to = self.stretches[label.stretch as usize].to;
        self.post_shown(label, label, to, bytes, accepted)
    }

    /// The same of a message to host `to` that shows another label than its own, because others get it, too.
    pub(crate) fn post_shown(
        &mut self,
        label: Label,
        shown: Label,
        to: usize,
        bytes: usize,
        accepted: u64,
    ) -> Result<(), Wrong> {
        if shown != label {
            self.shown.insert((shown.stretch, shown.channel, shown.number, to), label);
        }
        let stretch = &mut self.stretches[label.stretch as usize];
        stretch.posted.push(Posted { channel: label.channel, taken: false, request: false });
        let number = stretch.posted.len();
        stretch.lanes.entry(label.channel).or_default().posted.push((bytes as u32, number as u32 - 1, shown));
        self.posted += 1;
        if accepted != number as u64 {
            return Err(format!("message {number} of its connection was given the number {accepted}"));
        }
        Ok(())
    }

    /// Something to be done to memory was accepted, with a message's number.
    pub(crate) fn post_request(&mut self, stretch: u32) {
        self.stretches[stretch as usize].posted.push(Posted { channel: 0, taken: true, request: true });
    }

    /// `message` was taken from `channel` by incarnation `incarnation` of host `at`, as a message of host `from`.
    pub(crate) fn take(
        &mut self,
        at: usize,
        incarnation: u32,
        from: usize,
        channel: u16,
        message: &[u8],
    ) -> Result<Label, Wrong> {
        let cursor = self.cursors.entry((at, incarnation, from, channel)).or_insert(0);
        let label = match Label::read(message) {
            Some(label) => {
                let shown = (label.stretch, label.channel, label.number, at);
                self.shown.get(&shown).copied().unwrap_or(label)
            }
            // Too short to say what it is: it must be the next one.
            None => {
                let lane =
                    self.stretches.get(*cursor as usize).and_then(|stretch| stretch.lanes.get(&channel));
                Label { stretch: *cursor, channel, number: lane.map_or(0, |lane| lane.taken) }
            }
        };
        let Label { stretch: index, number, .. } = label;
        let shown = format!("{label:?} of {} bytes on channel {channel} from host {from}", message.len());
        let Some(stretch) = self.stretches.get_mut(index as usize) else {
            return Err(format!("nobody sent {shown}"));
        };
        let lane = stretch.lanes.get_mut(&label.channel);
        let known = lane.filter(|lane| (number as usize) < lane.posted.len());
        let Some(lane) =
            known.filter(|_| stretch.from == from && stretch.to == at && label.channel == channel)
        else {
            return Err(format!("nobody sent {shown} there"));
        };
        let (bytes, place, its) = lane.posted[number as usize];
        if message != its.message(bytes as usize) {
            return Err(format!("{shown} was altered; it was sent with {bytes} bytes"));
        }
        if index < *cursor {
            return Err(format!("{shown} was taken after a message of the later stretch {cursor}"));
        }
        if number != lane.taken {
            let what = if number < lane.taken { "again" } else { "too early" };
            return Err(format!("{shown} was taken {what}: {} was next", lane.taken));
        }
        let by = *stretch.taken_by.get_or_insert(incarnation);
        if by != incarnation {
            return Err(format!("{shown} went to incarnation {incarnation}, its stretch to {by} before"));
        }
        lane.taken += 1;
        stretch.posted[place as usize].taken = true;
        *cursor = index;
        self.taken += 1;
        Ok(its)
    }

    /// Messages of a stretch that the sender does not know to be delivered.
    pub(crate) fn unreported(&self, stretch: u32) -> u64 {
        let stretch = &self.stretches[stretch as usize];
        stretch.posted.len() as u64 - stretch.reported
    }

    pub(crate) fn reported(&self, stretch: u32) -> u64 {
        self.stretches[stretch as usize].reported
    }

    /// The sender was told that the first `reported` messages of a stretch are delivered.
    pub(crate) fn report(&mut self, stretch: u32, reported: u64) -> Result<(), Wrong> {
        let Stretch { reported: before, posted, .. } = &mut self.stretches[stretch as usize];
        if reported < *before || reported > posted.len() as u64 {
            return Err(format!(
                "{reported} of {} messages reported delivered, {before} before",
                posted.len()
            ));
        }
        *before = reported;
        Ok(())
    }

    /// The sender was told that a stretch is over, `undelivered` messages of it perhaps not delivered.
    pub(crate) fn fail(&mut self, stretch: u32, undelivered: u64) -> Result<(), Wrong> {
        let posted = self.stretches[stretch as usize].posted.len() as u64;
        let Some(reported) = posted.checked_sub(undelivered) else {
            return Err(format!("{undelivered} messages reported undelivered of {posted} accepted"));
        };
        self.failed += undelivered;
        self.report(stretch, reported)?;
        self.end(stretch);
        Ok(())
    }

    /// The connection of host `at` with host `from` is over, and packets that an XDP program had acknowledged were
    /// damaged and have not come again.
    pub(crate) fn damage(&mut self, from: usize, at: usize, packets: u64) {
        if packets == 0 {
            return;
        }
        for stretch in self.stretches.iter_mut().filter(|stretch| (stretch.from, stretch.to) == (from, at)) {
            stretch.damaged |= stretch.posted.iter().any(|posted| !posted.taken);
        }
    }

    /// Nobody waits any more for what became of a stretch.
    pub(crate) fn end(&mut self, stretch: u32) {
        self.stretches[stretch as usize].over = true;
    }

    /// At the end: everything reported was taken, and everything not reported has failed.
    pub(crate) fn check_settled(&self) -> Result<(), Wrong> {
        for (index, stretch) in self.stretches.iter().enumerate() {
            let Stretch { from, to, reported, posted, over, incarnation, damaged, .. } = stretch;
            let shown = format!("stretch {index} (host {from}, incarnation {incarnation}, to host {to})");
            let missing = posted.iter().take(*reported as usize).position(|posted| !posted.taken);
            if let Some(missing) = missing.filter(|_| !damaged) {
                let channel = posted[missing].channel;
                return Err(format!(
                    "{shown}: message {missing} on channel {channel} was reported delivered and never arrived"
                ));
            }
            let count = posted.len() as u64;
            if !over && *reported < count {
                return Err(format!(
                    "{shown}: only {reported} of {count} messages delivered, and nobody was told"
                ));
            }
            // Channels share the order of their flow, whatever the order they are read in.
            let first_gap = posted.iter().position(|posted| !posted.taken).unwrap_or(posted.len());
            if let Some(after) = posted[first_gap..].iter().position(|posted| posted.taken && !posted.request)
            {
                return Err(format!(
                    "{shown}: message {} arrived, message {first_gap} never did",
                    first_gap + after
                ));
            }
        }
        Ok(())
    }
}
