//! How the ranks of a communicator come to a group, all together, by the MPI's own collectives.

use crate::abi::Abi;
use crate::engine::{self, Reached};
use crate::mpi::Mpi;
use crate::{say, settings};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr;
use tsumugi::collective::Group;

/// A communicator whose collectives are done here.
pub(crate) struct Taken {
    /// The group of one rank of each node; `None`: this rank is not the one.
    pub(crate) group: Option<u64>,
    /// The ranks of this node, where there are several on any.
    pub(crate) node: Option<Node>,
    /// This rank.
    pub(crate) rank: u32,
    /// Of each rank its node's number in the group, and its rank in its node.
    pub(crate) places: Vec<(u32, u32)>,
}

/// The ranks of a node.
pub(crate) struct Node {
    /// Their communicator.
    pub(crate) comm: usize,
    /// This node's number in the group.
    pub(crate) number: u32,
    /// This rank among them.
    pub(crate) rank: u32,
}

/// What each rank tells the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offer {
    /// It has what it takes.
    is_able: bool,
    seeks_box: bool,
    /// Lowest channel that it may use.
    channel: u16,
    /// The rank that stands for its node.
    leader: u32,
    reached: Reached,
}

/// Bytes of an offer.
const OFFER_BYTES: usize = 32;

impl Offer {
    fn bytes(&self) -> [u8; OFFER_BYTES] {
        let mut bytes = [0; OFFER_BYTES];
        bytes[0] = u8::from(self.is_able);
        bytes[1] = u8::from(self.seeks_box);
        bytes[2..4].copy_from_slice(&self.channel.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.leader.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.reached.port.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.reached.four);
        bytes[16..32].copy_from_slice(&self.reached.six);
        bytes
    }

    fn of(bytes: &[u8; OFFER_BYTES]) -> Offer {
        let two = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let mut reached = Reached { port: two(8), ..Reached::default() };
        reached.four.copy_from_slice(&bytes[12..16]);
        reached.six.copy_from_slice(&bytes[16..32]);
        Offer {
            is_able: bytes[0] == 1,
            seeks_box: bytes[1] == 1,
            channel: two(2),
            leader: u32::from(two(4)) | u32::from(two(6)) << 16,
            reached,
        }
    }
}

/// How far a rank has come with what all have to come to; the least counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Came {
    /// It cannot.
    Not,
    /// The channel is another group's here.
    Again,
    Well,
}

/// A communicator that is being set up.
struct SettingUp<'a> {
    mpi: &'a Mpi,
    abi: &'a Abi,
    comm: usize,
    size: u32,
}

/// Sets a communicator up; `None`: it is left to the MPI, which is the same at all ranks.
pub(crate) fn set_up(mpi: &Mpi, abi: &Abi, comm: usize) -> Option<Taken> {
    let (mut size, mut is_between) = (0, 0);
    // SAFETY: a communicator of the program's, and room for numbers.
    let code = unsafe { mpi.comm_size(comm, &raw mut size) | mpi.comm_test_inter(comm, &raw mut is_between) };
    if code != 0 || is_between != 0 || size < 2 {
        return None;
    }
    SettingUp { mpi, abi, comm, size: size as u32 }.run()
}

impl SettingUp<'_> {
    fn run(&self) -> Option<Taken> {
        let (node, node_rank, leader) = self.node()?;
        let taken = self.agree(node, node_rank, leader);
        let is_needed = taken.as_ref().is_some_and(|taken| taken.node.is_some());
        if !is_needed {
            let mut node = node;
            // SAFETY: made by `node`, and nobody has it.
            unsafe { self.mpi.comm_free(&raw mut node) };
        }
        taken
    }

    /// The communicator of this node's ranks, this one's rank there, and the rank in the whole of the first of them.
    fn node(&self) -> Option<(usize, u32, u32)> {
        let (mpi, abi) = (self.mpi, self.abi);
        let (mut node, mut rank, mut leader) = (0, 0, 0);
        // SAFETY: a communicator of the program's, and room for a handle and numbers. The first of a node says its own.
        let code = unsafe {
            let split = mpi.comm_split_type(self.comm, abi.comm_type_shared, 0, abi.info_null, &raw mut node);
            if split != 0 {
                return None;
            }
            mpi.comm_rank(node, &raw mut rank)
                | mpi.comm_rank(self.comm, &raw mut leader)
                | mpi.bcast((&raw mut leader).cast(), size_of::<c_int>() as c_int, abi.byte, 0, node)
        };
        (code == 0).then_some((node, rank as u32, leader as u32))
    }

    fn rank(&self) -> Option<u32> {
        let mut rank = 0;
        // SAFETY: a communicator of the program's, and room for a number.
        (unsafe { self.mpi.comm_rank(self.comm, &raw mut rank) } == 0).then_some(rank as u32)
    }

    fn agree(&self, node: usize, node_rank: u32, leader: u32) -> Option<Taken> {
        let own = {
            let mut engine = engine::lock();
            let reached = if node_rank == 0 { engine.reached(self.size) } else { Ok(Reached::default()) };
            if let Err(error) = &reached {
                say::warn_once(format_args!("left to the MPI: {error}"));
            }
            Offer {
                is_able: reached.is_ok(),
                seeks_box: engine.seeks_box && settings::may_use_box(),
                channel: engine.next_channel(),
                leader,
                reached: reached.unwrap_or_default(),
            }
        };
        let mut offers: Vec<Offer> = self.tell_all(&own.bytes())?.iter().map(Offer::of).collect();
        // Nodes by their leaders, in the order of these.
        let mut nodes: BTreeMap<u32, u32> = offers.iter().map(|offer| (offer.leader, 0)).collect();
        nodes.values_mut().zip(0..).for_each(|(number, next)| *number = next);
        if nodes.len() < 2 {
            return None;
        }
        let leaders: Vec<&Offer> = nodes.keys().filter_map(|rank| offers.get(*rank as usize)).collect();
        let in_four: Option<Vec<SocketAddr>> = leaders.iter().map(|of| of.reached.in_four()).collect();
        let in_six = || leaders.iter().map(|of| of.reached.in_six()).collect();
        let at: Option<Vec<SocketAddr>> = in_four.or_else(in_six);
        let are_able = offers.iter().all(|offer| offer.is_able);
        let Some(at) = at.filter(|_| are_able) else {
            say::warn_once(
                "left to the MPI: not all nodes can take part, or they have no addresses of one family",
            );
            return None;
        };
        let number = *nodes.get(&leader)?;
        let group = self.open(&mut offers, (node_rank == 0).then_some(number), &at)?;
        let seeks_box = offers.iter().all(|offer| offer.seeks_box);
        let has_box = if seeks_box { self.seek_box(group) } else { Ok(false) };
        let came =
            [if has_box.is_ok() { Came::Well } else { Came::Not } as u8, u8::from(has_box == Ok(true))];
        let (came, boxes) = self.least(came)?;
        if came != Came::Well as u8 {
            let why = has_box.err().unwrap_or_else(|| "another rank cannot".to_owned());
            say::warn_once(format_args!("left to the MPI: {why}"));
            group.into_iter().for_each(|group| engine::lock().close(group));
            return None;
        }
        engine::lock().seeks_box &= !seeks_box || boxes > 0;
        let mut seen = BTreeMap::new();
        let place = |offer: &Offer| {
            let rank = seen.entry(offer.leader).or_insert(0);
            *rank += 1;
            (nodes.get(&offer.leader).copied().unwrap_or(0), *rank - 1)
        };
        let places: Vec<(u32, u32)> = offers.iter().map(place).collect();
        if leader == 0 && node_rank == 0 {
            let by = if has_box == Ok(true) { "a switch box" } else { "messages" };
            say::info(format_args!("{} ranks on {} nodes, by {by}", places.len(), nodes.len()));
        }
        let is_one_each = nodes.len() == places.len();
        let node = (!is_one_each).then_some(Node { comm: node, number, rank: node_rank });
        Some(Taken { group, node, rank: self.rank()?, places })
    }

    /// Opens the group, at leaders, on a channel that all have free.
    fn open(&self, offers: &mut [Offer], number: Option<u32>, at: &[SocketAddr]) -> Option<Option<u64>> {
        loop {
            let channel = offers.iter().map(|offer| offer.channel).max()?;
            let mut engine = engine::lock();
            let (mut came, mut group) = (Came::Well, None);
            if channel == u16::MAX {
                say::warn_once("left to the MPI: there were as many communicators as there are channels");
                came = Came::Not;
            } else if !engine.take_channel(channel) {
                came = Came::Again;
            } else if let Some(number) = number {
                match engine.open(channel, number as usize, at) {
                    Ok(opened) => group = Some(opened),
                    Err(error) => {
                        say::warn_once(format_args!("left to the MPI: {error}"));
                        came = Came::Not;
                    }
                }
            }
            let next = engine.next_channel();
            drop(engine);
            let mut told = [came as u8; OFFER_BYTES];
            told[1..3].copy_from_slice(&next.to_le_bytes());
            let all = self.tell_all(&told)?;
            let least = all.iter().map(|told| told[0]).min()?;
            if least == Came::Well as u8 {
                return Some(group);
            }
            group.into_iter().for_each(|group| engine::lock().close(group));
            if least == Came::Not as u8 {
                return None;
            }
            let told = offers.iter_mut().zip(&all);
            told.for_each(|(offer, told)| offer.channel = u16::from_le_bytes([told[1], told[2]]));
        }
    }

    /// Has a switch box count for the group, if there is one. The MPI makes progress meanwhile: others may wait for what it has to send again.
    fn seek_box(&self, group: Option<u64>) -> Result<bool, String> {
        let Some(group) = group else { return Ok(false) };
        engine::wait(
            group,
            |_| {},
            Group::start_use_switch_box,
            || self.mpi.make_progress(self.abi, self.comm),
        )
    }

    /// The least of what all say first, and the greatest of what they say second.
    fn least(&self, own: [u8; 2]) -> Option<(u8, u8)> {
        let mut told = [0; OFFER_BYTES];
        told[..2].copy_from_slice(&own);
        let all = self.tell_all(&told)?;
        Some((all.iter().map(|told| told[0]).min()?, all.iter().map(|told| told[1]).max()?))
    }

    /// Tells all ranks, and hears all.
    fn tell_all(&self, own: &[u8; OFFER_BYTES]) -> Option<Vec<[u8; OFFER_BYTES]>> {
        let mut all = vec![[0; OFFER_BYTES]; self.size as usize];
        let (bytes, byte) = (OFFER_BYTES as c_int, self.abi.byte);
        let (from, to) = (ptr::from_ref(own).cast(), all.as_mut_ptr().cast());
        // SAFETY: so many bytes of each rank, for which there is room.
        let code = unsafe { self.mpi.allgather(from, bytes, byte, to, bytes, byte, self.comm) };
        (code == 0).then_some(all)
    }
}
