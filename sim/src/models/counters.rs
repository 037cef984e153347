//! Remote memory: words that others count up, each its own.

use super::{Part, Site, Wrong, text};
use crate::random::Random;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use tsumugi::remote::{Operation, Registration};
use tsumugi::{Region, Rights, SendError, Target};

pub(super) struct Counters {
    words: Region,
    registration: Registration,
    /// Operations at each host that have not been answered, in order.
    under_way: Vec<VecDeque<Operation>>,
    sent: Vec<u64>,
    answered: Vec<u64>,
}

impl Counters {
    pub(super) fn open(site: &Site, hosts: usize) -> Result<Counters, Wrong> {
        let words = Region::new(8 * hosts).map_err(text)?;
        let registration = site.endpoint.remote().register(&words.all(), Rights::ATOMIC).map_err(text)?;
        let under_way = (0..hosts).map(|_| VecDeque::new()).collect();
        Ok(Counters { words, registration, under_way, sent: vec![0; hosts], answered: vec![0; hosts] })
    }

    /// Where the words are: one for each host.
    pub(super) fn target(&self) -> Target {
        self.registration.target()
    }
}

impl Part for Counters {
    fn act(&mut self, random: &mut Random, site: &Site) -> Result<(), Wrong> {
        let to = site.another(random);
        let at = site.counters[to].plus(8 * site.me as u64);
        match site.endpoint.remote().fetch_add(site.peer(to), at, 1) {
            Ok(operation) => {
                self.under_way[to].push_back(operation);
                self.sent[to] += 1;
            }
            Err(SendError::WouldBlock) => {}
            Err(error) => return Err(format!("counting up: {error}")),
        }
        Ok(())
    }

    fn poll(&mut self, site: &Site, _: bool) -> Result<(), Wrong> {
        site.endpoint.progress().map_err(text)?;
        for (to, under_way) in self.under_way.iter_mut().enumerate() {
            while let Some(outcome) = under_way.front().and_then(Operation::outcome) {
                under_way.pop_front();
                let (value, expected) = (outcome.map_err(text)?, self.answered[to]);
                if value != expected {
                    return Err(format!("host {to} says that the word was {value}, and it was {expected}"));
                }
                self.answered[to] += 1;
            }
        }
        Ok(())
    }

    fn sent_to(&self, host: usize) -> u64 {
        self.sent[host]
    }

    fn taken_from(&self, host: usize) -> u64 {
        self.words.word(8 * host).map_or(u64::MAX, |word| word.load(Ordering::Acquire))
    }

    fn is_quiet(&self) -> bool {
        self.under_way.iter().all(VecDeque::is_empty)
    }
}
