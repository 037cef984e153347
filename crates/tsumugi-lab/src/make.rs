//! Making a lab, step by step. Every step may be the last one before a SIGKILL: what it makes can be found
//! by name (see `names`), and the intent is on record before the first of them.

use crate::enter::{self, inside};
use crate::error::{Context, LabError};
use crate::maker;
use crate::names;
use crate::spec::{Loss, Rate, Spec, Wire};
use crate::state::{Lock, State};
use crate::tools::Tools;
use rustix::mount::MountFlags;
use rustix::process::geteuid;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use tsumugi_rail::switch;

/// How long NICs may take to find their carrier. It is a matter of milliseconds.
const CARRIER_PATIENCE: Duration = Duration::from_secs(10);

/// What is about to be done; see [`crate::Lab::up_watched`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Pin the network namespaces.
    Namespaces,
    /// Give a node its own host name, shared memory and BPF file system.
    Node(u32),
    /// Give the switch the same, if it is a host of its own.
    Switch,
    /// Set what the kernel keeps per namespace.
    Settings,
    /// Join the NICs.
    Wires,
    /// Give the NICs their addresses and switch them on.
    Addresses,
    /// Limit the rate of the links.
    Rate,
    /// Have the switch lose packets.
    Loss,
    /// Switch offloads off.
    Offloads,
    /// Put the program on the switch's ports.
    Program,
    /// Wait until every NIC has a carrier.
    Carrier,
    /// Record that the lab is complete.
    Record,
}

/// What the maker hands from step to step.
pub(crate) struct Maker<'a> {
    spec: &'a Spec,
    tools: Tools,
    wire: Wire,
}

impl<'a> Maker<'a> {
    /// Whether this machine lets us begin.
    pub(crate) fn check(spec: &Spec) -> Result<(), LabError> {
        spec.check()?;
        if !geteuid().is_root() {
            return Err(LabError::NotRoot);
        }
        let mut needed = vec!["ip"];
        needed.extend(spec.rate.map(|_| "tc"));
        needed.extend(spec.loss.map(|_| "nft"));
        needed.extend((!spec.offloads).then_some("ethtool"));
        Tools::require(&needed)?;
        // Nodes see their names in place of it, and only a file that exists can be covered by a mount.
        fs::metadata(names::HOSTS)
            .context("find (make an empty one: touch /etc/hosts)", names::HOSTS)
            .map(drop)
    }

    pub(crate) fn new(spec: &'a Spec, lock: &Lock) -> Maker<'a> {
        Maker { spec, tools: Tools::new(&lock.file), wire: spec.wire_wanted() }
    }

    /// Claims the name and records what is intended.
    pub(crate) fn begin(&self) -> Result<(), LabError> {
        let name = &self.spec.name;
        if names::labs().contains(name) {
            let half_made = State::read(name).is_err();
            return Err(LabError::Exists { name: name.clone(), half_made });
        }
        let folder = names::folder(name);
        fs::create_dir(&folder).context("make the folder", &folder)?;
        if self.spec.temporary {
            maker::sign(&self.spec.name)?;
        }
        State::begun(self.spec).write()
    }

    /// Does everything after `begin`. `go_on` is asked before every step.
    pub(crate) fn run(&mut self, go_on: &mut dyn FnMut(Step) -> bool) -> Result<(), LabError> {
        let mut steps = vec![Step::Namespaces];
        steps.extend((0..self.spec.nodes).map(Step::Node));
        steps.extend([Step::Switch, Step::Settings, Step::Wires, Step::Addresses, Step::Rate, Step::Loss]);
        steps.extend([Step::Offloads, Step::Program, Step::Carrier, Step::Record]);
        for step in steps {
            if !go_on(step) {
                return Err(LabError::Interrupted { name: self.spec.name.clone() });
            }
            self.step(step)?;
        }
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), LabError> {
        match step {
            Step::Namespaces => {
                let mut lines = Vec::new();
                lines.extend(self.namespaces().map(|name| format!("netns add {name}")));
                // Where entering processes mount the sysfs that shows their own NICs.
                let sys = names::folder(&self.spec.name).join("sys");
                fs::create_dir(&sys).context("make the folder", &sys)?;
                self.tools.ip(None, &lines)
            }
            Step::Node(node) => self.host(&names::node(node)),
            Step::Switch => match self.wire {
                Wire::XdpSwitch => self.host(names::SWITCH),
                _ => Ok(()),
            },
            Step::Settings => self.namespaces().try_for_each(|name| settings(&name)),
            Step::Wires => self.wires(),
            Step::Addresses => self.addresses(),
            Step::Rate => self.spec.rate.map_or(Ok(()), |rate| self.limit(rate)),
            Step::Loss => self.spec.loss.map_or(Ok(()), |loss| self.lose(loss)),
            Step::Offloads => {
                if self.spec.offloads {
                    Ok(())
                } else {
                    self.offloads_off()
                }
            }
            Step::Program => match self.wire {
                Wire::XdpSwitch => self.program(),
                _ => Ok(()),
            },
            Step::Carrier => self.carrier(),
            Step::Record => self.record(),
        }
    }

    fn has_switch(&self) -> bool {
        self.wire != Wire::Direct
    }

    fn namespaces(&self) -> impl Iterator<Item = String> {
        let name = self.spec.name.clone();
        let switch = self.has_switch().then(|| names::switch_netns(&name));
        (0..self.spec.nodes).map(move |node| names::netns(&name, node)).chain(switch)
    }

    /// (node, NIC) of every NIC.
    fn nics(&self) -> impl Iterator<Item = (u32, u32)> {
        let nics = self.spec.nics;
        (0..self.spec.nodes).flat_map(move |node| (0..nics).map(move |nic| (node, nic)))
    }

    /// What a node has besides its network: a UTS namespace, pinned so that its name survives without a
    /// process; and, as on a machine of its own, shared memory and a BPF file system that are nobody
    /// else's. All of it is mounted below the lab's folder, where removal finds it.
    fn host(&self, host: &str) -> Result<(), LabError> {
        let folder = names::folder(&self.spec.name);
        let uts = folder.join(format!("uts-{host}"));
        fs::write(&uts, "").context("write", &uts)?;
        let pinned = thread::scope(|scope| {
            // Namespaces belong to threads, so a thread that ends afterwards changes nothing for us.
            let pin = scope.spawn(|| {
                // SAFETY: descriptors stay shared.
                unsafe { unshare_unsafe(UnshareFlags::NEWUTS) }?;
                rustix::system::sethostname(host.as_bytes())?;
                Ok(rustix::mount::mount_bind("/proc/thread-self/ns/uts", &uts)?)
            });
            pin.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread that pins it panicked")))
        });
        pinned.context("pin the host name at", &uts)?;
        for (kind, file_system) in [("shm", c"tmpfs"), ("bpf", c"bpf")] {
            let mount_point = folder.join(format!("{kind}-{host}"));
            fs::create_dir(&mount_point).context("make the folder", &mount_point)?;
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            if rustix::mount::mount(c"tsumugi", &mount_point, file_system, flags, None).is_err() {
                // A kernel without BPF, or a container that may not mount: such nodes share the machine's.
                fs::remove_dir(&mount_point).context("remove the folder", &mount_point)?;
            }
        }
        Ok(())
    }

    fn wires(&mut self) -> Result<(), LabError> {
        let lab = &self.spec.name;
        let mtu = self.spec.mtu;
        if !self.has_switch() {
            let (a, b) = (names::netns(lab, 0), names::netns(lab, 1));
            let pair = |nic| {
                let name = names::nic(nic);
                let (i, j) = (names::nic_index(nic), names::far_index(1, nic));
                let far = format!("type veth peer name {name} index {j} mtu {mtu} netns {b}");
                format!("link add {name} index {i} mtu {mtu} netns {a} {far}")
            };
            return self.tools.ip(None, &(0..self.spec.nics).map(pair).collect::<Vec<_>>());
        }
        let switch = names::switch_netns(lab);
        if matches!(self.wire, Wire::Switch | Wire::XdpSwitch) {
            let bridge = |nic| {
                // No spanning tree, no learning delay and no multicast snooping: nothing sends or drops
                // frames but the nodes.
                let options = "stp_state 0 forward_delay 0 mcast_snooping 0";
                format!("link add {} type bridge {options}", names::bridge(nic))
            };
            let bridges: Vec<_> = (0..self.spec.nics).map(bridge).collect();
            match self.tools.ip(Some(&switch), &bridges) {
                Err(LabError::Tool { output, .. }) if self.wire == Wire::Switch && lacks_bridges(&output) => {
                    self.wire = Wire::Router;
                }
                other => other?,
            }
        }
        let mut links = Vec::new();
        let mut ports = vec!["link set lo up".to_owned()];
        for (node, nic) in self.nics() {
            let (host, port, name) = (names::netns(lab, node), names::port(node, nic), names::nic(nic));
            let (i, j) = (names::nic_index(nic), names::far_index(node, nic));
            let far = format!("type veth peer name {port} index {j} mtu {mtu} netns {switch}");
            links.push(format!("link add {name} index {i} mtu {mtu} netns {host} {far}"));
            if self.wire != Wire::Router {
                ports.push(format!("link set {port} master {}", names::bridge(nic)));
                ports.push(format!("link set {port} up"));
            } else {
                ports.push(format!("link set {port} up"));
                ports.push(format!("route add {}/32 dev {port}", names::address(node, nic)));
            }
        }
        for nic in 0..self.spec.nics {
            ports.push(if self.wire != Wire::Router {
                format!("link set {} up", names::bridge(nic))
            } else {
                // An address to ask from: without one, the router's ARP requests have none to answer to.
                format!("addr add 10.77.{nic}.254/32 dev lo")
            });
        }
        self.tools.ip(None, &links)?;
        self.tools.ip(Some(&switch), &ports)?;
        if self.wire == Wire::Router {
            let ports: Vec<_> = self.nics().map(|(node, nic)| names::port(node, nic)).collect();
            inside(&switch, || {
                setting("/proc/sys/net/ipv4/ip_forward", "1")?;
                let proxy = |port: &String| {
                    // By default, proxies wait up to 0.8 s, lest they answer before the real owner does.
                    setting(&format!("/proc/sys/net/ipv4/neigh/{port}/proxy_delay"), "0")?;
                    setting(&format!("/proc/sys/net/ipv4/conf/{port}/proxy_arp"), "1")
                };
                ports.iter().try_for_each(proxy)
            })?;
        }
        Ok(())
    }

    fn addresses(&self) -> Result<(), LabError> {
        for node in 0..self.spec.nodes {
            let mut lines = vec!["link set lo up".to_owned()];
            for nic in 0..self.spec.nics {
                let name = names::nic(nic);
                lines.push(format!("addr add {}/24 dev {name}", names::address(node, nic)));
                lines.push(format!("link set {name} up"));
            }
            self.tools.ip(Some(&names::netns(&self.spec.name, node)), &lines)?;
        }
        Ok(())
    }

    /// Both directions of every link are limited: the switch's port towards the node, and the node's NIC
    /// towards the switch. The NIC's queue is deep, so that a fast sender waits for it as for a real NIC;
    /// the port's is as shallow as a switch's and drops. What bypasses a NIC's queue (AF_XDP does on veth)
    /// still passes the port.
    fn limit(&self, rate: Rate) -> Result<(), LabError> {
        let lab = &self.spec.name;
        // A bucket that lasts longer than the timer that refills it may be late, and holds a packet of any size.
        // On a busy 2-core machine 1 Gb/s came out as 350 to 685 Mb/s of TCP with 200 µs, and as 909 to 938
        // with 1 ms.
        let burst = rate.bytes_in_us(1000).max(2 * u64::from(self.spec.mtu) + 64).max(4096);
        let shape = |device: &str, queue_us: u64, queue_bytes_min: u64| {
            let limit = rate.bytes_in_us(queue_us).max(queue_bytes_min) + burst;
            let bits = rate.bits_per_s;
            format!("qdisc add dev {device} root tbf rate {bits}bit burst {burst}b limit {limit}b")
        };
        let deep: Vec<_> = (0..self.spec.nics).map(|nic| shape(&names::nic(nic), 20_000, 4 << 20)).collect();
        for node in 0..self.spec.nodes {
            self.tools.tc(&names::netns(lab, node), &deep)?;
        }
        let shallow: Vec<_> =
            self.nics().map(|(node, nic)| shape(&names::port(node, nic), 4_000, 128 << 10)).collect();
        self.tools.tc(&names::switch_netns(lab), &shallow)
    }

    /// Every port of the switch drops some of what comes in from its node: whatever way a packet has left the node, and before
    /// the bridge sees it.
    fn lose(&self, loss: Loss) -> Result<(), LabError> {
        let mut lines = vec!["add table netdev loss".to_owned()];
        for port in self.nics().map(|(node, nic)| names::port(node, nic)) {
            lines.push(format!(
                "add chain netdev loss {port} {{ type filter hook ingress device \"{port}\" priority 0; }}"
            ));
            lines.push(format!(
                "add rule netdev loss {port} numgen random mod 1000000 < {} drop",
                loss.per_million
            ));
        }
        self.tools.nft(&names::switch_netns(&self.spec.name), &lines)
    }

    fn offloads_off(&self) -> Result<(), LabError> {
        let lab = &self.spec.name;
        for node in 0..self.spec.nodes {
            for nic in 0..self.spec.nics {
                self.device_offloads_off(&names::netns(lab, node), &names::nic(nic))?;
                if self.has_switch() {
                    self.device_offloads_off(&names::switch_netns(lab), &names::port(node, nic))?;
                }
            }
        }
        Ok(())
    }

    /// Puts the program on the switch's ports.
    fn program(&self) -> Result<(), LabError> {
        let lab = &self.spec.name;
        let ports: Vec<_> = self.nics().map(|(node, nic)| names::port(node, nic)).collect();
        let attach = || {
            enter::thread(lab, names::SWITCH)?;
            let attached = switch::up(&ports, &switch::Options::default());
            attached.map_err(|source| LabError::Switch { name: lab.clone(), source: Box::new(source) })
        };
        // A thread that has entered a node cannot come back.
        thread::scope(|scope| match scope.spawn(attach).join() {
            Ok(attached) => attached.map(drop),
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    fn device_offloads_off(&self, namespace: &str, device: &str) -> Result<(), LabError> {
        let mut arguments = vec!["-K", device];
        for feature in ["tso", "gso", "gro", "tx", "rx", "sg"] {
            arguments.extend([feature, "off"]);
        }
        self.tools.ethtool(namespace, &arguments)?;
        // Unknown to old kernels, where there is nothing to switch off.
        let known = self.tools.ethtool(namespace, &["-k", device])?;
        if known.contains("tx-udp-segmentation: on") {
            self.tools.ethtool(namespace, &["-K", device, "tx-udp-segmentation", "off"])?;
        }
        Ok(())
    }

    /// The kernel announces a carrier a little after the link is set up; until then it drops frames.
    fn carrier(&self) -> Result<(), LabError> {
        #[derive(serde::Deserialize)]
        struct Link {
            ifname: String,
            operstate: String,
        }
        let lab = &self.spec.name;
        let deadline = Instant::now() + CARRIER_PATIENCE;
        let mut waiting: Vec<String> = self.namespaces().collect();
        loop {
            let mut down = String::new();
            let mut still = Vec::new();
            for namespace in waiting {
                let listed = self.tools.ip_query(&namespace, &["-j", "link", "show"])?;
                let links: Vec<Link> = serde_json::from_str(&listed)
                    .map_err(std::io::Error::from)
                    .context("understand 'ip -j link' of", &namespace)?;
                let mut idle = links.iter().filter(|l| l.ifname != "lo" && l.operstate != "UP").peekable();
                if idle.peek().is_some() {
                    idle.for_each(|link| _ = write!(down, " {namespace}/{}", link.ifname));
                    still.push(namespace);
                }
            }
            if still.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(LabError::NoCarrier { name: lab.clone(), nics: down.trim().to_owned() });
            }
            waiting = still;
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The two host files, and the record that makes the lab usable.
    fn record(&self) -> Result<(), LabError> {
        let mut hosts = String::new();
        let mut resolver = "127.0.0.1 localhost\n::1 ip6-localhost ip6-loopback\n".to_owned();
        for node in 0..self.spec.nodes {
            let host = names::node(node);
            let addresses = (0..self.spec.nics).map(|nic| names::address(node, nic).to_string());
            _ = writeln!(hosts, "{host} {}", addresses.collect::<Vec<_>>().join(" "));
            for nic in 0..self.spec.nics {
                let alias = format!("{host}-{}", names::nic(nic));
                let names = if nic == 0 { format!("{host} {alias}") } else { alias };
                _ = writeln!(resolver, "{} {names}", names::address(node, nic));
            }
        }
        let folder = names::folder(&self.spec.name);
        for (file, text) in [("hosts", hosts), ("etc-hosts", resolver)] {
            let path = folder.join(file);
            fs::write(&path, text).context("write", &path)?;
        }
        State { complete: true, wire: self.wire, ..State::begun(self.spec) }.write()
    }
}

/// What `ip` says where the kernel has no bridge: the driver is neither built in nor loadable.
fn lacks_bridges(complaint: &str) -> bool {
    complaint.contains("Unknown device type") || complaint.contains("not supported")
}

/// What differs from a fresh namespace. Fresh veths send router solicitations and detect duplicate
/// addresses over IPv6, in the middle of whatever is being measured: no IPv6 on them. Where bridged frames
/// may be handed to the IP packet filter, they are not.
fn settings(namespace: &str) -> Result<(), LabError> {
    inside(namespace, || {
        setting("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")?;
        setting("/proc/sys/net/bridge/bridge-nf-call-iptables", "0")?;
        setting("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "0")?;
        setting("/proc/sys/net/bridge/bridge-nf-call-arptables", "0")
    })
}

/// Writes a setting; a kernel that lacks the feature altogether needs no setting for it.
fn setting(path: &str, value: &str) -> Result<(), LabError> {
    if !Path::new(path).exists() {
        return Ok(());
    }
    fs::write(path, value).context("set", path)
}
