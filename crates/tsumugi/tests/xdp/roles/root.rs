//! What root does: puts the program on a NIC and takes it off again.

use super::Settings;
use crate::cluster::{NIC, PORT, eventually};
use crate::process::{Orders, say, stand_still};
use aya::maps::{MapData, MapInfo};
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::{loaded_links, loaded_programs};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use tsumugi_rail::xdp::{self, Access, Claim, Pins, PoolOptions, Wanted, XdpError};
use tsumugi_wire::memory::Geometry;

fn options(settings: &Settings<'_>) -> PoolOptions {
    let default = PoolOptions::GEOMETRY;
    let (flows, ring_bytes) = (settings.get("flows"), settings.get("ring"));
    let translations = settings.get("translations");
    let sized = flows.is_some() || ring_bytes.is_some() || translations.is_some();
    let geometry = sized.then(|| Geometry {
        flows: flows.unwrap_or(default.flows),
        ring_bytes: ring_bytes.unwrap_or(default.ring_bytes),
        translations: translations.unwrap_or(default.translations),
        ..default
    });
    let owner = settings.get("owner");
    PoolOptions {
        first_port: settings.get("port").unwrap_or(PORT),
        endpoints: settings.get("endpoints").unwrap_or(2),
        geometry,
        access: Access { owner, group: owner, mode: 0o600 },
        mode: settings.get("xdp"),
        busy_poll: false,
    }
}

fn attach(settings: &Settings<'_>) -> Result<(), XdpError> {
    let nic = settings.get("nic").unwrap_or_else(|| NIC.to_owned());
    xdp::up(&Pins::here()?, &[nic], &options(settings)).map(drop)
}

/// Attaches the program; says `done`, or why not.
pub(super) fn up(settings: &Settings<'_>) {
    match attach(settings) {
        Ok(()) => say("done"),
        Err(error) => say(format!("{error:?}: {error}")),
    }
}

/// Attaches the program and stays. In a BPF file system of its own, it is somebody else's program.
pub(super) fn up_for_ever(settings: &Settings<'_>) {
    up(settings);
    stand_still();
}

/// Detaches the program from everything.
pub(super) fn down() {
    xdp::down(&Pins::here().unwrap(), &[]).unwrap();
    say("done");
}

/// Takes the program off the NICs and leaves the links pinned, as `bpftool link detach` does.
pub(super) fn detach() {
    const BPF_OBJ_GET: libc::c_long = 7;
    const BPF_LINK_DETACH: libc::c_long = 34;
    let bpf = |command: libc::c_long, attributes: &[u64; 2]| {
        let bytes = size_of_val(attributes);
        // SAFETY: the attributes are as long as said; they and the path that they name outlive the call, which reads
        // them.
        let done = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), bytes) };
        assert!(done >= 0, "{}", std::io::Error::last_os_error());
        done as u64
    };
    for pin in files(&Pins::here().unwrap().folder().join("nics")) {
        let path = CString::new(pin.to_str().expect("a name")).expect("without a 0");
        // A path or a descriptor, and flags. The descriptor goes with the process.
        let link = bpf(BPF_OBJ_GET, &[path.as_ptr() as u64, 0]);
        bpf(BPF_LINK_DETACH, &[link, 0]);
    }
    say("done");
}

/// Says what there is.
pub(super) fn status() {
    let status = xdp::status(&Pins::here().unwrap()).unwrap();
    for nic in status.nics {
        let mode = if nic.is_attached() { nic.mode.to_string() } else { "lost".to_owned() };
        say(format!("nic {} {mode}", nic.nic.unwrap_or_default()));
    }
    for port in status.ports {
        let claimed = u8::from(port.claimed);
        let mut line = format!("port {} claimed={claimed} epoch={}", port.port, port.epoch);
        for (name, value) in port.counters {
            line += &format!(" {name}={value}");
        }
        say(line);
    }
    say("end");
}

/// What the kernel has loaded, by number.
#[derive(Debug, Default)]
struct Loaded {
    links: BTreeSet<u32>,
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
}

impl Loaded {
    /// What is pinned below a folder, and what that brings with it.
    fn pinned(folder: &Path) -> Loaded {
        let mut loaded = Loaded::default();
        for pin in files(folder) {
            if pin.parent().and_then(Path::file_name).is_some_and(|parent| parent == "nics") {
                let link =
                    FdLink::from(PinnedLink::from_pin(&pin).expect("a link")).info().expect("its numbers");
                loaded.links.insert(link.id());
                loaded.programs.insert(link.program_id());
            } else {
                let map = MapData::from_pin(&pin).expect("a map").info().expect("its number");
                loaded.maps.insert(map.id());
            }
        }
        // The program's constants are a map that is not pinned. What is unloaded while we look is somebody else's.
        for program in loaded_programs().filter_map(Result::ok) {
            if loaded.programs.contains(&program.id()) {
                loaded.maps.extend(program.map_ids().expect("its maps").expect("Linux says"));
            }
        }
        loaded
    }

    /// Those that are still there.
    fn left(&self) -> Loaded {
        let links = loaded_links().filter_map(Result::ok).map(|link| link.id());
        let programs = loaded_programs().filter_map(Result::ok).map(|program| program.id());
        Loaded {
            links: links.filter(|id| self.links.contains(id)).collect(),
            programs: programs.filter(|id| self.programs.contains(id)).collect(),
            maps: self.maps.iter().copied().filter(|id| MapInfo::from_id(*id).is_ok()).collect(),
        }
    }

    fn count(&self) -> usize {
        self.links.len() + self.programs.len() + self.maps.len()
    }
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { files.extend(self::files(&path)) } else { files.push(path) }
    }
    files
}

/// A process that says at once what the kernel knows of the NIC.
struct Links {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Drop for Links {
    fn drop(&mut self) {
        // Without orders it ends.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

impl Links {
    fn start() -> Links {
        let mut command = Command::new("ip");
        command.args(["-oneline", "-details", "-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Links { process, answers }
    }

    fn show(&mut self) -> String {
        writeln!(self.process.stdin.as_mut().unwrap(), "link show {NIC}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer
    }
}

/// Attaches and detaches the program again and again, and sees that nothing is left each time. Says how many things
/// the kernel had loaded meanwhile.
pub(super) fn again_and_again(settings: &Settings<'_>) {
    let pins = Pins::here().unwrap();
    let mut links = Links::start();
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let (mut all, before) = (Loaded::default(), descriptors());
    for _ in 0..settings.get("times").unwrap() {
        attach(settings).unwrap();
        let loaded = Loaded::pinned(pins.folder());
        all.links.extend(&loaded.links);
        all.programs.extend(&loaded.programs);
        all.maps.extend(&loaded.maps);
        xdp::down(&pins, &[]).unwrap();
        assert!(!pins.folder().exists(), "{:?}", files(pins.folder()));
        assert_eq!(descriptors(), before, "open files");
        // At once: the next may be somebody else's.
        let nic = links.show();
        assert!(nic.contains(NIC) && !nic.contains("xdp"), "{nic}");
    }
    // The kernel puts some of it away a little later.
    let mut left = all.left();
    eventually("everything to be unloaded", || {
        left = left.left();
        (left.count() == 0).then_some(())
    });
    say(format!("{} {} {}", all.links.len(), all.programs.len(), all.maps.len()));
}

/// Opens an endpoint's memory past the library; says `done`, or why not.
pub(super) fn map_memory(settings: &Settings<'_>) {
    let port: u16 = settings.get("port").unwrap();
    let pools = fs::read_dir(Pins::here().unwrap().folder()).unwrap().flatten().map(|entry| entry.path());
    let memory = pools
        .map(|pool| pool.join(format!("ports/{port}/memory")))
        .find(|pin| pin.parent().is_some_and(Path::exists));
    match MapData::from_pin(memory.expect("a memory")) {
        Ok(_) => say("done"),
        Err(error) => say(format!("{error:?}")),
    }
}

/// Claims an endpoint's memory, as its next owner does, and says how many words of it are not 0, but for those that
/// say how big it is.
pub(super) fn look_into_memory(settings: &Settings<'_>) {
    let orders = Orders::listen();
    let wanted = Wanted::Port(settings.get("port").unwrap());
    let claimed = Claim::take(&Pins::here().unwrap(), wanted, |_| Ok::<_, XdpError>(Some(()))).unwrap();
    let (claim, ()) = claimed.expect("it is free");
    let memory = claim.memory().unwrap();
    let words = memory.words().iter().skip(3);
    say(words.filter(|word| word.load(std::sync::atomic::Ordering::Relaxed) != 0).count());
    orders.next();
}
