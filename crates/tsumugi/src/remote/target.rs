//! Memory of other processes, and what may be done with it.

/// Names memory of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The key that its owner handed out.
    pub key: u64,
    /// Address in its owner's process.
    pub address: u64,
}

impl Target {
    /// So many bytes further on.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Target {
        Target { address: self.address.wrapping_add(bytes), ..self }
    }
}

/// What a key permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// To read.
    pub const READ: Rights = Rights(1);
    /// To write.
    pub const WRITE: Rights = Rights(2);
    /// To change words atomically, and see what they were.
    pub const ATOMIC: Rights = Rights(4);
    /// Everything.
    pub const ALL: Rights = Rights(7);
    /// Nothing.
    pub(crate) const NONE: Rights = Rights(0);

    /// As they travel.
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u8) -> Option<Rights> {
        if bits <= Rights::ALL.0 { Some(Rights(bits)) } else { None }
    }

    /// These and `other`.
    #[must_use]
    pub const fn and(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }

    /// Whether they include `other`.
    #[must_use]
    pub const fn has(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }
}
