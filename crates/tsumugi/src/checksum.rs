//! CRC32C of packet bodies.
//!
//! `crc-fast` folds with carry-less multiplication where the CPU can: 41 ns for 1,424 B, where the CRC
//! instruction alone takes 100 ns.

use crc_fast::{CrcAlgorithm, Digest, checksum};

/// CRC32C (Castagnoli) of `bytes`; 0 for no bytes.
#[inline]
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    if bytes.is_empty() {
        return 0;
    }
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC32C of two pieces that lie behind each other on the wire.
#[inline]
pub(crate) fn crc32c_of_two(first: &[u8], second: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(first);
    digest.update(second);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_castagnoli_and_pieces_make_a_whole() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283); // RFC 3720, appendix B.4's polynomial
        assert_eq!(crc32c_of_two(b"1234", b"56789"), 0xe306_9283);
    }
}
