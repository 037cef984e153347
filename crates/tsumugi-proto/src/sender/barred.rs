//! What keeps a flow from sending more.

use super::Sender;
use crate::receive_bitmap::REACH_PACKETS;

/// Why no new packet may be sent now, whatever waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barred {
    /// The receiver has refused packets for want of room, and has not said yet that there is any.
    Xoff,
    /// The receiver has granted no further credit: there is room for what is under way and no more.
    Credit,
    /// As much is outstanding as the receiver's bitmap reaches.
    Bitmap,
    /// No path gives a sign of life.
    Silence,
    /// On every path that is used, as much is under way as its congestion window permits.
    Congestion,
}

impl<P> Sender<P> {
    /// What keeps new packets back; `None`: nothing does.
    #[must_use]
    pub fn barred(&self) -> Option<Barred> {
        let mut usable = self.paths.iter().filter(|path| path.is_usable()).peekable();
        if self.xoff_at.is_some() {
            Some(Barred::Xoff)
        } else if self.limit <= self.next() {
            Some(Barred::Credit)
        } else if self.slots.len() as u64 >= REACH_PACKETS {
            Some(Barred::Bitmap)
        } else if usable.peek().is_none() {
            Some(Barred::Silence)
        } else {
            usable.all(|path| path.room() == 0).then_some(Barred::Congestion)
        }
    }
}
