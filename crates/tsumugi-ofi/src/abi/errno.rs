//! Error codes, `fi_errno(3)`. Functions return them negated; completions and events carry them as they are.

constants! { ERRNO_CONSTANTS
    /// No error.
    pub const FI_SUCCESS: i32 = 0;
    /// Not permitted.
    pub const FI_EPERM: i32 = libc::EPERM;
    /// No such thing: of `fi_cancel`, no such operation.
    pub const FI_ENOENT: i32 = libc::ENOENT;
    /// Interrupted by a signal.
    pub const FI_EINTR: i32 = libc::EINTR;
    /// Input or output failed.
    pub const FI_EIO: i32 = libc::EIO;
    /// Too long a list.
    pub const FI_E2BIG: i32 = libc::E2BIG;
    /// Not an open file.
    pub const FI_EBADF: i32 = libc::EBADF;
    /// Not now: call again, after progress. A queue that is read has nothing.
    pub const FI_EAGAIN: i32 = libc::EAGAIN;
    /// Out of memory.
    pub const FI_ENOMEM: i32 = libc::ENOMEM;
    /// No access.
    pub const FI_EACCES: i32 = libc::EACCES;
    /// A bad address.
    pub const FI_EFAULT: i32 = libc::EFAULT;
    /// In use: objects must be closed before what they depend on.
    pub const FI_EBUSY: i32 = libc::EBUSY;
    /// No such device.
    pub const FI_ENODEV: i32 = libc::ENODEV;
    /// An argument is not valid.
    pub const FI_EINVAL: i32 = libc::EINVAL;
    /// Too many open files.
    pub const FI_EMFILE: i32 = libc::EMFILE;
    /// No space left.
    pub const FI_ENOSPC: i32 = libc::ENOSPC;
    /// Not implemented.
    pub const FI_ENOSYS: i32 = libc::ENOSYS;
    /// The same as [`FI_EAGAIN`].
    pub const FI_EWOULDBLOCK: i32 = libc::EWOULDBLOCK;
    /// No such message: `FI_PEEK` has found none.
    pub const FI_ENOMSG: i32 = libc::ENOMSG;
    /// Nothing to tell: of `fi_getinfo`, nothing here meets the hints.
    pub const FI_ENODATA: i32 = libc::ENODATA;
    /// Too large for its type.
    pub const FI_EOVERFLOW: i32 = libc::EOVERFLOW;
    /// Too long a message.
    pub const FI_EMSGSIZE: i32 = libc::EMSGSIZE;
    /// No such option.
    pub const FI_ENOPROTOOPT: i32 = libc::ENOPROTOOPT;
    /// Not supported: of an atomic, this type or operation.
    pub const FI_EOPNOTSUPP: i32 = libc::EOPNOTSUPP;
    /// The address is in use.
    pub const FI_EADDRINUSE: i32 = libc::EADDRINUSE;
    /// No such address. With `FI_SOURCE_ERR`, of a completion: who sent it is not in the address vector.
    pub const FI_EADDRNOTAVAIL: i32 = libc::EADDRNOTAVAIL;
    /// The network is down.
    pub const FI_ENETDOWN: i32 = libc::ENETDOWN;
    /// No route to that network.
    pub const FI_ENETUNREACH: i32 = libc::ENETUNREACH;
    /// The connection was given up on this side.
    pub const FI_ECONNABORTED: i32 = libc::ECONNABORTED;
    /// The peer has ended the connection.
    pub const FI_ECONNRESET: i32 = libc::ECONNRESET;
    /// No buffer: the message found no room.
    pub const FI_ENOBUFS: i32 = libc::ENOBUFS;
    /// Connected already.
    pub const FI_EISCONN: i32 = libc::EISCONN;
    /// Not connected.
    pub const FI_ENOTCONN: i32 = libc::ENOTCONN;
    /// Shut down.
    pub const FI_ESHUTDOWN: i32 = libc::ESHUTDOWN;
    /// The time is over.
    pub const FI_ETIMEDOUT: i32 = libc::ETIMEDOUT;
    /// The peer has refused.
    pub const FI_ECONNREFUSED: i32 = libc::ECONNREFUSED;
    /// The peer's host is down.
    pub const FI_EHOSTDOWN: i32 = libc::EHOSTDOWN;
    /// No route to the peer.
    pub const FI_EHOSTUNREACH: i32 = libc::EHOSTUNREACH;
    /// Under way already.
    pub const FI_EALREADY: i32 = libc::EALREADY;
    /// Under way now.
    pub const FI_EINPROGRESS: i32 = libc::EINPROGRESS;
    /// The peer's input or output failed.
    pub const FI_EREMOTEIO: i32 = libc::EREMOTEIO;
    /// Cancelled, by `fi_cancel` or by closing the endpoint.
    pub const FI_ECANCELED: i32 = libc::ECANCELED;
    /// The key is not valid.
    pub const FI_EKEYREJECTED: i32 = libc::EKEYREJECTED;

    /// The first code that is libfabric's own.
    pub const FI_ERRNO_OFFSET: i32 = 256;
    /// Anything else.
    pub const FI_EOTHER: i32 = 256;
    /// The buffer is too small.
    pub const FI_ETOOSMALL: i32 = 257;
    /// Not in this state.
    pub const FI_EOPBADSTATE: i32 = 258;
    /// The queue's next entry is an error: read it with `fi_cq_readerr` or `fi_eq_readerr`.
    pub const FI_EAVAIL: i32 = 259;
    /// Flags that are not supported.
    pub const FI_EBADFLAGS: i32 = 260;
    /// An event queue is missing.
    pub const FI_ENOEQ: i32 = 261;
    /// The domain does not fit.
    pub const FI_EDOMAIN: i32 = 262;
    /// A completion queue is missing.
    pub const FI_ENOCQ: i32 = 263;
    /// A checksum was wrong.
    pub const FI_ECRC: i32 = 264;
    /// The message was longer than the buffer; `olen` says by how much.
    pub const FI_ETRUNC: i32 = 265;
    /// A key is missing.
    pub const FI_ENOKEY: i32 = 266;
    /// An address vector is missing.
    pub const FI_ENOAV: i32 = 267;
    /// The queue has overflowed, and is of no more use.
    pub const FI_EOVERRUN: i32 = 268;
    /// The receiver had no buffer posted.
    pub const FI_ENORX: i32 = 269;
}
