//! Loading the switch's program, telling it of ports, and reading what it knows.

use super::groups::{self, EVENTS, Events, GroupEntry};
use super::{Hook, SwitchError};
use crate::ether::Mac;
use crate::xdp::{Action, SWITCH_PROGRAM};
use aya::maps::xdp::{DevMap, XdpMapError};
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use aya::programs::{ProgramError, ProgramFd, SchedClassifier, TestRun as _, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader, Pod};
use std::path::Path;
use strum::VariantArray as _;

/// The compiled program; empty when this build left it out.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/switch.bpf.o"));

/// Names of the program for XDP and for tc.
const PROGRAM: &str = SWITCH_PROGRAM;
const TC_PROGRAM: &str = "tsumugi_tc";
/// The one that makes what each member of a group gets out of a frame for all.
const TELL_PROGRAM: &str = "tsumugi_tell";
/// A source is shown to the bridge again after this time if it has been silent for [`IDLE_S`], and after [`SHOW_MAX_S`]
/// whatever it does.
pub const SHOW_S: u32 = 30;
/// See [`SHOW_S`].
pub const IDLE_S: u32 = 2;
/// See [`SHOW_S`].
pub const SHOW_MAX_S: u32 = 120;
/// So long a source goes by the bridge after a frame in several buffers, s.
pub const LONG_S: u32 = 2;

/// What programs of tc return (linux/pkt_cls.h).
const TC_ACT_UNSPEC: i32 = -1;
const TC_ACT_SHOT: i32 = 2;
const TC_ACT_REDIRECT: i32 = 7;
/// `struct __sk_buff` of linux/bpf.h, and where in it the index of the NIC is.
const SK_BUFF_BYTES: usize = 192;
const SK_BUFF_IFINDEX_AT: usize = 40;

/// The program's maps that are pinned.
pub(super) const PINNED: [&str; 5] = ["places", "ports", "counts", "groups", "group_events"];

/// What happened to a frame, in the order in which the program counts.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// Sent by the program to the port that its destination is known at.
    Forwarded,
    /// Given to the bridge: for a group, or its destination is not known.
    Flooded,
    /// Given to the bridge, which is to know where its source is.
    Shown,
    /// Given to the bridge: it is too long for its port, or its port has just gone; by XDP also if it lies in several buffers
    /// (natively: or another of its source did in the last [`LONG_S`]), or comes from a virtual NIC and goes to a real one.
    Bridged,
    /// Given to the bridge: it is for this host.
    Local,
    /// Dropped: its destination is where it comes from.
    Filtered,
    /// Dropped: too many that were to be flooded came from its port in this second.
    Storm,
    /// Dropped: its source is a group, nobody, or this host, or its VLAN tag is cut off.
    Malformed,
    /// Taken: it was for the box, which counts for groups.
    Counted,
}

impl Outcome {
    /// All of them, in order.
    pub const ALL: &[Outcome] = Outcome::VARIANTS;
}

/// Number of [`Outcome`]s.
const OUTCOMES: usize = Outcome::ALL.len();

/// How many frames of a port have had each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; OUTCOMES]);

impl Counts {
    /// How many frames had this outcome.
    #[must_use]
    pub const fn of(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize]
    }

    /// Every outcome by its name, with how many frames had it.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Outcome::ALL.iter().map(|outcome| (outcome.into(), self.of(*outcome)))
    }
}

impl FromIterator<(Outcome, u64)> for Counts {
    fn from_iter<I: IntoIterator<Item = (Outcome, u64)>>(of: I) -> Counts {
        let mut counts = Counts::default();
        for (outcome, count) in of {
            counts.0[outcome as usize] = count;
        }
        counts
    }
}

/// Where an address was last seen: `struct place` of `bpf/switch.bpf.c`. Times are seconds of the monotonic clock, modulo 2³².
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Place {
    /// The port.
    pub port: u32,
    /// When.
    pub seen_s: u32,
    /// When it was last shown to the bridge.
    pub shown_s: u32,
    /// When it last sent a frame in several buffers, or [`LONG_S`] before it was new.
    pub long_s: u32,
}

// SAFETY: four numbers without padding, any bits of which are a value.
unsafe impl Pod for Place {}

/// What the program is to know before it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// After so long without a frame a place is forgotten, s.
    pub ageing_s: u32,
    /// Most frames of one port that are flooded in a second.
    pub floods_per_s: u32,
    /// This box's number among boxes, which other boxes know it by: not 0, and the same after a restart.
    pub box_number: u64,
    /// A group whose members say nothing for so long may have to make room for another, s.
    pub lease_s: u32,
}

impl Default for Rules {
    /// As the kernel's bridge: 300 s. And 10,000 frames, which a host of a sound network never floods. Groups may be silent for a minute.
    fn default() -> Rules {
        Rules { ageing_s: 300, floods_per_s: 10_000, box_number: 1, lease_s: 60 }
    }
}

/// The number by which the program knows an address in a VLAN (0: none) of a network.
#[must_use]
pub fn place_key(network: u32, vlan: u16, address: Mac) -> u64 {
    let [a, b, c, d, e, f] = address;
    let address = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    u64::from(network) << 60 | u64::from(vlan & 0xfff) << 48 | address
}

/// The VLAN and the address that such a number stands for.
pub(super) fn of_place_key(key: u64) -> (u16, Mac) {
    let [_, _, a, b, c, d, e, f] = key.to_be_bytes();
    ((key >> 48) as u16 & 0xfff, [a, b, c, d, e, f])
}

/// A port as the program knows it: `struct port` of `bpf/switch.bpf.c`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PortEntry {
    /// Index of the NIC that sends what is for it; 0: none, and the bridge gets it.
    pub nic: u32,
    /// Its number, below [`PORTS_MAX`](super::PORTS_MAX).
    pub number: u32,
    /// Its network, below [`NETWORKS_MAX`](super::NETWORKS_MAX).
    pub network: u32,
    /// Longest frame that it sends, bytes, Ethernet header and VLAN tag included.
    pub frame_bytes_max: u32,
    /// 1 if its NIC is virtual, and so hands over and takes frames that the kernel has not finished; else 0.
    pub is_virtual: u32,
}

// SAFETY: five numbers without padding, any bits of which are a value.
unsafe impl Pod for PortEntry {}

/// The loaded program, for one hook.
#[derive(Debug)]
pub struct Forwarder {
    loaded: Ebpf,
    hook: Hook,
}

impl Forwarder {
    /// Loads the program for a hook. With `is_given` its clock stands, and chance with it, until [`Forwarder::give`] says otherwise: for
    /// tests.
    ///
    /// # Errors
    /// The build has left the program out, or the kernel refuses it.
    pub fn load(rules: Rules, hook: Hook, is_given: bool) -> Result<Forwarder, SwitchError> {
        if OBJECT.is_empty() {
            return Err(SwitchError::NotCompiled);
        }
        let (given, is_native) = (u32::from(is_given), u32::from(hook == Hook::Native));
        let settings = [
            ("ageing_s", &rules.ageing_s),
            ("floods_per_s", &rules.floods_per_s),
            ("lease_s", &rules.lease_s),
            ("is_given", &given),
            ("is_native", &is_native),
        ];
        let mut loader = EbpfLoader::new();
        for (name, value) in settings {
            loader.override_global(name, value, true);
        }
        loader.override_global("box_number", &rules.box_number, true);
        let loaded = loader.load(OBJECT).map_err(|source| SwitchError::Load(Box::new(source)))?;
        let mut forwarder = Forwarder { loaded, hook };
        match hook {
            Hook::Tc => forwarder.tc()?.load(),
            Hook::Native | Hook::Generic => {
                forwarder.xdp_called(TELL_PROGRAM)?.load().map_err(refused("loading"))?;
                forwarder.xdp()?.load()
            }
        }
        .map_err(refused("loading"))?;
        Ok(forwarder)
    }

    /// Where it gets frames.
    pub(super) const fn hook(&self) -> Hook {
        self.hook
    }

    /// The program as what can be attached for XDP.
    pub(super) fn xdp(&mut self) -> Result<&mut Xdp, SwitchError> {
        self.xdp_called(PROGRAM)
    }

    fn xdp_called(&mut self, name: &'static str) -> Result<&mut Xdp, SwitchError> {
        let program = self.loaded.program_mut(name).ok_or(SwitchError::Object(name))?;
        program.try_into().map_err(refused("recognising"))
    }

    /// The same for tc.
    pub(super) fn tc(&mut self) -> Result<&mut SchedClassifier, SwitchError> {
        let program = self.loaded.program_mut(TC_PROGRAM).ok_or(SwitchError::Object(TC_PROGRAM))?;
        program.try_into().map_err(refused("recognising"))
    }

    /// Its number in the kernel.
    pub(super) fn id(&mut self) -> Result<u32, SwitchError> {
        let info = match self.hook {
            Hook::Tc => self.tc()?.info(),
            Hook::Native | Hook::Generic => self.xdp()?.info(),
        };
        Ok(info.map_err(refused("asking about"))?.id())
    }

    fn map(&mut self, name: &'static str) -> Result<&mut Map, SwitchError> {
        self.loaded.map_mut(name).ok_or(SwitchError::Object(name))
    }

    /// Makes the NIC with index `nic` a port.
    ///
    /// # Errors
    /// There is no room, no such number, or no such NIC that sends.
    pub fn enter(&mut self, nic: u32, port: PortEntry) -> Result<(), SwitchError> {
        let failed = failed("entering a port");
        let mut by_number: Array<_, PortEntry> = self.map("by_number")?.try_into().map_err(failed)?;
        by_number.set(port.number, port, 0).map_err(failed)?;
        if port.nic != 0 {
            self.enter_in("nics", port, None)?;
            if self.hook != Hook::Tc {
                let tell = self.xdp_called(TELL_PROGRAM)?.fd().map_err(refused("naming"))?.try_clone();
                let tell = tell.map_err(|source| failed(MapError::IoError(source)))?;
                self.enter_in("all_nics", port, Some(&tell))?;
            }
        }
        // Last, for from now on frames come.
        let mut ports: HashMap<_, u32, PortEntry> = self.map("ports")?.try_into().map_err(failed)?;
        ports.insert(nic, port, 0).map_err(failed)
    }

    /// Enters the NIC of a port into a table of those that XDP sends by, with a program for what is sent there.
    fn enter_in(
        &mut self,
        table: &'static str,
        port: PortEntry,
        program: Option<&ProgramFd>,
    ) -> Result<(), SwitchError> {
        let failed = failed("entering a port");
        let mut nics: DevMap<_> = self.map(table)?.try_into().map_err(failed)?;
        nics.set(port.number, port.nic, program, 0).map_err(|error| match error {
            XdpMapError::MapError(error) => failed(error),
            XdpMapError::ChainedProgramNotSupported => SwitchError::Object(table),
        })
    }

    /// Tells the program of an address of this host.
    ///
    /// # Errors
    /// There is no room.
    pub fn own(&mut self, address: Mac) -> Result<(), SwitchError> {
        let failed = failed("entering an address of this host");
        let mut own: HashMap<_, u64, u32> = self.map("own")?.try_into().map_err(failed)?;
        own.insert(place_key(0, 0, address), 0, 0).map_err(failed)
    }

    /// Moves the clock of a program whose time is given, s, and says what is random next.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn give(&mut self, now_s: u32, random: [u64; 2]) -> Result<(), SwitchError> {
        let failed = failed("moving the clock");
        let mut given: Array<_, [u64; 3]> = self.map(".bss")?.try_into().map_err(failed)?;
        given.set(0, [random[0], random[1], now_s.into()], 0).map_err(failed)
    }

    /// What is known of the group at a place.
    ///
    /// # Errors
    /// The kernel refuses, or there is no such place.
    pub fn group(&mut self, place: u32) -> Result<GroupEntry, SwitchError> {
        let failed = failed("asking about a group");
        let groups: Array<_, GroupEntry> = self.map("groups")?.try_into().map_err(failed)?;
        groups.get(&place, 0).map_err(failed)
    }

    /// What packets of groups have come to.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn events(&mut self) -> Result<Events, SwitchError> {
        let failed = failed("reading the counters of groups");
        let events: PerCpuArray<_, [u64; EVENTS]> = self.map("group_events")?.try_into().map_err(failed)?;
        groups::sum(&events).map_err(failed)
    }

    /// Runs the program on a frame, as if it had come in by the NIC with this index, whose queues must be open for programs.
    ///
    /// # Errors
    /// The kernel refused, or the program has altered the frame.
    pub fn run(&self, frame: &[u8], nic: u32) -> Result<Action, SwitchError> {
        let (action, out) = self.run_on(frame, nic)?;
        if action != Action::Drop && out != frame {
            return Err(SwitchError::Altered);
        }
        Ok(action)
    }

    /// As [`Forwarder::run`], for a frame that may be altered. Returns it, too.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn run_on(&self, frame: &[u8], nic: u32) -> Result<(Action, Vec<u8>), SwitchError> {
        let mut out = vec![0; frame.len()];
        let options =
            TestRunOptions { data_in: Some(frame), data_out: Some(&mut out), ..TestRunOptions::new() };
        let program = |name| self.loaded.program(name).ok_or(SwitchError::Object(name));
        let (action, bytes) = match self.hook {
            Hook::Tc => {
                let program: &SchedClassifier =
                    program(TC_PROGRAM)?.try_into().map_err(refused("recognising"))?;
                let mut context = [0u8; SK_BUFF_BYTES];
                context[SK_BUFF_IFINDEX_AT..][..4].copy_from_slice(&nic.to_ne_bytes());
                let options = TestRunOptions { ctx_in: Some(&context), ..options };
                let run = program.test_run(options).map_err(refused("trying"))?;
                let action = match run.return_value as i32 {
                    TC_ACT_UNSPEC => Action::Pass,
                    TC_ACT_SHOT => Action::Drop,
                    TC_ACT_REDIRECT => Action::Redirect,
                    other => Action::Unknown(other as u32),
                };
                (action, run.data_size_out)
            }
            Hook::Native | Hook::Generic => {
                let program: &Xdp = program(PROGRAM)?.try_into().map_err(refused("recognising"))?;
                // `struct xdp_md`: where the data begin and end, no metadata, the NIC that it came by, its queue, no NIC to send by.
                let context = [0, frame.len() as u32, 0, nic, 0, 0].map(u32::to_ne_bytes);
                let options = TestRunOptions { ctx_in: Some(context.as_flattened()), ..options };
                let run = program.test_run(options).map_err(refused("trying"))?;
                (Action::from_code(run.return_value), run.data_size_out)
            }
        };
        out.truncate(bytes as usize);
        Ok((action, out))
    }

    /// Where an address is, by its [`place_key`].
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn place(&mut self, key: u64) -> Result<Option<Place>, SwitchError> {
        let failed = failed("asking where an address is");
        let places: HashMap<_, u64, Place> = self.map("places")?.try_into().map_err(failed)?;
        match places.get(&key, 0) {
            Ok(place) => Ok(Some(place)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// What happened to the frames of a port.
    ///
    /// # Errors
    /// The kernel refuses, or there is no such port.
    pub fn counts(&mut self, port: u32) -> Result<Counts, SwitchError> {
        let failed = failed("reading the counters");
        let counts: PerCpuArray<_, [u64; OUTCOMES]> = self.map("counts")?.try_into().map_err(failed)?;
        sum(&counts, port).map_err(failed)
    }

    /// Pins the maps that tell what the box does.
    pub(super) fn pin(&mut self, folder: &Path) -> Result<(), SwitchError> {
        PINNED.into_iter().try_for_each(|name| {
            let path = folder.join(name);
            let source = |error| SwitchError::Pin { path: path.clone(), source: Box::new(error) };
            self.map(name)?.pin(&path).map_err(source)
        })
    }
}

/// The pinned maps of a box.
pub(super) struct Known {
    ports: HashMap<MapData, u32, PortEntry>,
    counts: PerCpuArray<MapData, [u64; OUTCOMES]>,
    places: HashMap<MapData, u64, Place>,
    groups: Array<MapData, GroupEntry>,
    events: PerCpuArray<MapData, [u64; EVENTS]>,
}

impl Known {
    /// Opens what is pinned in a folder.
    pub(super) fn open(folder: &Path) -> Result<Known, MapError> {
        let open = |name: &str| MapData::from_pin(folder.join(name));
        Ok(Known {
            ports: Map::HashMap(open("ports")?).try_into()?,
            counts: Map::PerCpuArray(open("counts")?).try_into()?,
            places: Map::LruHashMap(open("places")?).try_into()?,
            groups: Map::Array(open("groups")?).try_into()?,
            events: Map::PerCpuArray(open("group_events")?).try_into()?,
        })
    }

    /// The port that a NIC is, by its index.
    pub(super) fn port(&self, nic: u32) -> Option<u32> {
        self.ports.get(&nic, 0).ok().map(|port| port.number)
    }

    /// What happened to the frames of a port.
    pub(super) fn counts(&self, port: u32) -> Counts {
        sum(&self.counts, port).unwrap_or_default()
    }

    /// What packets of groups have come to.
    pub(super) fn events(&self) -> Option<Events> {
        groups::sum(&self.events).ok()
    }

    /// The places of groups that are in use.
    pub(super) fn groups(&self) -> impl Iterator<Item = GroupEntry> {
        self.groups.iter().filter_map(Result::ok).filter(|group| group.size != 0)
    }

    /// Addresses with their VLAN that are known now, by their keys, and where they are. They come and go meanwhile.
    pub(super) fn places(&self) -> impl Iterator<Item = (u64, Place)> {
        self.places.iter().filter_map(Result::ok)
    }
}

fn sum<M: std::borrow::Borrow<MapData>>(
    counts: &PerCpuArray<M, [u64; OUTCOMES]>,
    port: u32,
) -> Result<Counts, MapError> {
    let mut all = Counts::default();
    for on_one in counts.get(&port, 0)?.iter() {
        all.0.iter_mut().zip(on_one).for_each(|(all, one)| *all += one);
    }
    Ok(all)
}

fn refused(doing: &'static str) -> impl Fn(ProgramError) -> SwitchError {
    move |source| SwitchError::Program { doing, source: Box::new(source) }
}

fn failed(doing: &'static str) -> impl Fn(MapError) -> SwitchError + Copy {
    move |source| SwitchError::Map { doing, source: Box::new(source) }
}
