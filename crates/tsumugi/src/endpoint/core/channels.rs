//! Channels: what has arrived on them, and what their owners are told of.

use super::Core;
use super::place::Placer;
use crate::endpoint::receive_queue::Payload;
use crate::error::Failure;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use tsumugi_wire::defect;
use tsumugi_wire::rails::CONTROL_CHANNEL;

/// What a channel hands to its owner.
#[derive(Debug)]
pub enum Delivery {
    /// A message.
    Message {
        /// The peer that sent it.
        source: u32,
        /// Its bytes.
        payload: Payload,
    },
    /// A peer is gone.
    Failed(Box<Failure>),
}

/// One channel.
#[derive(Default)]
struct Inbox {
    /// Whether somebody has the channel open. What arrives before waits.
    open: bool,
    /// What has arrived and was not taken.
    queue: VecDeque<Delivery>,
    /// Its owner is told of every peer that closes, also of those that leave in good order with nothing lost.
    hears_closes: bool,
    /// Says where long messages go.
    placer: Option<Rc<RefCell<dyn Placer>>>,
}

/// A failure that nobody has asked for.
struct Unasked {
    failure: Failure,
    /// The application knows of it all the same: the owner of a channel was told, or the peer was reset.
    is_told: bool,
}

/// The channels of an endpoint, and the failures that are told to whoever asks.
pub(super) struct Channels {
    inboxes: BTreeMap<u16, Inbox>,
    failures: VecDeque<Unasked>,
    /// A caller that never asks must not make us grow.
    failures_max: usize,
}

impl Channels {
    pub(super) fn new(failures_max: usize) -> Channels {
        Channels { inboxes: BTreeMap::new(), failures: VecDeque::new(), failures_max }
    }

    /// Puts a message behind what has arrived.
    #[inline]
    pub(super) fn push(&mut self, channel: u16, source: u32, payload: Payload) {
        // Looked up first: an entry alone takes longer, for every message.
        let inbox = match self.inboxes.get_mut(&channel) {
            Some(inbox) => inbox,
            None => self.inboxes.entry(channel).or_default(),
        };
        inbox.queue.push_back(Delivery::Message { source, payload });
    }

    /// Tells of a peer that is gone: those who have channels open, if it `is_end` or they want to hear of every one, and whoever
    /// asks.
    pub(super) fn fail(&mut self, failure: Failure, is_end: bool) {
        let hears = |inbox: &&mut Inbox| inbox.open && (is_end || inbox.hears_closes);
        for inbox in self.inboxes.values_mut().filter(hears).filter(|_| !defect!(ChannelsNotTold)) {
            inbox.queue.push_back(Delivery::Failed(Box::new(failure.clone())));
        }
        if self.failures.len() >= self.failures_max {
            self.failures.pop_front();
        }
        if !defect!(FailureNotReported) {
            self.failures.push_back(Unasked { failure, is_told: false });
        }
    }

    /// How many failures nobody has asked for.
    pub(super) fn failures(&self) -> usize {
        self.failures.len()
    }

    pub(super) fn is_open(&self, channel: u16) -> bool {
        self.inboxes.get(&channel).is_some_and(|inbox| inbox.open)
    }

    pub(super) fn placer(&self, channel: u16) -> Option<Rc<RefCell<dyn Placer>>> {
        self.inboxes.get(&channel)?.placer.clone()
    }

    pub(super) fn set_placer(&mut self, channel: u16, placer: Rc<RefCell<dyn Placer>>) {
        if let Some(inbox) = self.inboxes.get_mut(&channel) {
            inbox.placer = Some(placer);
        }
    }

    /// Takes a channel's placer away. `false`: it had none.
    pub(super) fn remove_placer(&mut self, channel: u16) -> bool {
        self.inboxes.get_mut(&channel).is_some_and(|inbox| inbox.placer.take().is_some())
    }

    /// A peer goes by another number.
    pub(super) fn renumber(&mut self, from: u32, into: u32) {
        for delivery in self.inboxes.values_mut().flat_map(|inbox| &mut inbox.queue) {
            if let Delivery::Message { source, .. } = delivery
                && *source == from
            {
                *source = into;
            }
        }
    }

    /// Bytes of messages that have memory of their own.
    pub(super) fn owned_bytes(&self) -> u64 {
        let deliveries = self.inboxes.values().flat_map(|inbox| &inbox.queue);
        let bytes = deliveries.map(|delivery| match delivery {
            Delivery::Message { payload: Payload::Owned(buffer), .. } => buffer.len() as u64,
            _ => 0,
        });
        bytes.sum()
    }

    /// Takes all messages of all channels, to go on with in another process.
    pub(super) fn take_all(&mut self) -> Vec<(u16, Vec<(u32, Payload)>)> {
        let messages = |inbox: Inbox| {
            let messages = inbox.queue.into_iter().filter_map(|delivery| match delivery {
                Delivery::Message { source, payload } => Some((source, payload)),
                Delivery::Failed(_) => None,
            });
            messages.collect()
        };
        let inboxes = std::mem::take(&mut self.inboxes);
        inboxes.into_iter().map(|(number, inbox)| (number, messages(inbox))).collect()
    }
}

impl Core {
    /// Opens a channel; `false` when it is open already.
    pub fn open_channel(&mut self, channel: u16) -> bool {
        if channel == CONTROL_CHANNEL {
            return false; // for good
        }
        let inbox = self.channels.inboxes.entry(channel).or_default();
        if !inbox.open {
            inbox.hears_closes = false;
        }
        !std::mem::replace(&mut inbox.open, true)
    }

    /// The owner of a channel is told of every peer that closes. Without this it is not told of those that leave in
    /// good order, unless no peer is left that could send.
    pub fn hear_closes(&mut self, channel: u16) {
        if let Some(inbox) = self.channels.inboxes.get_mut(&channel) {
            inbox.hears_closes = true;
        }
    }

    /// Leaves a channel without closing it: what arrives waits for whoever opens it next.
    pub(crate) fn detach_channel(&mut self, channel: u16) {
        self.remove_placer(channel);
        if let Some(inbox) = self.channels.inboxes.get_mut(&channel) {
            inbox.open = false;
        }
    }

    /// Closes a channel; what had arrived on it is dropped.
    pub fn close_channel(&mut self, channel: u16) {
        self.remove_placer(channel);
        if let Some(inbox) = self.channels.inboxes.remove(&channel) {
            for delivery in inbox.queue {
                if let Delivery::Message { payload, .. } = delivery {
                    self.release_message(payload);
                }
            }
        }
    }

    /// Whether something has arrived on a channel and was not taken.
    pub(crate) fn has_arrived(&self, channel: u16) -> bool {
        self.channels.inboxes.get(&channel).is_some_and(|inbox| !inbox.queue.is_empty())
    }

    /// Takes what arrived next on an open channel.
    pub fn take(&mut self, channel: u16) -> Option<Delivery> {
        let next = self.channels.inboxes.get_mut(&channel)?.queue.pop_front();
        if next.is_none() {
            self.watch();
        }
        next
    }

    /// Takes what arrived next on an open channel and gives it back at once; returns its length, bytes.
    #[doc(hidden)]
    pub fn take_and_release(&mut self, channel: u16) -> Option<usize> {
        match self.take(channel)? {
            Delivery::Message { payload, .. } => {
                let bytes = match &payload {
                    Payload::InPlace { bytes, .. } => *bytes as usize,
                    Payload::Owned(buffer) => buffer.len(),
                };
                self.release_message(payload);
                Some(bytes)
            }
            Delivery::Failed(_) => None,
        }
    }

    /// Takes the next failure that has not been asked for.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.channels.failures.pop_front().map(|unasked| unasked.failure)
    }

    /// Takes the next failure with which messages were lost, unless the application knows of it.
    pub(crate) fn take_loss(&mut self) -> Option<Failure> {
        let failures = &mut self.channels.failures;
        let is_news = |unasked: &Unasked| !unasked.is_told && unasked.failure.undelivered > 0;
        let at = failures.iter().position(is_news)?;
        failures.remove(at).map(|unasked| unasked.failure)
    }

    /// The application knows of failures.
    pub(crate) fn told(&mut self, is_known: impl Fn(&Failure) -> bool) {
        for unasked in self.channels.failures.iter_mut().filter(|unasked| is_known(&unasked.failure)) {
            unasked.is_told = true;
        }
    }
}
