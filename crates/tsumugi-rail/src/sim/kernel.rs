//! Simulated kernels: what they answer while the processes on their hosts do not.
//!
//! They answer as real ones do (`liveness.rs`): a handshake on the port of a process that listens, a reset where nobody
//! does, an echo, and ICMP port unreachable for a datagram to a port that nobody has. What they send is lost as datagrams
//! are, goes through the same NICs, and stops where those are cut apart. A host whose NIC does nothing is silent.

use super::{Network, SimRail, State};
use crate::liveness::{Evidence, Question};
use crate::random::Random;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::SocketAddr;
use tsumugi_wire::Instant;
use tsumugi_wire::time::MILLISECOND_NS;

/// When SYNs leave, of which the second and the third are for the case that those before are lost, and how long an answer is
/// waited for, ns. A hundredth of what Linux takes: simulated time-outs are shorter, too.
const SYNS_NS: [u64; 3] = [0, 10 * MILLISECOND_NS, 30 * MILLISECOND_NS];
const ANSWER_NS_MAX: u64 = 40 * MILLISECOND_NS;
/// Time between two ICMP errors of one host to another, ns, at least.
const ERROR_EVERY_NS: u64 = MILLISECOND_NS;

/// What goes from one kernel to another, with the number of the question that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Message {
    /// A SYN leaves now.
    SynIsDue(u64),
    Syn(u64),
    Echo(u64),
    SynAck(u64),
    Reset(u64),
    EchoReply(u64),
    PortUnreachable,
}

/// A frame between two ports of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Frame {
    at: Instant,
    sequence: u64,
    from: usize,
    to: usize,
    message: Message,
}

/// The kernels of a network.
#[derive(Debug)]
pub(super) struct Kernels {
    /// Random numbers of its own: datagrams fare as they would without kernels.
    random: Random,
    under_way: BinaryHeap<Reverse<Frame>>,
    sequence: u64,
    /// When one host last sent an ICMP error to another.
    errors_at: HashMap<(usize, usize), Instant>,
}

/// An answer that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    question: u64,
    says: Says,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Listens,
    Refuses,
    IsThere,
}

/// A question of a rail that waits for its answer.
#[derive(Debug)]
pub(super) struct Pending {
    peer: SocketAddr,
    number: u64,
    asked_at: Instant,
    listens: bool,
    shakes_hands: bool,
    is_host_there: bool,
    verdict: Option<Evidence>,
}

impl Network {
    /// From now on hosts have kernels that answer for processes which do not, and say what their own links are like.
    /// Without, nothing is known of a peer that is silent.
    pub fn set_kernels(&self, seed: u64) {
        let kernels = Kernels {
            random: Random::new(seed),
            under_way: BinaryHeap::new(),
            sequence: 0,
            errors_at: HashMap::new(),
        };
        self.0.borrow_mut().kernels = Some(kernels);
    }

    /// Lets kernels see what has arrived until now, before something changes.
    pub fn advance(&self, now: Instant) {
        let mut state = self.0.borrow_mut();
        if state.kernels.is_some() {
            state.advance(now);
        }
    }
}

impl Kernels {
    fn push(&mut self, at: Instant, from: usize, to: usize, message: Message) {
        self.sequence += 1;
        self.under_way.push(Reverse(Frame { at, sequence: self.sequence, from, to, message }));
    }
}

impl State {
    /// Time has come so far; kernels take what has arrived for them.
    pub(super) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.kernels.is_none() {
            return;
        }
        for inbox in 0..self.ports.len() {
            if !self.ports[inbox].open {
                self.refuse_arrived(inbox);
            }
        }
        while let Some(frame) = self.next_frame() {
            self.take_frame(frame);
        }
    }

    fn next_frame(&mut self) -> Option<Frame> {
        let now = self.now;
        let under_way = &mut self.kernels.as_mut()?.under_way;
        let Reverse(next) = under_way.peek()?;
        (next.at <= now).then(|| under_way.pop()).flatten().map(|Reverse(frame)| frame)
    }

    /// Nobody has the port: its kernel says so to whoever has sent something.
    fn refuse_arrived(&mut self, inbox: usize) {
        while let Some((at, place)) = self.arrived(inbox) {
            let (from, to) = (self.datagrams[place].from, self.datagrams[place].to);
            self.free.push(place);
            self.statistics.nobody += 1;
            let from = self.port(from);
            let Some(kernels) = &mut self.kernels else { continue };
            let is_due =
                kernels.errors_at.get(&(to, from)).is_none_or(|last| at.since(*last) > ERROR_EVERY_NS);
            if is_due {
                kernels.errors_at.insert((to, from), at);
                self.send_frame(at, to, from, Message::PortUnreachable);
            }
        }
    }

    fn send_frame(&mut self, at: Instant, from: usize, to: usize, message: Message) {
        let passes = self.passes(from, to);
        let link = self.links.get(&(from, to)).and_then(|link| link.options).unwrap_or(self.options);
        let Some(kernels) = &mut self.kernels else { return };
        if !passes || kernels.random.chance(link.loss) {
            return;
        }
        let at = at.plus(link.latency_ns + kernels.random.below(link.jitter_ns + 1));
        kernels.push(at, from, to, message);
    }

    fn take_frame(&mut self, Frame { at, from, to, message, .. }: Frame) {
        let inbox = self.ports[to].inbox;
        let mut answer = |question, says| self.ports[inbox].answers.push(Answer { question, says });
        match message {
            Message::SynIsDue(question) => self.send_frame(at, from, to, Message::Syn(question)),
            Message::SynAck(question) => answer(question, Says::Listens),
            Message::Reset(question) => answer(question, Says::Refuses),
            Message::EchoReply(question) => answer(question, Says::IsThere),
            Message::PortUnreachable => {
                let about = self.ports[from].address;
                self.ports[inbox].errors.note(at, about, libc::ECONNREFUSED);
            }
            Message::Echo(question) => self.send_frame(at, to, from, Message::EchoReply(question)),
            Message::Syn(question) => {
                let inbox = &self.ports[inbox];
                let listens = inbox.open && inbox.listens;
                let reply = if listens { Message::SynAck(question) } else { Message::Reset(question) };
                self.send_frame(at, to, from, reply);
            }
        }
    }
}

impl SimRail {
    /// Whether the kernel is to answer handshakes on the process's port while it makes no call.
    pub fn listen(&mut self, listens: bool) {
        self.network.0.borrow_mut().ports[self.port].listens = listens;
    }

    /// What kernels say: see [`Rail::inquire`](crate::Rail::inquire).
    pub(super) fn ask_kernels(
        &mut self,
        now: Instant,
        since: Instant,
        peer: SocketAddr,
        question: Question,
    ) -> Evidence {
        let Some(from) = self.route(peer.ip()) else { return Evidence::NoRoute(libc::ENETUNREACH) };
        let mut state = self.network.0.borrow_mut();
        if state.kernels.is_none() {
            return Evidence::None;
        }
        state.advance(now);
        let said = state.ports[self.port].errors.take(since, peer).unwrap_or_default();
        // What was asked before the peer was last heard says nothing of today.
        self.questions.retain(|pending| pending.peer != peer || pending.asked_at >= since);
        let asked = ask(&mut self.questions, &mut state, now, (self.port, from), peer, question);
        said.unless_known(asked)
    }
}

/// What the kernel of `peer` says, if it has said something since it was asked; otherwise it is asked now.
fn ask(
    questions: &mut Vec<Pending>,
    state: &mut State,
    now: Instant,
    (inbox, from): (usize, usize),
    peer: SocketAddr,
    question: Question,
) -> Evidence {
    if question == Question::Errors {
        return Evidence::None;
    }
    let to = state.port(peer);
    for Answer { question, says } in std::mem::take(&mut state.ports[inbox].answers) {
        if let Some(pending) = questions.iter_mut().find(|pending| pending.number == question) {
            pending.hear(says);
        }
    }
    let Some(at) = questions.iter().position(|pending| pending.peer == peer) else {
        let Some(kernels) = &mut state.kernels else { return Evidence::None };
        let number = kernels.sequence;
        for after in SYNS_NS {
            kernels.push(now.plus(after), from, to, Message::SynIsDue(number));
        }
        state.send_frame(now, from, to, Message::Echo(number));
        questions.push(Pending {
            peer,
            number,
            asked_at: now,
            listens: question == Question::Process,
            shakes_hands: true,
            is_host_there: false,
            verdict: None,
        });
        return Evidence::Asked;
    };
    let pending = &mut questions[at];
    let waited_ns = now.since(pending.asked_at);
    if let Some(evidence) = pending.answer() {
        questions.swap_remove(at);
        return evidence;
    }
    if waited_ns >= ANSWER_NS_MAX {
        let is_host_there = questions.swap_remove(at).is_host_there;
        return if is_host_there { Evidence::HostAnswers } else { Evidence::None };
    }
    Evidence::Asked
}

impl Pending {
    /// The first answer to a handshake ends it.
    fn hear(&mut self, says: Says) {
        match says {
            Says::Listens if self.listens => _ = self.verdict.get_or_insert(Evidence::Present),
            Says::Refuses if self.listens => _ = self.verdict.get_or_insert(Evidence::Gone),
            Says::Listens | Says::Refuses => (self.is_host_there, self.shakes_hands) = (true, false),
            Says::IsThere => self.is_host_there = true,
        }
    }

    /// The answer, if nothing better will come.
    fn answer(&self) -> Option<Evidence> {
        let host_only = self.is_host_there && !self.shakes_hands;
        self.verdict.or_else(|| host_only.then_some(Evidence::HostAnswers))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LinkOptions, NicOptions};
    use super::*;
    use crate::{NicName, Packet, Rail};
    use tsumugi_wire::time::SECOND_NS;

    fn address(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 7411))
    }

    fn pair(listens: bool) -> (Network, SimRail, SimRail) {
        let network = Network::new(1, LinkOptions::default());
        network.set_kernels(1);
        let [one, mut other] = [1, 2].map(|host| network.rail(address(host), 1472));
        other.listen(listens);
        (network, one, other)
    }

    /// Asks until there is an answer; when that was, and what.
    fn answer(rail: &mut SimRail, from_ns: u64, question: Question) -> (u64, Evidence) {
        let mut now = from_ns;
        loop {
            match rail.inquire(Instant(now), Instant(0), address(2), question) {
                Evidence::Asked => now += MILLISECOND_NS,
                evidence => return (now - from_ns, evidence),
            }
        }
    }

    #[test]
    fn a_process_that_makes_no_call_is_present_and_one_that_has_ended_is_gone() {
        let (network, mut one, other) = pair(true);
        assert_eq!(answer(&mut one, 0, Question::Process), (MILLISECOND_NS, Evidence::Present));
        network.advance(Instant(5 * MILLISECOND_NS));
        drop(other);
        assert_eq!(answer(&mut one, 6 * MILLISECOND_NS, Question::Process).1, Evidence::Gone);
        assert_eq!(answer(&mut one, 8 * MILLISECOND_NS, Question::Host).1, Evidence::HostAnswers);
        // A datagram to it is refused, and that is said once.
        let now = 10 * MILLISECOND_NS;
        one.send(Instant(now), address(2), &[Packet { head: b"?", body: &[] }]).unwrap();
        let now = Instant(now + MILLISECOND_NS);
        let errors = |rail: &mut SimRail| rail.inquire(now, Instant(0), address(2), Question::Errors);
        assert_eq!(errors(&mut one), Evidence::PortUnreachable);
        assert_eq!(errors(&mut one), Evidence::None);
    }

    #[test]
    fn who_does_not_listen_has_a_host_that_answers() {
        let (_network, mut one, _other) = pair(false);
        assert_eq!(answer(&mut one, 0, Question::Host).1, Evidence::HostAnswers);
    }

    #[test]
    fn an_answer_waits_for_who_calls_rarely_but_not_for_the_next_silence() {
        let (network, mut one, other) = pair(true);
        let mut ask = |now_ms: u64, since_ms: u64| {
            let [now, since] = [now_ms, since_ms].map(|ms| Instant(ms * MILLISECOND_NS));
            one.inquire(now, since, address(2), Question::Process)
        };
        assert_eq!(ask(0, 0), Evidence::Asked);
        network.advance(Instant(MILLISECOND_NS));
        drop(other);
        assert_eq!(ask(1000, 0), Evidence::Present, "as it was when it was asked");
        assert_eq!(ask(1000, 0), Evidence::Asked);
        assert_eq!(ask(2000, 1500), Evidence::Asked, "it was heard meanwhile");
        assert_eq!(ask(3000, 1500), Evidence::Gone);
    }

    #[test]
    fn a_lost_handshake_is_tried_again() {
        let (network, mut one, _other) = pair(true);
        network.set_options(LinkOptions { loss: 0.5, ..LinkOptions::default() });
        let mut counts = [0; 3];
        for nth in 0..100 {
            match answer(&mut one, nth * SECOND_NS, Question::Process) {
                (MILLISECOND_NS, Evidence::Present) => counts[0] += 1,
                (_, Evidence::Present) => counts[1] += 1,
                _ => counts[2] += 1,
            }
        }
        // A quarter of all handshakes succeed at once; of the others some in the end, some never.
        assert!(counts.iter().all(|count| (10..65).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_silent_host_says_nothing_and_a_link_that_is_down_here_is_known() {
        let (network, mut one, _other) = pair(true);
        network.set_nic(address(2), NicOptions::SILENT);
        assert_eq!(answer(&mut one, 0, Question::Process), (ANSWER_NS_MAX, Evidence::None));
        assert_eq!(one.link_down(Instant(0), address(2)), None);
        network.set_nic(address(1), NicOptions::UNPLUGGED);
        assert_eq!(one.link_down(Instant(0), address(2)), Some(NicName::new("nic0")));
    }
}
