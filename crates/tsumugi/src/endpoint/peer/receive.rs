//! Packets that arrive from a peer, until they have their turn and are whole.

use super::damaged::Damaged;
use crate::buffer::Buffer;
use crate::context::{SavedAssembly, SavedHeld, SavedReceive};
use tsumugi_proto::pieces::Pieces;
use tsumugi_proto::reorder::Reorder;
use tsumugi_rail::copy;
use tsumugi_wire::Psn;
use tsumugi_wire::defect;
use tsumugi_wire::frame::Fragment;
use tsumugi_wire::header::HEADER_BYTES;

/// A packet whose turn has not come.
#[derive(Debug)]
pub(crate) enum Held {
    /// A body with frames, copied out of the receive queue.
    Body(Vec<u8>),
    /// A fragment that has been put in its place already.
    Placed { fragment: Fragment, bytes: usize },
}

/// A long message that is arriving.
#[derive(Debug)]
pub(crate) struct Assembly {
    pub(crate) message: u32,
    pub(crate) channel: u16,
    pub(crate) total: u64,
    /// How far it has arrived in order of PSNs.
    pub(crate) in_order: u64,
    /// Length of its fragments, all but the last, as far as is known; 0 when nothing is, bytes.
    pub(crate) step: u64,
    /// Where its bytes go.
    pub(crate) store: Store,
    /// Its head has had its turn: the channel's owner was asked where it is to go.
    pub(crate) placed: bool,
}

/// Packets that arrive from it, until they have their turn and are whole.
#[derive(Debug, Default)]
pub(crate) struct Receive {
    pub(crate) reorder: Reorder<Held>,
    /// Packets that arrive in pieces.
    pub(crate) pieces: Pieces,
    /// Packets that have arrived damaged, and are wanted again.
    pub(crate) damaged: Damaged,
    /// The same of connections that have ended: nobody was left to send them again.
    pub(crate) unrepaired: u64,
    pub(crate) assemblies: Vec<Assembly>,
    /// Packets that have arrived, and bytes of them.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Receive {
    /// So many packets have arrived, with so many bytes behind their headers. Returns the bytes of all.
    #[inline]
    pub(crate) fn count(&mut self, packets: u64, body_bytes: u64) -> u64 {
        let bytes = body_bytes + packets * HEADER_BYTES as u64;
        self.packets += packets;
        self.bytes += bytes;
        bytes
    }
}

/// Memory of a channel's owner for one message.
#[derive(Debug)]
pub(crate) struct Lent {
    /// What does not fit is dropped.
    pub(crate) buffer: Buffer,
    /// Bytes at the beginning of the message that do not go there.
    pub(crate) skip: usize,
    /// The owner's name for it.
    pub(crate) key: u64,
}

impl Lent {
    pub(crate) fn put(&mut self, offset: usize, data: &[u8]) {
        let data = &data[self.skip.saturating_sub(offset).min(data.len())..];
        self.buffer.write(offset.saturating_sub(self.skip), data);
    }
}

/// Where the bytes of an assembly go.
#[derive(Debug)]
pub(crate) enum Store {
    /// Memory of the endpoint; what lies beyond a gap is there already, the gap is zeroes.
    Own {
        bytes: Vec<u8>,
        /// The placer's name for it.
        claim: Option<usize>,
    },
    Lent(Lent),
    Nowhere,
}

impl Store {
    pub(crate) fn put(&mut self, offset: usize, data: &[u8]) {
        match self {
            Store::Own { bytes, .. } => put(bytes, offset, data),
            Store::Lent(lent) => lent.put(offset, data),
            Store::Nowhere => {}
        }
    }

    pub(crate) fn head(&self) -> &[u8] {
        match self {
            Store::Own { bytes, .. } => bytes,
            Store::Lent(_) | Store::Nowhere => &[],
        }
    }
}

impl Receive {
    /// Bytes that it takes up outside the receive queue.
    pub(crate) fn held_bytes(&self) -> u64 {
        let held = self.reorder.iter().map(|(_, held)| match held {
            Held::Body(body) => body.len() as u64,
            Held::Placed { .. } => 0,
        });
        held.sum::<u64>() + self.assemblies.iter().map(Assembly::held_bytes).sum::<u64>()
    }

    /// What is needed to go on.
    pub(crate) fn save(&self) -> SavedReceive {
        let held = self.reorder.iter().map(|(psn, held)| {
            let held = match held {
                Held::Body(body) => SavedHeld::Body(body.clone()),
                Held::Placed { fragment: Fragment { channel, message, offset, total }, bytes } => {
                    SavedHeld::Placed {
                        channel: *channel,
                        message: *message,
                        offset: *offset,
                        total: *total,
                        bytes: *bytes as u64,
                    }
                }
            };
            (psn.0, held)
        });
        let assemblies = self.assemblies.iter().map(|assembly| SavedAssembly {
            message: assembly.message,
            channel: assembly.channel,
            total: assembly.total,
            in_order: assembly.in_order,
            buffer: match &assembly.store {
                Store::Own { bytes, .. } => Some(bytes.clone()),
                // Nobody has the channel open, or there would be nothing to save.
                Store::Lent(_) | Store::Nowhere => None,
            },
        });
        SavedReceive {
            next: self.reorder.next().0,
            held: held.collect(),
            damaged: self.damaged.psns().map(|psn| psn.0).collect(),
            assemblies: assemblies.collect(),
        }
    }

    /// What was [saved](Receive::save).
    pub(crate) fn restore(saved: &SavedReceive) -> Receive {
        let mut receive = Receive { reorder: Reorder::starting_at(Psn(saved.next)), ..Receive::default() };
        saved.damaged.iter().for_each(|psn| receive.damaged.add(Psn(*psn)));
        for (psn, held) in &saved.held {
            let held = match held {
                SavedHeld::Body(body) => Held::Body(body.clone()),
                SavedHeld::Placed { channel, message, offset, total, bytes } => Held::Placed {
                    fragment: Fragment {
                        channel: *channel,
                        message: *message,
                        offset: *offset,
                        total: *total,
                    },
                    bytes: *bytes as usize,
                },
            };
            receive.reorder.hold(Psn(*psn), held);
        }
        let assemblies = saved.assemblies.iter().map(|assembly| Assembly {
            message: assembly.message,
            channel: assembly.channel,
            total: assembly.total,
            in_order: assembly.in_order,
            step: 0,
            store: match &assembly.buffer {
                Some(bytes) => Store::Own { bytes: bytes.clone(), claim: None },
                None => Store::Nowhere,
            },
            placed: assembly.in_order > 0,
        });
        receive.assemblies = assemblies.collect();
        receive
    }

    /// Where among the messages that are arriving a fragment's is.
    pub(crate) fn assembly_of(&self, fragment: &Fragment) -> Option<usize> {
        self.assemblies.iter().position(|assembly| assembly.message == fragment.message)
    }
}

impl Assembly {
    /// A message of which nothing is there yet, in memory of the endpoint.
    pub(crate) fn new(fragment: &Fragment, room: Vec<u8>) -> Assembly {
        Assembly {
            message: fragment.message,
            channel: fragment.channel,
            total: fragment.total,
            in_order: 0,
            step: 0,
            store: Store::Own { bytes: room, claim: None },
            placed: false,
        }
    }

    /// Puts a fragment in its place.
    pub(crate) fn put(&mut self, fragment: &Fragment, data: &[u8]) {
        let offset = if defect!(FragmentOffsetIgnored) { self.in_order } else { fragment.offset };
        self.store.put(offset as usize, data);
    }

    /// The next fragment has its turn, of so many bytes. Returns whether the message is complete.
    pub(crate) fn pass(&mut self, bytes: u64) -> bool {
        self.in_order += bytes;
        self.step = self.step.max(bytes);
        self.in_order == self.total
    }

    /// Bytes of the endpoint's memory that it takes up.
    pub(crate) fn held_bytes(&self) -> u64 {
        if matches!(self.store, Store::Own { .. }) { self.total } else { 0 }
    }
}

/// Puts `data` at `offset` of a message that is being assembled.
fn put(buffer: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if offset == buffer.len() {
        // In order: nothing is zeroed first.
        copy::append(data, buffer);
        return;
    }
    let end = offset + data.len();
    if end > buffer.len() {
        buffer.resize(end, 0);
    }
    copy::fill(data, &mut buffer[offset..end]);
}
