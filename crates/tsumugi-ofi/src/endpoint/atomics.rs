//! Atomics: a request to whoever has the memory, which does it and replies.
//!
//! The peer does them when it makes progress, in the order in which they were sent to it, each whole. A request that comes while
//! replies wait for room waits in its channel, and so its sender for credit.
//!
//! Requests and replies begin with [`HEAD_BYTES`] bytes, in the order of the lowest byte first:
//!
//! | at | bytes | request | reply |
//! |---|---|---|---|
//! | 0 | 1 | 1 | 2 |
//! | 1 | 1 | operation | 0, or why it was refused |
//! | 2 | 1 | type | |
//! | 3 | 1 | [`GIVES`], [`TAKES`], [`COMPARES`] | |
//! | 4 | 4 | how many words | |
//! | 8 | 8 | number | number of the request |
//! | 16 | 8 | key | |
//! | 24 | 8 | address | |
//!
//! Behind that come a request's operands and what is to be compared, or what a reply gives: what was there before.

use super::Running;
use super::operations::{Begun, Pieces, Side};
use super::user_buffer::view;
use crate::abi::*;
use crate::atomics::{OPERAND_BYTES_MAX, Sort, apply, size_of_type};
use crate::error;
use crate::host::say;
use crate::registry::Registry;
use libc::iovec;
use slab::Slab;
use std::collections::VecDeque;
use std::ffi::c_void;
use tsumugi::remote::{Refused, RemoteError, Target};
use tsumugi::{Failure, PeerId, ReceiveError, Rights, SendError};

const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const HEAD_BYTES: usize = 32;
/// The reply gives what was there.
const GIVES: u8 = 1;
/// The request has operands.
const TAKES: u8 = 2;
/// The request has something to compare with.
const COMPARES: u8 = 4;

/// Both sides of atomics.
#[derive(Default)]
pub(super) struct Service {
    /// Requests of ours that were not replied to.
    asked: Slab<Asked>,
    /// Replies that there was no room for.
    replies: VecDeque<(PeerId, Vec<u8>)>,
}

struct Asked {
    peer: PeerId,
    /// Number of the operation.
    operation: usize,
    /// Where what is given goes.
    result: Vec<iovec>,
}

/// A request, as its bytes say.
struct Request<'a> {
    op: fi_op,
    datatype: fi_datatype,
    sort: Sort,
    target: Target,
    bytes: usize,
    operand: &'a [u8],
    compare: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl<'a> Request<'a> {
    fn decode(message: &'a [u8]) -> Option<Request<'a>> {
        let (head, data) = message.split_at_checked(HEAD_BYTES)?;
        let (op, datatype, flags) = (u32::from(head[1]), u32::from(head[2]), head[3]);
        let sort = match flags {
            flags if flags & COMPARES != 0 => Sort::Compare,
            flags if flags & GIVES != 0 => Sort::Fetch,
            _ => Sort::Write,
        };
        let count = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let bytes = size_of_type(datatype, op, sort)?
            .checked_mul(count)
            .filter(|bytes| *bytes <= OPERAND_BYTES_MAX)?;
        let part = |flag| if flags & flag != 0 { bytes } else { 0 };
        let (operand, compare) = data.split_at_checked(part(TAKES))?;
        if compare.len() != part(COMPARES) {
            return None;
        }
        let target = Target { key: word(head, 16), address: word(head, 24) };
        Some(Request { op, datatype, sort, target, bytes, operand, compare })
    }

    /// Does it, and gives what was there before.
    fn perform(&self, registry: &Registry) -> Result<Vec<u8>, Refused> {
        let rights = match (self.op, self.sort) {
            (FI_ATOMIC_READ, _) => Rights::READ,
            (_, Sort::Write) => Rights::WRITE,
            _ => Rights::READ.and(Rights::WRITE),
        };
        let (region, at) = registry.find(self.target, self.bytes, rights)?;
        let mut was = vec![0; self.bytes];
        region.read(at, &mut was).map_err(|_| Refused::NotMapped)?;
        if self.op != FI_ATOMIC_READ {
            let mut becomes = was.clone();
            apply(self.datatype, self.op, &mut becomes, self.operand, self.compare);
            region.write_words(at, &becomes).map_err(|_| Refused::NotMapped)?;
        }
        Ok(was)
    }
}

const REASONS: [Refused; 7] = [
    Refused::NoSuchKey,
    Refused::OutOfBounds,
    Refused::NotPermitted,
    Refused::Misaligned,
    Refused::TooMany,
    Refused::NotMapped,
    Refused::Malformed,
];

fn reply(number: u64, outcome: Result<&[u8], Refused>) -> Vec<u8> {
    let mut message = vec![0; HEAD_BYTES];
    message[0] = REPLY;
    message[8..16].copy_from_slice(&number.to_le_bytes());
    match outcome {
        Ok(data) => message.extend_from_slice(data),
        Err(refused) => {
            let reason = REASONS.iter().position(|reason| *reason == refused).unwrap_or(REASONS.len() - 1);
            message[1] = reason as u8 + 1;
        }
    }
    message
}

impl Running {
    /// Does what peers ask for, and takes their replies.
    #[inline]
    pub(super) fn serve_atomics(&self, registry: &Registry) {
        let mut service = self.atomics.borrow_mut();
        while let Some((peer, message)) = service.replies.pop_front() {
            match self.service.borrow_mut().post(peer, &message) {
                Ok(_) => {}
                Err(SendError::WouldBlock) => {
                    service.replies.push_front((peer, message));
                    return;
                }
                // Whoever asked is gone.
                Err(_) => {}
            }
        }
        drop(service);
        loop {
            let next = self.service.borrow_mut().take();
            match next {
                None => break,
                Some(Ok(message)) => {
                    if !self.serve(registry, message.source(), &message) {
                        break;
                    }
                }
                // Whose requests were lost is said by the endpoint, once for everybody.
                Some(Err(ReceiveError::Peer(_))) => {}
                Some(Err(error)) => {
                    say!(FI_LOG_WARN, FI_LOG_EP_DATA, "{error}");
                    break;
                }
            }
        }
    }

    /// `false`: there is no room for the reply, so no further request is taken.
    fn serve(&self, registry: &Registry, source: PeerId, message: &[u8]) -> bool {
        match message.first() {
            Some(&REQUEST) if message.len() >= HEAD_BYTES => {
                let request = Request::decode(message).ok_or(Refused::Malformed);
                let gives = message[3] & GIVES != 0;
                let outcome = request.and_then(|request| request.perform(registry));
                let given =
                    outcome.as_deref().map(|was| if gives { was } else { &[] }).map_err(|refused| *refused);
                let message = reply(word(message, 8), given);
                // Otherwise whoever asked is gone, or has it.
                if let Err(SendError::WouldBlock) = self.service.borrow_mut().post(source, &message) {
                    self.atomics.borrow_mut().replies.push_back((source, message));
                    return false;
                }
            }
            Some(&REPLY) if message.len() >= HEAD_BYTES => self.replied(source, message),
            _ => say!(
                FI_LOG_WARN,
                FI_LOG_EP_DATA,
                "{source} asks for something that is no atomic; is its version another?"
            ),
        }
        true
    }

    fn replied(&self, source: PeerId, message: &[u8]) {
        let number = word(message, 8) as usize;
        let mut service = self.atomics.borrow_mut();
        if service.asked.get(number).is_none_or(|asked| self.endpoint.canonical(asked.peer) != source) {
            return;
        }
        let Asked { operation, result, .. } = service.asked.remove(number);
        drop(service);
        let outcome = match message[1] {
            0 => {
                // SAFETY: the caller's buffers are there until it is told.
                unsafe { super::operations::scatter(&message[HEAD_BYTES..], &result) };
                Ok(())
            }
            reason => {
                let refused = REASONS.get(usize::from(reason) - 1).copied().unwrap_or(Refused::Malformed);
                let error = RemoteError::Refused(refused);
                Err((error::of_remote(&error), error.to_string()))
            }
        };
        self.end(operation, outcome);
    }

    /// A peer is gone, and what it was asked is not replied to.
    pub(super) fn fail_atomics(&self, failure: &Failure) {
        let mut service = self.atomics.borrow_mut();
        let of_peer =
            |asked: &Asked| asked.peer == failure.peer || self.endpoint.canonical(asked.peer) == failure.peer;
        let hit: Vec<usize> =
            service.asked.iter().filter(|(_, asked)| of_peer(asked)).map(|(number, _)| number).collect();
        let hit: Vec<usize> = hit.into_iter().map(|number| service.asked.remove(number).operation).collect();
        drop(service);
        for operation in hit {
            self.end(operation, Err((error::of_failure(failure), failure.to_string())));
        }
    }
}

/// An atomic that the caller wants.
pub(super) struct Wanted<'a> {
    pub(super) peer: fi_addr_t,
    pub(super) target: Target,
    pub(super) datatype: fi_datatype,
    pub(super) op: fi_op,
    pub(super) sort: Sort,
    pub(super) operand: &'a [fi_ioc],
    pub(super) compare: &'a [fi_ioc],
    pub(super) result: &'a [fi_ioc],
    pub(super) flags: u64,
    pub(super) told: bool,
    pub(super) context: *mut c_void,
}

impl Running {
    /// # Safety
    /// Operands are there until this returns, and where the result goes until the operation is complete.
    pub(super) unsafe fn atomic(&self, wanted: &Wanted<'_>) -> Result<(), i32> {
        let Wanted { sort, datatype, op, .. } = *wanted;
        let peer = self.peer(wanted.peer)?;
        let size = size_of_type(datatype, op, sort).ok_or(FI_EOPNOTSUPP)?;
        if wanted.flags & FI_FENCE != 0 && !self.operations.borrow().is_clear(peer) {
            return Err(FI_EAGAIN);
        }
        let count_of = |pieces: &[fi_ioc]| pieces.iter().map(|piece| piece.count).sum::<usize>();
        let takes = op != FI_ATOMIC_READ;
        let count = if takes { count_of(wanted.operand) } else { count_of(wanted.result) };
        let gives = sort != Sort::Write;
        let fits = count <= OPERAND_BYTES_MAX / size
            && (!gives || count_of(wanted.result) == count)
            && (sort != Sort::Compare || count_of(wanted.compare) == count);
        if !fits || count == 0 {
            return Err(FI_EINVAL);
        }
        let side = if gives { Side::Read } else { Side::Write };
        let is_told = wanted.told && self.reports.wants(side, wanted.flags);
        self.check_connected(peer, is_told)?;
        let mut message = vec![0; HEAD_BYTES];
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = flag(gives, GIVES) | flag(takes, TAKES) | flag(sort == Sort::Compare, COMPARES);
        message[..4].copy_from_slice(&[REQUEST, op as u8, datatype as u8, flags]);
        message[4..8].copy_from_slice(&(count as u32).to_le_bytes());
        message[16..24].copy_from_slice(&wanted.target.key.to_le_bytes());
        message[24..32].copy_from_slice(&wanted.target.address.to_le_bytes());
        let operand = if takes { wanted.operand } else { &[] };
        for piece in operand.iter().chain(wanted.compare) {
            // SAFETY: as the caller promises.
            message.extend_from_slice(unsafe { view(piece.addr, piece.count * size) });
        }
        let result = wanted.result.iter();
        let result =
            result.map(|piece| iovec { iov_base: piece.addr, iov_len: piece.count * size }).collect();
        let mut service = self.atomics.borrow_mut();
        let number = service.asked.vacant_key();
        message[8..16].copy_from_slice(&(number as u64).to_le_bytes());
        self.service.borrow_mut().post(peer, &message).map_err(|error| error::of_send(&error))?;
        let operation = self.operations.borrow_mut().begun.insert(Begun {
            side,
            context: wanted.context,
            flags: FI_ATOMIC | if gives { FI_READ } else { FI_WRITE },
            wanted: is_told,
            delivered: true,
            pieces: Pieces::One,
            request: None,
        });
        service.asked.insert(Asked { peer, operation, result });
        drop(service);
        self.push_untold(peer, is_told)
    }
}
