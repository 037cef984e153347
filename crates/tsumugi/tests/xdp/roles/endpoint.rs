//! An endpoint that does what it is told, and checks whatever arrives.

use super::Settings;
use super::windows::{self, Window};
use crate::cluster::own_node;
use crate::messages::{Lengths, node_of, payload};
use crate::process::{Orders, say};
use std::collections::HashMap;
use std::time::Duration;
use tsumugi::{
    Channel, Config, Endpoint, Message, OpenError, PeerId, ReceiveError, SendError, Ticket, TicketStatus,
    Wait,
};

const CHANNEL: u16 = 7;
/// Messages to take before looking for orders.
const TAKEN_MAX: usize = 64;
/// How long to wait for a message before looking for orders and room again.
const PAUSE: Duration = Duration::from_millis(1);

/// Says whether the endpoint opens, and why not; then does as it is told until the end.
pub(super) fn play(settings: &Settings<'_>) {
    let mut actor = match Actor::open(settings) {
        Ok(actor) => actor,
        Err(error) => return say(format!("{error:?}: {error}")),
    };
    say("open");
    let orders = Orders::listen();
    loop {
        while let Some(order) = orders.try_next() {
            match order.as_str() {
                "end" => return,
                "compute" => {
                    say("yes");
                    compute(&orders);
                    say("yes");
                }
                order => say(actor.obey(order)),
            }
        }
        actor.go_on();
    }
}

/// Is busy with something else until the next order.
fn compute(orders: &Orders) {
    let mut number = 1u64;
    while orders.try_next().is_none() {
        for _ in 0..1000 {
            number = std::hint::black_box(number).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
    }
}

struct Actor {
    endpoint: Endpoint,
    channel: Channel,
    peer: Option<PeerId>,
    lengths: Lengths,
    /// Messages to post, all in all.
    goal: u64,
    tickets: Vec<Ticket>,
    /// The message to be posted next.
    next: Option<Vec<u8>>,
    /// Nothing follows: to say so to the peer, and having said so.
    stopping: bool,
    stopped: bool,
    /// The peer has said so.
    peer_stopped: bool,
    taken: HashMap<PeerId, u64>,
    /// Whether to keep messages, and those that are kept.
    keeps: bool,
    kept: Vec<Message>,
    window: Option<Window>,
    /// What went wrong.
    failure: String,
    /// Nothing more can be done with the endpoint.
    broken: bool,
}

impl Actor {
    fn open(settings: &Settings<'_>) -> Result<Actor, OpenError> {
        let default = Config::default();
        let peer_timeout = settings.get("peer_timeout_ms").map(Duration::from_millis);
        let endpoint = Endpoint::open(
            Config::default()
                .port(settings.get("port").unwrap_or(0))
                .bind(settings.get("bind").unwrap_or(default.bind))
                .send(settings.get("send").unwrap_or_default())
                .receive(settings.get("receive").unwrap_or_default())
                .faults(settings.get("faults"))
                .policy(settings.get("policy"))
                .wait(settings.get("wait").unwrap_or(Wait::Adaptive))
                .peer_timeout(peer_timeout.unwrap_or(Duration::from_secs(60)))
                .send_bytes(settings.get("send_bytes").unwrap_or(default.send_bytes)),
        )?;
        let peer = settings.get::<String>("peer");
        let peer = peer.map(|peer| endpoint.add_peer(&peer)).transpose()?;
        let channel = endpoint.channel(CHANNEL).expect("nobody else has it");
        let short = settings.get::<String>("lengths").is_some_and(|lengths| lengths == "short");
        Ok(Actor {
            endpoint,
            channel,
            peer,
            lengths: if short { Lengths::Short } else { Lengths::All },
            goal: 0,
            tickets: Vec::new(),
            next: None,
            stopping: false,
            stopped: false,
            peer_stopped: false,
            taken: HashMap::new(),
            keeps: false,
            kept: Vec::new(),
            window: None,
            failure: String::new(),
            broken: false,
        })
    }

    /// Does as it is told and answers.
    fn obey(&mut self, order: &str) -> String {
        let (word, number) = order.split_once(' ').unwrap_or((order, "0"));
        match word {
            "report" => return self.report(),
            "failure" => return self.failure.clone(),
            "uses" => return self.endpoint.report().to_string(),
            "tickets" => return self.fates(),
            "post" => self.goal += number.parse::<u64>().expect("a number"),
            "stream" => self.goal = u64::MAX,
            "stop" => {
                self.goal = self.tickets.len() as u64;
                self.stopping = true;
            }
            "keep" => self.keeps = true,
            "release" => {
                self.keeps = false;
                self.kept.clear();
            }
            "lend" => {
                let (window, said) = Window::lend(&self.endpoint, number.parse().expect("a number"));
                self.window = Some(window);
                return said;
            }
            "revoke" => self.window.as_mut().expect("a window").revoke(),
            "holds" => {
                let held = self.window.as_ref().expect("a window").holds(number.parse().expect("a number"));
                return if held { "yes" } else { "no" }.to_owned();
            }
            "fill" => {
                if let Err(error) = windows::fill(&self.endpoint, self.peer.expect("a peer"), number) {
                    return error.to_string();
                }
            }
            "refusals" => {
                let refusals = std::iter::from_fn(|| self.endpoint.remote().take_refusal());
                return refusals.count().to_string();
            }
            "throw" => self.throw(number.parse().expect("a number")),
            "throw_back" => self.throw_back(number.parse().expect("a number")),
            "flush" => {
                while self.goes_on_posting() {
                    self.go_on();
                }
                if let Err(error) = self.endpoint.flush() {
                    return error.to_string();
                }
            }
            other => panic!("what is '{other}'?"),
        }
        "yes".to_owned()
    }

    /// Sends a message and waits until it comes back, so many times.
    fn throw(&mut self, rounds: u64) {
        let peer = self.peer.expect("a peer");
        for round in 0..rounds {
            self.channel.send(peer, &round.to_le_bytes()).unwrap();
            assert_eq!(self.channel.receive().unwrap()[..], round.to_le_bytes());
        }
    }

    /// Sends back whatever comes from now on, so many times.
    fn throw_back(&mut self, rounds: u64) {
        say("ready");
        for _ in 0..rounds {
            let message = self.channel.receive().unwrap();
            self.channel.send(message.source(), &message).unwrap();
        }
    }

    fn report(&self) -> String {
        let pending =
            self.tickets.last().is_some_and(|it| self.endpoint.status(*it) == TicketStatus::Pending);
        let mut report = format!(
            "port={} uses_xdp={} posted={} pending={} taken={} kept={} ended={}",
            self.endpoint.port(),
            u8::from(self.endpoint.uses_xdp()),
            self.tickets.len(),
            u8::from(pending || self.goes_on_posting()),
            self.taken.values().sum::<u64>(),
            self.kept.len(),
            u8::from(self.stopped && self.peer_stopped),
        );
        for (name, value) in self.endpoint.counters().iter() {
            report += &format!(" {name}={value}");
        }
        let paths = self.peer.map_or(Vec::new(), |peer| self.endpoint.paths(peer));
        let usable = paths.iter().filter(|path| path.is_usable).count();
        report += &format!(" paths={} usable={usable}", paths.len());
        for (number, path) in paths.iter().enumerate() {
            report += &format!(" delivered{number}={}", path.delivered);
        }
        report
    }

    /// What became of all messages.
    fn fates(&self) -> String {
        let count = |fate| self.tickets.iter().filter(|it| self.endpoint.status(**it) == fate).count();
        let [pending, delivered, failed] =
            [TicketStatus::Pending, TicketStatus::Delivered, TicketStatus::Failed].map(count);
        format!("pending={pending} delivered={delivered} failed={failed}")
    }

    fn goes_on_posting(&self) -> bool {
        !self.broken && self.failure.is_empty() && (self.tickets.len() as u64) < self.goal
    }

    /// Posts what may be posted, takes what has arrived.
    fn go_on(&mut self) {
        if self.broken {
            return std::thread::sleep(PAUSE);
        }
        self.post();
        let mut patience = PAUSE;
        // A stream may never pause, and orders are waiting.
        for _ in 0..TAKEN_MAX {
            match self.channel.receive_timeout(patience) {
                Ok(message) => self.take(message),
                Err(ReceiveError::TimedOut(_)) => return,
                // The rest arrives when what is kept is released.
                Err(ReceiveError::MemoryExhausted { .. }) if self.keeps => return std::thread::sleep(PAUSE),
                Err(error) => return self.fail(&error),
            }
            patience = Duration::ZERO;
        }
    }

    fn post(&mut self) {
        let Some(peer) = self.peer else { return };
        while self.goes_on_posting() {
            let number = self.tickets.len() as u64;
            let message = self.next.take();
            let message = message.unwrap_or_else(|| payload(own_node(), number, self.lengths.of(number)));
            match self.channel.post(peer, &message) {
                Ok(ticket) => self.tickets.push(ticket),
                Err(SendError::WouldBlock) => {
                    self.next = Some(message);
                    return;
                }
                Err(error) => return self.fail(&error),
            }
        }
        // An empty message says that nothing follows.
        if self.stopping && !self.stopped {
            match self.channel.post(peer, &[]) {
                Ok(_) => self.stopped = true,
                Err(SendError::WouldBlock) => {}
                Err(error) => self.fail(&error),
            }
        }
    }

    fn take(&mut self, message: Message) {
        let source = message.source();
        if message.is_empty() {
            self.peer_stopped = true;
            return;
        }
        assert!(!self.peer_stopped, "a message after the last");
        let from = self.endpoint.address_of(source).expect("a peer with an address");
        let number = self.taken.entry(source).or_default();
        let expected = payload(node_of(from.ip()), *number, self.lengths.of(*number));
        assert!(message[..] == expected[..], "message {number} of {from} is not what was sent: {message:?}");
        *number += 1;
        if self.keeps {
            self.kept.push(message);
        }
    }

    fn fail(&mut self, error: &(dyn std::error::Error + 'static)) {
        self.failure = format!("{error:?}: {error}");
        let rail = |error: &ReceiveError| matches!(error, ReceiveError::Rail(_));
        self.broken = error.downcast_ref().is_some_and(rail)
            || error.downcast_ref().is_some_and(|error| matches!(error, SendError::Rail(_)));
    }
}
