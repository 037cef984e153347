//! Handlers as tasks: futures that the port polls, and the wakers that tell it which.

use slab::Slab;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Numbers of tasks that were woken. A waker may be used in any thread.
#[derive(Default)]
struct Woken(Mutex<Vec<usize>>);

impl Woken {
    fn with<T>(&self, work: impl FnOnce(&mut Vec<usize>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Wakes one task.
pub(super) struct Alarm {
    key: usize,
    is_set: AtomicBool,
    woken: Arc<Woken>,
}

impl Alarm {
    /// Switches it off; returns whether it had been set.
    pub(super) fn answer(&self) -> bool {
        self.is_set.swap(false, Ordering::AcqRel)
    }

    /// Whether it is set.
    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_set.swap(true, Ordering::AcqRel) {
            self.woken.with(|woken| woken.push(self.key));
        }
    }
}

/// Names a task. Its place may be another's later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskId {
    key: usize,
    serial: u64,
}

struct Task {
    serial: u64,
    future: Pin<Box<dyn Future<Output = ()>>>,
    alarm: Arc<Alarm>,
    waker: Waker,
    /// All of its message has arrived, so that it waits for something else.
    is_held: bool,
}

/// The tasks of a port.
#[derive(Default)]
pub(super) struct Tasks {
    tasks: Slab<Task>,
    next_serial: u64,
    woken: Arc<Woken>,
}

/// The number of no task.
const NOBODY: usize = usize::MAX;

impl Tasks {
    /// Adds a task, which is not polled yet.
    pub(super) fn add(&mut self, future: Pin<Box<dyn Future<Output = ()>>>) -> TaskId {
        let alarm = self.alarm(self.tasks.vacant_key());
        let waker = Waker::from(Arc::clone(&alarm));
        let serial = self.next_serial;
        self.next_serial += 1;
        TaskId { key: self.tasks.insert(Task { serial, future, alarm, waker, is_held: false }), serial }
    }

    /// An alarm for a future that is none of the tasks.
    pub(super) fn alarm_for_caller(&self) -> Arc<Alarm> {
        self.alarm(NOBODY)
    }

    fn alarm(&self, key: usize) -> Arc<Alarm> {
        Arc::new(Alarm { key, is_set: AtomicBool::new(false), woken: Arc::clone(&self.woken) })
    }

    /// Polls a task, if it is still there.
    pub(super) fn poll(&mut self, id: TaskId) -> Polled {
        match self.tasks.get(id.key) {
            Some(task) if task.serial == id.serial => self.poll_key(id.key),
            _ => Polled::Gone,
        }
    }

    /// Polls whatever task has this number, if one has.
    pub(super) fn poll_key(&mut self, key: usize) -> Polled {
        let Some(task) = self.tasks.get_mut(key) else { return Polled::Gone };
        task.alarm.answer();
        match task.future.as_mut().poll(&mut Context::from_waker(&task.waker)) {
            Poll::Pending => Polled::Waits,
            Poll::Ready(()) if self.tasks.remove(key).is_held => Polled::HeldFinished,
            Poll::Ready(()) => Polled::Gone,
        }
    }

    /// Whether a waker wakes this task and nobody else.
    pub(super) fn is_waker_of(&self, id: TaskId, waker: &Waker) -> bool {
        let task = self.tasks.get(id.key).filter(|task| task.serial == id.serial);
        task.is_some_and(|task| task.waker.will_wake(waker))
    }

    /// Notes that all of a task's message has arrived; `false` when the task is gone or known to be held.
    pub(super) fn hold(&mut self, id: TaskId) -> bool {
        let task = self.tasks.get_mut(id.key).filter(|task| task.serial == id.serial);
        task.is_some_and(|task| !std::mem::replace(&mut task.is_held, true))
    }

    /// Takes the numbers of tasks that were woken.
    pub(super) fn take_woken(&self) -> Vec<usize> {
        self.woken.with(std::mem::take)
    }

    /// Whether a task was woken.
    pub(super) fn has_woken(&self) -> bool {
        self.woken.with(|woken| !woken.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }
}

/// What became of a task that was polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Polled {
    /// It waits for something.
    Waits,
    /// It has finished, or there was none.
    Gone,
    /// It has finished, and had been [held](Tasks::hold).
    HeldFinished,
}
