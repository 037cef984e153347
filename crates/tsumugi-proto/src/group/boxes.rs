//! Groups in a switch box: who has joined, who has arrived, and what comes of what they contribute.
//!
//! The box's program does the same in C (`bpf/switch/group.h`), under a lock for each group; one suite holds both to the same
//! answers.
//!
//! # Trees
//!
//! All members send towards the host of member 0, and those that are on it towards one other. So the first box on a member's way has it for a member, and the box that has
//! member 0 is the *root*. Any other is a *child*: it joins the next box on the way to member 0, for all of its members at
//! once, passes up what they contribute when all have arrived, and passes down what comes back. It has no timers: whatever is
//! lost is asked for again by a member, and a child passes that up.
//!
//! # What holds
//!
//! 1. A generation is released only when every member has arrived at it. The weights of the slots are those of all members exactly
//!    (`join` forms the group then and never before), and a slot is counted once per generation (`arrived`).
//! 2. A member arrives at a generation only when it has left the one before. So all are at most one apart, and what two generations
//!    back was is never asked for.
//! 3. A box that has forgotten (restarted, or the group's place was given away) releases nothing twice and nothing early: whoever
//!    arrives at `g` proves that `g` − 1 is complete. What is lost is its result, and the box says so ([`Notice::Lost`]).
//! 4. Whoever does not know the key takes no part, and whoever does not know a seat's token cannot speak for it.

use alloc::vec::Vec;
use tsumugi_wire::group::{
    Answer, Contribution, Event, Join, MalformedGroup, Notice, Operation, SLOT_BITS, SLOTS_MAX, WORDS_MAX,
};
use tsumugi_wire::multicast;
use tsumugi_wire::{Header, Kind};

/// Groups of a box, at most: a power of two.
pub const GROUPS_MAX: usize = 256;
/// Places where a group may be.
pub const WAYS: usize = 4;
/// A member that is a box: bit of [`Slot::member`].
pub(super) const IS_BOX: u64 = 1 << 63;

/// What a box is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Nothing,
    /// To hand the packet on as if it were not there.
    Pass,
    /// To answer the sender of the packet, of whom nothing is known but that.
    AnswerSender(Answer),
    /// To answer the holder of a slot.
    Answer(u8, Answer),
    /// To tell every slot that all have joined.
    JoinedAll,
    /// To tell every slot what came of a generation.
    ReleaseAll(Contribution),
    /// To tell one slot.
    ReleaseTo(u8, Contribution),
    /// To send the packet on to the box above as this one's JOIN.
    JoinUp(Join),
    /// The same for an ARRIVE.
    ArriveUp(Contribution),
    /// The same for a LEAVE.
    LeaveUp,
    /// To send each slot what [`Groups::spread`] says.
    Spread,
}

/// A member, or a box with some of them, as a box knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot<A> {
    /// Number of the member; of a box with a bit of its own.
    pub member: u64,
    /// What it proves itself by.
    pub token: u64,
    /// Generation that it has arrived at.
    pub arrived: u64,
    /// Generation whose release has PSN 0.
    pub first: u64,
    /// Token of the flow that releases go to.
    pub peer_token: u64,
    /// Index of that flow.
    pub peer_flow: u32,
    /// Epoch of that flow.
    pub epoch: u32,
    /// Number of the member; of a box, the smallest of those whose JOIN it passed up.
    pub rank: u16,
    /// Members that it stands for.
    pub weight: u16,
    /// It has left.
    pub has_left: bool,
    /// How to send to it.
    pub address: A,
}

/// Who has sent a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender<A> {
    /// How to send to it.
    pub address: A,
    /// Whether that is over IPv6.
    pub is_six: bool,
}

/// A group's state in one box.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group<A> {
    /// The job.
    pub job: u64,
    /// What its members know.
    pub key: u64,
    /// Its number in the job.
    pub number: u64,
    /// Members in all; 0: the place is free.
    pub size: u16,
    /// Members that the slots stand for.
    pub weight: u16,
    /// Second at which somebody was last heard.
    pub seen_s: u32,
    /// All members come over IPv6, or all over IPv4: a box turns their packets into each other.
    pub is_six: bool,
    /// Member 0 is here.
    pub is_root: bool,
    /// All have joined.
    pub is_formed: bool,
    /// All here have arrived, and the box above has not answered yet.
    pub is_up: bool,
    /// The result of the generation before is known.
    pub has_result: bool,
    /// Generation that is gathered; 0: not known.
    pub generation: u64,
    /// Members that have arrived at it.
    pub arrived: u16,
    /// How what is gathered is combined.
    pub operation: u8,
    /// How many words mean something.
    pub count: u8,
    /// What is gathered, combined.
    pub words: [u64; WORDS_MAX],
    /// What came of the generation before.
    pub result: [u64; WORDS_MAX],
    /// How that was combined.
    pub result_operation: u8,
    /// How many of its words mean something.
    pub result_count: u8,
    /// What the box above is to prove itself by.
    pub up_token: u64,
    /// The seat there.
    pub up_seat: u32,
    /// That seat's token.
    pub up_seat_token: u64,
    /// Slots in use, in order of joining.
    pub slots: Vec<Slot<A>>,
}

impl<A: Clone> Group<A> {
    fn answer(&self, notice: Notice, slot: usize, generation: u64) -> Answer {
        let slot = &self.slots[slot];
        Answer { notice, via: 0, member: 0, weight: slot.weight, seat: 0, seat_token: 0, generation }
    }

    /// That all have joined, and what the seat is.
    fn joined(&self, place: usize, slot: usize, via: u8) -> Answer {
        Answer {
            via,
            seat: (place as u32) << SLOT_BITS | slot as u32,
            seat_token: self.slots[slot].token,
            ..self.answer(Notice::Joined, slot, self.generation)
        }
    }

    fn join(
        &mut self,
        place: usize,
        join: &Join,
        header: &Header,
        sender: Sender<A>,
        random: u64,
    ) -> (Event, Step) {
        let refused = |via| Step::AnswerSender(refusal(via));
        if self.key != join.key {
            return (Event::WrongKey, Step::Nothing);
        }
        let member = if join.box_number == 0 { u64::from(join.member) } else { join.box_number | IS_BOX };
        let known = self.slots.iter().position(|slot| slot.member == member);
        let is_late = |slot: &Slot<A>| slot.epoch == header.epoch && join.first < slot.first;
        if join.box_number == 0 && known.is_some_and(|slot| is_late(&self.slots[slot])) {
            // It has joined anew since, with another flow. A process that was started anew counts from the beginning.
            return (Event::Again, Step::Nothing);
        }
        let before = known.map_or(0, |slot| self.slots[slot].weight);
        let weight = join.weight.max(before);
        let total = u32::from(self.weight) - u32::from(before) + u32::from(weight);
        let is_other = self.size != join.size || self.is_six != sender.is_six;
        if is_other || total > u32::from(self.size) {
            return (Event::Refused, refused(join.via));
        }
        let slot = match known {
            Some(slot) => slot,
            None if self.slots.len() == SLOTS_MAX => return (Event::Refused, refused(join.via)),
            None => {
                self.slots.push(Slot {
                    member,
                    token: random,
                    arrived: 0,
                    first: 0,
                    peer_token: 0,
                    peer_flow: 0,
                    epoch: 0,
                    rank: join.member,
                    weight: 0,
                    has_left: false,
                    address: sender.address.clone(),
                });
                self.slots.len() - 1
            }
        };
        self.weight = total as u16;
        let its = &mut self.slots[slot];
        (its.weight, its.first, its.has_left) = (weight, join.first, false);
        its.rank = its.rank.min(join.member);
        (its.peer_token, its.peer_flow, its.epoch) = (header.token, header.flow, header.epoch);
        its.address = sender.address;
        // Whoever will arrive at that next has left the one before.
        self.begin(join.first);
        self.is_root |= member == 0;
        if self.is_formed {
            return (Event::Join, Step::Answer(slot as u8, self.joined(place, slot, join.via)));
        }
        if self.is_root {
            self.is_formed = self.weight == self.size;
            let waiting = Answer { via: join.via, ..self.answer(Notice::Waiting, slot, 0) };
            let step = if self.is_formed { Step::JoinedAll } else { Step::Answer(slot as u8, waiting) };
            return (Event::Join, step);
        }
        let first = self.generation;
        let up = Join { box_number: 0, weight: self.weight, via: slot as u8, first, ..*join };
        (Event::Join, Step::JoinUp(up))
    }

    /// A generation is to be gathered that is later than what is: the box has not seen the one before complete, for it is new, or members
    /// have helped each other meanwhile.
    fn begin(&mut self, generation: u64) {
        if generation > self.generation {
            self.generation = generation;
            self.has_result = false;
            self.is_up = false;
            self.arrived = 0;
        }
    }

    /// The contributions to the generation that is gathered.
    fn gathered(&self, via: u8) -> Contribution {
        contribution(via, self.operation, self.count, self.generation, self.words)
    }

    /// What came of the generation before.
    fn released(&self) -> Contribution {
        contribution(0, self.result_operation, self.result_count, self.generation - 1, self.result)
    }

    fn complete(&mut self) -> Step {
        (self.result, self.result_operation, self.result_count) = (self.words, self.operation, self.count);
        self.has_result = true;
        self.is_up = false;
        self.arrived = 0;
        self.generation += 1;
        Step::ReleaseAll(self.released())
    }

    fn arrive(&mut self, slot: usize, arrive: &Contribution) -> (Event, Step) {
        let generation = arrive.generation;
        let to_slot = |answer| Step::Answer(slot as u8, Answer { via: arrive.via, ..answer });
        if generation + 1 == self.generation {
            if self.has_result {
                return (Event::Again, Step::ReleaseTo(slot as u8, self.released()));
            }
            return (Event::Lost, to_slot(self.answer(Notice::Lost, slot, generation)));
        }
        if generation < self.generation {
            return (Event::WrongGeneration, Step::Nothing);
        }
        self.begin(generation);
        if self.slots[slot].arrived == generation {
            if self.is_up {
                return (Event::Again, Step::ArriveUp(self.gathered(slot as u8)));
            }
            let late = self.slots.iter().find(|slot| slot.arrived != generation);
            let member = late.map_or(0, |slot| slot.rank);
            let answer = self.answer(Notice::Waiting, slot, generation);
            return (Event::Again, to_slot(Answer { member, ..answer }));
        }
        if self.arrived == 0 {
            (self.operation, self.count) = (arrive.operation as u8, arrive.count);
            self.words = arrive.words;
        } else if (self.operation, self.count) != (arrive.operation as u8, arrive.count) {
            return (Event::Disagreement, to_slot(self.answer(Notice::Disagreement, slot, generation)));
        } else {
            for (sum, word) in self.words.iter_mut().zip(arrive.words) {
                *sum = arrive.operation.combine(*sum, word);
            }
        }
        self.slots[slot].arrived = generation;
        self.arrived += self.slots[slot].weight;
        if self.arrived < self.weight {
            return (Event::Arrive, Step::Nothing);
        }
        if self.is_root {
            return (Event::Release, self.complete());
        }
        self.is_up = true;
        (Event::Up, Step::ArriveUp(self.gathered(slot as u8)))
    }

    fn multicast(&self, slot: usize) -> (Event, Step) {
        // The others' flows are from member 0.
        if self.slots[slot].member == 0 {
            (Event::Multicast, Step::Spread)
        } else {
            (Event::Refused, Step::Nothing)
        }
    }

    fn leave(&mut self, slot: usize) -> (Event, Step) {
        self.slots[slot].has_left = true;
        if self.slots.iter().all(|slot| slot.has_left) {
            self.size = 0;
            if !self.is_root {
                return (Event::Leave, Step::LeaveUp);
            }
        }
        (Event::Leave, Step::Nothing)
    }

    /// What the box above has said of a packet that was passed up.
    fn on_notice(&mut self, place: usize, answer: &Answer) -> (Event, Step) {
        let via = usize::from(answer.via);
        let is_due = self.is_up && answer.generation == self.generation;
        match answer.notice {
            Notice::Joined => {
                (self.up_seat, self.up_seat_token) = (answer.seat, answer.seat_token);
                if answer.weight != self.weight {
                    return (Event::Down, Step::Nothing);
                }
                if !self.is_formed {
                    self.is_formed = true;
                    return (Event::Down, Step::JoinedAll);
                }
            }
            Notice::Unknown => self.is_formed = false,
            Notice::Lost if is_due => {
                self.is_up = false;
                self.has_result = false;
                self.arrived = 0;
                self.generation += 1;
            }
            Notice::Waiting | Notice::Disagreement if is_due => {}
            Notice::Waiting | Notice::Refused if !self.is_formed => {}
            _ => return (Event::NotMine, Step::Nothing),
        }
        if via >= self.slots.len() {
            return (Event::NotMine, Step::Nothing);
        }
        let down = match answer.notice {
            Notice::Joined => self.joined(place, via, 0),
            notice => Answer { member: answer.member, ..self.answer(notice, via, answer.generation) },
        };
        (Event::Down, Step::Answer(via as u8, down))
    }

    /// The box above says what came of a generation.
    fn on_release(&mut self, release: &Contribution) -> (Event, Step) {
        if !self.is_up || release.generation != self.generation {
            return (Event::NotMine, Step::Nothing);
        }
        (self.operation, self.count, self.words) = (release.operation as u8, release.count, release.words);
        (Event::Down, self.complete())
    }
}

/// That a JOIN is refused.
fn refusal(via: u8) -> Answer {
    Answer { via, ..nothing(Notice::Refused) }
}

/// A notice without anything else.
fn nothing(notice: Notice) -> Answer {
    Answer { notice, via: 0, member: 0, weight: 0, seat: 0, seat_token: 0, generation: 0 }
}

fn contribution(via: u8, operation: u8, count: u8, generation: u64, words: [u64; WORDS_MAX]) -> Contribution {
    let operation = Operation::from_number(operation).unwrap_or(Operation::None);
    Contribution { via, operation, count, generation, words }
}

/// The groups of a box.
#[derive(Clone, Debug)]
pub struct Groups<A> {
    groups: Vec<Group<A>>,
    /// The box's number among boxes: the same after a restart, never 0.
    number: u64,
    /// A group of which nothing was heard for so long may make room for another, s.
    lease_s: u32,
}

impl<A: Clone + Default> Groups<A> {
    /// A box without any group.
    #[must_use]
    pub fn new(number: u64, lease_s: u32) -> Groups<A> {
        Groups { groups: (0..GROUPS_MAX).map(|_| Group::default()).collect(), number, lease_s }
    }

    /// The group at a place.
    #[must_use]
    pub fn at(&self, place: usize) -> &Group<A> {
        &self.groups[place]
    }

    /// The box's number.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// A packet of a group has come by: what is to be done. `random` is made anew for each.
    ///
    /// Returns the place of the group that [`Step`] is about, too. The body's check has been compared.
    pub fn on_packet(
        &mut self,
        now_s: u32,
        header: &Header,
        body: &[u8],
        sender: Sender<A>,
        random: [u64; 2],
    ) -> (Event, usize, Step) {
        match header.kind {
            Kind::Join => match Join::decode(body) {
                Ok(join) => self.on_join(now_s, &join, header, sender, random),
                Err(_) => (Event::Malformed, 0, Step::Nothing),
            },
            Kind::Multicast | Kind::Relay if multicast::split(header.credit, body).is_err() => {
                (Event::Malformed, 0, Step::Nothing)
            }
            Kind::Arrive | Kind::Leave | Kind::Multicast => self.on_seat(now_s, header, body, sender.is_six),
            Kind::Notice | Kind::Release | Kind::Relay => {
                self.on_from_above(now_s, header, body, sender.is_six)
            }
            _ => (Event::NotMine, 0, Step::Pass),
        }
    }

    fn on_join(
        &mut self,
        now_s: u32,
        join: &Join,
        header: &Header,
        sender: Sender<A>,
        random: [u64; 2],
    ) -> (Event, usize, Step) {
        let ways = |way| (start_of(join.job, join.group) + way) % GROUPS_MAX;
        let groups = &self.groups;
        let is_it = |group: &Group<A>| group.size != 0 && (group.job, group.number) == (join.job, join.group);
        let is_free = |group: &Group<A>| group.size == 0 || now_s.wrapping_sub(group.seen_s) >= self.lease_s;
        let found = (0..WAYS).map(ways).find(|place| is_it(&groups[*place]));
        let place = found.or_else(|| (0..WAYS).map(ways).find(|place| is_free(&groups[*place])));
        // Whoever makes up groups takes the places of those that not all have joined, by chance, and of no others.
        let any = (0..WAYS).map(|way| ways((way + (random[0] % WAYS as u64) as usize) % WAYS));
        let place = place.or_else(|| any.into_iter().find(|place| !groups[*place].is_formed));
        let Some(place) = place else {
            return (Event::Refused, 0, Step::AnswerSender(refusal(join.via)));
        };
        if found.is_none() {
            self.groups[place] = Group {
                job: join.job,
                key: join.key,
                number: join.group,
                size: join.size,
                up_token: random[1],
                is_six: sender.is_six,
                ..Group::default()
            };
        }
        let group = &mut self.groups[place];
        let (event, mut step) = group.join(place, join, header, sender, random[0]);
        if event == Event::Join {
            group.seen_s = now_s;
        }
        if let Step::JoinUp(up) = &mut step {
            up.box_number = self.number;
        }
        (event, place, step)
    }

    fn on_seat(&mut self, now_s: u32, header: &Header, body: &[u8], is_six: bool) -> (Event, usize, Step) {
        let (place, slot) = seat_of(header.flow);
        let contribution =
            if header.kind == Kind::Multicast { Err(MalformedGroup) } else { Contribution::decode(body) };
        if header.kind == Kind::Arrive && contribution.is_err() {
            return (Event::Malformed, 0, Step::Nothing);
        }
        let (via, generation) = contribution.map_or((0, 0), |its| (its.via, its.generation));
        let group = self
            .groups
            .get_mut(place)
            .filter(|group| group.size != 0 && group.is_formed && group.is_six == is_six);
        let group =
            group.filter(|group| group.slots.get(slot).is_some_and(|slot| slot.token == header.token));
        let Some(group) = group else {
            let answer = Answer { via, generation, ..nothing(Notice::Unknown) };
            return (Event::UnknownSeat, 0, Step::AnswerSender(answer));
        };
        group.seen_s = now_s;
        // What was said when it joined may have come late, and be out of date.
        (group.slots[slot].peer_flow, group.slots[slot].peer_token) = (header.psn.0 as u32, header.ack.0);
        let (event, step) = match contribution {
            Ok(contribution) if header.kind == Kind::Arrive => group.arrive(slot, &contribution),
            _ if header.kind == Kind::Multicast => group.multicast(slot),
            _ => group.leave(slot),
        };
        (event, place, step)
    }

    fn on_from_above(
        &mut self,
        now_s: u32,
        header: &Header,
        body: &[u8],
        is_six: bool,
    ) -> (Event, usize, Step) {
        let place = header.flow as usize;
        let group = self.groups.get_mut(place);
        let group = group.filter(|group| {
            group.size != 0 && group.is_six == is_six && !group.is_root && group.up_token == header.token
        });
        // For a member below, or for a box.
        let Some(group) = group else { return (Event::NotMine, 0, Step::Pass) };
        group.seen_s = now_s;
        let (event, step) = if header.kind == Kind::Relay {
            (Event::Multicast, Step::Spread)
        } else if header.kind == Kind::Release {
            match Contribution::decode(body) {
                Ok(release) => group.on_release(&release),
                Err(_) => (Event::Malformed, Step::Nothing),
            }
        } else {
            match Answer::decode(body) {
                Ok(answer) => group.on_notice(place, &answer),
                Err(_) => (Event::Malformed, Step::Nothing),
            }
        };
        (event, place, step)
    }

    /// That all have joined, for a slot of a group.
    #[must_use]
    pub fn joined(&self, place: usize, slot: u8) -> Answer {
        self.groups[place].joined(place, usize::from(slot), 0)
    }
}

/// The first place where a group may be.
#[must_use]
pub const fn start_of(job: u64, group: u64) -> usize {
    let mixed = (job ^ group.rotate_left(32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 56) as usize % GROUPS_MAX
}

/// The place and the slot that a seat stands for.
const fn seat_of(seat: u32) -> (usize, usize) {
    ((seat >> SLOT_BITS) as usize, (seat & (SLOTS_MAX as u32 - 1)) as usize)
}
