//! What endpoints are bound to, and what is refused.

use crate::host::*;
use std::ffi::c_int;
use std::ptr::null_mut;
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

#[test]
fn an_event_queue_is_busy_while_an_address_vector_an_endpoint_or_a_domain_is_bound_to_it() {
    if host().is_none() {
        return;
    }
    let side = Side::unbound(SideOptions::default());
    let (of_av, of_others) = (side.open_eq(0), side.open_eq(0));
    // SAFETY: open objects; one address.
    unsafe {
        let mut attr: fi_av_attr = std::mem::zeroed();
        attr.flags = FI_EVENT;
        let (mut av, mut eq) = (null_mut(), &raw mut (*of_av).fid);
        let open = (*(*side.domain).ops).av_open.unwrap();
        assert_eq!(open(side.domain, &raw mut attr, &raw mut av, null_mut()), 0);
        let (fid, insert) = (&raw mut (*av).fid, (*(*av).ops).insert.unwrap());
        assert_eq!(bind(fid, eq, 0), 0);
        assert_eq!(close(eq), -FI_EBUSY);
        let mut address = [0u8; 16];
        address[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        assert_eq!(insert(av, address.as_ptr().cast(), 1, null_mut(), 0, context(1)), 0);
        let (mut event, mut entry): (u32, fi_eq_entry) = (0, std::mem::zeroed());
        let (place, bytes) = ((&raw mut entry).cast(), size_of::<fi_eq_entry>());
        let read = (*(*of_av).ops).read.unwrap();
        assert_eq!(read(of_av, &raw mut event, place, bytes, 0), bytes as isize);
        assert_eq!((event, entry.context), (FI_AV_COMPLETE, context(1)));
        // Bound to another, it lets the first one go.
        assert_eq!(bind(fid, &raw mut (*of_others).fid, 0), 0);
        assert_eq!(close(eq), 0);
        eq = &raw mut (*of_others).fid;
        assert_eq!(close(eq), -FI_EBUSY);
        assert_eq!(close(fid), 0);
        let (ep, domain) = (&raw mut (*side.ep).fid, &raw mut (*side.domain).fid);
        assert_eq!((bind(ep, eq, 0), bind(domain, eq, 0)), (0, 0));
        assert_eq!(close(eq), -FI_EBUSY);
        assert_eq!(close(ep), 0);
        assert_eq!(close(eq), -FI_EBUSY, "the domain is bound to it, too");
        for fid in [&raw mut (*side.cntr).fid, &raw mut (*side.cq).fid, &raw mut (*side.av).fid, domain, eq] {
            assert_eq!(close(fid), 0);
        }
        assert_eq!(close(&raw mut (*side.fabric).fid), 0);
    }
}

/// A poll set.
struct PollSet(*mut fid_poll);

impl PollSet {
    fn open(side: &Side) -> PollSet {
        let (mut poll, mut attr) = (null_mut(), fi_poll_attr { flags: 0 });
        // SAFETY: an open domain.
        let code = unsafe {
            let open = (*(*side.domain).ops).poll_open.unwrap();
            open(side.domain, &raw mut attr, &raw mut poll)
        };
        assert_eq!(code, 0);
        PollSet(poll)
    }

    fn add(&self, member: *mut fid) -> c_int {
        // SAFETY: open objects.
        unsafe { (*(*self.0).ops).poll_add.unwrap()(self.0, member, 0) }
    }

    fn delete(&self, member: *mut fid) -> c_int {
        // SAFETY: open objects.
        unsafe { (*(*self.0).ops).poll_del.unwrap()(self.0, member, 0) }
    }

    /// The contexts of those that have something.
    fn poll(&self) -> Vec<usize> {
        let mut contexts = [null_mut(); 8];
        // SAFETY: an open poll set; there is room for so many.
        let found = unsafe { (*(*self.0).ops).poll.unwrap()(self.0, contexts.as_mut_ptr(), 8) };
        contexts[..usize::try_from(found).unwrap()].iter().map(|context| context.addr()).collect()
    }
}

#[test]
fn a_poll_set_tells_what_has_something_once_and_forgets_what_is_closed() {
    if host().is_none() {
        return;
    }
    let side = Side::unbound(SideOptions::default());
    let set = PollSet::open(&side);
    let (cq, cntr) = (side.open_cq(), side.open_cntr());
    // SAFETY: open objects.
    unsafe {
        let (cq, cntr, own) = (&raw mut (*cq).fid, &raw mut (*cntr).fid, &raw mut (*side.cntr).fid);
        ((*cq).context, (*cntr).context, (*own).context) = (context(1), context(2), context(3));
        for member in [cq, cntr, own, own] {
            assert_eq!(set.add(member), 0);
        }
        assert_eq!(set.poll(), [0; 0]);
        let count = |cntr: *mut fid| {
            let cntr = cntr.cast::<fid_cntr>();
            assert_eq!((*(*cntr).ops).add.unwrap()(cntr, 1), 0);
        };
        count(own);
        assert_eq!(set.poll(), [3]);
        count(cntr);
        assert_eq!(set.poll(), [2, 3]);
        assert_eq!((close(cq), close(cntr)), (0, 0));
        // As a rule these lie where the others did.
        let (cq, cntr) = (side.open_cq(), side.open_cntr());
        let (cq, cntr) = (&raw mut (*cq).fid, &raw mut (*cntr).fid);
        ((*cq).context, (*cntr).context) = (context(4), context(5));
        count(cntr);
        assert_eq!(set.poll(), [3], "the others are not in the set");
        assert_eq!((set.delete(cq), set.delete(own), set.delete(own)), (-FI_EINVAL, 0, -FI_EINVAL));
        assert_eq!(set.poll(), [0; 0]);
        assert_eq!((set.add(cq), set.add(cntr)), (0, 0));
        assert_eq!(set.poll(), [5]);
        assert_eq!(set.add(&raw mut (*side.av).fid), -FI_EINVAL, "nothing happens to it");
        assert_eq!((close(cntr), close(cq)), (0, 0));
        assert_eq!(close(&raw mut (*set.0).fid), 0);
        assert_eq!(close(&raw mut (*side.ep).fid), 0);
    }
    side.close_others();
}

#[test]
fn objects_of_different_domains_are_not_bound_to_each_other() {
    if host().is_none() {
        return;
    }
    let (side, other) = (Side::unbound(SideOptions::default()), Side::unbound(SideOptions::default()));
    let set = PollSet::open(&side);
    // SAFETY: open objects.
    unsafe {
        let ep = &raw mut (*side.ep).fid;
        let (av, cq) = (&raw mut (*other.av).fid, &raw mut (*other.cq).fid);
        let cntr = &raw mut (*other.cntr).fid;
        assert_eq!(bind(ep, av, 0), -FI_EDOMAIN);
        assert_eq!(bind(ep, cq, FI_TRANSMIT | FI_RECV), -FI_EDOMAIN);
        assert_eq!(bind(ep, cntr, FI_SEND | FI_RECV), -FI_EDOMAIN);
        assert_eq!((set.add(cq), set.add(cntr)), (-FI_EDOMAIN, -FI_EDOMAIN));
        side.bind_all();
        assert_eq!(close(&raw mut (*set.0).fid), 0);
    }
    other.close();
    side.close();
}
