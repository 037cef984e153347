//! The route to a peer: NIC, own address, next hop and its hardware address, as the kernel would choose them.
//!
//! A send path that builds frames itself asks [`Routes::to`] before each burst. The kernel is asked over
//! rtnetlink when a peer is new, when it has told of a change, and otherwise once a second, since it tells
//! nothing of path MTUs and redirects.
//!
//! The kernel's table of neighbours stays the kernel's: nothing here resolves an address. Until the kernel has, and
//! whenever it wants to ask again, the answer is [`Reach::NotYet`]; a packet that is then sent through a UDP
//! socket makes it ask. Where frames of our own cannot go, the answer is [`Reach::Never`]: to this machine
//! itself, to groups, through tunnels.
//!
//! What else the socket layer does is bypassed: packet filters, traffic control, IPsec.

use crate::ether::{Hop, Template};
use crate::family;
pub use crate::netlink::Nic;
use crate::netlink::{Events, KernelRoute, News, OF_ROUTES, Questions};
use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::io;
use std::net::{IpAddr, SocketAddr};
use tsumugi_wire::Instant;
use tsumugi_wire::time::{MILLISECOND_NS, SECOND_NS};

/// How often news are looked for. Frames may take an outdated route for that long.
const NEWS_NS: u64 = MILLISECOND_NS;
/// How long an answer is believed when there are no news.
const BELIEVE_NS: u64 = SECOND_NS;
/// Least time between two questions about one peer, however much changes.
const REST_NS: u64 = 5 * MILLISECOND_NS;

/// Why routes cannot be asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The operating system refused.
    #[error("{doing}: {source}{}", remedy(source))]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

fn remedy(error: &io::Error) -> String {
    let known = crate::remedy(error);
    if known.is_empty() {
        "; allow netlink sockets (AF_NETLINK) where this program is confined, or use the udp send path"
            .to_owned()
    } else {
        known
    }
}

/// How a packet gets to a peer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach<'a> {
    /// In a frame like this.
    Frame(&'a Template),
    /// Through a UDP socket; soon perhaps in a frame.
    NotYet,
    /// Through a UDP socket, unless the machine's network changes.
    Never,
}

/// What is known about the route to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Frame(Template),
    NotYet,
    Never,
}

#[derive(Debug)]
struct Entry {
    known: Known,
    /// Our own address towards the peer. Once found it stays, for the peer knows us by it, as it does
    /// with a connected socket.
    source: SocketAddr,
    /// Whose news concern this peer.
    via: Option<(u32, IpAddr)>,
    asked_at: Instant,
    /// When to ask again.
    ask_at: Instant,
}

impl Entry {
    /// Has the kernel asked again as soon as that is allowed.
    fn doubt(&mut self) {
        self.ask_at = self.ask_at.min(self.asked_at.plus(REST_NS));
    }
}

/// The routes to the peers of an endpoint.
#[derive(Debug)]
pub struct Routes {
    local: SocketAddr,
    questions: Questions,
    events: Events,
    nics: HashMap<u32, Nic>,
    entries: Vec<Option<Entry>>,
    by_peer: HashMap<SocketAddr, usize>,
    /// The peer asked for last: bursts go to one peer many times over.
    last: Option<(SocketAddr, usize)>,
    looked_at: Instant,
}

impl Routes {
    /// Prepares for the routes of datagrams from `local`, whose address may be unspecified and whose port
    /// may not.
    ///
    /// # Errors
    /// There are no netlink sockets for this process.
    pub fn open(local: SocketAddr) -> Result<Routes, RouteError> {
        let system = |doing| move |source| RouteError::System { doing, source };
        Ok(Routes {
            local,
            questions: Questions::open().map_err(system("opening a netlink socket to ask for routes"))?,
            events: Events::open(&OF_ROUTES)
                .map_err(system("opening a netlink socket that tells of changes"))?,
            nics: HashMap::new(),
            entries: Vec::new(),
            by_peer: HashMap::new(),
            last: None,
            looked_at: Instant(0),
        })
    }

    /// Says that `peer` will be asked for, for datagrams from this address of ours; `None`: from the one that the kernel
    /// prefers. Only then is anything remembered of it.
    pub fn connect(&mut self, peer: SocketAddr, local: Option<IpAddr>) {
        if self.by_peer.contains_key(&peer) {
            return;
        }
        let (known, ask_at) = if family::serves(self.local.ip(), peer.ip()) {
            (Known::NotYet, Instant(0))
        } else {
            (Known::Never, Instant::NEVER)
        };
        let mut source = family::local(self.local, peer);
        if let Some(local) = local.filter(|local| local.is_ipv4() == source.is_ipv4()) {
            source.set_ip(local);
        }
        let entry = Entry { known, source, via: None, asked_at: Instant(0), ask_at };
        let slot = match self.entries.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.entries.push(None);
                self.entries.len() - 1
            }
        };
        self.entries[slot] = Some(entry);
        self.by_peer.insert(peer, slot);
    }

    /// Says that `peer` will not be asked for any more.
    pub fn disconnect(&mut self, peer: SocketAddr) {
        if let Some(slot) = self.by_peer.remove(&peer) {
            self.entries[slot] = None;
            self.last = None;
        }
    }

    /// How a packet gets to `peer` now; [`Reach::Never`] for a peer that [`Routes::connect`] was not called with.
    ///
    /// Nearly always answered from memory, without a system call.
    pub fn to(&mut self, now: Instant, peer: SocketAddr) -> Reach<'_> {
        self.refresh(now);
        let Some(slot) = self.slot_of(peer) else { return Reach::Never };
        if self.entries[slot].as_ref().is_some_and(|entry| now >= entry.ask_at) {
            self.ask(now, peer, slot);
        }
        match &self.entries[slot] {
            Some(Entry { known: Known::Frame(template), .. }) => Reach::Frame(template),
            Some(Entry { known: Known::NotYet, .. }) => Reach::NotYet,
            Some(Entry { known: Known::Never, .. }) | None => Reach::Never,
        }
    }

    /// Says that sending to `peer` did not work as it was said to, so that the kernel is asked again soon.
    pub fn doubt(&mut self, peer: SocketAddr) {
        self.nics.clear();
        if let Some(slot) = self.slot_of(peer)
            && let Some(entry) = &mut self.entries[slot]
        {
            entry.doubt();
        }
    }

    /// The NIC with this index.
    ///
    /// # Errors
    /// What the kernel said; there may be no such NIC any more.
    pub fn nic(&mut self, interface: u32) -> io::Result<&Nic> {
        nic(&mut self.questions, &mut self.nics, interface)
    }

    /// The NIC that packets to `peer`, which need not be connected, leave through; `None` when they do not leave this
    /// machine, or not in plain IP packets.
    ///
    /// # Errors
    /// What the kernel said; there may be no route.
    pub fn nic_to(&mut self, peer: SocketAddr) -> io::Result<Option<&Nic>> {
        match self.questions.route(self.local, peer)? {
            Some(route) => self.nic(route.interface).map(Some),
            None => Ok(None),
        }
    }

    /// Looks for news if it has not done so for a while. [`Routes::to`] does it by itself.
    pub fn refresh(&mut self, now: Instant) {
        if now.since(self.looked_at) < NEWS_NS {
            return;
        }
        self.looked_at = now;
        let Routes { events, nics, entries, .. } = self;
        events.take(&mut |news| {
            if matches!(news, News::Nic | News::Lost) {
                nics.clear();
            }
            for entry in entries.iter_mut().flatten() {
                match news {
                    News::Neighbour { interface, address } if entry.via != Some((interface, address)) => {}
                    _ => entry.doubt(),
                }
            }
        });
    }

    fn slot_of(&mut self, peer: SocketAddr) -> Option<usize> {
        match self.last {
            Some((last, slot)) if last == peer => Some(slot),
            _ => {
                let slot = *self.by_peer.get(&peer)?;
                self.last = Some((peer, slot));
                Some(slot)
            }
        }
    }

    /// Asks the kernel for the route to `peer`, and remembers the answer.
    fn ask(&mut self, now: Instant, peer: SocketAddr, slot: usize) {
        let Some(entry) = &mut self.entries[slot] else { return };
        entry.asked_at = now;
        entry.via = None;
        // No route is for the socket to report; a question that could not be asked is asked again.
        entry.known = match self.questions.route(entry.source, peer) {
            Ok(Some(route)) => {
                follow(&mut self.questions, &mut self.nics, &route, peer, entry).unwrap_or(Known::NotYet)
            }
            Ok(None) => Known::Never,
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => Known::NotYet,
                _ => Known::Never,
            },
        };
        entry.ask_at = now.plus(if entry.known == Known::NotYet { REST_NS } else { BELIEVE_NS });
    }
}

/// A NIC from memory, or from the kernel.
fn nic<'a>(
    questions: &mut Questions,
    nics: &'a mut HashMap<u32, Nic>,
    interface: u32,
) -> io::Result<&'a Nic> {
    Ok(match nics.entry(interface) {
        MapEntry::Occupied(known) => known.into_mut(),
        MapEntry::Vacant(vacant) => vacant.insert(questions.nic(interface)?),
    })
}

/// What a route to `peer` means for frames.
fn follow(
    questions: &mut Questions,
    nics: &mut HashMap<u32, Nic>,
    route: &KernelRoute,
    peer: SocketAddr,
    entry: &mut Entry,
) -> io::Result<Known> {
    entry.via = Some((route.interface, route.next_hop));
    let nic = nic(questions, nics, route.interface)?;
    if !nic.ethernet {
        return Ok(Known::Never);
    }
    if entry.source.ip().is_unspecified() {
        match route.source {
            Some(source) => entry.source.set_ip(source),
            None => return Ok(Known::Never),
        }
    }
    if !nic.up {
        return Ok(Known::NotYet);
    }
    let Some(destination) = questions.neighbour(route.interface, route.next_hop)? else {
        return Ok(Known::NotYet);
    };
    let mtu_bytes = route.mtu_bytes.unwrap_or(usize::MAX).min(nic.mtu_bytes);
    let hop = Hop { interface: route.interface, source: nic.mac, destination, mtu_bytes };
    Ok(Template::new(&hop, entry.source, peer).map_or(Known::Never, Known::Frame))
}
