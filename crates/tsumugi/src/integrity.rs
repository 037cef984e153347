//! What tells that a message was altered on its way.

use strum::VariantNames as _;

/// What tells that a message was altered on its way.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::EnumMessage,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::VariantNames,
)]
#[strum(serialize_all = "kebab-case", parse_err_ty = ParseIntegrityError, parse_err_fn = ParseIntegrityError::of)]
pub enum Integrity {
    /// The CRC32C of every packet, made by the sender and compared by the receiver, from memory to memory: it also tells what a
    /// switch, a NIC's memory or a tunnel has altered.
    #[default]
    Crc32c,
    /// Ethernet's own CRC and UDP's checksum, as with TCP: what is altered between two links, which happens, is handed over as if it
    /// were right, or ends the connection where it makes no sense. Headers are compared all the same.
    ///
    /// Counts only where both sides ask for it; a side that does not gets and makes CRCs.
    Wire,
}

/// A word that names no way to tell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no way to tell altered messages; choose from {all}", all = Integrity::VARIANTS.join(", "))]
pub struct ParseIntegrityError(String);

impl ParseIntegrityError {
    fn of(word: &str) -> ParseIntegrityError {
        ParseIntegrityError(word.to_owned())
    }
}
