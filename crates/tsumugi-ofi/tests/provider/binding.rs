//! What endpoints are bound to, and what is refused.

use crate::host::*;
use tsumugi_fi::abi::*;

#[test]
fn an_endpoint_that_has_a_queue_for_a_direction_keeps_it() {
    if host().is_none() {
        return;
    }
    let side = Side::unbound(SideOptions::default());
    let (first, second) = (side.open_cq(), side.open_cq());
    // SAFETY: open objects.
    unsafe {
        let ep = &raw mut (*side.ep).fid;
        let (first, second) = (&raw mut (*first).fid, &raw mut (*second).fid);
        assert_eq!(bind(ep, first, FI_TRANSMIT), 0);
        assert_eq!(bind(ep, second, FI_TRANSMIT), -FI_EINVAL);
        assert_eq!(bind(ep, second, FI_TRANSMIT | FI_RECV), -FI_EINVAL);
        assert_eq!(close(first), -FI_EBUSY, "the endpoint tells it of what it sends");
        assert_eq!(close(second), 0, "it was refused for both directions");
        assert_eq!(bind(ep, &raw mut (*side.cq).fid, FI_RECV), 0);
        assert_eq!(close(ep), 0);
        assert_eq!(close(first), 0);
    }
    side.close_others();
}
