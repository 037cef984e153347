//! Tagged messages: by MPI's order of matching, wildcards included.

use super::{Part, Site, Wrong, length, payload, text};
use crate::random::Random;
use std::collections::BTreeMap;
use tsumugi::SendError;
use tsumugi::message::{MessageOptions, Pattern, Port, Protocol, Request};

/// Tags are 0 to this, less one.
const TAGS: u64 = 3;
/// Receives that are posted at a time.
const RECEIVES_MAX: usize = 5;
const PROTOCOLS: [Protocol; 4] =
    [Protocol::Auto, Protocol::Eager, Protocol::Rendezvous, Protocol::ActiveZeroCopy];

pub(super) struct Tagged {
    port: Port,
    sends: Vec<Request>,
    /// Receives that are posted, each with its number in the order of posting, and whether it takes everything.
    receives: Vec<(Request, u64, bool)>,
    posted: u64,
    /// By host and tag: messages sent.
    sent: BTreeMap<(usize, u64), u64>,
    /// By host and tag, and by the number of the receive: which message it matched.
    taken: BTreeMap<(usize, u64), BTreeMap<u64, u64>>,
}

impl Tagged {
    pub(super) fn open(site: &Site, _: usize, random: &mut Random) -> Result<Tagged, Wrong> {
        let options = MessageOptions::default().protocol(random.pick(&PROTOCOLS)).eager_bytes(1000);
        let port = Port::open_with(&site.endpoint, 4, options).map_err(text)?;
        let (sent, taken) = (BTreeMap::new(), BTreeMap::new());
        Ok(Tagged { port, sends: Vec::new(), receives: Vec::new(), posted: 0, sent, taken })
    }

    fn receive(&mut self, pattern: Pattern) {
        let request = self.port.receive(pattern, vec![0; 40_000].into());
        self.receives.push((request, self.posted, pattern == Pattern::any()));
        self.posted += 1;
    }

    /// A receive has matched a message: the receives that were posted before matched earlier ones of the same source
    /// and tag.
    fn on_match(
        &mut self,
        site: &Site,
        from: usize,
        tag: u64,
        receive: u64,
        data: &[u8],
    ) -> Result<(), Wrong> {
        let number = data.first_chunk().map_or(u64::MAX, |number| u64::from_le_bytes(*number));
        if data != payload(from, site.me, number, data.len()) {
            return Err(format!("message {number} from host {from} with tag {tag} is not what was sent"));
        }
        let matched = self.taken.entry((from, tag)).or_default();
        matched.insert(receive, number);
        let before = matched.range(..receive).next_back().is_none_or(|(_, before)| *before < number);
        let after = matched.range(receive + 1..).next().is_none_or(|(_, after)| *after > number);
        if before && after {
            Ok(())
        } else {
            Err(format!("message {number} from host {from} overtook another: {matched:?}"))
        }
    }
}

impl Part for Tagged {
    fn act(&mut self, random: &mut Random, site: &Site) -> Result<(), Wrong> {
        if random.one_in(2) && self.receives.len() < RECEIVES_MAX {
            let (from, tag) = (site.peer(site.another(random)), random.below(TAGS));
            let pattern = match random.below(4) {
                0 => Pattern::any(),
                1 => Pattern::tagged(tag),
                2 => Pattern { source: Some(from), ..Pattern::any() },
                _ => Pattern::of(from, tag),
            };
            self.receive(pattern);
        }
        let (to, tag) = (site.another(random), random.below(TAGS));
        let number = self.sent.entry((to, tag)).or_default();
        let data = payload(site.me, to, *number, length(random));
        match self.port.send(site.peer(to), tag, &data) {
            Ok(request) => {
                *number += 1;
                self.sends.push(request);
            }
            Err(SendError::WouldBlock) => {}
            Err(error) => return Err(format!("a tagged message: {error}")),
        }
        Ok(())
    }

    fn poll(&mut self, site: &Site, calm: bool) -> Result<(), Wrong> {
        self.port.progress().map_err(text)?;
        if calm && !self.receives.iter().any(|(.., takes_all)| *takes_all) {
            self.receive(Pattern::any());
        }
        for at in (0..self.sends.len()).rev() {
            if let Some(completion) = self.port.test(&mut self.sends[at]).map_err(text)? {
                completion.outcome.map_err(text)?;
                self.sends.swap_remove(at);
            }
        }
        for at in (0..self.receives.len()).rev() {
            let (request, number, takes_all) = &mut self.receives[at];
            let (number, takes_all) = (*number, *takes_all);
            if let Some(completion) = self.port.test(request).map_err(text)? {
                self.receives.swap_remove(at);
                match &completion.outcome {
                    Ok(status) => {
                        let from = site.host(status.peer);
                        self.on_match(site, from, status.tag, number, completion.data())?;
                    }
                    Err(tsumugi::message::RequestError::Cancelled) => {}
                    Err(error) => return Err(format!("a receive: {error}")),
                }
            } else if calm && !takes_all {
                // It may be for what nobody sends any more.
                self.port.cancel(request);
            }
        }
        Ok(())
    }

    fn sent_to(&self, host: usize) -> u64 {
        self.sent.iter().filter(|((to, _), _)| *to == host).map(|(_, count)| count).sum()
    }

    fn taken_from(&self, host: usize) -> u64 {
        self.taken
            .iter()
            .filter(|((from, _), _)| *from == host)
            .map(|(_, matched)| matched.len() as u64)
            .sum()
    }

    fn is_quiet(&self) -> bool {
        self.sends.is_empty()
    }
}
