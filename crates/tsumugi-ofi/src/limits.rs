//! How much of everything there is: what is said of it before endpoints are opened, and what they are held to.

/// Longest message, bytes: the longest that the wire format has room for.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 1 << 40;
/// Longest message that is sent from a copy if its sender wants it, bytes.
pub(crate) const INJECT_BYTES: usize = 64 << 10;
/// Most pieces of a buffer.
pub(crate) const PIECES_MAX: usize = 8;
/// Operations that can be outstanding. There is no limit but memory; this is what is said where nobody asks for more.
pub(crate) const OPERATIONS: usize = 1 << 16;
/// Longest text that goes with an error, bytes, the zero behind it included.
pub(crate) const ERROR_TEXT_BYTES: usize = 512;
