//! How much memory received messages take up outside the receive queue.
//!
//! What is arriving counts from when its room is made, what is complete until it is given back. Over the limit, credit is withheld
//! from peers, but for what a message that has begun to arrive needs.

/// The budget.
#[derive(Debug)]
pub(crate) struct ReceiveBudget {
    /// Bytes that may be held.
    limit: u64,
    /// Bytes of messages that are arriving: fragments in place, packets out of turn.
    arriving: u64,
    /// Bytes of messages that are complete and not released.
    complete: u64,
    /// Credit is withheld from some peer.
    withholds: bool,
}

impl ReceiveBudget {
    pub(crate) const fn new(limit: u64) -> ReceiveBudget {
        ReceiveBudget { limit, arriving: 0, complete: 0, withholds: false }
    }

    /// Room was made for what arrives.
    pub(crate) fn arrive(&mut self, bytes: u64) {
        self.arriving += bytes;
    }

    /// What was arriving does not take up room any more.
    pub(crate) fn leave(&mut self, bytes: u64) {
        self.arriving -= bytes;
    }

    /// What was arriving is complete.
    pub(crate) fn complete(&mut self, bytes: u64) {
        self.leave(bytes);
        self.charge(bytes);
    }

    /// Complete messages take up so much more.
    pub(crate) fn charge(&mut self, bytes: u64) {
        self.complete += bytes;
    }

    /// Complete messages take up so much less.
    pub(crate) fn discharge(&mut self, bytes: u64) {
        self.complete -= bytes;
    }

    /// Bytes that are held, arriving or complete.
    pub(crate) const fn held(&self) -> u64 {
        self.arriving + self.complete
    }

    /// Whether credit is to be withheld.
    pub(crate) const fn is_full(&self) -> bool {
        self.held() > self.limit
    }

    /// Bytes of complete messages and how many there may be, if those alone are too many: what is arriving needs nobody's help to
    /// become complete.
    pub(crate) fn exhausted(&self) -> Option<(u64, u64)> {
        (self.complete > self.limit).then_some((self.complete, self.limit))
    }

    /// Credit is withheld from a peer.
    pub(crate) fn withhold(&mut self) {
        self.withholds = true;
    }

    /// Whether credit was withheld and need not be any more: who is told grants it anew to everyone.
    pub(crate) fn take_restoration(&mut self) -> bool {
        let may = self.withholds && !self.is_full();
        self.withholds &= !may;
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_restored_once_when_there_is_room() {
        let mut budget = ReceiveBudget::new(100);
        budget.arrive(80);
        budget.charge(30);
        assert!(budget.is_full() && budget.exhausted().is_none());
        assert!(!budget.take_restoration(), "none was withheld");
        budget.withhold();
        assert!(!budget.take_restoration(), "there is no room");
        budget.complete(80);
        assert_eq!((budget.held(), budget.exhausted()), (110, Some((110, 100))));
        budget.discharge(30);
        assert!(budget.take_restoration() && !budget.take_restoration());
    }
}
