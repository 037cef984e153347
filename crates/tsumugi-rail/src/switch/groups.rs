//! What a box knows of the groups that it counts for: `struct group` of `bpf/switch/group.h`, and what it has counted.

use aya::Pod;
use aya::maps::{MapData, MapError, PerCpuArray};
use tsumugi_wire::group::{Event, SLOTS_MAX, WORDS_MAX};

/// Number of [`Event`]s.
pub(super) const EVENTS: usize = Event::ALL.len();

/// How many packets of groups have come to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events([u64; EVENTS]);

impl Events {
    /// How many came to this.
    #[must_use]
    pub const fn of(&self, event: Event) -> u64 {
        self.0[event as usize]
    }

    /// Every event by its name, with how many came to it.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Event::ALL.into_iter().map(|event| (event.name(), self.of(event)))
    }
}

/// Counters of all processors together.
pub(super) fn sum<M: std::borrow::Borrow<MapData>>(
    events: &PerCpuArray<M, [u64; EVENTS]>,
) -> Result<Events, MapError> {
    let mut all = Events::default();
    for on_one in events.get(&0, 0)?.iter() {
        all.0.iter_mut().zip(on_one).for_each(|(all, one)| *all += one);
    }
    Ok(all)
}

/// How to send to somebody: `struct address`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct AddressEntry {
    /// Number of the port that he is at.
    pub port: u32,
    /// 1: over IPv6.
    pub six: u32,
    /// Destination and source of frames to him.
    pub ethernet: [u8; 12],
    /// Source and destination port, big-endian.
    pub udp: [u16; 2],
    /// Source and destination, as they stand in the frame; IPv4: in the first word.
    pub ip: [u64; 4],
}

/// A member or a box below: `struct slot`. What its fields mean says `Slot` of `tsumugi_proto::group::boxes`.
#[expect(missing_docs, reason = "told there")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SlotEntry {
    pub member: u64,
    pub token: u64,
    pub arrived: u64,
    pub first: u64,
    pub peer_token: u64,
    pub peer_flow: u32,
    pub epoch: u32,
    pub rank: u16,
    pub weight: u16,
    pub has_left: u32,
    pub address: AddressEntry,
}

/// A group: `struct group`. What its fields mean says `Group` of `tsumugi_proto::group::boxes`.
#[expect(missing_docs, reason = "told there")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct GroupEntry {
    pub lock: u32,
    pub seen_s: u32,
    pub job: u64,
    pub key: u64,
    pub number: u64,
    pub size: u16,
    pub weight: u16,
    pub arrived: u16,
    pub slots_used: u16,
    pub is_six: u8,
    pub is_root: u8,
    pub is_formed: u8,
    pub is_up: u8,
    pub has_result: u8,
    pub operation: u8,
    pub count: u8,
    pub result_operation: u8,
    pub result_count: u8,
    pub reserved: [u8; 7],
    pub generation: u64,
    pub words: [u64; WORDS_MAX],
    pub result: [u64; WORDS_MAX],
    pub up_token: u64,
    pub up_seat_token: u64,
    pub up_seat: u32,
    pub reserved_2: u32,
    pub slots: [SlotEntry; SLOTS_MAX],
}

// SAFETY: numbers without padding, any bits of which are a value.
unsafe impl Pod for GroupEntry {}

const _: () = assert!(size_of::<AddressEntry>() == 56 && size_of::<SlotEntry>() == 112);
const _: () = assert!(size_of::<GroupEntry>() == 216 + SLOTS_MAX * size_of::<SlotEntry>());
