//! Which message goes into which receive: MPI's rules (MPI 4.1, section 3.5), and nothing but them.
//!
//! Messages of one source match receives in the order in which they were sent; receives match in the order in which
//! they were posted, whether they name a source and a tag or leave bits of them open.
//!
//! A receive that arrives finds its message, and a message its receive, in a time that does not depend on how many wait:
//! receives wait in hash tables, one for each set of open bits that is in use, and of the heads that a message
//! finds there the one posted first is its receive. Only a receive that leaves something open looks through the unexpected messages one
//! by one, until the first that it takes.

use super::queues::Queues;
use tsumugi_wire::defect;

/// Sets of open bits that are remembered though no receive uses them. A program has a few, again and again.
const CLASSES_KEPT: usize = 4;

/// Which messages a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// From whom; `None` takes anybody's.
    pub source: Option<u32>,
    /// The tag.
    pub tag: u64,
    /// Bits of the tag that do not matter.
    pub ignore: u64,
}

impl Wanted {
    fn takes(&self, source: u32, tag: u64) -> bool {
        self.source.is_none_or(|wanted| wanted == source) && (self.tag ^ tag) & !self.ignore == 0
    }

    fn is_exact(&self) -> bool {
        self.source.is_some() && self.ignore == 0
    }
}

/// Receives that leave the same open: whose they are told apart by is what they do not leave open.
#[derive(Debug)]
struct Class<R> {
    any_source: bool,
    ignore: u64,
    receives: Queues<(u32, u64), R>,
}

impl<R> Class<R> {
    fn key(&self, source: u32, tag: u64) -> (u32, u64) {
        (if self.any_source { 0 } else { source }, tag & !self.ignore)
    }
}

/// Where a receive waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    any_source: bool,
    ignore: u64,
    at: usize,
}

/// Receives that wait for messages, and messages that wait for receives.
#[derive(Debug)]
pub struct Matching<R, M> {
    /// In no order. Those without receives are removed when there are many.
    classes: Vec<Class<R>>,
    unexpected: Queues<(u32, u64), M>,
    /// Counts receives and messages.
    sequence: u64,
}

impl<R, M> Default for Matching<R, M> {
    fn default() -> Self {
        Matching { classes: Vec::new(), unexpected: Queues::default(), sequence: 0 }
    }
}

impl<R, M> Matching<R, M> {
    /// Lets a receive wait. No message that it takes may be waiting: see [`Matching::find`].
    pub fn post(&mut self, wanted: Wanted, receive: R) -> Posted {
        let (any_source, ignore) = (wanted.source.is_none(), wanted.ignore);
        let known = self.class_of(any_source, ignore);
        let class = known.unwrap_or_else(|| {
            self.classes.push(Class { any_source, ignore, receives: Queues::default() });
            self.classes.len() - 1
        });
        let class = &mut self.classes[class];
        let key = class.key(wanted.source.unwrap_or(0), wanted.tag);
        self.sequence += 1;
        Posted { any_source, ignore, at: class.receives.push(key, self.sequence, receive) }
    }

    fn class_of(&self, any_source: bool, ignore: u64) -> Option<usize> {
        self.classes.iter().position(|class| class.any_source == any_source && class.ignore == ignore)
    }

    /// A message arrived: takes out the receive that it is for, if one waits.
    pub fn arrive(&mut self, source: u32, tag: u64) -> Option<R> {
        let heads = self.classes.iter().enumerate().filter_map(|(number, class)| {
            let (sequence, at) = class.receives.first(&class.key(source, tag))?;
            Some((sequence, number, at))
        });
        let (_, class, at) = if defect!(NewestReceive) { heads.max() } else { heads.min() }?;
        self.remove(class, at)
    }

    /// The receive that a message of such a source and tag is for, and where it waits.
    pub fn first(&self, source: u32, tag: u64) -> Option<(R, Posted)>
    where
        R: Copy,
    {
        let heads = self.classes.iter().filter_map(|class| {
            let (sequence, at) = class.receives.first(&class.key(source, tag))?;
            Some((sequence, Posted { any_source: class.any_source, ignore: class.ignore, at }, class))
        });
        let key = |(sequence, ..): &(u64, Posted, &Class<R>)| *sequence;
        let (_, posted, class) =
            if defect!(NewestReceive) { heads.max_by_key(key) } else { heads.min_by_key(key) }?;
        Some((*class.receives.get(posted.at)?, posted))
    }

    /// When a receive that waits was posted, as receives and messages are counted.
    pub fn turn(&self, posted: Posted) -> Option<u64> {
        self.classes[self.class_of(posted.any_source, posted.ignore)?].receives.turn(posted.at)
    }

    /// Takes a receive out that waits no more.
    pub fn cancel(&mut self, posted: Posted) -> Option<R> {
        let class = self.class_of(posted.any_source, posted.ignore)?;
        self.remove(class, posted.at)
    }

    fn remove(&mut self, class: usize, at: usize) -> Option<R> {
        let receives = &mut self.classes[class].receives;
        let receive = receives.remove(at);
        if receives.len() == 0 && self.classes.len() > CLASSES_KEPT {
            self.classes.swap_remove(class);
        }
        receive
    }

    /// Lets a message wait that no receive was posted for: see [`Matching::arrive`]. Returns its place.
    pub fn keep(&mut self, source: u32, tag: u64, message: M) -> usize {
        self.sequence += 1;
        self.unexpected.push((source, tag), self.sequence, message)
    }

    /// The message that waits for such a receive, if there is one.
    pub fn find(&self, wanted: &Wanted) -> Option<usize> {
        if let (true, Some(source)) = (wanted.is_exact(), wanted.source) {
            return self.unexpected.first(&(source, wanted.tag)).map(|(_, at)| at);
        }
        let mut waiting = self.unexpected.iter().filter(|(_, (source, tag), _)| wanted.takes(*source, *tag));
        let found = if defect!(NewestMessage) { waiting.last() } else { waiting.next() };
        found.map(|(at, ..)| at)
    }

    /// Two sources turned out to be one, which goes by `into`. Receives from the one may wait now beside messages of the
    /// other that they take: see [`Matching::find`].
    pub fn merge(&mut self, from: u32, into: u32) {
        let rename = |(source, tag)| (if source == from { into } else { source }, tag);
        for class in self.classes.iter_mut().filter(|class| !class.any_source) {
            class.receives.rename(rename);
        }
        self.unexpected.rename(rename);
    }

    /// A message that waits.
    pub fn message(&self, at: usize) -> Option<&M> {
        self.unexpected.get(at)
    }

    /// Takes out a message that waits.
    pub fn take(&mut self, at: usize) -> Option<M> {
        self.unexpected.remove(at)
    }

    /// Messages that wait.
    pub fn unexpected(&self) -> usize {
        self.unexpected.len()
    }

    /// Receives that wait.
    pub fn posted(&self) -> usize {
        self.classes.iter().map(|class| class.receives.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rules as they are written, by looking through lists in order.
    #[derive(Default)]
    struct Model {
        receives: Vec<(u32, Wanted)>,
        messages: Vec<(u32, u32, u64)>,
    }

    impl Model {
        fn receive(&mut self, number: u32, wanted: Wanted) -> Option<u32> {
            let found = self.messages.iter().position(|(_, source, tag)| wanted.takes(*source, *tag));
            match found {
                Some(at) => Some(self.messages.remove(at).0),
                None => {
                    self.receives.push((number, wanted));
                    None
                }
            }
        }

        fn arrive(&mut self, number: u32, source: u32, tag: u64) -> Option<u32> {
            let found = self.receives.iter().position(|(_, wanted)| wanted.takes(source, tag));
            match found {
                Some(at) => Some(self.receives.remove(at).0),
                None => {
                    self.messages.push((number, source, tag));
                    None
                }
            }
        }

        /// Two sources are one from now on. Returns which receives match which messages by that.
        fn merge(&mut self, from: u32, into: u32) -> Vec<(u32, u32)> {
            for (_, wanted) in &mut self.receives {
                wanted.source = wanted.source.map(|source| if source == from { into } else { source });
            }
            for (_, source, _) in self.messages.iter_mut().filter(|(_, source, _)| *source == from) {
                *source = into;
            }
            let messages = &mut self.messages;
            let mut matched = Vec::new();
            self.receives.retain(|(receive, wanted)| {
                let found = messages.iter().position(|(_, source, tag)| wanted.takes(*source, *tag));
                matched.extend(found.map(|at| (*receive, messages.remove(at).0)));
                found.is_none()
            });
            matched
        }

        fn probe(&self, wanted: &Wanted) -> Option<u32> {
            self.messages
                .iter()
                .find(|(_, source, tag)| wanted.takes(*source, *tag))
                .map(|(number, ..)| *number)
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Receive(Wanted),
        Arrive(u32, u64),
        /// Cancels one of the receives that wait.
        Cancel(prop::sample::Index),
        Probe(Wanted),
        /// Two sources turn out to be one.
        Merge(u32, u32),
        /// Takes a probed message out, received or not.
        TakeProbed(Wanted),
    }

    fn wanted() -> impl Strategy<Value = Wanted> {
        let ignore =
            prop_oneof![4 => Just(0u64), 2 => Just(u64::MAX), 1 => Just(1), 1 => Just(2), 1 => 0u64..8];
        (prop::option::weighted(0.7, 0u32..3), 0u64..6, ignore).prop_map(|(source, tag, ignore)| Wanted {
            source,
            tag,
            ignore,
        })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => wanted().prop_map(Step::Receive),
            4 => (0u32..3, 0u64..6).prop_map(|(source, tag)| Step::Arrive(source, tag)),
            1 => any::<prop::sample::Index>().prop_map(Step::Cancel),
            1 => (0u32..3, 0u32..3).prop_map(|(from, into)| Step::Merge(from, into)),
            1 => wanted().prop_map(Step::Probe),
            1 => wanted().prop_map(Step::TakeProbed),
        ]
    }

    proptest! {
        #[test]
        fn every_match_is_the_one_that_the_rules_give(steps in prop::collection::vec(step(), 0..300)) {
            let mut model = Model::default();
            let mut matching = Matching::<u32, u32>::default();
            let mut waiting = std::collections::BTreeMap::new();
            for (number, step) in (0u32..).zip(steps) {
                match step {
                    Step::Receive(wanted) => {
                        let found = matching.find(&wanted).and_then(|at| matching.take(at));
                        if found.is_none() {
                            waiting.insert(number, matching.post(wanted, number));
                        }
                        prop_assert_eq!(found, model.receive(number, wanted));
                    }
                    Step::Arrive(source, tag) => {
                        let found = matching.arrive(source, tag);
                        match found {
                            Some(receive) => {
                                prop_assert!(waiting.remove(&receive).is_some(), "matched twice");
                            }
                            None => {
                                matching.keep(source, tag, number);
                            }
                        }
                        prop_assert_eq!(found, model.arrive(number, source, tag));
                    }
                    Step::Cancel(index) if !model.receives.is_empty() => {
                        let (receive, _) = model.receives.remove(index.index(model.receives.len()));
                        let posted = waiting.remove(&receive);
                        prop_assert_eq!(posted.and_then(|posted| matching.cancel(posted)), Some(receive));
                    }
                    Step::Cancel(_) => {}
                    Step::Merge(from, into) => {
                        matching.merge(from, into);
                        let mut before: Vec<_> = model.receives.clone();
                        let matched = model.merge(from, into);
                        before.sort_by_key(|(receive, _)| matching.turn(waiting[receive]));
                        let mut found = Vec::new();
                        for (receive, mut wanted) in before {
                            wanted.source = wanted.source.map(|source| if source == from { into } else { source });
                            let Some(at) = matching.find(&wanted) else { continue };
                            found.extend(matching.take(at).map(|message| (receive, message)));
                            matching.cancel(waiting.remove(&receive).expect("it waits"));
                        }
                        prop_assert_eq!(found, matched);
                    }
                    Step::Probe(wanted) => {
                        let found = matching.find(&wanted).and_then(|at| matching.message(at)).copied();
                        prop_assert_eq!(found, model.probe(&wanted));
                    }
                    Step::TakeProbed(wanted) => {
                        let found = matching.find(&wanted).and_then(|at| matching.take(at));
                        prop_assert_eq!(found, model.probe(&wanted));
                        model.messages.retain(|(message, ..)| Some(*message) != found);
                    }
                }
                prop_assert_eq!(matching.posted(), model.receives.len());
                prop_assert_eq!(matching.unexpected(), model.messages.len());
            }
        }
    }

    #[test]
    fn nothing_is_left_behind() {
        let mut matching = Matching::<u32, u32>::default();
        for tag in 0..1000 {
            let posted = matching.post(Wanted { source: None, tag, ignore: tag << 8 }, 1);
            assert_eq!(matching.cancel(posted), Some(1));
            assert_eq!(matching.cancel(posted), None, "twice");
            let at = matching.keep(3, tag, 2);
            assert_eq!(matching.take(at), Some(2));
        }
        assert_eq!((matching.posted(), matching.unexpected()), (0, 0));
        assert!(matching.classes.len() <= CLASSES_KEPT);
    }
}
