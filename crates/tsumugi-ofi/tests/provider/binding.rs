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

#[test]
fn an_endpoint_that_has_an_address_vector_and_counters_keeps_them() {
    if host().is_none() {
        return;
    }
    let side = Side::unbound(SideOptions::default());
    let (other_av, sends, others) = (side.open_av(), side.open_cntr(), side.open_cntr());
    // SAFETY: open objects.
    unsafe {
        let ep = &raw mut (*side.ep).fid;
        let (av, other_av) = (&raw mut (*side.av).fid, &raw mut (*other_av).fid);
        assert_eq!(bind(ep, av, 0), 0);
        assert_eq!(bind(ep, other_av, 0), -FI_EINVAL);
        assert_eq!((close(av), close(other_av)), (-FI_EBUSY, 0));
        let (sends, others) = (&raw mut (*sends).fid, &raw mut (*others).fid);
        assert_eq!(bind(ep, sends, FI_SEND), 0);
        assert_eq!(bind(ep, others, FI_SEND | FI_READ), -FI_EINVAL);
        assert_eq!(close(sends), -FI_EBUSY, "it counts what is sent");
        assert_eq!(bind(ep, others, FI_RECV | FI_READ | FI_WRITE), 0, "nobody counts these");
        assert_eq!(close(others), -FI_EBUSY);
        assert_eq!(close(ep), 0);
        assert_eq!((close(sends), close(others)), (0, 0));
    }
    side.close_others();
}
