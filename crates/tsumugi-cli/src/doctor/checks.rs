//! The checks, one function each.

use super::mpi;
use super::probe;
use super::taint::kernel_taint;
use super::{ATTACHED, Finding, MEMLOCK, OPEN_FILES, Part};
use rustix::process::geteuid;
use rustix::thread::CapabilitySet;
use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Instant;
use tsumugi::DEFAULT_PORT;
use tsumugi_lab::{Lab, Spec, Wire};
use tsumugi_measure::nics;
use tsumugi_rail::xdp::{self, MtuExcess, Pins, PortStatus, Stranger};
use tsumugi_rail::{UdpOptions, kernel_version};

/// `bpf_xdp_load_bytes` came with 5.18.
const KERNEL_FOR_XDP: (u32, u32) = (5, 18);
/// UDP segmentation offload (4.18), receive offload (5.0).
const KERNEL_OFFLOADS: (u32, u32) = (5, 0);
/// Capabilities that are of use, and their names.
const CAPABILITIES: [(CapabilitySet, &str); 5] = [
    (CapabilitySet::NET_ADMIN, "NET_ADMIN"),
    (CapabilitySet::NET_RAW, "NET_RAW"),
    (CapabilitySet::IPC_LOCK, "IPC_LOCK"),
    (CapabilitySet::SYS_ADMIN, "SYS_ADMIN"),
    (CapabilitySet::BPF, "BPF"),
];

/// Files that a rank of Open MPI opens.
const OPEN_FILES_MIN: u64 = 48;

pub(super) fn all() -> Vec<Finding> {
    let mut findings = vec![kernel(), udp(), offload(true), offload(false)];
    findings.extend(["rmem", "wmem"].map(socket_buffer));
    findings.extend([nics_used(), memlock(), open_files(), crc32c()]);
    findings.extend([kernel_for_xdp(), capabilities(), xdp(), bpffs(), attached(), mtu(), busy_polling()]);
    findings.extend(mpi::all());
    findings.extend([tools(), namespaces(), leftovers()]);
    findings.extend([kernel_taint(), cores(), clock()]);
    findings
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The running kernel's full name.
fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn kernel() -> Finding {
    let release = kernel_release();
    if kernel_version() >= KERNEL_OFFLOADS {
        Finding::ok(Part::Socket, "kernel", format!("Linux {release}"))
    } else {
        let found = format!("Linux {release}: works, without UDP offloads");
        Finding::note(Part::Socket, "kernel", found, "run Linux 5.0 or later")
    }
}

fn udp() -> Finding {
    const CHECK: &str = "UDP";
    let exchange = || {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        b.set_read_timeout(Some(std::time::Duration::from_secs(1)))?;
        a.send_to(b"tsumugi", b.local_addr()?)?;
        b.recv(&mut [0; 16])
    };
    match exchange() {
        Ok(_) => Finding::ok(Part::Socket, CHECK, "a datagram passes over loopback"),
        Err(error) => {
            let found = format!("no datagram passes over loopback: {error}");
            Finding::missing(Part::Socket, CHECK, found, "ip link set lo up; allow this program UDP sockets")
        }
    }
}

fn offload(send: bool) -> Finding {
    let (check, result) =
        if send { ("UDP GSO", probe::udp_segment()) } else { ("UDP GRO", probe::udp_gro()) };
    match result {
        Ok(()) => Finding::ok(Part::Socket, check, "the kernel takes it"),
        Err(error) => {
            let found = format!("refused ({error}): every packet costs a system call");
            Finding::note(Part::Socket, check, found, "run Linux 5.0 or later, without a sandbox like gVisor")
        }
    }
}

fn socket_buffer(kind: &'static str) -> Finding {
    let (check, setting) = match kind {
        "rmem" => ("receive buffer", "net.core.rmem_max"),
        _ => ("send buffer", "net.core.wmem_max"),
    };
    // The setting is not shown inside a network namespace on older kernels.
    let Some(bytes) =
        read(&format!("/proc/sys/net/core/{kind}_max")).and_then(|text| text.parse::<u64>().ok())
    else {
        return Finding::note(
            Part::Socket,
            check,
            "the limit is not shown here",
            format!("look at {setting} outside"),
        );
    };
    let wanted = u64::from(UdpOptions::default().queue_bytes);
    if bytes >= wanted {
        return Finding::ok(Part::Socket, check, format!("up to {} KiB", bytes >> 10));
    }
    let found = format!("up to {} KiB: bursts to a busy process are lost and sent again", bytes >> 10);
    Finding::note(Part::Socket, check, found, format!("sysctl -w {setting}={wanted}"))
}

fn nics_used() -> Finding {
    const CHECK: &str = "NICs";
    let found = match tsumugi_rail::nics::survey() {
        Ok(found) => found,
        Err(error) => {
            let found = format!("cannot be listed: {error}");
            return Finding::note(Part::Socket, CHECK, found, "allow this program getifaddrs(3)");
        }
    };
    match nics::idle(&found).or_else(|| nics::uneven_mtus(&found)) {
        Some((what, action)) => Finding::note(Part::Socket, CHECK, what, action),
        None if found.is_empty() => Finding::note(
            Part::Socket,
            CHECK,
            "none works: only this host is reached",
            "ip link set dev NIC up",
        ),
        None => Finding::ok(Part::Socket, CHECK, nics::list(&found)),
    }
}

fn open_files() -> Finding {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match most {
        Some(most) if most < OPEN_FILES_MIN => {
            let found = format!("{most} at most: MPI programs need {OPEN_FILES_MIN}");
            Finding::note(
                Part::Socket,
                OPEN_FILES,
                found,
                "ulimit -n 1024 (nofile in /etc/security/limits.conf)",
            )
        }
        Some(most) => Finding::ok(Part::Socket, OPEN_FILES, format!("up to {most}")),
        None => Finding::ok(Part::Socket, OPEN_FILES, "unlimited"),
    }
}

fn memlock() -> Finding {
    const CHECK: &str = MEMLOCK;
    match tsumugi_rail::pinned_bytes_max() {
        Ok(None) => Finding::ok(Part::Socket, CHECK, "unlimited"),
        Ok(Some(bytes)) if bytes >= 64 << 20 => {
            Finding::ok(Part::Socket, CHECK, format!("{} MiB", bytes >> 20))
        }
        Err(error) => Finding::note(Part::Socket, CHECK, format!("unknown: {error}"), "ulimit -l"),
        Ok(Some(bytes)) => {
            let found = format!("{} KiB: receive memory may be swapped out", bytes >> 10);
            Finding::note(
                Part::Socket,
                CHECK,
                found,
                "ulimit -l unlimited (memlock in /etc/security/limits.conf)",
            )
        }
    }
}

fn crc32c() -> Finding {
    const CHECK: &str = "CRC32C";
    #[cfg(target_arch = "x86_64")]
    let (there, feature) = (std::arch::is_x86_feature_detected!("sse4.2"), "SSE 4.2");
    #[cfg(target_arch = "aarch64")]
    let (there, feature) = (std::arch::is_aarch64_feature_detected!("crc"), "CRC extension");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let (there, feature) = (false, "no instruction known");
    if there {
        Finding::ok(Part::Socket, CHECK, format!("in hardware ({feature})"))
    } else {
        let found = format!("in software ({feature} lacks): checksums cost time");
        Finding::note(Part::Socket, CHECK, found, "let the virtual machine show the host's CPU")
    }
}

fn kernel_for_xdp() -> Finding {
    const CHECK: &str = "kernel 5.18";
    let release = kernel_release();
    if kernel_version() >= KERNEL_FOR_XDP {
        Finding::ok(Part::Xdp, CHECK, format!("Linux {release}"))
    } else {
        let found = format!("Linux {release} lacks bpf_xdp_load_bytes");
        Finding::missing(Part::Xdp, CHECK, found, "run Linux 5.18 or later; the socket receive path works")
    }
}

fn capabilities() -> Finding {
    const CHECK: &str = "capabilities";
    let effective = match rustix::thread::capabilities(None) {
        Ok(sets) => sets.effective,
        Err(error) => {
            let found = format!("unknown: capget(2): {error}");
            return Finding::missing(Part::Xdp, CHECK, found, "allow this program capget(2)");
        }
    };
    let held: Vec<_> = CAPABILITIES
        .iter()
        .filter(|(capability, _)| effective.contains(*capability))
        .map(|(_, name)| *name)
        .collect();
    // CAP_SYS_ADMIN stands in for CAP_BPF (capabilities(7)).
    if held.contains(&"NET_ADMIN") && (held.contains(&"BPF") || held.contains(&"SYS_ADMIN")) {
        Finding::ok(Part::Xdp, CHECK, held.join(" "))
    } else {
        let found = if held.is_empty() { "none".to_owned() } else { held.join(" ") };
        let action = "sudo: attaching needs CAP_BPF and CAP_NET_ADMIN, once";
        Finding::missing(Part::Xdp, CHECK, found, action)
    }
}

fn xdp() -> Finding {
    const CHECK: &str = "XDP program";
    match probe::load_xdp() {
        Ok(()) => Finding::ok(Part::Xdp, CHECK, "the kernel loads one"),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Finding::missing(Part::Xdp, CHECK, "not permitted to this user", "sudo tsumugi doctor")
        }
        Err(error) => {
            let found = format!("the kernel refuses to load one: {error}");
            Finding::missing(Part::Xdp, CHECK, found, "a kernel with CONFIG_BPF_SYSCALL")
        }
    }
}

fn bpffs() -> Finding {
    const CHECK: &str = "BPF file system";
    let bpf_file_systems = xdp::bpf_file_systems();
    let named = |is_open: bool| {
        let paths = bpf_file_systems.iter().filter(|mount| mount.is_open == is_open);
        paths.map(|mount| mount.path.display().to_string()).collect::<Vec<_>>().join(" and ")
    };
    let (open, shut) = (named(true), named(false));
    if !open.is_empty() {
        return Finding::ok(Part::Xdp, CHECK, format!("mounted on {open}"));
    }
    if shut.is_empty() {
        return Finding::note(Part::Xdp, CHECK, "none is mounted", "nothing to do: `tsumugi up` mounts one");
    }
    let action = "nothing to do: `sudo tsumugi up NIC --owner USER` mounts another for USER";
    Finding::note(Part::Xdp, CHECK, format!("{shut} is shut to this user"), action)
}

/// What this user can have of the XDP receive path, found by opening what there is.
fn attached() -> Finding {
    const CHECK: &str = ATTACHED;
    let status = match Pins::here().and_then(|pins| xdp::status(&pins)) {
        Ok(status) => status,
        Err(error) => {
            let text = error.to_string();
            let (found, action) = text.split_once("; ").unwrap_or((&text, "sudo tsumugi doctor"));
            let action =
                if std::path::Path::new("/proc/self").exists() { action } else { "mount -t proc proc /proc" };
            return Finding::missing(Part::Xdp, CHECK, found, action);
        }
    };
    if !xdp::IS_COMPILED {
        let found = "this build has no XDP program";
        return Finding::missing(Part::Xdp, CHECK, found, "install clang and libbpf-dev, and build again");
    }
    let dead = status.nics.iter().filter(|attached| !attached.is_attached()).map(ToString::to_string);
    let lost = dead.chain(status.strangers.iter().map(ToString::to_string)).collect::<Vec<_>>().join(", ");
    let nics: Vec<String> = status
        .nics
        .iter()
        .filter(|attached| attached.is_attached())
        .map(|attached| format!("{} ({})", attached.nic.as_deref().unwrap_or("gone"), attached.mode))
        .collect();
    let nics = nics.join(", ");
    let free = status.ports.iter().filter(|port| port.is_free_for_us()).count();
    let ours = status.ports.iter().filter(|port| !port.counters.is_empty()).count();
    match (nics.is_empty(), ours, free) {
        (true, ..) if !lost.is_empty() => {
            let remedy = status.strangers.first().map_or("sudo tsumugi up NIC".to_owned(), Stranger::remedy);
            Finding::missing(Part::Xdp, CHECK, format!("on no NIC: {lost}"), remedy)
        }
        (false, ..) if !lost.is_empty() => {
            Finding::note(Part::Xdp, CHECK, format!("{nics}; {lost}"), "tsumugi status")
        }
        (true, ..) => Finding::missing(Part::Xdp, CHECK, "on no NIC", "sudo tsumugi up NIC"),
        (false, 0, _) => {
            let found = format!(
                "{nics}; of {} endpoints this user can open none: they are for {}",
                status.ports.len(),
                whose(&status.ports)
            );
            let nic = status.nics.iter().find_map(|attached| attached.nic.as_deref()).unwrap_or("NIC");
            let port = status.ports.last().map_or(DEFAULT_PORT, |last| last.port.saturating_add(1));
            let action = format!(
                "sudo tsumugi up {nic} --owner {} --port {port}; in a container also allow this program bpf(2)",
                super::user::user()
            );
            Finding::missing(Part::Xdp, CHECK, found, action)
        }
        (false, _, 0) => {
            let found = format!("{nics}; of {ours} endpoints that this user may have none is free");
            Finding::note(Part::Xdp, CHECK, found, "sudo tsumugi up NIC --endpoints N")
        }
        (false, _, free) => {
            let all = status.ports.len();
            Finding::ok(
                Part::Xdp,
                CHECK,
                format!("{nics}; {free} endpoints free, of {ours} for this user and {all} in all"),
            )
        }
    }
}

/// Who may use endpoints: owner, group and permissions, once each.
fn whose(ports: &[PortStatus]) -> String {
    let mut all: Vec<String> = ports.iter().map(crate::xdp::access).collect();
    all.dedup();
    all.join(", ")
}

/// The NICs' names.
fn nic_names() -> Vec<String> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "lo").collect()
}

fn mtu() -> Finding {
    const CHECK: &str = "MTU";
    let excess = nic_names().into_iter().find_map(|nic| xdp::mtu_excess(&nic).map(|excess| (nic, excess)));
    match excess {
        None => Finding::ok(Part::Xdp, CHECK, "no driver here is known to lose long packets"),
        Some((nic, MtuExcess { mtu_bytes, max_bytes })) => {
            let found = format!("{nic}: {mtu_bytes}; under a program its driver drops over {max_bytes}");
            let action = format!("sudo ip link set dev {nic} mtu {max_bytes} (or run Linux 6.3 or later)");
            Finding::missing(Part::Xdp, CHECK, found, action)
        }
    }
}

fn busy_polling() -> Finding {
    const CHECK: &str = "busy polling";
    let (can, cannot) = nic_names().into_iter().partition::<Vec<_>, _>(|name| xdp::can_busy_poll(name));
    match (can.is_empty(), cannot.is_empty()) {
        (false, _) => Finding::ok(Part::Xdp, CHECK, format!("possible on {}", can.join(", "))),
        (true, false) => {
            let found = format!("not on {}: virtual, without interrupts of their own", cannot.join(", "));
            Finding::note(Part::Xdp, CHECK, found, "nothing to do: wait with spin or adaptive")
        }
        _ => Finding::note(Part::Xdp, CHECK, "no NIC", "nothing to do: wait with spin or adaptive"),
    }
}

fn tools() -> Finding {
    const CHECK: &str = "tools";
    let tools = [("ip", "iproute2"), ("tc", "iproute2"), ("ethtool", "ethtool")];
    let mut packages: Vec<_> =
        tools.iter().filter(|(tool, _)| tsumugi_lab::find_tool(tool).is_none()).map(|(_, p)| *p).collect();
    packages.dedup();
    if packages.is_empty() {
        Finding::ok(Part::Lab, CHECK, "ip, tc and ethtool are installed")
    } else {
        let packages = packages.join(" ");
        let action = format!("sudo apt-get install {packages}");
        Finding::missing(Part::Lab, CHECK, format!("of {packages}: not installed"), action)
    }
}

/// Makes a lab with everything a lab can have, and removes it.
fn namespaces() -> Finding {
    const CHECK: &str = "namespaces";
    if !geteuid().is_root() {
        return Finding::note(Part::Lab, CHECK, "not tried: needs root", "sudo tsumugi doctor");
    }
    let rate = "1gbit".parse().ok();
    let spec = Spec { nodes: 1, rate, offloads: false, wire: Some(Wire::Switch), ..Spec::unique("doctor") };
    match crate::uninterrupted(|| Lab::up(&spec).and_then(|lab| Ok((lab.wire(), lab.down()?)))) {
        Ok((Wire::Router, _)) => {
            let found = "work, but the kernel has no bridge: labs forward by routes";
            Finding::note(Part::Lab, CHECK, found, "nothing to do, or a kernel with CONFIG_BRIDGE")
        }
        Ok(_) => Finding::ok(Part::Lab, CHECK, "network, UTS, veth, bridge and rate limits work"),
        Err(error) => {
            let action = "a kernel with NET_NS, UTS_NS, VETH and NET_SCH_TBF; in a container: --privileged";
            Finding::missing(Part::Lab, CHECK, error.to_string(), action)
        }
    }
}

fn leftovers() -> Finding {
    const CHECK: &str = "labs";
    let labs = Lab::list();
    let broken: Vec<_> = labs.iter().filter(|name| Lab::open(name).is_err()).cloned().collect();
    match (labs.is_empty(), broken.is_empty()) {
        (true, _) => Finding::ok(Part::Lab, CHECK, "none"),
        (false, true) => Finding::ok(Part::Lab, CHECK, format!("up: {}", labs.join(", "))),
        (false, false) => {
            let found = format!("left half-made: {}", broken.join(", "));
            Finding::note(Part::Lab, CHECK, found, format!("sudo tsumugi lab down --name {}", broken[0]))
        }
    }
}

fn cores() -> Finding {
    const CHECK: &str = "cores";
    match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => {
            let action = "measure with --wait adaptive or between two machines";
            Finding::note(Part::Measuring, CHECK, "1: two spinning ends cannot be timed", action)
        }
        more => Finding::ok(Part::Measuring, CHECK, more.to_string()),
    }
}

fn clock() -> Finding {
    const CHECK: &str = "clock";
    const READS: u32 = 10_000;
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let source = source.unwrap_or_else(|| "unknown".to_owned());
    let begun = Instant::now();
    for _ in 0..READS {
        std::hint::black_box(Instant::now());
    }
    let ns = begun.elapsed().as_nanos() / u128::from(READS);
    let found = format!("{source}, {ns} ns per reading");
    // Read through the vDSO a clock costs some 20 to 50 ns, through the kernel and a device a microsecond.
    if matches!(source.as_str(), "tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page") {
        Finding::ok(Part::Measuring, CHECK, found)
    } else {
        let action = "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource";
        Finding::note(Part::Measuring, CHECK, found, action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_here_is_said_completely() {
        for finding in [
            kernel(),
            udp(),
            offload(true),
            nics_used(),
            memlock(),
            open_files(),
            crc32c(),
            xdp(),
            bpffs(),
            attached(),
            mtu(),
            busy_polling(),
            kernel_taint(),
            cores(),
            clock(),
        ] {
            assert!(!finding.found.is_empty(), "{finding:?}");
            assert_eq!(finding.verdict == super::super::Verdict::Ok, finding.action.is_none(), "{finding:?}");
        }
    }
}
