//! A lab that stands: its nodes, and how to use them.

use crate::enter;
use crate::error::{Context, LabError};
use crate::make::{Maker, Step};
use crate::names;
use crate::remove::{self, Removed};
use crate::spec::{Spec, Wire};
use crate::state::{Lock, State};
use serde::Serialize;
use std::ffi::OsStr;
use std::fs;
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tsumugi_mpi::shell::quoted;

/// A NIC of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Nic {
    /// The interface's name inside the node.
    pub name: String,
    /// Its address; every NIC index is a /24 of its own.
    pub address: Ipv4Addr,
}

/// A node of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its host name: `n0`, `n1`, …
    pub host: String,
    /// Its network namespace, as `ip netns` calls it.
    pub namespace: String,
    /// Its NICs, in order.
    pub nics: Vec<Nic>,
}

/// A complete lab. Stays when the value is dropped; [`Lab::guarded`] makes one that goes.
#[derive(Debug)]
pub struct Lab {
    state: State,
    nodes: Vec<Node>,
}

impl Lab {
    /// Makes a lab. On any failure, what had been made is removed again.
    pub fn up(spec: &Spec) -> Result<Lab, LabError> {
        Lab::up_watched(spec, &mut |_| true)
    }

    /// Makes a lab and asks before every step whether to go on; `false` undoes everything and returns
    /// [`LabError::Interrupted`].
    pub fn up_watched(spec: &Spec, go_on: &mut dyn FnMut(Step) -> bool) -> Result<Lab, LabError> {
        Maker::check(spec)?;
        let lock = Lock::take()?;
        let mut maker = Maker::new(spec, &lock);
        // Not undone when it fails: most likely the name is somebody else's lab.
        let made = maker.begin().and_then(|()| {
            maker.run(go_on).map_err(|first| match remove::remove(&spec.name) {
                Ok(_) => first,
                Err(second) => LabError::Twice { first: Box::new(first), second: Box::new(second) },
            })
        });
        lock.release();
        made.and_then(|()| Lab::open(&spec.name))
    }

    /// A lab that stands already.
    pub fn open(name: &str) -> Result<Lab, LabError> {
        crate::spec::check_name(name)?;
        let state = State::read(name)?;
        let spec = &state.spec;
        spec.check()?;
        let node = |index| Node {
            host: names::node(index),
            namespace: names::netns(name, index),
            nics: (0..spec.nics)
                .map(|nic| Nic { name: names::nic(nic), address: names::address(index, nic) })
                .collect(),
        };
        let nodes: Vec<_> = (0..spec.nodes).map(node).collect();
        if let Some(gone) = nodes.iter().find(|node| !names::netns_path(&node.namespace).exists()) {
            let reason = format!("its namespace {} is gone", gone.namespace);
            return Err(LabError::HalfMade { name: name.to_owned(), reason });
        }
        Ok(Lab { state, nodes })
    }

    /// The names of all labs on this machine, also of those that were left half-made.
    pub fn list() -> Vec<String> {
        names::labs()
    }

    /// What was asked for.
    pub fn spec(&self) -> &Spec {
        &self.state.spec
    }

    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.state.spec.name
    }

    /// The wire that was made; see [`Wire::Router`] for how that may differ from the one asked for.
    pub fn wire(&self) -> Wire {
        self.state.wire
    }

    /// The nodes, in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The index of the node that has this host name, this name of a NIC (`n1-nic0`) or this address.
    pub fn find_node(&self, host: &str) -> Result<usize, LabError> {
        let is_nic = |node: &Node, nic: &Nic| {
            host.parse() == Ok(nic.address)
                || host.strip_prefix(&node.host).and_then(|h| h.strip_prefix('-')) == Some(&nic.name)
        };
        let is = |node: &Node| node.host == host || node.nics.iter().any(|nic| is_nic(node, nic));
        self.nodes.iter().position(is).ok_or_else(|| LabError::NoNode {
            name: self.name().to_owned(),
            node: host.to_owned(),
            last: self.spec().nodes - 1,
        })
    }

    /// The folder of this lab's files.
    pub fn folder(&self) -> PathBuf {
        names::folder(self.name())
    }

    /// The host file: one line per node, its name and then the addresses of its NICs.
    pub fn host_file(&self) -> PathBuf {
        self.folder().join("hosts")
    }

    /// A command that will run in a node: in its network and UTS namespaces, with the names of all nodes in
    /// `/etc/hosts`, with its own `/dev/shm` and BPF file system, and with `TSUMUGI_LAB` and `TSUMUGI_NODE`
    /// set. User and privileges stay the caller's.
    pub fn command(&self, node: usize, program: impl AsRef<OsStr>) -> Result<Command, LabError> {
        enter::command(self.name(), &names::node(self.index(node)?), program.as_ref())
    }

    /// A command that will run in the switch that joins the nodes of a lab with [`Wire::XdpSwitch`], as in a node.
    pub fn switch_command(&self, program: impl AsRef<OsStr>) -> Result<Command, LabError> {
        if self.wire() != Wire::XdpSwitch {
            return Err(LabError::NoSwitch { name: self.name().to_owned() });
        }
        enter::command(self.name(), names::SWITCH, program.as_ref())
    }

    /// Moves the calling thread into a node, as [`Lab::command`] does a process, but for the environment. It cannot
    /// come back: let a thread of its own call this.
    pub fn enter(&self, node: usize) -> Result<(), LabError> {
        enter::thread(self.name(), &names::node(self.index(node)?))
    }

    /// The same for the switch of a lab with [`Wire::XdpSwitch`].
    pub fn enter_switch(&self) -> Result<(), LabError> {
        if self.wire() != Wire::XdpSwitch {
            return Err(LabError::NoSwitch { name: self.name().to_owned() });
        }
        enter::thread(self.name(), names::SWITCH)
    }

    fn index(&self, node: usize) -> Result<u32, LabError> {
        let index = u32::try_from(node).ok().filter(|index| *index < self.spec().nodes);
        index.ok_or_else(|| LabError::NoNode {
            name: self.name().to_owned(),
            node: format!("n{node}"),
            last: self.spec().nodes - 1,
        })
    }

    /// The processes that run in a node now.
    pub fn processes(&self, node: usize) -> Vec<i32> {
        u32::try_from(node).map_or_else(|_| Vec::new(), |node| remove::processes_of_node(self.name(), node))
    }

    /// Where [`Lab::write_launcher`] puts the launcher.
    pub fn launcher(&self) -> PathBuf {
        self.folder().join("ssh")
    }

    /// Writes a program that takes ssh's arguments and runs `tsumugi lab ssh` with them, for launchers such
    /// as mpiexec that want a single program; `tsumugi` is the path of that command.
    pub fn write_launcher(&self, tsumugi: &Path) -> Result<PathBuf, LabError> {
        let path = self.launcher();
        let tsumugi = quoted(tsumugi.as_os_str());
        let script = format!("#!/bin/sh\nexec {tsumugi} lab ssh --name {} \"$@\"\n", self.name());
        // Other jobs in this lab may be running it: the kernel runs no program that is open for writing.
        if fs::read_to_string(&path).is_ok_and(|written| written == script) {
            return Ok(path);
        }
        let scratch = self.folder().join(format!("ssh.{}", std::process::id()));
        fs::write(&scratch, script).context("write", &scratch)?;
        fs::set_permissions(&scratch, fs::Permissions::from_mode(0o755))
            .context("make executable", &scratch)?;
        fs::rename(&scratch, &path).context("replace", &path)?;
        Ok(path)
    }

    /// Removes the lab; see [`crate::down`].
    pub fn down(self) -> Result<Removed, LabError> {
        remove::down(self.name())
    }

    /// The same lab, removed when the value is dropped.
    pub fn guarded(self) -> LabGuard {
        LabGuard(self)
    }
}

/// A lab that is removed when the guard is dropped, for instance because a test failed.
#[derive(Debug)]
pub struct LabGuard(Lab);

impl Deref for LabGuard {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.0
    }
}

impl Drop for LabGuard {
    fn drop(&mut self) {
        match remove::down(self.0.name()) {
            Ok(_) | Err(LabError::NotFound { .. }) => {}
            Err(error) => eprintln!("tsumugi-lab: {error}"),
        }
    }
}
