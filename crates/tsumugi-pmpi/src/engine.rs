//! What a process has for all its communicators: an endpoint, and groups on channels of it.
//!
//! The library's endpoints and groups hold [`Rc`](std::rc::Rc)s and belong to one thread, and an MPI's programs may have several. So all
//! of it lies behind one lock, and nothing of it is kept elsewhere but operations, which are only touched by who holds the lock. That
//! is sound because nothing that the library keeps remembers which thread has opened it. Nobody holds the lock in a call of the MPI.

use crate::helper::Helper;
use crate::started::Pending;
use crate::{say, settings};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tsumugi::collective::{CollectiveError, Group, Operation, SwitchBoxSearch};
use tsumugi::{Endpoint, PeerId};
use tsumugi_rail::{dual_stack, nics};

/// A call that waits looks after the MPI's progress for the first time after so long, and then at intervals up to the last: a look costs
/// less than a microsecond, and who sends to this rank a message that it has asked for before waits for it.
const LOOK_FIRST: Duration = Duration::from_micros(200);
const LOOK_LAST: Duration = Duration::from_millis(1);

/// All that a process has.
pub(crate) struct Engine {
    endpoint: Option<Endpoint>,
    /// Lowest channel that no group has had.
    next_channel: u16,
    next_group: u64,
    groups: BTreeMap<u64, Rc<Group>>,
    /// What was started and has not ended.
    pub(crate) pending: Vec<Pending>,
    /// Whether a switch box is looked for: after one vain search there is none.
    pub(crate) seeks_box: bool,
    helper: Option<Helper>,
    pub(crate) counts: Counts,
}

/// How many operations were done here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) barriers: u64,
    pub(crate) broadcasts: u64,
    pub(crate) reductions: u64,
    pub(crate) started: u64,
}

/// Moves from thread to thread with the lock.
struct Locked(Engine);

// SAFETY: only who holds the lock reaches what is in it; see above.
unsafe impl Send for Locked {}

static ENGINE: Mutex<Locked> = Mutex::new(Locked(Engine {
    endpoint: None,
    next_channel: 1,
    next_group: 0,
    groups: BTreeMap::new(),
    pending: Vec::new(),
    seeks_box: true,
    helper: None,
    counts: Counts { barriers: 0, broadcasts: 0, reductions: 0, started: 0 },
}));

/// How many operations are pending, for who would only look.
static PENDING: AtomicUsize = AtomicUsize::new(0);
/// Threads that wait for the lock.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The engine, while nobody else has it.
pub(crate) struct Held(MutexGuard<'static, Locked>);

impl std::ops::Deref for Held {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.0.0
    }
}

impl std::ops::DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.0.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        PENDING.store(self.pending.len(), Ordering::Relaxed);
    }
}

/// Waits for the engine.
pub(crate) fn lock() -> Held {
    let guard = ENGINE.try_lock().ok().unwrap_or_else(|| {
        WAITING.fetch_add(1, Ordering::Relaxed);
        let guard = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
        WAITING.fetch_sub(1, Ordering::Relaxed);
        guard
    });
    Held(guard)
}

/// Makes progress if nobody has the engine, and says whether there is something to do soon.
fn look() -> Option<bool> {
    let engine = ENGINE.try_lock().ok().map(Held)?;
    engine.progress();
    Some(engine.is_busy())
}

/// Whether anything that was started is pending.
pub(crate) fn has_pending() -> bool {
    PENDING.load(Ordering::Relaxed) > 0
}

/// Where an endpoint is reached, as processes tell each other. Zeros: not in this family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) port: u16,
    pub(crate) four: [u8; 4],
    pub(crate) six: [u8; 16],
}

impl Reached {
    pub(crate) fn in_four(&self) -> Option<SocketAddr> {
        (self.four != [0; 4]).then(|| (Ipv4Addr::from(self.four), self.port).into())
    }

    pub(crate) fn in_six(&self) -> Option<SocketAddr> {
        (self.six != [0; 16]).then(|| (Ipv6Addr::from(self.six), self.port).into())
    }
}

impl Engine {
    /// Where the endpoint is reached, which is opened if it is not.
    pub(crate) fn reached(&mut self, processes: u32) -> Result<Reached, String> {
        let config = settings::config(processes.saturating_mul(2));
        let networks = settings::networks(&config);
        let endpoint = match &self.endpoint {
            Some(endpoint) => endpoint,
            None => {
                say::listen();
                let endpoint = Endpoint::open(config).map_err(|error| format!("no endpoint: {error}"))?;
                say::info(endpoint.report());
                self.endpoint.insert(endpoint)
            }
        };
        let bound = dual_stack::on_this_host(Ipv6Addr::UNSPECIFIED.into());
        let choices = nics::explain(bound, &networks)
            .map_err(|error| format!("the NICs of this host cannot be listed: {error}"))?;
        let mut reached = Reached { port: endpoint.port(), ..Reached::default() };
        for ip in nics::reached_by(&choices) {
            match ip {
                IpAddr::V4(four) => reached.four = four.octets(),
                IpAddr::V6(six) => reached.six = six.octets(),
            }
        }
        if reached.in_four().or(reached.in_six()).is_none() {
            return Err("no NIC of this host may be used: see `tsumugi doctor`".to_owned());
        }
        Ok(reached)
    }

    pub(crate) fn next_channel(&self) -> u16 {
        self.next_channel
    }

    /// Takes a channel, if no group has had it.
    pub(crate) fn take_channel(&mut self, channel: u16) -> bool {
        let is_free = channel >= self.next_channel && channel < u16::MAX;
        if is_free {
            self.next_channel = channel + 1;
        }
        is_free
    }

    /// Opens a group of processes that are reached there.
    pub(crate) fn open(&mut self, channel: u16, rank: usize, at: &[SocketAddr]) -> Result<u64, String> {
        let endpoint = self.endpoint.as_ref().ok_or("there is no endpoint")?;
        let peer = |(other, address): (usize, &SocketAddr)| {
            let add = || endpoint.add_peer(*address).map_err(|error| format!("{address}: {error}"));
            (other != rank).then(add).transpose()
        };
        let peers = at.iter().enumerate().map(peer).collect::<Result<Vec<Option<PeerId>>, String>>()?;
        let group = Group::open(endpoint, channel, rank, &peers).map_err(|error| error.to_string())?;
        let number = self.next_group;
        self.next_group += 1;
        self.groups.insert(number, Rc::new(group));
        if self.helper.is_none() {
            self.helper = Helper::start(look);
        }
        Ok(number)
    }

    /// Closes a group. What is pending in it goes on.
    pub(crate) fn close(&mut self, group: u64) {
        self.groups.remove(&group);
    }

    /// Starts an operation of a group.
    pub(crate) fn start<T>(
        &self,
        group: u64,
        start: impl FnOnce(&Group) -> Result<T, CollectiveError>,
    ) -> Result<T, String> {
        let group = self.groups.get(&group).ok_or("its endpoint is closed")?;
        start(group).map_err(|error| error.to_string())
    }

    /// Takes in what has arrived for every group.
    pub(crate) fn progress(&self) {
        for group in self.groups.values() {
            // Who waits for something of it is told.
            let _ = group.progress();
        }
    }

    /// Whether anything waits for others, or others for what was sent.
    pub(crate) fn is_busy(&self) -> bool {
        !self.pending.is_empty() || self.endpoint.as_ref().is_some_and(|endpoint| !endpoint.is_flushed())
    }

    /// Wakes the helper if what was started needs it soon.
    pub(crate) fn hurry(&self) {
        if let Some(helper) = &self.helper {
            helper.hurry();
        }
    }
}

/// What a group has started and can be waited for.
pub(crate) trait WaitedFor {
    type Outcome;
    fn wait_for(&mut self, time: Duration) -> Result<Self::Outcome, CollectiveError>;
}

impl<T> WaitedFor for Operation<T> {
    type Outcome = T;

    fn wait_for(&mut self, time: Duration) -> Result<T, CollectiveError> {
        self.wait_timeout(time)
    }
}

impl WaitedFor for SwitchBoxSearch {
    type Outcome = bool;

    fn wait_for(&mut self, time: Duration) -> Result<bool, CollectiveError> {
        self.wait_timeout(time)
    }
}

/// Has a group do something and waits for it. `idle` is called now and then meanwhile, when nobody holds the engine.
pub(crate) fn wait<S: WaitedFor>(
    group: u64,
    count: impl FnOnce(&mut Counts),
    start: impl FnOnce(&Group) -> Result<S, CollectiveError>,
    mut idle: impl FnMut(),
) -> Result<S::Outcome, String> {
    // What is started goes first when this returns: only who has the engine may touch it.
    let mut engine = lock();
    count(&mut engine.counts);
    let mut started = engine.start(group, start)?;
    let mut look = LOOK_FIRST;
    loop {
        match started.wait_for(look) {
            Ok(value) => return Ok(value),
            Err(CollectiveError::TimedOut(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
        engine.progress();
        drop(engine);
        idle();
        if WAITING.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        engine = lock();
        look = (look * 2).min(LOOK_LAST);
    }
}

/// Closes everything, in good order: what others still need has been sent when this returns.
pub(crate) fn close() {
    let (endpoint, helper) = {
        let mut engine = lock();
        engine.pending.clear();
        engine.groups.clear();
        let Counts { barriers, broadcasts, reductions, started } = std::mem::take(&mut engine.counts);
        if engine.endpoint.is_some() {
            say::info(format_args!(
                "done here: {barriers} barriers, {broadcasts} broadcasts, {reductions} reductions; {started} of them without waiting"
            ));
        }
        (engine.endpoint.take(), engine.helper.take())
    };
    // It may be waiting for the engine.
    drop(helper);
    let engine = lock();
    if let Some(Err(error)) = endpoint.map(Endpoint::close) {
        say::info(format_args!("closing the endpoint: {error}"));
    }
    drop(engine);
}
