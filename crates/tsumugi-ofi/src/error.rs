//! The library's errors as libfabric's codes.
//!
//! What the MPIs do with a code decides which one a peer's end has: Open MPI's btl/ofi takes a peer for failed of
//! `FI_EHOSTUNREACH`, `FI_ECONNABORTED`, `FI_ECONNRESET`, `FI_ENOTCONN`, `FI_EHOSTDOWN`, `FI_EREMOTEIO` and `FI_EIO`, and
//! ends the process of all others (5.0.11, `btl_ofi_context.c`).

use crate::abi::*;
use tsumugi::message::RequestError;
use tsumugi::remote::{Refused, RemoteError};
use tsumugi::{Evidence, Failure, OpenError, PeerError, Reason, SendError};
use tsumugi_rail::RailError;

/// Why something failed: libfabric's code, and in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) code: i32,
    /// Empty where the code says all.
    pub(crate) text: String,
}

impl Trouble {
    pub(crate) fn new(code: i32, text: impl ToString) -> Trouble {
        Trouble { code, text: text.to_string() }
    }

    /// An end that the caller may well expect, of which the code says all.
    pub(crate) fn expected(code: i32) -> Trouble {
        Trouble { code, text: String::new() }
    }

    pub(crate) fn of_request(error: &RequestError) -> Trouble {
        let code = of_request(error);
        match error {
            RequestError::Truncated { .. } | RequestError::Cancelled => Trouble::expected(code),
            _ => Trouble::new(code, error),
        }
    }
}

/// What a peer's end is to those who wait for it.
pub(crate) fn of_failure(failure: &Failure) -> i32 {
    match &failure.reason {
        Reason::Silent(..) | Reason::Narrow(_) | Reason::LinkDown(..) => FI_EHOSTUNREACH,
        // Its host says that the process is not there.
        Reason::Unreachable(_, Evidence::Gone | Evidence::PortUnreachable) => FI_ECONNRESET,
        Reason::OtherVersion(_) | Reason::Refused(_) => FI_ECONNABORTED,
        Reason::Unreachable(..) | Reason::NoRoute(_) => FI_EHOSTUNREACH,
        Reason::Gone | Reason::Restarted | Reason::Closed | Reason::Aborted => FI_ECONNRESET,
        Reason::TooLong(_) => FI_EMSGSIZE,
        _ => FI_EIO,
    }
}

pub(crate) fn of_rail(error: &RailError) -> i32 {
    match error {
        RailError::OtherProcess { .. } => FI_EPERM,
        _ => FI_EIO,
    }
}

pub(crate) fn of_send(error: &SendError) -> i32 {
    match error {
        SendError::WouldBlock => FI_EAGAIN,
        SendError::TooLong { .. } => FI_EMSGSIZE,
        SendError::NoSuchPeer(_) => FI_EINVAL,
        SendError::Peer(failure) => of_failure(failure),
        SendError::Stalled { .. } => FI_ETIMEDOUT,
        SendError::NoMemory(_) => FI_ENOMEM,
        SendError::Memory(_) => FI_EFAULT,
        SendError::Rail(error) => of_rail(error),
        _ => FI_EIO,
    }
}

pub(crate) fn of_request(error: &RequestError) -> i32 {
    match error {
        RequestError::Truncated { .. } => FI_ETRUNC,
        RequestError::Cancelled | RequestError::Filled { .. } => FI_ECANCELED,
        RequestError::Peer(failure) => of_failure(failure),
        RequestError::TooLong { .. } => FI_EMSGSIZE,
        RequestError::NoSuchPeer(_) => FI_EINVAL,
        _ => FI_EIO,
    }
}

pub(crate) fn of_remote(error: &RemoteError) -> i32 {
    match error {
        RemoteError::Refused(refused) => match refused {
            Refused::NoSuchKey => FI_EKEYREJECTED,
            Refused::OutOfBounds | Refused::Misaligned => FI_EINVAL,
            Refused::NotPermitted => FI_EACCES,
            Refused::TooMany => FI_ENOBUFS,
            Refused::NotMapped => FI_EFAULT,
            _ => FI_EREMOTEIO,
        },
        RemoteError::PeerGone(_) => FI_ECONNRESET,
        _ => FI_EIO,
    }
}

pub(crate) fn of_open(error: &OpenError) -> i32 {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        // The system's own code, where it is the cause.
        if let Some(code) = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error) {
            return code;
        }
        cause = error.source();
    }
    match error {
        OpenError::Config(_) | OpenError::Networks(_) => FI_EINVAL,
        OpenError::Peer(error) => of_peer(error),
        _ => FI_EIO,
    }
}

pub(crate) fn of_peer(error: &PeerError) -> i32 {
    match error {
        PeerError::TooMany(_) => FI_ENOSPC,
        PeerError::NotAllowed { .. } => FI_EHOSTUNREACH,
        _ => FI_EADDRNOTAVAIL,
    }
}

/// What `fi_*` functions return for a code.
pub(crate) const fn negative(code: i32) -> isize {
    -(code as isize)
}
