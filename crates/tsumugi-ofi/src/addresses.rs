//! Address vectors, `fi_av(3)`: peers' addresses by number.
//!
//! Numbers are those of a table, whatever was asked for: a map's numbers may be any. An address that is removed leaves a gap,
//! which the next one that is inserted takes.

use crate::abi::*;
use crate::domain::{self, Child, Domain, OfDomain};
use crate::events::{Events, Failed};
use crate::host::say;
use crate::lock::{Lock, Object, enter};
use crate::object::{Head, Table, functions, give, head, put_text, unsupported};
use crate::sockaddr;
use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void};
use std::net::SocketAddr;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

/// An address vector.
#[repr(C)]
pub(crate) struct Addresses {
    fid: Head<fid_av>,
    domain: OfDomain,
    entries: RefCell<Vec<Entry>>,
    /// How often it has changed.
    changes: Cell<u64>,
    /// Insertions are told of there, and not at once.
    asynchronous: bool,
    events: RefCell<Option<Arc<Events>>>,
}

/// A place in the table.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    address: Option<SocketAddr>,
    /// How often something was inserted here: an endpoint sees by it that the address is another.
    inserted: u32,
}

impl Object for Addresses {
    fn lock(&self) -> &Lock {
        &self.domain.lock
    }
}

impl Child for Addresses {
    fn domain(&self) -> &OfDomain {
        &self.domain
    }
}

static FUNCTIONS: Table<fi_ops> = functions(close, Some(bind), None);
static ADDRESSES: Table<fi_ops_av> = Table::new(fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert: Some(insert),
    insertsvc: Some(insertsvc),
    insertsym: Some(insertsym),
    remove: Some(remove),
    lookup: Some(lookup),
    straddr: Some(straddr),
    av_set: unsupported!(),
});

/// `fi_av_open`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    addresses: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the host's call.
    let domain = unsafe { enter::<Domain, _>(domain) };
    // SAFETY: the host's call; the attributes are the caller's.
    let Some(attr) = (unsafe { attr.as_mut() }) else { return -FI_EINVAL };
    if attr.flags & !(FI_EVENT | FI_SYMMETRIC) != 0 {
        return -FI_EBADFLAGS;
    }
    if !attr.name.is_null() || attr.rx_ctx_bits != 0 {
        return -FI_ENOSYS;
    }
    if attr.r#type == FI_AV_UNSPEC {
        attr.r#type = FI_AV_TABLE;
    }
    let made = Rc::new(Addresses {
        fid: Head::new(fid_av { fid: head(FI_CLASS_AV, context, &FUNCTIONS), ops: ADDRESSES.get() }),
        domain: OfDomain::new(&domain),
        entries: RefCell::new(Vec::with_capacity(attr.count.min(1 << 16))),
        changes: Cell::new(0),
        asynchronous: attr.flags & FI_EVENT != 0,
        events: RefCell::default(),
    });
    // SAFETY: the caller wants it there.
    unsafe { give(addresses, Rc::into_raw(made)) };
    FI_SUCCESS
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the host's call.
    unsafe { domain::close::<Addresses>(fid, |_| {}) }
}

unsafe extern "C" fn bind(fid: *mut fid, to: *mut fid, _: u64) -> c_int {
    // SAFETY: the host's call.
    let addresses = unsafe { enter::<Addresses, _>(fid) };
    // SAFETY: the host's call.
    if unsafe { (*to).fclass } != FI_CLASS_EQ {
        return -FI_EINVAL;
    }
    // SAFETY: the host's call; an object is of the class that it says.
    addresses.events.replace(Some(unsafe { Events::shared(to) }));
    FI_SUCCESS
}

impl Addresses {
    /// The address of a number, and how often something was inserted there.
    #[inline]
    pub(crate) fn get(&self, number: fi_addr_t) -> Option<(SocketAddr, u32)> {
        let entry = *self.entries.borrow().get(usize::try_from(number).ok()?)?;
        entry.address.map(|address| (address, entry.inserted))
    }

    /// Whether a number has the address that this insertion has put there.
    #[inline]
    pub(crate) fn is_of(&self, number: fi_addr_t, inserted: u32) -> bool {
        self.get(number).is_some_and(|(_, now)| now == inserted)
    }

    /// How often it has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Every number that has an address.
    pub(crate) fn numbers(&self) -> Vec<(fi_addr_t, SocketAddr, u32)> {
        let entries = self.entries.borrow();
        let known = entries.iter().zip(0..);
        known.filter_map(|(entry, number)| Some((number, entry.address?, entry.inserted))).collect()
    }

    fn insert(&self, address: SocketAddr) -> fi_addr_t {
        let mut entries = self.entries.borrow_mut();
        let free = entries.iter().position(|entry| entry.address.is_none());
        let at = free.unwrap_or_else(|| {
            entries.push(Entry::default());
            entries.len() - 1
        });
        entries[at] = Entry { address: Some(address), inserted: entries[at].inserted + 1 };
        self.changes.set(self.changes.get() + 1);
        at as fi_addr_t
    }

    /// Inserts addresses, and says what became of it: how many were inserted, or where insertions are told of, nothing.
    ///
    /// # Safety
    /// There is room for as many numbers, unless it is null; with the flag for errors, `context` is as many integers.
    unsafe fn insert_all(
        &self,
        found: impl ExactSizeIterator<Item = Result<SocketAddr, i32>>,
        numbers: *mut fi_addr_t,
        flags: u64,
        context: *mut c_void,
    ) -> c_int {
        let errors = if flags & FI_SYNC_ERR != 0 { context.cast::<c_int>() } else { ptr::null_mut() };
        let events = self.events.borrow();
        let events = events.as_deref().filter(|_| self.asynchronous);
        let fid = self.fid.get().cast();
        let mut inserted = 0;
        for (at, found) in found.enumerate() {
            let (number, code) = match found {
                Ok(address) => {
                    inserted += 1;
                    (self.insert(address), FI_SUCCESS)
                }
                Err(code) => {
                    if let Some(events) = events {
                        events.fail(Failed { fid, context, index: at as u64, code });
                    }
                    (FI_ADDR_NOTAVAIL, code)
                }
            };
            // SAFETY: as the caller promises.
            unsafe {
                if !numbers.is_null() {
                    numbers.add(at).write(number);
                }
                if !errors.is_null() {
                    errors.add(at).write(code);
                }
            }
        }
        let Some(events) = events else { return inserted };
        events.tell(FI_AV_COMPLETE, fi_eq_entry { fid, context, data: inserted as u64 });
        FI_SUCCESS
    }

    /// Why an insertion may not be made now.
    fn refusal(&self, flags: u64) -> Option<c_int> {
        if flags & !(FI_MORE | FI_SYNC_ERR) != 0 {
            return Some(-FI_EBADFLAGS);
        }
        (self.asynchronous && self.events.borrow().is_none()).then_some(-FI_ENOEQ)
    }
}

unsafe extern "C" fn insert(
    addresses: *mut fid_av,
    place: *const c_void,
    count: usize,
    numbers: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the host's call.
    let addresses = unsafe { enter::<Addresses, _>(addresses) };
    if let Some(refusal) = addresses.refusal(flags) {
        return refusal;
    }
    let mut at = place.cast::<u8>();
    let found = (0..count).map(|nth| {
        // SAFETY: the caller's addresses lie one behind the other, each as long as its family says.
        match unsafe { sockaddr::read(at.cast(), sockaddr::ADDRESS_BYTES_MAX) } {
            Some((address, length)) => {
                at = at.wrapping_add(length);
                Ok(address)
            }
            None => {
                say!(
                    FI_LOG_WARN,
                    FI_LOG_AV,
                    "address {nth} of {count} is none of IPv4 or IPv6: another provider's?"
                );
                // How long it is is not known, so the others are not read either.
                at = ptr::null();
                Err(FI_EINVAL)
            }
        }
    });
    // SAFETY: the host's call.
    unsafe { addresses.insert_all(found, numbers, flags, context) }
}

/// One address of a name, of the family that sorts first with the resolver.
fn resolve(node: Option<&str>, service: Option<&str>) -> Result<SocketAddr, i32> {
    let Some(node) = node else { return Err(FI_EINVAL) };
    match sockaddr::resolve(Some(node), service, false) {
        Ok(found) => found.into_iter().next().ok_or(FI_EADDRNOTAVAIL),
        Err(why) => {
            say!(FI_LOG_WARN, FI_LOG_AV, "{why}");
            Err(FI_EADDRNOTAVAIL)
        }
    }
}

unsafe extern "C" fn insertsvc(
    addresses: *mut fid_av,
    node: *const c_char,
    service: *const c_char,
    numbers: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the host's call.
    let (node, service) = unsafe { (sockaddr::text(node), sockaddr::text(service)) };
    // SAFETY: the host's call.
    let addresses = unsafe { enter::<Addresses, _>(addresses) };
    if let Some(refusal) = addresses.refusal(flags) {
        return refusal;
    }
    let found = resolve(node, service);
    if let (Err(code), false) = (found, addresses.asynchronous) {
        return -code;
    }
    // SAFETY: the host's call.
    unsafe { addresses.insert_all([found].into_iter(), numbers, flags, context) }
}

/// The nth name behind one that ends with a number, which keeps its leading zeroes; `None`: it ends with none.
fn nth(name: &str, nth: usize) -> Option<String> {
    let digits = name.len() - name.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    let (rest, number) = name.split_at(name.len() - digits);
    let number: u64 = number.parse().ok()?;
    Some(format!("{rest}{:0digits$}", number.checked_add(nth as u64)?))
}

unsafe extern "C" fn insertsym(
    addresses: *mut fid_av,
    node: *const c_char,
    nodes: usize,
    service: *const c_char,
    services: usize,
    numbers: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the host's call.
    let (node, service) = unsafe { (sockaddr::text(node), sockaddr::text(service)) };
    // SAFETY: the host's call.
    let addresses = unsafe { enter::<Addresses, _>(addresses) };
    if let Some(refusal) = addresses.refusal(flags) {
        return refusal;
    }
    let (Some(node), Some(service)) = (node, service) else { return -FI_EINVAL };
    let Some(count) = nodes.checked_mul(services) else { return -FI_EINVAL };
    // An address counts up by its last number, as a name does.
    let found = (0..count).map(|at| {
        let (node, service) = (nth(node, at / services), nth(service, at % services));
        resolve(node.as_deref(), service.as_deref())
    });
    // SAFETY: the host's call.
    unsafe { addresses.insert_all(found, numbers, flags, context) }
}

unsafe extern "C" fn remove(addresses: *mut fid_av, numbers: *mut fi_addr_t, count: usize, _: u64) -> c_int {
    // SAFETY: the host's call.
    let addresses = unsafe { enter::<Addresses, _>(addresses) };
    let mut entries = addresses.entries.borrow_mut();
    let mut outcome = FI_SUCCESS;
    // From the last on, so that what was inserted last is free first.
    for at in (0..count).rev() {
        // SAFETY: there are so many.
        let number = unsafe { *numbers.add(at) };
        match usize::try_from(number).ok().and_then(|number| entries.get_mut(number)) {
            Some(entry @ Entry { address: Some(_), .. }) => entry.address = None,
            _ => outcome = -FI_EINVAL,
        }
    }
    outcome
}

unsafe extern "C" fn lookup(
    addresses: *mut fid_av,
    number: fi_addr_t,
    place: *mut c_void,
    length: *mut usize,
) -> c_int {
    // SAFETY: the host's call.
    let addresses = unsafe { enter::<Addresses, _>(addresses) };
    let Some((address, _)) = addresses.get(number) else { return -FI_EINVAL };
    // SAFETY: the host's call.
    let written = unsafe { sockaddr::write(address, place, length) };
    // What fits is there, and the length says the rest.
    if written == -FI_ETOOSMALL && !place.is_null() { FI_SUCCESS } else { written }
}

unsafe extern "C" fn straddr(
    _: *mut fid_av,
    place: *const c_void,
    text: *mut c_char,
    length: *mut usize,
) -> *const c_char {
    // SAFETY: the host's call.
    let Some((address, _)) = (unsafe { sockaddr::read(place, sockaddr::ADDRESS_BYTES_MAX) }) else {
        return ptr::null();
    };
    let kind = if address.is_ipv4() { "fi_sockaddr_in" } else { "fi_sockaddr_in6" };
    let words = format!("{kind}://{address}");
    // SAFETY: the host's call.
    unsafe {
        let room = length.replace(words.len() + 1);
        put_text(words.as_bytes(), text, room);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::nth;

    #[test]
    fn names_count_up_by_their_last_number() {
        assert_eq!(nth("node09", 1).as_deref(), Some("node10"));
        assert_eq!(nth("node9", 1).as_deref(), Some("node10"));
        assert_eq!(nth("10.0.0.1", 3).as_deref(), Some("10.0.0.4"));
        assert_eq!(nth("7411", 0).as_deref(), Some("7411"));
        assert_eq!(nth("node", 1), None);
        assert_eq!(nth("n18446744073709551615", 1), None);
    }
}
