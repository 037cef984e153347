//! Receive memory in ordinary memory.

use crate::common::{GEOMETRY, View};
use std::array;
use tsumugi_proto::ReceiveMemory;
use tsumugi_wire::atomic::{AtomicU32, AtomicU64, Ordering};
use tsumugi_wire::limits::VERSION;
use tsumugi_wire::memory::{Acknowledged, Control, Flow, Line, MAGIC, PAD_BYTES, Received};

/// Receive memory of [`GEOMETRY`] in ordinary memory, without `unsafe`.
pub(crate) struct Plain {
    control: Control,
    flows: Vec<Flow>,
    /// Ring and pad.
    words: Vec<AtomicU64>,
}

impl Plain {
    /// Empty.
    pub(crate) fn new() -> Plain {
        Plain {
            control: Control {
                magic: AtomicU64::new(MAGIC),
                version: AtomicU32::new(u32::from(VERSION)),
                flows: AtomicU32::new(GEOMETRY.flows),
                ring_bytes: AtomicU64::new(GEOMETRY.ring_bytes),
                epoch: AtomicU32::new(1),
                checked_tick: AtomicU32::new(0),
                checked_at: AtomicU64::new(0),
                seal: AtomicU64::new(0x5ea1_0f5e_a15e_a150),
                answers_left: AtomicU32::new(0),
                ring_head: Line::default(),
                ring_tail: Line::default(),
                sleeping: Line::default(),
                xoff: Line::default(),
                ring_read: Line::default(),
                counters: Line(array::from_fn(|_| AtomicU64::new(0))),
                owed: Line::default(),
            },
            flows: (0..GEOMETRY.flows).map(|_| flow()).collect(),
            words: (0..GEOMETRY.ring_bytes + PAD_BYTES as u64)
                .step_by(8)
                .map(|_| AtomicU64::new(0))
                .collect(),
        }
    }

    fn place(position: u64) -> usize {
        (position % GEOMETRY.ring_bytes) as usize
    }

    fn set(&self, place: usize, byte: u8) {
        let (word, shift) = (&self.words[place / 8], 8 * (place % 8));
        let others = word.load(Ordering::Relaxed) & !(0xff << shift);
        word.store(others | u64::from(byte) << shift, Ordering::Relaxed);
    }
}

fn flow() -> Flow {
    Flow {
        token: AtomicU64::new(0),
        epoch: AtomicU32::new(0),
        repeat: AtomicU32::new(0),
        limit: AtomicU64::new(0),
        peer_token: AtomicU64::new(0),
        peer_flow: AtomicU32::new(0),
        checked: AtomicU64::new(0),
        received: Line(Received::default()),
        acknowledged: Line(Acknowledged::default()),
        bitmap: Line(array::from_fn(|_| AtomicU64::new(0))),
        direct_writes: Line::default(),
    }
}

impl ReceiveMemory for Plain {
    fn control(&self) -> &Control {
        &self.control
    }

    fn flow(&self, index: u32) -> Option<&Flow> {
        self.flows.get(index as usize)
    }

    fn ring_bytes(&self) -> u64 {
        GEOMETRY.ring_bytes
    }

    fn word(&self, position: u64) -> &AtomicU64 {
        &self.words[Plain::place(position) / 8]
    }

    fn copy_in(&self, position: u64, bytes: &[u8]) {
        for (place, byte) in (Plain::place(position)..).zip(bytes) {
            self.set(place, *byte);
        }
    }
}

impl View for Plain {
    fn control(&self) -> &Control {
        &self.control
    }

    fn flow(&self, index: u32) -> &Flow {
        &self.flows[index as usize]
    }

    fn word(&self, position: u64) -> &AtomicU64 {
        ReceiveMemory::word(self, position)
    }

    fn bytes(&self, position: u64, bytes: usize) -> Vec<u8> {
        let start = Plain::place(position);
        (start..start + bytes)
            .map(|place| (self.words[place / 8].load(Ordering::Relaxed) >> (8 * (place % 8))) as u8)
            .collect()
    }
}
