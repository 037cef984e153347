//! `fi_getinfo(3)`: what is offered, and whether that is what the caller wants.
//!
//! What is offered does not depend on the machine, but for the addresses: of each family one, by which peers reach an endpoint
//! first. An endpoint of the domain [`ANY`] uses every NIC that it may; that of another domain only the address that the
//! domain is named by, because somebody has asked for it.

use crate::abi::*;
use crate::domain::ANY;
use crate::host::{self, Info, say};
use crate::limits::{ERROR_TEXT_BYTES, INJECT_BYTES, MESSAGE_BYTES_MAX, OPERATIONS, PIECES_MAX};
use crate::settings::{Progress, Settings};
use crate::sockaddr;
use std::ffi::{CString, c_char, c_int};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tsumugi_rail::{dual_stack, nics};

/// The fabric's name.
const FABRIC: &str = "ethernet";
/// What endpoints speak: a number of our own, and its version.
const PROTOCOL: u32 = 0x7473_6d67;
const PROTOCOL_VERSION: u32 = 1;

/// What endpoints do.
const PRIMARY: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
/// In which directions, which all hold where none is asked for.
const OUT: u64 = FI_SEND | FI_READ | FI_WRITE;
const IN: u64 = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// What else.
const SECONDARY: u64 =
    FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV | FI_FENCE | FI_LOCAL_COMM | FI_REMOTE_COMM;
/// Capabilities that 2.0 has added, which are parts of others.
const SINCE_2_0: u64 = FI_TAGGED_DIRECTED_RECV;
/// `FI_TAGGED_DIRECTED_RECV`: as [`FI_DIRECTED_RECV`], of messages with tags only.
const FI_TAGGED_DIRECTED_RECV: u64 = 1 << 45;

/// Flags that may be an endpoint's default.
const OPERATION_FLAGS: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MULTI_RECV
    | FI_MORE
    | FI_FENCE
    | FI_REMOTE_CQ_DATA;

/// What stays in order. Operations on remote memory do among themselves, atomics do among themselves, and what is sent
/// comes behind what was written.
const ORDER: u64 = FI_ORDER_SAS
    | FI_ORDER_SAW
    | FI_ORDER_RMA_RAR
    | FI_ORDER_RMA_RAW
    | FI_ORDER_RMA_WAR
    | FI_ORDER_RMA_WAW
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAR
    | FI_ORDER_ATOMIC_WAW;
/// Longest accesses, bytes, of which a later write is not seen by a read, or is what remains: those that fit any packet.
const ORDERED_BYTES: usize = 256;

/// Bytes of a key, and of an operation's data.
const KEY_BYTES: usize = 8;

/// `fi_getinfo`.
///
/// # Safety
/// The host's call: strings end with a zero, hints are whole.
pub(crate) unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int {
    // SAFETY: as the host promises.
    let hints = unsafe { Hints::read(hints) };
    // SAFETY: as the host promises.
    let (node, service) = unsafe { (sockaddr::text(node), sockaddr::text(service)) };
    let made = answer(version, node, service, flags, &hints);
    match made {
        Ok(list) => {
            // SAFETY: the host wants the list there.
            unsafe { *info = list };
            FI_SUCCESS
        }
        Err(Refusal::NotOffered(why)) => {
            say!(FI_LOG_INFO, FI_LOG_CORE, "not what the caller wants: {why}");
            -FI_ENODATA
        }
        Err(Refusal::Wrong(why)) => {
            say!(FI_LOG_WARN, FI_LOG_CORE, "{why}");
            -FI_ENODATA
        }
    }
}

/// Why there is nothing to offer.
enum Refusal {
    /// The caller wants something else, and will ask others for it.
    NotOffered(String),
    /// Something is wrong with what the caller named, or with this host.
    Wrong(String),
}

impl<T: Into<String>> From<T> for Refusal {
    fn from(why: T) -> Refusal {
        Refusal::NotOffered(why.into())
    }
}

/// The hints, and zeroes where there are none.
struct Hints<'a> {
    info: Option<&'a fi_info>,
    endpoint: Option<&'a fi_ep_attr>,
    domain: Option<&'a fi_domain_attr>,
    fabric: Option<&'a fi_fabric_attr>,
    sends: Option<&'a fi_tx_attr>,
    receives: Option<&'a fi_rx_attr>,
}

impl Hints<'_> {
    unsafe fn read<'a>(hints: *const fi_info) -> Hints<'a> {
        // SAFETY: the host has made sure that they are whole, and that they are as long as it has them.
        unsafe {
            let info = hints.as_ref();
            Hints {
                info,
                endpoint: info.and_then(|info| info.ep_attr.as_ref()),
                domain: info.and_then(|info| info.domain_attr.as_ref()),
                fabric: info.and_then(|info| info.fabric_attr.as_ref()),
                sends: info.and_then(|info| info.tx_attr.as_ref()),
                receives: info.and_then(|info| info.rx_attr.as_ref()),
            }
        }
    }

    fn caps(&self) -> u64 {
        self.info.map_or(0, |info| info.caps)
    }

    /// Says why these cannot be satisfied.
    fn check(&self) -> Result<(), String> {
        let bits = |what: &str, wanted: u64, offered: u64| match wanted & !offered {
            0 => Ok(()),
            missing => Err(format!("{what} {missing:#x} are not offered")),
        };
        let most = |what: &str, wanted: usize, offered: usize| {
            if wanted > offered { Err(format!("{what} of {wanted} is more than {offered}")) } else { Ok(()) }
        };
        let all = PRIMARY | OUT | IN | SECONDARY | SINCE_2_0;
        bits("capabilities", self.caps(), all)?;
        if let Some(endpoint) = self.endpoint {
            if !matches!(endpoint.r#type, FI_EP_UNSPEC | FI_EP_RDM) {
                return Err("endpoints are FI_EP_RDM only".to_owned());
            }
            if !matches!(endpoint.protocol, FI_PROTO_UNSPEC | PROTOCOL) {
                return Err(format!("protocol {:#x} is another", endpoint.protocol));
            }
            most("a message", endpoint.max_msg_size, MESSAGE_BYTES_MAX as usize)?;
            most("a prefix", endpoint.msg_prefix_size, 0)?;
            most("transmit contexts", endpoint.tx_ctx_cnt, 1)?;
            most("receive contexts", endpoint.rx_ctx_cnt, 1)?;
            most("ordered reads after writes", endpoint.max_order_raw_size, MESSAGE_BYTES_MAX as usize)?;
            most("ordered writes after reads", endpoint.max_order_war_size, ORDERED_BYTES)?;
            most("ordered writes after writes", endpoint.max_order_waw_size, ORDERED_BYTES)?;
        }
        if let Some(domain) = self.domain {
            bits("domain capabilities", domain.caps, FI_LOCAL_COMM | FI_REMOTE_COMM)?;
            most("keys", domain.mr_key_size, KEY_BYTES)?;
            most("completion data", domain.cq_data_size, KEY_BYTES)?;
            most("pieces of a region", domain.mr_iov_limit, 1)?;
        }
        if let Some(sends) = self.sends {
            bits("transmit capabilities", sends.caps, all)?;
            bits("transmit flags", sends.op_flags, OPERATION_FLAGS)?;
            bits("transmit order", sends.msg_order, ORDER)?;
            bits("completion order", sends.comp_order, 0)?;
            most("injected messages", sends.inject_size, INJECT_BYTES)?;
            most("pieces", sends.iov_limit, PIECES_MAX)?;
            most("pieces of remote memory", sends.rma_iov_limit, 1)?;
        }
        if let Some(receives) = self.receives {
            bits("receive capabilities", receives.caps, all)?;
            bits("receive flags", receives.op_flags, OPERATION_FLAGS)?;
            bits("receive order", receives.msg_order, ORDER)?;
            bits("completion order", receives.comp_order, 0)?;
            most("pieces", receives.iov_limit, PIECES_MAX)?;
        }
        Ok(())
    }

    /// The capabilities of the answer: those that are asked for, with directions where none were, and what costs nothing.
    fn granted(&self) -> u64 {
        let wanted = self.caps();
        let all = PRIMARY | OUT | IN | SECONDARY;
        if wanted == 0 {
            return all;
        }
        let direction = |capability: u64, of: u64| match wanted & of {
            _ if wanted & capability == 0 => 0,
            0 => of,
            some => some,
        };
        let messages = if wanted & (FI_MSG | FI_TAGGED) == 0 { 0 } else { FI_MSG | FI_TAGGED };
        let memory = if wanted & (FI_RMA | FI_ATOMIC) == 0 { 0 } else { FI_RMA | FI_ATOMIC };
        let directions = direction(messages, FI_SEND | FI_RECV)
            | direction(memory, FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE);
        let comm = match wanted & (FI_LOCAL_COMM | FI_REMOTE_COMM) {
            0 => FI_LOCAL_COMM | FI_REMOTE_COMM,
            some => some,
        };
        wanted | directions | comm
    }

    /// The name of the domain that is asked for.
    fn domain_name(&self) -> Option<&str> {
        // SAFETY: the host's, and so a string.
        self.domain.and_then(|domain| unsafe { sockaddr::text(domain.name) })
    }

    fn format(&self) -> u32 {
        self.info.map_or(FI_FORMAT_UNSPEC, |info| info.addr_format)
    }

    /// The address of this side that is asked for.
    fn source(&self) -> Result<Option<SocketAddr>, String> {
        self.info.map_or(Ok(None), |info| address(info.src_addr, info.src_addrlen))
    }

    fn destination(&self) -> Result<Option<SocketAddr>, String> {
        self.info.map_or(Ok(None), |info| address(info.dest_addr, info.dest_addrlen))
    }
}

fn address(place: *const std::ffi::c_void, room: usize) -> Result<Option<SocketAddr>, String> {
    if place.is_null() {
        return Ok(None);
    }
    // SAFETY: hints say how long their addresses are.
    let read = unsafe { sockaddr::read(place, room) };
    read.map(|(address, _)| Some(address)).ok_or_else(|| "an address is none of IPv4 or IPv6".to_owned())
}

/// What one `fi_info` offers: the address of this side, and the peer's if that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    domain: String,
    from: SocketAddr,
    to: Option<SocketAddr>,
}

fn answer(
    version: u32,
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
    hints: &Hints<'_>,
) -> Result<*mut fi_info, Refusal> {
    hints.check()?;
    if let Some(name) = hints.fabric.and_then(|fabric| {
        // SAFETY: the host's, and so a string.
        unsafe { sockaddr::text(fabric.name) }
    }) && name != FABRIC
    {
        return Err(format!("the fabric is '{FABRIC}', not '{name}'").into());
    }
    let settings = Settings::read(host::host());
    let candidates = candidates(node, service, flags, hints, &settings)?;
    let mut first = std::ptr::null_mut();
    for candidate in candidates.into_iter().rev() {
        let info = describe(version, hints, &settings, &candidate).ok_or("there is no memory")?;
        let info = info.into_raw();
        // SAFETY: just made.
        unsafe { (*info).next = first };
        first = info;
    }
    Ok(first)
}

/// The candidates that the caller may choose from.
fn candidates(
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
    hints: &Hints<'_>,
    settings: &Settings,
) -> Result<Vec<Candidate>, Refusal> {
    let numeric = flags & FI_NUMERICHOST != 0;
    let format = hints.format();
    let asked = |found: Vec<SocketAddr>| found.into_iter().find(|address| sockaddr::is_of(*address, format));
    let (mut source, mut destination) = (hints.source()?, hints.destination()?);
    if flags & FI_PROV_ATTR_ONLY == 0 && (node.is_some() || service.is_some()) {
        let found = asked(sockaddr::resolve(node, service, numeric).map_err(Refusal::Wrong)?);
        let found = found.ok_or("there is no address of the format that the caller wants")?;
        *(if flags & FI_SOURCE != 0 { &mut source } else { &mut destination }) = Some(found);
    }
    let port = source.map_or(0, |source| source.port());
    let named = hints.domain_name().map(|name| match name.strip_prefix(ANY) {
        Some("") => Ok(None),
        Some(rest) => rest.strip_prefix(':').and_then(|ip| ip.parse().ok()).map(Some).ok_or(name),
        None => Err(name),
    });
    let named: Option<IpAddr> =
        named.transpose().map_err(|name| format!("there is no domain '{name}'"))?.flatten();
    let source = source.map(|source| source.ip()).filter(|ip| !ip.is_unspecified()).or(named);
    if let Some(ip) = source {
        return Ok(vec![Candidate {
            domain: format!("{ANY}:{ip}"),
            from: (ip, port).into(),
            to: destination,
        }]);
    }
    if let Some(to) = destination {
        let ip = nics::towards(to).ok_or_else(|| {
            Refusal::Wrong(format!("this host has no route to {to}: see `ip route get {}`", to.ip()))
        })?;
        // Who talks with this host itself needs nothing but the loopback.
        let domain = if ip.is_loopback() { format!("{ANY}:{ip}") } else { ANY.to_owned() };
        return Ok(vec![Candidate { domain, from: (ip, port).into(), to: Some(to) }]);
    }
    let found = reached_by(settings);
    let candidates = found.into_iter().filter(|ip| sockaddr::is_of((*ip, port).into(), format));
    let candidates: Vec<Candidate> = candidates
        .map(|ip| {
            let domain = if ip.is_loopback() { format!("{ANY}:{ip}") } else { ANY.to_owned() };
            Candidate { domain, from: (ip, port).into(), to: None }
        })
        .collect();
    if candidates.is_empty() {
        Err("no NIC here has an address of the format that the caller wants".into())
    } else {
        Ok(candidates)
    }
}

/// The addresses by which peers reach this host first, one of each family, the best one first. The loopback's where there is no
/// NIC that may be used.
fn reached_by(settings: &Settings) -> Vec<IpAddr> {
    let bound = dual_stack::on_this_host(Ipv6Addr::UNSPECIFIED.into());
    let choices = match nics::explain(bound, &settings.networks()) {
        Ok(choices) => choices,
        Err(error) => {
            say!(
                FI_LOG_WARN,
                FI_LOG_CORE,
                "the NICs of this host cannot be listed: {error}; only this host is reached"
            );
            Vec::new()
        }
    };
    for choice in &choices {
        let why = choice.unused.as_deref().unwrap_or("it is used");
        say!(FI_LOG_INFO, FI_LOG_CORE, "{} of {}: {why}", choice.ip, choice.name);
    }
    let mut best = nics::reached_by(&choices);
    if best.is_empty() {
        say!(
            FI_LOG_WARN,
            FI_LOG_CORE,
            "no NIC of this host may be used, so only this host is reached: see `tsumugi doctor`, FI_TSUMUGI_NETWORKS and `ip address`"
        );
        best.push(Ipv4Addr::LOCALHOST.into());
    }
    best
}

/// Text that the host may free.
fn text(text: &str) -> *mut c_char {
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: it is a string.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// What is offered, as hints may narrow it down.
fn describe(version: u32, hints: &Hints<'_>, settings: &Settings, candidate: &Candidate) -> Option<Info> {
    let mut made = host::host().new_info()?;
    let info = made.get();
    let caps = hints.granted();
    info.caps = caps;
    info.addr_format = sockaddr::format_of(candidate.from);
    (info.src_addr, info.src_addrlen) = sockaddr::allocated(candidate.from);
    if let Some(to) = candidate.to {
        (info.dest_addr, info.dest_addrlen) = sockaddr::allocated(to);
    }
    // SAFETY: of null the host's `fi_dupinfo` makes all attributes.
    let (sends, receives, endpoint, domain, fabric) = unsafe {
        (
            &mut *info.tx_attr,
            &mut *info.rx_attr,
            &mut *info.ep_attr,
            &mut *info.domain_attr,
            &mut *info.fabric_attr,
        )
    };
    let order = |wanted: Option<u64>| wanted.filter(|order| *order != 0).map_or(ORDER, |order| order);
    let at_least = |wanted: Option<usize>, usual: usize| wanted.map_or(usual, |wanted| wanted.max(usual));
    let messages_and_memory = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
    sends.caps = caps & (messages_and_memory | OUT | FI_FENCE);
    sends.op_flags = hints.sends.map_or(0, |hints| hints.op_flags);
    sends.msg_order = order(hints.sends.map(|hints| hints.msg_order));
    sends.inject_size = INJECT_BYTES;
    sends.size = at_least(hints.sends.map(|hints| hints.size), OPERATIONS);
    sends.iov_limit = PIECES_MAX;
    sends.rma_iov_limit = 1;
    receives.caps =
        caps & (messages_and_memory | IN | FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV | SINCE_2_0);
    receives.op_flags = hints.receives.map_or(0, |hints| hints.op_flags);
    receives.msg_order = order(hints.receives.map(|hints| hints.msg_order));
    receives.size = at_least(hints.receives.map(|hints| hints.size), OPERATIONS);
    receives.iov_limit = PIECES_MAX;
    endpoint.r#type = FI_EP_RDM;
    (endpoint.protocol, endpoint.protocol_version) = (PROTOCOL, PROTOCOL_VERSION);
    endpoint.max_msg_size = MESSAGE_BYTES_MAX as usize;
    endpoint.max_order_raw_size = MESSAGE_BYTES_MAX as usize;
    (endpoint.max_order_war_size, endpoint.max_order_waw_size) = (ORDERED_BYTES, ORDERED_BYTES);
    endpoint.mem_tag_format = match hints.endpoint.map_or(0, |hints| hints.mem_tag_format) {
        0 => u64::MAX / 3 * 2, // every bit is a field of its own
        format => format,
    };
    (endpoint.tx_ctx_cnt, endpoint.rx_ctx_cnt) = (1, 1);
    if let Some(hints) = hints.endpoint
        && !hints.auth_key.is_null()
        && hints.auth_key_size > 0
    {
        // SAFETY: the hints say how long their key is, and there is room for a copy.
        unsafe {
            let copy = libc::malloc(hints.auth_key_size).cast::<u8>();
            if !copy.is_null() {
                copy.copy_from_nonoverlapping(hints.auth_key, hints.auth_key_size);
                (endpoint.auth_key, endpoint.auth_key_size) = (copy, hints.auth_key_size);
            }
        }
    }
    domain.name = text(&candidate.domain);
    let wanted = hints.domain;
    domain.threading = match wanted.map_or(FI_THREAD_UNSPEC, |hints| hints.threading) {
        FI_THREAD_UNSPEC => FI_THREAD_SAFE,
        threading => threading,
    };
    let usual = if settings.progress == Some(Progress::Auto) { FI_PROGRESS_AUTO } else { FI_PROGRESS_MANUAL };
    let progress =
        |wanted: Option<fi_progress>| wanted.filter(|it| *it != FI_PROGRESS_UNSPEC).unwrap_or(usual);
    domain.control_progress = progress(wanted.map(|hints| hints.control_progress));
    domain.data_progress = progress(wanted.map(|hints| hints.data_progress));
    domain.resource_mgmt = FI_RM_ENABLED;
    // Not asked for: either, as the caller opens it.
    domain.av_type = wanted.map_or(FI_AV_UNSPEC, |hints| hints.av_type);
    domain.mr_mode = match wanted.map_or(FI_MR_UNSPEC, |hints| hints.mr_mode) {
        mode if mode & FI_MR_BASIC != 0 => FI_MR_BASIC,
        mode if mode & FI_MR_SCALABLE != 0 || version < FI_VERSION(1, 5) => FI_MR_SCALABLE,
        _ => 0,
    };
    (domain.mr_key_size, domain.cq_data_size) = (KEY_BYTES, KEY_BYTES);
    let many = OPERATIONS;
    (domain.cq_cnt, domain.cntr_cnt, domain.mr_cnt) = (many, many, many);
    (domain.ep_cnt, domain.tx_ctx_cnt, domain.rx_ctx_cnt) = (128, 128, 128);
    (domain.max_ep_tx_ctx, domain.max_ep_rx_ctx) = (1, 1);
    domain.mr_iov_limit = 1;
    domain.caps = caps & (FI_LOCAL_COMM | FI_REMOTE_COMM);
    domain.max_err_data = ERROR_TEXT_BYTES;
    fabric.name = text(FABRIC);
    fabric.prov_version = host::VERSION;
    Some(made)
}
