//! What a NIC's driver counts and how it is set.

use super::checked;
use super::interfaces::request;
use std::ffi::{CStr, CString};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// linux/ethtool.h: commands, the set of strings that statistics are named by, and the bytes of a string.
const GET_STRINGS: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;
const GET_SET_INFO: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const GET_CHANNELS: u32 = 0x3c;
const STATISTICS: u32 = 1;
const FEATURES: u32 = 4;
/// Features of one block of the answer to [`GET_FEATURES`].
const BLOCK_FEATURES: usize = 32;
const STRING_BYTES: usize = 32;
/// Room beyond what there was a moment ago: the kernel writes as many as there are by then.
const SPARE: usize = 1024;

/// linux/ethtool.h: the commands for a few old settings, and the one that takes the VLAN tag out of frames that come in.
const GET_FLAGS: u32 = 0x25;
const SET_FLAGS: u32 = 0x26;
const TAKE_VLAN_TAGS: u32 = 1 << 8;
/// Whether frames that come in are joined to longer ones (GRO).
const GET_JOINING: u32 = 0x2b;
const SET_JOINING: u32 = 0x2c;
/// What a NIC does for the network stack, by the names of `ethtool -K`.
const GET_OFFLOADS: [(u32, &str); 5] =
    [(0x1e, "tso"), (0x23, "gso"), (GET_JOINING, "gro"), (0x16, "tx"), (0x14, "rx")];
/// linux/ethtool.h: the command that names the driver, where its name is in the answer, and the answer's bytes.
const GET_DRIVER: u32 = 3;
const DRIVER_AT: usize = 4;
const DRIVER_INFO_BYTES: usize = 196;

/// Whether the driver of a NIC takes the VLAN tag out of frames that come in, and hands it over beside them.
pub(crate) fn takes_vlan_tags(nic: &str) -> io::Result<bool> {
    value(nic, GET_FLAGS).map(|flags| flags & TAKE_VLAN_TAGS != 0)
}

/// Has the driver of a NIC do so, or not.
pub(crate) fn take_vlan_tags(nic: &str, take: bool) -> io::Result<()> {
    let flags = value(nic, GET_FLAGS)? & !TAKE_VLAN_TAGS;
    value_set(nic, SET_FLAGS, flags | if take { TAKE_VLAN_TAGS } else { 0 })
}

/// Whether frames that come in by a NIC are joined to longer ones.
pub(crate) fn joins_frames(nic: &str) -> io::Result<bool> {
    value(nic, GET_JOINING).map(|value| value != 0)
}

/// Has frames that come in by a NIC joined to longer ones, or not.
pub(crate) fn join_frames(nic: &str, join: bool) -> io::Result<()> {
    value_set(nic, SET_JOINING, u32::from(join))
}

/// What a NIC does for the network stack.
pub(crate) fn offloads(nic: &str) -> Vec<&'static str> {
    let is_on = |command: u32| value(nic, command).is_ok_and(|value| value != 0);
    GET_OFFLOADS.into_iter().filter(|(command, _)| is_on(*command)).map(|(_, name)| name).collect()
}

/// The driver of a NIC.
pub(crate) fn driver(nic: &str) -> io::Result<String> {
    let socket = super::udp_socket(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
    let mut info = [0u64; DRIVER_INFO_BYTES.div_ceil(size_of::<u64>())];
    info[0] = words(GET_DRIVER, 0);
    ask(&socket, &CString::new(nic)?, &mut info)?;
    let bytes: Vec<u8> = info.iter().flat_map(|word| word.to_ne_bytes()).skip(DRIVER_AT).collect();
    Ok(text(&bytes[..STRING_BYTES]))
}

/// What a command that reads one number reads.
fn value(nic: &str, command: u32) -> io::Result<u32> {
    let socket = super::udp_socket(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
    let mut question = [words(command, 0)];
    ask(&socket, &CString::new(nic)?, &mut question)?;
    Ok(second_half(question[0]))
}

fn value_set(nic: &str, command: u32, value: u32) -> io::Result<()> {
    let socket = super::udp_socket(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
    ask(&socket, &CString::new(nic)?, &mut [words(command, value)])
}

/// Names and values of what the driver of the NIC called `nic` counts.
pub(crate) fn nic_statistics(nic: &str) -> io::Result<Vec<(String, u64)>> {
    let socket = super::udp_socket(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
    let nic = CString::new(nic)?;
    let names = strings(&socket, &nic, STATISTICS)?;
    let mut values = vec![0u64; 1 + names.len() + SPARE];
    values[0] = words(GET_STATISTICS, 0);
    ask(&socket, &nic, &mut values)?;
    Ok(names.into_iter().zip(values.into_iter().skip(1)).collect())
}

/// A feature that a NIC can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NicFeature {
    /// Such as `rx-gro-hw`.
    pub(crate) name: String,
    /// Whether it is used now.
    pub(crate) is_used: bool,
    /// Whether that can be changed.
    pub(crate) is_fixed: bool,
}

/// The features that a NIC can have.
pub(crate) fn nic_features(nic: &str) -> io::Result<Vec<NicFeature>> {
    let socket = super::udp_socket(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
    let nic = CString::new(nic)?;
    let names = strings(&socket, &nic, FEATURES)?;
    let blocks = names.len().div_ceil(BLOCK_FEATURES);
    // Command and blocks; of each block what is available and what was asked for, what is used and what never changes.
    let mut answer = vec![0u64; 1 + 2 * blocks];
    answer[0] = words(GET_FEATURES, blocks as u32);
    ask(&socket, &nic, &mut answer)?;
    let feature = |(number, name): (usize, String)| {
        let (block, bit) = (1 + 2 * (number / BLOCK_FEATURES), 1 << (number % BLOCK_FEATURES));
        let [available, used] = [block, block + 1].map(|word| first_half(answer[word]) & bit != 0);
        let never_changes = second_half(answer[block + 1]) & bit != 0;
        NicFeature { name, is_used: used, is_fixed: never_changes || !available }
    };
    let all = names.into_iter().enumerate().map(feature);
    Ok(all.filter(|feature| !feature.name.is_empty()).collect())
}

/// How many pairs of queues a NIC uses, and how many it can have.
pub(crate) fn queue_pairs(nic: &str) -> io::Result<(u32, u32)> {
    let socket = super::udp_socket(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
    // Command, then the most of receiving, sending, other and combined ones, then how many of each there are.
    let mut answer = [0u64; 5];
    answer[0] = words(GET_CHANNELS, 0);
    ask(&socket, &CString::new(nic)?, &mut answer)?;
    Ok((first_half(answer[4]), first_half(answer[2])))
}

/// The strings that a set is named by.
fn strings(socket: &OwnedFd, nic: &CStr, set: u32) -> io::Result<Vec<String>> {
    // Command and a reserved word; a set's bit; then how many there are.
    let mut info = [words(GET_SET_INFO, 0), 1 << set, 0];
    ask(socket, nic, &mut info)?;
    let count = if info[1] == 0 { 0 } else { first_half(info[2]) as usize };
    // Command and set; how many, and the strings, which begin in the middle of a word.
    let mut strings = vec![0u64; 2 + (count + SPARE) * STRING_BYTES / size_of::<u64>()];
    strings[0] = words(GET_STRINGS, set);
    ask(socket, nic, &mut strings)?;
    let bytes: Vec<u8> = strings.iter().flat_map(|word| word.to_ne_bytes()).skip(12).collect();
    Ok(bytes.chunks_exact(STRING_BYTES).take(count).map(text).collect())
}

/// A string of a fixed length, which ends in 0 unless it has all of that length.
fn text(string: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(string).map(CStr::to_string_lossy);
    text.map_or_else(|_| String::from_utf8_lossy(string).into_owned(), |text| text.into_owned())
}

/// A word of two halves, as they lie in memory.
fn words(first: u32, second: u32) -> u64 {
    let [first, second] = [first, second].map(u32::to_ne_bytes);
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first);
    bytes[4..].copy_from_slice(&second);
    u64::from_ne_bytes(bytes)
}

fn first_half(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

fn second_half(word: u64) -> u32 {
    let [.., a, b, c, d] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

fn ask(socket: &OwnedFd, nic: &CStr, question: &mut [u64]) -> io::Result<()> {
    let mut request = request(nic)?;
    request.ifr_ifru.ifru_data = question.as_mut_ptr().cast();
    // SAFETY: the call reads the name, which ends in 0, and the command that the question begins with, and writes what
    // the question has room for: one number, or as many names or values as the driver counts, with room to spare.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_lie_in_memory_as_the_kernel_reads_them() {
        assert_eq!(words(0x1b, 1).to_ne_bytes()[..4], 0x1bu32.to_ne_bytes());
        assert_eq!((first_half(words(7, 9)), second_half(words(7, 9))), (7, 9));
    }

    #[test]
    fn who_counts_nothing_or_is_not_there_is_an_error_or_nothing() {
        assert!(nic_statistics("nic9").is_err());
        assert!(nic_statistics("lo").map_or(true, |counted| counted.is_empty()));
        assert!(nic_features("nic9").is_err() && queue_pairs("nic9").is_err());
    }

    #[test]
    fn the_features_of_the_loopback_interface_are_those_that_it_has() {
        let features = nic_features("lo").unwrap();
        // It is without a wire in every kernel.
        let feature = |name: &str, is_used| NicFeature { name: name.to_owned(), is_used, is_fixed: true };
        assert!(features.contains(&feature("loopback", true)), "{features:?}");
        assert!(features.contains(&feature("rx-gro-hw", false)), "{features:?}");
    }
}
