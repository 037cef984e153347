//! How the switch's program counts for groups, against `tsumugi_proto::group::boxes`: both get the same packets, and what is known of the
//! groups, the counters, the action and the frame that is sent must be equal after each. Needs root and the compiled program.

#[path = "groups/frames.rs"]
mod frames;
#[path = "switch/node.rs"]
mod node;

use frames::{Family, Host, Port, entry_of, frame_of, is_one_at_each_port, part, sent};
use node::{as_root_with_the_program, in_a_node};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};
use tsumugi_proto::group::boxes::{GROUPS_MAX, Group, Groups, Sender, Step, start_of};
use tsumugi_proto::group::member::seal;
use tsumugi_rail::switch::groups::Events;
use tsumugi_rail::switch::{Forwarder, Hook, PortEntry, Rules};
use tsumugi_rail::xdp::Action;
use tsumugi_wire::group::{Answer, BODY_BYTES, Contribution, Event, Join, Notice, Operation, WORDS_MAX};
use tsumugi_wire::multicast::{self, Entry, RECEIVERS_MAX, Table, receivers_behind};
use tsumugi_wire::{Flags, Header, Kind, Psn};

const SEEDS: u64 = 24;
const STEPS: usize = 3000;
const PORTS: u32 = 4;
const LEASE_S: u32 = 20;

fn random(rng: &mut Pcg64Mcg, below: u64) -> u64 {
    rng.next_u64() % below
}

/// That the box cannot reach all members.
fn refused(via: u8) -> Step {
    let notice = Notice::Refused;
    Step::AnswerSender(Answer { notice, via, member: 0, weight: 0, seat: 0, seat_token: 0, generation: 0 })
}

/// One run: the program, the model, and what is said to both.
struct Pair<'a> {
    hook: Hook,
    rng: Pcg64Mcg,
    forwarder: Forwarder,
    model: Groups<Port>,
    nics: &'a [u32],
    hosts: Vec<Host>,
    now_s: u32,
    /// Seats that were given out, with what was joined with.
    seats: Vec<(u32, u64, Host)>,
    /// Generations that are likely, by place.
    generations: Vec<u64>,
    seen: [u64; Event::ALL.len()],
    /// How often somebody was sent a part of a packet for several.
    spread: u64,
    /// How often somebody could not join because the box does not reach all.
    out_of_reach: u64,
}

impl Pair<'_> {
    fn new(seed: u64, nics: &[u32]) -> Pair<'_> {
        let hook = [Hook::Tc, Hook::Native, Hook::Generic][seed as usize % 3];
        let rules = Rules { box_number: 7 | 1 << 63, lease_s: LEASE_S, ..Rules::default() };
        let mut forwarder = Forwarder::load(rules, hook, true).unwrap_or_else(|error| panic!("{error}"));
        for (number, nic) in (0..PORTS).zip(nics) {
            let port = PortEntry { nic: *nic, number, network: 0, frame_bytes_max: 1518, is_virtual: 1 };
            forwarder.enter(*nic, port).expect("there is room");
        }
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let family = if seed.is_multiple_of(2) { Family::Four } else { Family::Six };
        let hosts = (0..6).map(|number| Host::new(number, u32::from(number) % PORTS, family)).collect();
        Pair {
            hook,
            now_s: rng.next_u32(),
            rng,
            forwarder,
            model: Groups::new(rules.box_number, LEASE_S),
            nics,
            hosts,
            seats: Vec::new(),
            generations: vec![1; GROUPS_MAX],
            seen: [0; Event::ALL.len()],
            spread: 0,
            out_of_reach: 0,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        random(&mut self.rng, below)
    }

    /// Jobs and groups of which several want the same place.
    fn group(&mut self) -> (u64, u64) {
        let job = 5;
        let wanted = start_of(job, 1);
        let mut near = (1u64..).filter(|group| start_of(job, *group).wrapping_sub(wanted) % GROUPS_MAX < 2);
        let number = self.random(6) as usize;
        (job, near.nth(number).expect("there are more"))
    }

    /// A packet, most often one that says something, and the host that sends it.
    fn packet(&mut self) -> (Host, Header, Vec<u8>) {
        let number = self.random(6) as usize;
        let mut host = self.hosts[number];
        if self.random(200) == 0 {
            host.family = if host.family == Family::Four { Family::Six } else { Family::Four };
        }
        let kind = [
            Kind::Join,
            Kind::Join,
            Kind::Arrive,
            Kind::Arrive,
            Kind::Arrive,
            Kind::Arrive,
            Kind::Notice,
            Kind::Release,
            Kind::Multicast,
            Kind::Relay,
            Kind::Leave,
        ];
        let kind = kind[self.random(11) as usize];
        // To leave is rare, or no group ever forms.
        let kind = if kind == Kind::Leave && self.random(8) != 0 { Kind::Arrive } else { kind };
        let mut header = Header::new(kind, 1 + number as u32);
        header.flow = 10 + number as u32;
        header.token = 1000 + number as u64;
        let place = start_of(5, self.group().1);
        let generation = self.generations[place] + [0, 0, 0, 0, 1, 2, 0][self.random(7) as usize];
        let generation = generation.saturating_sub(u64::from(self.random(6) == 0));
        let via = self.random(7) as u8;
        let body = match kind {
            Kind::Join => {
                let (job, group) = self.group();
                let box_number = if self.random(3) == 0 { 1 + self.random(2) } else { 0 };
                // With a smaller size some groups form at once, and others must wait for many.
                let size = 1 + (group % 4) as u16 + u16::from(self.random(40) == 0);
                let members = u64::from(size) + u64::from(self.random(40) == 0);
                Join {
                    job,
                    key: 77 + u64::from(self.random(40) == 0),
                    group,
                    box_number,
                    first: if self.random(4) == 0 { generation } else { 1 },
                    size,
                    member: self.random(members) as u16,
                    weight: if box_number == 0 { 1 } else { 1 + self.random(2) as u16 },
                    via,
                }
                .encode()
            }
            Kind::Notice => {
                let notice = Notice::ALL[self.random(Notice::ALL.len() as u64) as usize];
                let its = self.model.at(place).clone();
                header.flow = place as u32;
                header.token = if self.random(8) == 0 { 1 } else { its.up_token };
                Answer {
                    notice,
                    via,
                    member: self.random(4) as u16,
                    weight: if self.random(3) == 0 { 1 } else { its.weight },
                    seat: 64 + u32::from(via),
                    seat_token: self.rng.next_u64(),
                    generation: if self.random(3) == 0 { generation } else { its.generation },
                }
                .encode()
            }
            Kind::Release | Kind::Arrive => {
                let operation = Operation::ALL[(generation % 7) as usize];
                let operation = if self.random(30) == 0 { Operation::Xor } else { operation };
                let count = (generation % 9) as u8;
                if kind == Kind::Release {
                    let its = self.model.at(place).clone();
                    header.flow = place as u32;
                    header.token = if self.random(8) == 0 { 1 } else { its.up_token };
                }
                let mut words = [0; WORDS_MAX];
                words.iter_mut().for_each(|word| *word = self.rng.next_u64());
                let mut body = Contribution { via, operation, count, generation, words }.encode();
                match self.random(100) {
                    0 => body[8] = 7,
                    1 => body[9] = 9,
                    _ => {}
                }
                body
            }
            _ => [0; BODY_BYTES],
        };
        if matches!(kind, Kind::Arrive | Kind::Leave | Kind::Multicast) {
            (header.psn, header.ack) = (Psn(header.flow.into()), tsumugi_wire::Psn(header.token));
            header.flow = self.random(1 << 14) as u32;
            if !self.seats.is_empty() && self.random(30) != 0 {
                let at = self.random(self.seats.len() as u64) as usize;
                let (seat, token, its) = self.seats[at];
                (header.flow, header.token, host) = (seat, token, its);
            }
        }
        if matches!(kind, Kind::Multicast | Kind::Relay) {
            if kind == Kind::Relay {
                let its = self.model.at(place);
                (header.flow, header.token) = (place as u32, its.up_token);
            }
            let body = self.for_several(&mut header);
            return (host, header, body);
        }
        let (header, body) = seal(header, body);
        (host, header, body.to_vec())
    }

    /// Makes a packet one for several receivers, most often some that there are. Returns its body.
    fn for_several(&mut self, header: &mut Header) -> Vec<u8> {
        let place = if header.kind == Kind::Relay { header.flow } else { header.flow >> 6 } as usize;
        let base = Psn(self.random(1 << 40));
        let slots = self.model.at(place % GROUPS_MAX).slots.clone();
        let members = slots.iter().map(|slot| slot.member & 63).max().unwrap_or(0);
        let mut entries = vec![Entry::ABSENT; (members as usize).max(1)];
        for slot in slots.iter().filter(|slot| slot.member != 0 && slot.member < 64) {
            let token = slot.peer_token ^ u64::from(self.random(9) == 0);
            entries[slot.member as usize - 1] = Entry::new(token, base, base.plus(self.random(1 << 32)));
        }
        let frame_bytes = 8 * self.random(180) as usize;
        let mut frames = vec![0; frame_bytes];
        frames.iter_mut().for_each(|byte| *byte = self.rng.next_u32() as u8);
        let count = if self.random(40) == 0 { RECEIVERS_MAX } else { entries.len() };
        entries.resize(receivers_behind(frame_bytes, count), Entry::ABSENT);
        let table = Table { crc: self.rng.next_u32(), base, entries: &entries };
        let mut table = [&table.encode_head()[..], table.entry_bytes()].concat();
        header.credit = entries.len() as u16;
        header.path = self.random(3) as u8;
        header.flags = Flags::MIXED.with(if self.random(2) == 0 { Flags::ACK_REQUEST } else { Flags(0) });
        header.body_crc = multicast::check(&table);
        match self.random(60) {
            0 => header.credit = self.random(70) as u16,
            1 => table[0] ^= 1,
            2 => frames.push(7),
            _ => {}
        }
        header.body_bytes = (frames.len() + table.len()) as u16;
        [frames, table].concat()
    }

    /// What each slot gets of a packet for several receivers, as far as it is seen: the last of them; behind the driver, who is refused.
    /// Returns whether anybody gets anything.
    fn compare_parts(
        &self,
        place: usize,
        host: &Host,
        (header, body): (&Header, &[u8]),
        (action, out): (Action, &[u8]),
        frame: &[u8],
    ) -> bool {
        let group = self.model.at(place);
        let parts = self.model.spread(place, header, body);
        let told = format!("{parts:?} of {header:?}, {group:?}");
        if self.hook == Hook::Tc {
            let Some((slot, last)) = parts.last() else {
                assert_eq!((action, out), (Action::Drop, frame), "{told}");
                return false;
            };
            let expected = part(group, *slot, last, body);
            assert!(out == expected, "{told}:\n{out:02x?}\n{expected:02x?}");
        } else if !is_one_at_each_port(group, Some(host), false) {
            let expected = sent(&refused(0), group, place, host, header, frame);
            assert_eq!(Some(out), expected.as_deref(), "{told}");
        }
        assert_eq!(action, Action::Redirect, "{told}");
        true
    }

    /// Whether a group may be joined.
    fn reaches_all(&self, group: &Group<Port>) -> bool {
        self.hook == Hook::Tc || is_one_at_each_port(group, None, true)
    }

    fn step(&mut self) {
        self.now_s = self.now_s.wrapping_add(match self.random(800) {
            0 => LEASE_S,
            1..20 => 1,
            _ => 0,
        });
        let chance = [self.rng.next_u64(), self.rng.next_u64()];
        let (host, mut header, body) = self.packet();
        let is_damaged = self.random(60) == 0;
        if is_damaged {
            header.body_crc ^= 1;
        }
        let frame = frame_of(&host, &header, &body);
        self.forwarder.give(self.now_s, chance).expect("the clock moves");
        let nic = self.nics[host.port as usize];
        let (action, out) = self.forwarder.run_on(&frame, nic).unwrap_or_else(|error| panic!("{error}"));
        if is_damaged {
            self.seen[Event::Malformed as usize] += 1;
            assert_eq!(action, Action::Drop, "a damaged packet");
            return;
        }
        // As whoever drives the rules does.
        let checked = match header.kind {
            Kind::Multicast | Kind::Relay => multicast::split(header.credit, &body)
                .is_ok_and(|(_, table)| multicast::check(table) == header.body_crc),
            _ => true,
        };
        if !checked {
            self.seen[Event::Malformed as usize] += 1;
            assert_eq!(action, Action::Drop, "{header:?}");
            return;
        }
        let sender = Sender { address: host.back(), is_six: host.family == Family::Six };
        let (event, place, step) = self.model.on_packet(self.now_s, &header, &body, sender, chance);
        self.seen[event as usize] += 1;
        let told = format!("{event:?} {step:?} at {place}, of {header:?}, {body:02x?}");
        match &step {
            // Forwarded as any other: where to is another test's.
            Step::Pass => {
                assert!(out == frame, "{told}: {action:?}");
                return;
            }
            Step::Nothing => assert_eq!(action, Action::Drop, "{told}"),
            Step::JoinUp(_) | Step::ArriveUp(_) | Step::LeaveUp | Step::Spread => {}
            _ => assert_eq!(action, Action::Redirect, "{told}"),
        }
        let group = self.model.at(place);
        let is_joined =
            matches!(step, Step::JoinedAll | Step::Answer(_, Answer { notice: Notice::Joined, .. }));
        let step = match Join::decode(&body) {
            Ok(join) if header.kind == Kind::Join && is_joined && !self.reaches_all(group) => {
                self.out_of_reach += 1;
                refused(join.via)
            }
            _ => step,
        };
        // XDP makes what each gets when it leaves.
        let is_for_all = matches!(step, Step::JoinedAll | Step::ReleaseAll(_)) && self.hook != Hook::Tc;
        if !is_for_all && let Some(expected) = sent(&step, group, place, &host, &header, &frame) {
            assert!(out == expected, "{told}:\n{out:02x?}\n{expected:02x?}");
        }
        if step == Step::Spread {
            let is_sent = self.compare_parts(place, &host, (&header, &body), (action, &out), &frame);
            self.spread += u64::from(is_sent);
        }
        let known = self.forwarder.group(place as u32).expect("there is such a place");
        let expected = entry_of(group, &known);
        assert!(known == expected, "{told}:\n{known:?}\n{expected:?}");
        self.generations[place] = group.generation.max(1);
        for (number, slot) in group.slots.iter().enumerate() {
            let seat = (place as u32) << 6 | number as u32;
            let host = self.hosts[usize::from(slot.address.number)];
            if self.seats.iter().all(|(known, token, _)| (*known, *token) != (seat, slot.token)) {
                self.seats.push((seat, slot.token, host));
                if self.seats.len() > 60 {
                    self.seats.remove(0);
                }
            }
        }
    }
}

#[test]
fn the_program_counts_as_the_model_does() {
    let Some(_watched) = as_root_with_the_program("the_program_counts_as_the_model_does") else { return };
    in_a_node(PORTS, |nics| {
        let (mut seen, mut spread, mut out_of_reach) = ([0; Event::ALL.len()], 0, 0);
        for seed in 0..SEEDS {
            let mut pair = Pair::new(seed, nics);
            for _ in 0..STEPS {
                pair.step();
            }
            let events: Events = pair.forwarder.events().expect("they can be read");
            let counted: Vec<u64> = events.iter().map(|(_, count)| count).collect();
            assert_eq!(counted, pair.seen, "seed {seed}");
            spread += pair.spread;
            out_of_reach += pair.out_of_reach;
            seen.iter_mut().zip(pair.seen).for_each(|(all, one)| *all += one);
        }
        assert!(seen.iter().all(|count| *count > 25), "not all happened often: {seen:?}");
        assert!(spread > 1000, "packets for several went out {spread} times");
        assert!(out_of_reach > 100, "{out_of_reach} were out of reach");
        println!("{seen:?}, {spread} for several, {out_of_reach} out of reach");
    });
}
