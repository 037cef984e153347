//! Groups that switch boxes count for: the boxes' half and the members' of `tsumugi_proto::group`, in a network that is a tree
//! of boxes and loses, doubles, delays and reorders; boxes that are restarted, and members that die.
//!
//! What is checked: nobody leaves a generation before all have arrived at it; what comes of it is what was contributed; and everybody
//! leaves it, or is told that somebody has died.

pub(crate) mod scale;
mod tree;

use crate::random::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tree::{Node, Tree};
use tsumugi_proto::group::boxes::{Groups, Sender, Step};
use tsumugi_proto::group::headers::answer_to;
use tsumugi_proto::group::member::{Failure, Member, Membership, State, seal};
use tsumugi_wire::group::{
    Answer, BODY_BYTES, Contribution, Event as Counted, Join, Notice, Operation, WORDS_MAX,
};
use tsumugi_wire::{Flags, Header, Instant, Kind};

/// After so long in virtual time a run should be over, ns.
const END_NS: u64 = 60_000_000_000;
/// By then all have joined, if nobody has died, ns.
const JOINED_NS: u64 = 5_000_000_000;
const LEASE_S: u32 = 3600;

/// What a run is like.
#[derive(Clone, Debug)]
pub struct GroupsPlan {
    /// Members of the group.
    pub members: usize,
    /// Ports of a box in a full tree; 0: a random tree of `boxes`.
    pub ports: usize,
    /// Boxes of a random tree.
    pub boxes: usize,
    /// Generations.
    pub generations: u64,
    /// Share of packets that are lost on each link.
    pub loss: f64,
    /// Share that come twice.
    pub doubling: f64,
    /// Time on a link, ns: least, and how much more at most.
    pub link_ns: (u64, u64),
    /// Time in a box for a packet, and for each that it sends, ns.
    pub box_ns: (u64, u64),
    /// Most time between a release and the next arrival of a member, ns.
    pub compute_ns: u64,
    /// Times that a box is restarted.
    pub restarts: u64,
    /// Members that die.
    pub deaths: u64,
}

impl GroupsPlan {
    /// The plan that a seed stands for.
    #[must_use]
    pub fn of_seed(seed: u64) -> GroupsPlan {
        let mut random = Random::new(seed, 1);
        let [members, boxes, most_ns] =
            [random.pick(&[10, 10, 10, 60]), random.pick(&[1, 6]), random.pick(&[0, 20_000_000])];
        GroupsPlan {
            members: 2 + random.below(members) as usize,
            ports: 0,
            boxes: 1 + random.below(boxes) as usize,
            generations: random.between(1, 12),
            loss: random.share(0.1),
            doubling: random.share(0.2),
            link_ns: (500, random.below(1 + most_ns)),
            box_ns: (300, 300),
            compute_ns: random.below(3_000_000),
            restarts: if random.one_in(2) { random.below(6) } else { 0 },
            deaths: if random.one_in(3) { random.between(1, 2) } else { 0 },
        }
    }
}

/// What happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupsReport {
    /// Times that a member left a generation.
    pub left: u64,
    /// Members that were told of a death.
    pub told: u64,
    /// Results that were lost and learned from others.
    pub learned: u64,
    /// Packets that a box took for those of another life of its own or of nobody.
    pub unknown: u64,
    /// Times that a box was restarted.
    pub restarts: u64,
    /// Time from the last arrival at a generation to when the last member left it, ns, of each.
    pub spans_ns: Vec<u64>,
}

impl GroupsReport {
    /// Adds another's sums.
    pub fn add(&mut self, other: &GroupsReport) {
        self.left += other.left;
        self.told += other.told;
        self.learned += other.learned;
        self.unknown += other.unknown;
        self.restarts += other.restarts;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A packet in the table of packets has come from a neighbour to a node.
    Packet {
        from: Node,
        at: Node,
        packet: usize,
    },
    /// A member has something to do.
    Wake(Node),
    /// A box forgets everything.
    Restart(usize),
    Die(Node),
    /// A member hears what came of a generation from another.
    Learn(Node),
}

#[derive(Clone, Copy)]
struct Packet {
    source: Node,
    destination: Node,
    header: Header,
    body: [u8; BODY_BYTES],
}

/// Where a slot's packets go: which neighbour has it, and which member they are addressed to.
type Address = (Node, Node);

struct Actor {
    member: Member,
    /// Generations that it has left.
    done: u64,
    /// What came of the last.
    result: [u64; WORDS_MAX],
    arrive_at: Instant,
    is_dead: bool,
    is_told: bool,
    /// Asks others what came of its generation.
    is_asking: bool,
    woken_at: Instant,
}

struct World {
    plan: GroupsPlan,
    tree: Tree,
    random: Random,
    now: Instant,
    events: BinaryHeap<Reverse<(Instant, u64, What)>>,
    scheduled: u64,
    packets: Vec<Packet>,
    free: Vec<usize>,
    boxes: Vec<Groups<Address>>,
    /// Until when a box is busy.
    busy: Vec<Instant>,
    actors: Vec<Actor>,
    /// Of each generation: who has arrived, the last time that one did, how many have left.
    arrived: Vec<(usize, Instant, usize)>,
    salt: u64,
    report: GroupsReport,
}

/// Runs a plan.
///
/// # Errors
/// What was broken.
pub(crate) fn run(seed: u64, plan: GroupsPlan) -> Result<GroupsReport, String> {
    World::new(seed, plan).run()
}

impl World {
    fn new(seed: u64, plan: GroupsPlan) -> World {
        let mut random = Random::new(seed, 2);
        let tree = match plan.ports {
            0 => Tree::random(&mut random, plan.members, plan.boxes),
            ports => Tree::full(plan.members, ports),
        };
        let (key, group, salt) = (random.bits(), random.bits(), random.bits());
        let actors = (0..plan.members).map(|member| {
            let membership = Membership {
                job: 7,
                key,
                group,
                size: plan.members as u16,
                member: member as u16,
                epoch: 1 + member as u32,
                flow: random.below(100) as u32,
                token: random.bits(),
            };
            let start = Instant(random.below(1 + plan.compute_ns));
            Actor {
                member: Member::new(start, membership, 0),
                done: 0,
                result: [0; WORDS_MAX],
                arrive_at: start,
                is_dead: false,
                is_told: false,
                is_asking: false,
                woken_at: Instant::NEVER,
            }
        });
        let actors: Vec<Actor> = actors.collect();
        let boxes = (0..tree.boxes()).map(|number| Groups::new(1 + number as u64, LEASE_S)).collect();
        World {
            busy: vec![Instant(0); tree.boxes()],
            arrived: vec![(0, Instant(0), 0); plan.generations as usize + 2],
            boxes,
            tree,
            random,
            now: Instant(0),
            events: BinaryHeap::new(),
            scheduled: 0,
            packets: Vec::new(),
            free: Vec::new(),
            actors,
            salt,
            report: GroupsReport::default(),
            plan,
        }
    }

    fn schedule(&mut self, at: Instant, what: What) {
        self.scheduled += 1;
        self.events.push(Reverse((at, self.scheduled, what)));
    }

    fn run(mut self) -> Result<GroupsReport, String> {
        for member in 0..self.plan.members {
            let at = self.actors[member].member.deadline();
            self.wake(member, at);
        }
        // While about half of it is over, at most.
        let span = self.plan.generations * (self.plan.compute_ns + self.plan.link_ns.1 + 100_000);
        for _ in 0..self.plan.restarts {
            let (at, number) = (self.random.below(span), self.random.below(self.boxes.len() as u64));
            self.schedule(Instant(at), What::Restart(number as usize));
        }
        for _ in 0..self.plan.deaths {
            let (at, member) = (self.random.below(2 * span), self.random.below(self.plan.members as u64));
            self.schedule(Instant(at), What::Die(member as usize));
        }
        while let Some(Reverse((at, _, what))) = self.events.pop() {
            self.now = at;
            if at.0 > END_NS {
                break;
            }
            match what {
                What::Packet { from, at, packet } => self.on_packet(from, at, packet)?,
                What::Wake(member) => {
                    self.actors[member].woken_at = Instant::NEVER;
                    self.act(member)?;
                }
                What::Restart(number) => {
                    self.boxes[number] = Groups::new(self.boxes[number].number(), LEASE_S);
                    self.report.restarts += 1;
                }
                What::Die(member) => self.actors[member].is_dead = true,
                What::Learn(member) => self.learn(member)?,
            }
        }
        for (number, actor) in self.actors.iter().enumerate() {
            let is_over = actor.is_dead || actor.is_told || actor.done == self.plan.generations;
            if !is_over {
                let state = actor.member.state();
                return Err(format!("member {number} is still at generation {}: {state:?}", actor.done + 1));
            }
        }
        Ok(self.report)
    }

    /// What a member contributes to a generation.
    fn contribution(&self, member: Node, generation: u64) -> (Operation, [u64; 2]) {
        let mut random = Random::new(self.salt ^ generation, member as u64);
        let all = Operation::ALL;
        let operation = all[Random::new(self.salt, generation).below(all.len() as u64) as usize];
        (operation, [random.bits(), random.bits()])
    }

    fn expected(&self, generation: u64) -> [u64; 2] {
        let (operation, first) = self.contribution(0, generation);
        let others = (1..self.plan.members).map(|member| self.contribution(member, generation).1);
        others.fold(first, |sum, words| [0, 1].map(|at| operation.combine(sum[at], words[at])))
    }

    fn wake(&mut self, member: Node, at: Instant) {
        if at == Instant::NEVER {
            return;
        }
        if at < self.actors[member].woken_at {
            self.actors[member].woken_at = at;
            self.schedule(at, What::Wake(member));
        }
    }

    /// A member goes on.
    fn act(&mut self, number: Node) -> Result<(), String> {
        let now = self.now;
        let actor = &mut self.actors[number];
        if actor.is_dead || actor.is_told {
            return Ok(());
        }
        let state = actor.member.state();
        if state == State::Joined && actor.member.generation() > actor.done {
            let result = *actor.member.result();
            self.leave(number, result)?;
        }
        let actor = &mut self.actors[number];
        match actor.member.state() {
            State::Joined if actor.done < self.plan.generations => {
                if now < actor.arrive_at {
                    let at = actor.arrive_at;
                    self.wake(number, at);
                    return Ok(());
                }
                let generation = actor.done + 1;
                let (operation, words) = self.contribution(number, generation);
                let count = if operation == Operation::None { 0 } else { 2 };
                self.actors[number].member.arrive(now, operation, &words[..count]);
                let (arrived, at, _) = &mut self.arrived[generation as usize];
                (*arrived, *at) = (*arrived + 1, now);
            }
            _ if actor.member.is_adrift() && !actor.is_asking => {
                actor.is_asking = true;
                let at = now.plus(self.random.below(1_000_000));
                self.schedule(at, What::Learn(number));
            }
            // What a box does not know of a member that never joined, the others find out by themselves.
            State::Joining if now.0 > JOINED_NS && self.actors.iter().any(|actor| actor.is_dead) => {
                self.tell()
            }
            State::Failed(Failure::Silent) if self.actors.iter().any(|actor| actor.is_dead) => self.tell(),
            State::Failed(failure) => {
                return Err(format!("member {number} has given the box up: {failure:?}"));
            }
            _ => {}
        }
        let actor = &mut self.actors[number];
        let awaited = actor.member.awaited();
        if let Some((header, body)) = actor.member.transmit(now) {
            let destination = usize::from(number == 0);
            let packet = Packet { source: number, destination, header, body };
            self.send_on(number, now, packet);
        }
        if awaited.is_some_and(|awaited| self.actors[usize::from(awaited)].is_dead) {
            self.tell();
        }
        let member = &self.actors[number].member;
        let has_failed = matches!(member.state(), State::Failed(_));
        let at = if has_failed { now } else { member.deadline() };
        self.wake(number, at.max(now.plus(1)));
        Ok(())
    }

    /// Somebody has found out that a member is dead, and tells all.
    fn tell(&mut self) {
        for actor in &mut self.actors {
            if !actor.is_dead && !actor.is_told && actor.done < self.plan.generations {
                actor.is_told = true;
                self.report.told += 1;
            }
        }
    }

    /// A member leaves the generation that it has arrived at.
    fn leave(&mut self, number: Node, result: [u64; WORDS_MAX]) -> Result<(), String> {
        let now = self.now;
        let compute_ns = self.random.below(1 + self.plan.compute_ns);
        let actor = &mut self.actors[number];
        actor.done += 1;
        actor.result = result;
        actor.arrive_at = now.plus(compute_ns);
        let generation = actor.done;
        let (arrived, last, left) = &mut self.arrived[generation as usize];
        *left += 1;
        self.report.left += 1;
        if *arrived < self.plan.members {
            return Err(format!(
                "member {number} has left generation {generation}, and {arrived} of {} have arrived",
                self.plan.members
            ));
        }
        if *left == self.plan.members {
            self.report.spans_ns.push(now.since(*last));
        }
        let (operation, _) = self.contribution(number, generation);
        let expected = if operation == Operation::None { [0; 2] } else { self.expected(generation) };
        if result[..2] != expected {
            return Err(format!("generation {generation}: {result:x?}, not {expected:x?}"));
        }
        Ok(())
    }

    fn learn(&mut self, number: Node) -> Result<(), String> {
        let generation = self.actors[number].member.generation();
        let actor = &mut self.actors[number];
        actor.is_asking = false;
        if !actor.member.is_adrift() || actor.is_told {
            return Ok(());
        }
        let is_lost = actor.member.state() == State::Lost;
        let knows = |actor: &&Actor| actor.done >= generation && !actor.is_dead;
        let Some(other) = self.actors.iter().find(knows) else {
            if self.actors.iter().any(|actor| actor.is_dead && actor.done >= generation) {
                self.tell();
                return Ok(());
            }
            // Nobody has left it yet.
            if !is_lost {
                return self.act(number);
            }
            return Err(format!("nobody knows generation {generation}, which is said to be complete"));
        };
        if other.done > generation {
            return Err(format!("generation {} was released before all had arrived", generation + 1));
        }
        let (result, token) = (other.result, self.random.bits());
        self.report.learned += 1;
        self.actors[number].member.learn(self.now, result, token);
        self.leave(number, result)?;
        self.act(number)
    }

    /// Sends a packet from a node to the next on its way.
    fn send_on(&mut self, from: Node, now: Instant, packet: Packet) {
        if let Some(next) = self.tree.next(from, packet.destination) {
            self.send(from, next, now, packet);
        }
    }

    fn send(&mut self, from: Node, to: Node, now: Instant, packet: Packet) {
        let parts = |share: f64| (share * 1000.0) as u64;
        let copies = if self.random.below(1000) < parts(self.plan.loss) { 0 } else { 1 };
        let copies = copies + u64::from(self.random.below(1000) < parts(self.plan.doubling));
        for _ in 0..copies {
            let (least, more) = self.plan.link_ns;
            let at = now.plus(least + self.random.below(1 + more));
            let place = self.free.pop().unwrap_or(self.packets.len());
            if place == self.packets.len() {
                self.packets.push(packet);
            }
            self.packets[place] = packet;
            self.schedule(at, What::Packet { from, at: to, packet: place });
        }
    }

    fn on_packet(&mut self, from: Node, at: Node, place: usize) -> Result<(), String> {
        let packet = self.packets[place];
        self.free.push(place);
        if at >= self.plan.members {
            self.on_box(from, at, packet);
            return Ok(());
        }
        let Packet { source, header, body, .. } = packet;
        let now = self.now;
        let actor = &mut self.actors[at];
        if actor.is_dead {
            return Ok(());
        }
        match header.kind {
            Kind::Data if actor.member.is_for(&header) => {
                if let Ok(release) = Contribution::decode(&body) {
                    actor.member.on_release(&release);
                }
            }
            Kind::Notice if actor.member.is_for(&header) => {
                if let Ok(answer) = Answer::decode(&body) {
                    self.report.unknown += u64::from(answer.notice == Notice::Unknown);
                    actor.member.on_notice(now, &answer);
                }
            }
            Kind::Join if Join::decode(&body).is_ok_and(|join| join.box_number == 0) => {
                return Err(format!("a JOIN of member {source} has passed all boxes"));
            }
            Kind::Arrive | Kind::Leave => {
                return Err(format!("a packet of member {source} has passed all boxes"));
            }
            // A box that is the root has not heard of member 0 yet.
            _ => {}
        }
        self.act(at)
    }

    /// A packet comes by a box.
    fn on_box(&mut self, from: Node, at: Node, packet: Packet) {
        let number = at - self.plan.members;
        let random = [self.random.bits(), self.random.bits()];
        let now_s = (self.now.0 / 1_000_000_000) as u32;
        let Packet { source, header, body, .. } = packet;
        if !header.kind.of_a_group() {
            return self.send_on(at, self.now, packet);
        }
        let groups = &mut self.boxes[number];
        let sender = Sender { address: (from, source), is_six: false };
        let (event, place, step) = groups.on_packet(now_s, &header, &body, sender, random);
        if step == Step::Pass {
            return self.send_on(at, self.now, packet);
        }
        let (packet_ns, each_ns) = self.plan.box_ns;
        let mut now = self.now.max(self.busy[number]).plus(packet_ns);
        let group = self.boxes[number].at(place);
        let mut all: Vec<(Node, Packet)> = Vec::new();
        let tell = |slot: usize, header: Header, body: [u8; BODY_BYTES]| {
            let (header, body) = seal(header, body);
            let (next, destination) = group.slots[slot].address;
            (next, Packet { source: destination, destination, header, body })
        };
        let notice = |slot: usize, answer: &Answer| tell(slot, group.slots[slot].notice(), answer.encode());
        let release = |slot: usize, of: &Contribution| {
            tell(slot, group.slots[slot].release(of.generation), of.encode())
        };
        let slots = 0..group.slots.len();
        match step {
            // Nobody sends to several here.
            Step::Nothing | Step::Pass | Step::Spread => {}
            Step::AnswerSender(answer) => {
                let (header, body) = seal(answer_to(&header), answer.encode());
                all.push((from, Packet { source, destination: source, header, body }));
            }
            Step::Answer(slot, answer) => all.push(notice(usize::from(slot), &answer)),
            Step::JoinedAll => {
                let joined = |slot: usize| self.boxes[number].joined(place, slot as u8);
                all.extend(slots.map(|slot| notice(slot, &joined(slot))));
            }
            Step::ReleaseAll(of) => all.extend(slots.map(|slot| release(slot, &of))),
            Step::ReleaseTo(slot, of) => all.push(release(usize::from(slot), &of)),
            Step::JoinUp(_) | Step::ArriveUp(_) | Step::LeaveUp => {
                let (kind, body) = match step {
                    Step::JoinUp(join) => (Kind::Join, join.encode()),
                    Step::ArriveUp(arrive) => (Kind::Arrive, arrive.encode()),
                    _ => (Kind::Leave, [0; BODY_BYTES]),
                };
                let (header, body) = seal(group.up(place, kind), body);
                if let Some(next) = self.tree.next(at, packet.destination) {
                    all.push((next, Packet { header, body, ..packet }));
                }
            }
        }
        debug_assert!(event != Counted::Malformed || all.is_empty());
        for (next, packet) in all {
            debug_assert!(packet.header.flags.has(Flags::MIXED));
            now = now.plus(each_ns);
            self.send(at, next, now, packet);
        }
        self.busy[number] = now;
    }
}
