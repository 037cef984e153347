//! A member of a group that a switch box counts for: joins, arrives, and asks again until it is told.
//!
//! Sans-IO: whoever drives it sends what [`Member::transmit`] makes to another member ([`super::boxes`] says which), and hands in what
//! comes back. Everything may be lost, doubled or late.

use tsumugi_wire::group::{Answer, BODY_BYTES, Contribution, Join, Notice, Operation, WORDS_MAX, mix};
use tsumugi_wire::time::MILLISECOND_NS;
use tsumugi_wire::{Flags, Header, Instant, Kind, Psn};

/// A packet that was not answered is sent again after so long, ns, and then after twice as long each time.
pub const RETRY_NS: u64 = 2 * MILLISECOND_NS;
/// No longer than so long, ns.
pub const RETRY_MAX_NS: u64 = 100 * MILLISECOND_NS;
/// After so long without any answer while it waits for a generation, the box is taken for dead, ns. A member that joins has no answer
/// before all do, and it is for others to lose patience.
pub const SILENCE_NS: u64 = 1_000 * MILLISECOND_NS;

/// So many transmissions in a row must have reached another member for there to be no box: one may have slipped past it, while it is
/// replaced, or sent together with others.
pub const PASSED_MAX: u32 = 4;

/// A packet to a box: header and body.
pub type Packet = (Header, [u8; BODY_BYTES]);

/// What a member wants to be counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The job.
    pub job: u64,
    /// What all members know.
    pub key: u64,
    /// Number of the group in the job.
    pub group: u64,
    /// Members in all.
    pub size: u16,
    /// This one's number.
    pub member: u16,
    /// The endpoint's epoch.
    pub epoch: u32,
    /// Index of the flow that was opened for releases.
    pub flow: u32,
    /// Its token.
    pub token: u64,
}

impl Membership {
    /// The JOIN of a member.
    pub(super) fn join(&self, first: u64) -> Packet {
        let Membership { job, key, group, size, member, epoch, flow, token } = *self;
        let body = Join { job, key, group, box_number: 0, first, size, member, weight: 1, via: 0 }.encode();
        seal(Header { flow, token, ..Header::new(Kind::Join, epoch) }, body)
    }

    /// The header of what is said from a seat.
    pub(super) fn of_seat(&self, kind: Kind, (seat, seat_token): (u32, u64)) -> Header {
        let Membership { epoch, flow, token, .. } = *self;
        Header {
            flow: seat,
            token: seat_token,
            psn: Psn(flow.into()),
            ack: Psn(token),
            ..Header::new(kind, epoch)
        }
    }

    /// Whether a notice is for this member.
    pub(super) const fn is_for(&self, header: &Header) -> bool {
        header.flow == self.flow && header.token == self.token
    }
}

/// How it stands with a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not all have joined yet.
    Joining,
    /// Has joined, and waits for nothing.
    Joined,
    /// Waits for the generation that it has arrived at.
    Waiting,
    /// The generation that it has arrived at is complete, but only other members know what came of it.
    Lost,
    /// The box counts no more, and why.
    Failed(Failure),
}

/// Why a box does not count for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// There is none on the way.
    NoBox,
    /// It does not answer any more.
    Silent,
    /// It has no room for the group, or more want to join than there are members.
    Refused,
    /// The members disagree about what is combined.
    Disagreement,
}

/// A member.
#[derive(Clone, Debug)]
pub struct Member {
    membership: Membership,
    state: State,
    seat: u32,
    seat_token: u64,
    /// Generation whose release has PSN 0.
    first: u64,
    /// Whether the last generation is not over for it.
    is_open: bool,
    /// The contribution that was made last.
    last: Contribution,
    /// What came of it, once it is released.
    result: [u64; WORDS_MAX],
    /// When to send again; the wait before that.
    retry_at: Instant,
    retry_ns: u64,
    /// Since when nothing was heard that was asked for.
    silent_since: Instant,
    /// Transmissions in a row that have reached another member, and whether the last is among them.
    passed: u32,
    has_passed: bool,
    /// Who has not arrived, as the box said last.
    awaited: Option<u16>,
}

impl Member {
    /// A member that joins, of a group whose last generation was `generation` (0: it is new).
    #[must_use]
    pub fn new(now: Instant, membership: Membership, generation: u64) -> Member {
        Member {
            membership,
            state: State::Joining,
            seat: 0,
            seat_token: 0,
            first: generation + 1,
            is_open: false,
            last: Contribution {
                via: 0,
                operation: Operation::None,
                count: 0,
                generation,
                words: [0; WORDS_MAX],
            },
            result: [0; WORDS_MAX],
            retry_at: now,
            retry_ns: RETRY_NS,
            silent_since: now,
            passed: 0,
            has_passed: false,
            awaited: None,
        }
    }

    /// How it stands.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The generation that it has arrived at last.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.last.generation
    }

    /// What it contributed to that.
    #[must_use]
    pub const fn contribution(&self) -> &Contribution {
        &self.last
    }

    /// What came of it, in [`State::Joined`].
    #[must_use]
    pub const fn result(&self) -> &[u64; WORDS_MAX] {
        &self.result
    }

    /// A member that has not arrived, as far as the box has said.
    #[must_use]
    pub const fn awaited(&self) -> Option<u16> {
        self.awaited
    }

    /// Whether other members should be asked what came of the generation that it has arrived at: the box has forgotten the group
    /// since, and some may have left it before.
    #[must_use]
    pub fn is_adrift(&self) -> bool {
        self.state == State::Lost || (self.state == State::Joining && self.is_open)
    }

    /// Arrives at the next generation. Only when the last is over for it: in [`State::Joined`], or while it joins anew after it has
    /// [learned](Member::learn) what came of that.
    pub fn arrive(&mut self, now: Instant, operation: Operation, words: &[u64]) {
        debug_assert!(!self.is_open && words.len() <= WORDS_MAX);
        let mut all = [0; WORDS_MAX];
        let count = words.len().min(WORDS_MAX);
        all[..count].copy_from_slice(&words[..count]);
        let generation = self.last.generation + 1;
        self.last = Contribution { via: 0, operation, count: count as u8, generation, words: all };
        if self.state == State::Joined {
            self.state = State::Waiting;
        }
        self.is_open = true;
        self.awaited = None;
        self.ask(now);
    }

    /// What came of the generation that it has arrived at has been learned from another member, for it is, or was,
    /// [adrift](Member::is_adrift). The flow was opened anew, with this token, and the
    /// member joins anew: nothing fills the gap that the lost release has left in the old one.
    pub fn learn(&mut self, now: Instant, words: [u64; WORDS_MAX], token: u64) {
        self.result = words;
        self.is_open = false;
        self.first = self.last.generation + 1;
        self.membership.token = token;
        self.state = State::Joining;
        self.ask(now);
    }

    /// Begins to ask for something.
    fn ask(&mut self, now: Instant) {
        (self.retry_at, self.retry_ns, self.silent_since) = (now, RETRY_NS, now);
        (self.passed, self.has_passed) = (0, false);
    }

    /// When [`Member::transmit`] has something to do.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        match self.state {
            State::Joining | State::Waiting => self.retry_at,
            State::Joined | State::Lost | State::Failed(_) => Instant::NEVER,
        }
    }

    /// What is to be sent now.
    pub fn transmit(&mut self, now: Instant) -> Option<Packet> {
        if now < self.deadline() {
            return None;
        }
        if self.state == State::Waiting && now.since(self.silent_since) >= SILENCE_NS {
            self.state = State::Failed(Failure::Silent);
            return None;
        }
        self.has_passed = false;
        self.retry_at = now.plus(self.retry_ns);
        self.retry_ns = (2 * self.retry_ns).min(RETRY_MAX_NS);
        Some(match self.state {
            State::Joining => self.membership.join(self.first),
            _ => self.to_seat(Kind::Arrive, self.last.encode()),
        })
    }

    fn to_seat(&self, kind: Kind, body: [u8; BODY_BYTES]) -> Packet {
        seal(self.membership.of_seat(kind, (self.seat, self.seat_token)), body)
    }

    /// That it leaves; to be sent once, and never asked for again. `None`: it holds no seat.
    pub fn leave(&mut self) -> Option<Packet> {
        let is_in = matches!(self.state, State::Joined | State::Waiting | State::Lost);
        self.state = State::Failed(Failure::Refused);
        is_in.then(|| self.to_seat(Kind::Leave, [0; BODY_BYTES]))
    }

    /// Whether a notice is for this member.
    #[must_use]
    pub const fn is_for(&self, header: &Header) -> bool {
        self.membership.is_for(header)
    }

    /// A box has answered, or the member that got the packet.
    pub fn on_notice(&mut self, now: Instant, answer: &Answer) {
        let is_due = self.state == State::Waiting && answer.generation == self.last.generation;
        if matches!(self.state, State::Joining | State::Waiting) && answer.notice == Notice::Waiting {
            self.silent_since = now;
            self.passed = 0;
        }
        match (answer.notice, self.state) {
            (Notice::Joined, State::Joining) => {
                (self.seat, self.seat_token) = (answer.seat, answer.seat_token);
                self.state = if self.is_open { State::Waiting } else { State::Joined };
                self.ask(now);
            }
            (Notice::Refused, State::Joining) => self.state = State::Failed(Failure::Refused),
            (Notice::NoBox, State::Joining | State::Waiting) if !self.has_passed => {
                self.has_passed = true;
                self.passed += 1;
                if self.passed == PASSED_MAX {
                    self.state = State::Failed(Failure::NoBox);
                }
            }
            (Notice::Waiting, _) if is_due => self.awaited = Some(answer.member),
            (Notice::Lost, _) if is_due => self.state = State::Lost,
            (Notice::Disagreement, _) if is_due => self.state = State::Failed(Failure::Disagreement),
            (Notice::Unknown, _) if is_due => {
                self.state = State::Joining;
                self.ask(now);
            }
            _ => {}
        }
    }

    /// A release has been deposited, which may have come before.
    pub fn on_release(&mut self, release: &Contribution) {
        if self.is_open && release.generation == self.last.generation {
            self.result = release.words;
            self.is_open = false;
            // Whoever has lost its seat meanwhile is told so when it arrives next.
            self.state = State::Joined;
        }
    }
}

/// A packet with everything that a box looks at.
#[must_use]
pub fn seal(mut header: Header, body: [u8; BODY_BYTES]) -> Packet {
    header.flags = Flags::MIXED;
    header.body_bytes = body.len() as u16;
    header.body_crc = mix(&body).unwrap_or_default();
    (header, body)
}
