//! Hosts around switch boxes: nodes of labs, endpoints in them that work together, and what happens to the boxes meanwhile.

use aya::maps::{Array, Map, MapData};
use std::sync::atomic::{AtomicBool, Ordering};
use tsumugi::collective::Group;
use tsumugi::{Config, Endpoint, FaultOptions, Wait};
use tsumugi_lab::testing::{Watched, as_root};
use tsumugi_lab::{Lab, LabGuard, Spec, Wire};
use tsumugi_rail::switch::groups::GroupEntry;
use tsumugi_rail::switch::{self, Hook, Options};
use tsumugi_rail::xdp::IS_COMPILED;

pub(crate) const PORT: u16 = 7411;
pub(crate) const CHANNEL: u16 = 3;

pub(crate) fn as_root_with_the_program(test: &str) -> Option<Watched> {
    let missing = "needs a build with the XDP program (clang and libbpf-dev)";
    as_root(test, (!IS_COMPILED).then_some(missing))
}

pub(crate) fn lab(nodes: u32, mtu: u32) -> LabGuard {
    let spec = Spec { nodes, mtu, wire: Some(Wire::XdpSwitch), ..Spec::unique("box") };
    Lab::up(&spec).expect("the lab is made").guarded()
}

/// The address of a node's NIC.
pub(crate) fn address(lab: &Lab, node: usize) -> String {
    format!("{}:{PORT}", lab.nodes()[node].nics[0].address)
}

/// A host that takes part: a node of a lab, and where its endpoint is.
pub(crate) struct Place<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) node: usize,
    pub(crate) address: String,
}

/// The first nodes of a lab.
pub(crate) fn places(lab: &Lab, size: usize) -> Vec<Place<'_>> {
    (0..size).map(|node| Place { lab, node, address: address(lab, node) }).collect()
}

pub(crate) fn config(seed: u64, faults: Option<FaultOptions>) -> Config {
    let mut config = Config::default();
    config.port = PORT;
    config.wait = Wait::Block;
    config.faults = faults.map(|mut faults| {
        faults.seed = seed;
        faults
    });
    config
}

/// Says at its end that it has come, also if that is a panic.
pub(crate) struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has hosts do some work in a group, each in a thread of its own, while something else is done, which is told when the first of them
/// has ended.
pub(crate) fn together<T: Send>(
    places: &[Place<'_>],
    config: impl Fn(usize) -> Config + Sync,
    work: impl Fn(&Endpoint, &Group) -> T + Sync,
    meanwhile: impl FnOnce(&AtomicBool) + Send,
) -> Vec<T> {
    let has_ended = AtomicBool::new(false);
    let one = |rank: usize| {
        let _ends = Ends(&has_ended);
        let Place { lab, node, .. } = &places[rank];
        lab.enter(*node).expect("the node can be entered");
        let endpoint = Endpoint::open(config(rank)).unwrap_or_else(|error| panic!("{error}"));
        let peer = |other: usize| {
            (other != rank).then(|| endpoint.add_peer(&places[other].address).expect("an address"))
        };
        let peers: Vec<_> = (0..places.len()).map(peer).collect();
        let group = Group::open(&endpoint, CHANNEL, rank, &peers).expect("a group");
        let outcome = work(&endpoint, &group);
        drop(group);
        // Some may have left before.
        let _ = endpoint.close();
        outcome
    };
    let one = &one;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..places.len()).map(|rank| scope.spawn(move || one(rank))).collect();
        let other = scope.spawn(|| meanwhile(&has_ended));
        let outcomes = threads.into_iter().map(|thread| thread.join());
        let outcomes: Vec<_> = outcomes.collect();
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        outcomes.into_iter().map(|one| one.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Runs in the switch of a lab.
pub(crate) fn in_the_switch<T: Send>(lab: &Lab, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let within = scope.spawn(|| {
            lab.enter_switch().expect("the switch can be entered");
            work()
        });
        within.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Takes the box away and makes it anew, at a hook.
pub(crate) fn at_hook(lab: &Lab, hook: Hook) {
    in_the_switch(lab, || {
        let ports = switch::status().expect("there is one").ports;
        let ports: Vec<String> = ports.into_iter().filter_map(|port| port.attached.nic).collect();
        switch::down(&[]).expect("it goes");
        let options = Options { hook: Some(hook), ..Options::default() };
        switch::up(&ports, &options).unwrap_or_else(|error| panic!("{error}"));
    });
    for node in 0..lab.nodes().len() {
        // What a veth needs when programs in drivers send to it; `tsumugi switch up` says so.
        let mut command = lab.command(node, "ethtool").expect("the node can be entered");
        let told = command.args(["-K", "nic0", "tx", "off", "txvlan", "off", "gro", "on"]).output();
        assert!(told.is_ok_and(|told| told.status.success()));
    }
}

/// Joins the switches of two labs by a link.
fn link(one: &Lab, other: &Lab, name: &str) {
    let run = |lab: &Lab, arguments: &[&str]| {
        let mut command = lab.switch_command("ip").expect("the switch can be entered");
        let output = command.args(arguments).output().expect("ip starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let there = format!("tsu-{}-switch", other.name());
    run(one, &["link", "add", name, "type", "veth", "peer", "name", name, "netns", &there]);
    for lab in [one, other] {
        run(lab, &["link", "set", name, "up"]);
        in_the_switch(lab, || {
            switch::up(&[name.to_owned()], &Options::default()).unwrap_or_else(|error| panic!("{error}"));
        });
    }
}

/// Labs of two nodes each whose boxes are in a row.
pub(crate) fn row_of_three() -> [LabGuard; 3] {
    let labs = [lab(2, 1500), lab(2, 1500), lab(2, 1500)];
    link(&labs[0], &labs[1], "up0");
    link(&labs[1], &labs[2], "up1");
    labs
}

/// The hosts behind a row of boxes: but for one behind the second box, so that it has one member and a box.
pub(crate) fn places_in(labs: &[LabGuard; 3]) -> Vec<Place<'_>> {
    let mut places = Vec::new();
    for (number, lab) in labs.iter().enumerate() {
        for node in 0..2 {
            // All labs have the same addresses.
            let address = format!("10.99.0.{}", 10 * (number + 1) + node);
            let line = format!("ip addr flush dev nic0 && ip addr add {address}/24 dev nic0");
            let mut shell = lab.command(node, "sh").expect("the node can be entered");
            assert!(shell.args(["-c", &line]).status().is_ok_and(|done| done.success()));
            if (number, node) != (1, 1) {
                places.push(Place { lab, node, address: format!("{address}:{PORT}") });
            }
        }
    }
    places
}

/// Has the box of the switch that the thread is in forget all groups, as one does that is restarted.
pub(crate) fn forget_groups() {
    let folders = std::fs::read_dir("/sys/fs/bpf/tsumugi").expect("the box has pinned its maps");
    for folder in folders.flatten() {
        let Ok(groups) = MapData::from_pin(folder.path().join("groups")) else { continue };
        let mut groups: Array<_, GroupEntry> = Map::Array(groups).try_into().expect("an array");
        for place in 0..groups.len() {
            if groups.get(&place, 0).is_ok_and(|group| group.size != 0) {
                // SAFETY: numbers, of which 0 is a value.
                groups.set(place, unsafe { std::mem::zeroed::<GroupEntry>() }, 0).expect("it is forgotten");
            }
        }
    }
}
