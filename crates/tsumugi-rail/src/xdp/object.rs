//! The compiled program as a file, made ready for one geometry.

use super::XdpError;
use object::{Object, ObjectSection};

/// Stands in the object file for the size of an endpoint's memory (`MEMORY_BYTES` in `bpf/receive.bpf.c`).
const MEMORY_BYTES: u32 = 0x1453_4d47;

/// Puts the size of an endpoint's memory into the object file.
///
/// It is the value size of the inner map, which must be known when the outer map is made. It lies in the type
/// information (BTF) as the length of an array.
pub(super) fn set_memory_bytes(file: &mut [u8], bytes: u32) -> Result<(), XdpError> {
    let parsed = object::File::parse(&*file).map_err(|error| XdpError::Object(error.to_string()))?;
    let section = parsed.section_by_name(".BTF");
    let (start, length) = section
        .and_then(|section| section.file_range())
        .ok_or_else(|| XdpError::Object("no type information (BTF): compile with -g".to_owned()))?;
    let section = &mut file[start as usize..(start + length) as usize];
    let placeholder = MEMORY_BYTES.to_le_bytes();
    let mut places = section.windows(4).enumerate().filter(|(_, window)| *window == placeholder);
    let (Some((at, _)), None) = (places.next(), places.next()) else {
        return Err(XdpError::Object(
            "the size of receive memory does not stand in it exactly once".to_owned(),
        ));
    };
    section[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
    Ok(())
}

/// CRC32C several bytes at a time: entry `256 k + b` is byte `b` followed by `k` zero bytes (Kounavis and Berry,
/// "A systematic approach to building high performance software-based CRC generators", 2005).
pub(super) const fn crc_table() -> [u32; 4096] {
    /// Castagnoli's polynomial, bits reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut table = [0; 4096];
    let mut index = 0;
    while index < table.len() {
        let mut crc = if index < 256 { index as u32 } else { table[index - 256] };
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_makes_castagnoli_s_crc() {
        let table = crc_table();
        // One byte at a time, then the same four at once. RFC 3720, B.4: 32 bytes of 0.
        let single =
            [0u8; 32].iter().fold(u32::MAX, |crc, byte| table[usize::from(crc as u8 ^ byte)] ^ (crc >> 8));
        assert_eq!(!single, 0x8a91_36aa);
        let four = (0..8).fold(u32::MAX, |crc, _| {
            let [a, b, c, d] = crc.to_le_bytes().map(usize::from);
            table[768 + a] ^ table[512 + b] ^ table[256 + c] ^ table[d]
        });
        assert_eq!(four, single);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        assert!(matches!(set_memory_bytes(&mut [0; 100], 1), Err(XdpError::Object(_))));
    }
}
