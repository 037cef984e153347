//! What each of our NICs has carried, shown in the control page to whoever looks on (`tsumugi status`).

use super::Core;
use tsumugi_proto::ReceiveMemory;
use tsumugi_wire::Instant;
use tsumugi_wire::time::MILLISECOND_NS;

/// Time between two looks at what was carried, ns: in calls, and before a sleep of which nobody knows the end.
const SHOW_EVERY_NS: u64 = 100 * MILLISECOND_NS;
const SHOW_BEFORE_SLEEP_NS: u64 = 10 * MILLISECOND_NS;

impl Core {
    /// Shows what our NICs have carried, if that was not done for a while.
    pub fn show_rails(&mut self, now: Instant, before_sleep: bool) {
        let every_ns = if before_sleep { SHOW_BEFORE_SLEEP_NS } else { SHOW_EVERY_NS };
        let Self { multirail, peers, memory, .. } = self;
        if multirail.nics.is_empty() || !multirail.ledger.is_due(now, every_ns) {
            return;
        }
        multirail.ledger.begin(now);
        peers.iter_mut().for_each(|peer| multirail.ledger.count(peer));
        multirail.ledger.show(&memory.control().rails.0);
    }
}
