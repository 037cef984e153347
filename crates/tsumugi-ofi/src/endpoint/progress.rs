//! What has become of operations.

use super::operations::{Awaited, Begun, Behind, Pieces, Side, scatter};
use super::{Endpoint, Running};
use crate::abi::*;
use crate::error::{self, Trouble};
use crate::host::say;
use crate::queue::Entry;
use crate::registry::Registry;
use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;
use tsumugi::message::{Completion, Port, RequestError};
use tsumugi::remote::RemoteError;
use tsumugi::{SendError, Ticket, TicketStatus};
use tsumugi_rail::RailError;

/// After so many looks in a row that have found nothing, somebody else may have the processor: MPIs look again and again, and
/// where there are more ranks than processors, the one that is waited for would have to wait for the end of a time slice.
const IDLE_LOOKS_MAX: u32 = 16;

impl Endpoint {
    /// Takes in what has arrived, sends what may be sent, and tells who waits.
    #[inline]
    pub(super) fn make_progress(&self) -> Result<(), Trouble> {
        let Some(running) = self.running.get() else { return Ok(()) };
        let arrived =
            running.endpoint.progress().map_err(|error| Trouble::new(error::of_rail(&error), error))?;
        self.idle_looks.set(if arrived == 0 { self.idle_looks.get() + 1 } else { 0 });
        if self.idle_looks.get() == IDLE_LOOKS_MAX {
            self.idle_looks.set(0);
            std::thread::yield_now();
        }
        running.complete_all(&self.domain.memory).map_err(|error| Trouble::new(error::of_rail(&error), error))
    }
}

impl Running {
    #[inline]
    pub(super) fn complete_all(&self, registry: &Registry) -> Result<(), RailError> {
        self.take_completions(&self.tagged)?;
        self.take_completions(&self.messages)?;
        self.serve_atomics(registry);
        if self.operations.borrow().awaits() {
            self.look_through_awaited();
        }
        while let Some((_, notification)) = self.remote.take_notification() {
            let mut entry = Entry::new(ptr::null_mut(), FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
            (entry.data, entry.bytes) = (notification.handler, notification.slice.bytes());
            entry.source = self.peers.borrow_mut().number(&self.endpoint, notification.source);
            self.reports.done(Side::Receive, entry, true);
        }
        while let Some(failure) = self.endpoint.take_failure() {
            self.fail_atomics(&failure);
            if !failure.is_orderly() {
                say!(FI_LOG_WARN, FI_LOG_EP_DATA, "{failure}");
            }
        }
        Ok(())
    }

    #[inline]
    fn take_completions(&self, port: &RefCell<Port>) -> Result<(), RailError> {
        port.borrow_mut().catch_up()?;
        loop {
            // Not held while somebody is told.
            let next = port.borrow_mut().next_completion();
            let Some((cookie, completion)) = next else { return Ok(()) };
            self.complete(cookie as usize, completion);
        }
    }

    /// A message was sent or received, or will not be.
    fn complete(&self, number: usize, completion: Completion) {
        let mut operations = self.operations.borrow_mut();
        let Some(begun) = operations.begun.get(number) else { return };
        if begun.side == Side::Send {
            match (&completion.outcome, completion.ticket) {
                (Ok(status), Some(ticket))
                    if begun.delivered || !self.endpoint.is_handed_over(status.peer) =>
                {
                    operations.of(status.peer).tickets.push_back((ticket, number));
                }
                (Ok(_), _) => {
                    let begun = operations.begun.remove(number);
                    drop(operations);
                    self.reports.done(Side::Send, begun.entry(), begun.wanted);
                }
                (Err(error), _) => {
                    let begun = operations.begun.remove(number);
                    drop(operations);
                    self.fail(&begun, error::of_request(error), error);
                }
            }
            return;
        }
        let is_part = begun.flags & FI_MULTI_RECV != 0
            && matches!(completion.outcome, Ok(_) | Err(RequestError::Truncated { .. }));
        let mut entry = begun.entry();
        let status = match &completion.outcome {
            Ok(status) | Err(RequestError::Truncated { status, .. }) => Some(*status),
            Err(_) => None,
        };
        if let Some(status) = status {
            entry.bytes = completion.data().len();
            entry.tag = status.tag;
            entry.source = self.peers.borrow_mut().number(&self.endpoint, status.peer);
            if let Some(data) = status.immediate {
                entry.data = data;
                entry.flags |= FI_REMOTE_CQ_DATA;
            }
            if let Pieces::Several(pieces, _) = &begun.pieces {
                // SAFETY: the caller's buffer is there until it is told.
                unsafe { scatter(completion.data(), pieces) };
            }
        }
        if is_part {
            entry.flags &= !FI_MULTI_RECV;
            entry.place =
                completion.buffer.as_ref().map_or(ptr::null_mut(), |part| part.as_ptr().cast_mut().cast());
        }
        let wanted = begun.wanted;
        if !is_part {
            operations.begun.remove(number);
        }
        drop(operations);
        match completion.outcome {
            Ok(_) => self.reports.done(Side::Receive, entry, wanted),
            Err(RequestError::Filled { .. }) => self.reports.released(entry.context),
            Err(error) => {
                let lost_bytes = match &error {
                    RequestError::Truncated { status, room } => {
                        status.bytes.saturating_sub(*room as u64) as usize
                    }
                    _ => 0,
                };
                self.reports.failed(Side::Receive, entry, Trouble::of_request(&error), lost_bytes);
            }
        }
    }

    fn fail(&self, begun: &Begun, code: i32, why: impl ToString) {
        self.reports.failed(begun.side, begun.entry(), Trouble::new(code, why), 0);
    }

    /// An operation on remote memory, or a message that was to arrive, has come to its end.
    pub(super) fn end(&self, number: usize, outcome: Result<(), (i32, String)>) {
        let begun = self.operations.borrow_mut().begun.try_remove(number);
        let Some(begun) = begun else { return };
        match outcome {
            Ok(()) => {
                if let Pieces::Several(pieces, Some(region)) = &begun.pieces {
                    let mut data = vec![0; region.bytes()];
                    if region.read(0, &mut data).is_ok() {
                        // SAFETY: the caller's buffer is there until it is told.
                        unsafe { scatter(&data, pieces) };
                    }
                }
                self.reports.done(begun.side, begun.entry(), begun.wanted);
            }
            Err((code, why)) => self.fail(&begun, code, why),
        }
    }

    /// What is known only when it is asked for.
    #[cold]
    fn look_through_awaited(&self) {
        // Writes that were refused are told of before the fence behind them is done.
        while let Some(refusal) = self.remote.take_refusal() {
            let number = self.operations.borrow_mut().take_write(refusal.ticket);
            match number {
                Some(number) => {
                    self.end(number, Err((error::of_remote(&refusal.error), refusal.error.to_string())));
                }
                None => say!(
                    FI_LOG_WARN,
                    FI_LOG_EP_DATA,
                    "a write to {} was refused: {}",
                    refusal.ticket.peer(),
                    refusal.error
                ),
            }
        }
        let mut awaited = self.operations.borrow_mut().take_awaited();
        for of_peer in &mut awaited {
            self.look_at(of_peer);
        }
        self.operations.borrow_mut().put_awaited(awaited);
    }

    fn look_at(&self, awaited: &mut Awaited) {
        while let Some((ticket, number)) = awaited.tickets.front() {
            let is_on_its_way = || {
                let delivered =
                    self.operations.borrow().begun.get(*number).is_some_and(|begun| begun.delivered);
                !delivered && self.endpoint.is_handed_over(awaited.peer)
            };
            let outcome = match self.endpoint.status(*ticket) {
                TicketStatus::Pending if is_on_its_way() => Ok(()),
                TicketStatus::Pending => break,
                TicketStatus::Delivered => Ok(()),
                TicketStatus::Failed => Err((FI_ECONNRESET, format!("{} is gone", ticket.peer()))),
            };
            self.end(*number, outcome);
            awaited.tickets.pop_front();
        }
        if !awaited.unfenced.is_empty() {
            match self.remote.fence(awaited.peer) {
                Ok(fence) => {
                    let writes = std::mem::take(&mut awaited.unfenced);
                    awaited.operations.push_back((fence, Behind::Writes(writes)));
                }
                Err(SendError::WouldBlock) => {}
                Err(error) => {
                    let writes = std::mem::take(&mut awaited.unfenced);
                    self.end_writes(writes, &Err((error::of_send(&error), error.to_string())));
                }
            }
        }
        while let Some(outcome) = awaited.operations.front().and_then(|(operation, _)| operation.outcome()) {
            let Some((_, behind)) = awaited.operations.pop_front() else { break };
            let outcome =
                outcome.map(drop).map_err(|error: RemoteError| (error::of_remote(&error), error.to_string()));
            match behind {
                Behind::Read(number) => self.end(number, outcome),
                Behind::Writes(writes) => self.end_writes(writes, &outcome),
            }
        }
    }

    /// The fence behind writes has come to its end.
    ///
    /// A peer that looks at its memory to learn that it is no longer needed may have closed between a write and the fence
    /// behind it. Whoever closes in good order has said before what it refused, so what it had acknowledged was written.
    fn end_writes(&self, writes: Vec<(Ticket, usize)>, outcome: &Result<(), (i32, String)>) {
        for (ticket, number) in writes {
            let is_written = outcome.is_err()
                && self.endpoint.status(ticket) == TicketStatus::Delivered
                && self.endpoint.has_closed(ticket.peer());
            self.end(number, if is_written { Ok(()) } else { outcome.clone() });
        }
    }

    /// The claim of a message that was kept for a context.
    pub(super) fn take_claim(&self, context: *mut c_void) -> Option<tsumugi::message::Claim> {
        let mut claims = self.claims.borrow_mut();
        let at = claims.iter().position(|(known, _)| *known == context)?;
        Some(claims.swap_remove(at).1)
    }
}
