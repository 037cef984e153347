//! Who may use an endpoint of the XDP receive path.

/// Who may open an endpoint's memory, as of any file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Number of the user it belongs to; `None`: root.
    pub owner: Option<u32>,
    /// Number of the group it belongs to; `None`: root's.
    pub group: Option<u32>,
    /// Permissions, as for `chmod`. Whoever may read and write it may use the endpoint, and read what another
    /// who may use it has received.
    pub mode: u32,
}

impl Access {
    /// Whether it is for the same users.
    #[must_use]
    pub fn is_same(self, other: Access) -> bool {
        let key = |it: Access| (it.owner.unwrap_or(0), it.group.unwrap_or(0), it.mode & 0o666);
        key(self) == key(other)
    }
}
