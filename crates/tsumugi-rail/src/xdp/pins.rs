//! Where things lie in the BPF file system.
//!
//! ```text
//! PLACE/tsumugi/4026532201-12288/     one network namespace, by its inode number and its cookie
//!     programs/118                    the number of a program that `up` has loaded; a folder
//!     nics/7-native                   the attachment to NIC 7; removing it detaches the program
//!     nics/8-native-0-0               the same, of a NIC set for busy polling, and how it was set before
//!     pool-1-1024-2097152-320-320/    layout 1, 1024 flows, 2 MiB of ring, 320 pages of window, 320 translations
//!         endpoints, bells            the program's maps from UDP ports
//!         ports/7411/                 one endpoint; whoever has this folder locked has the endpoint
//!             memory, bell
//! PLACE/tsumugi/switch-4026532201-12288/     its switch box
//!     programs/120, nics/9-tc         as above
//!     places, ports, counts           the program's maps
//!     rules/300-10000                 seconds of ageing, floods a second
//!     changed/made-7667712            what `switch up` has changed of the NIC with this index (`switch/changes.rs`)
//! ```
//!
//! PLACE is `/sys/fs/bpf`, or `/run/tsumugi/bpf` where that one is shut to those who are served (`xdp/bpf_fs.rs`).
//!
//! Names carry what must be known of things, because nothing else can be stored here, and what lies here is
//! root's: an endpoint's memory, which its owner can write, is not believed when it says how big it is. The kernel
//! takes a lock off a folder with the process that had it, however that ended.
//!
//! What is pinned outlives the network namespace. The next one to be made gets the former's inode number, but never its
//! cookie; so nothing of the former is taken for its own, and `up` and `down` remove it.

use super::access::Access;
use super::error::failed;
use super::{Mode, XdpError, bpf_fs};
use crate::sys::{self, Own};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use tsumugi_wire::limits::VERSION;
use tsumugi_wire::memory::Geometry;

/// What the name of a switch box's folder begins with.
const SWITCH: &str = "switch-";

/// The folder of one network namespace in the BPF file system.
#[derive(Clone, Debug)]
pub struct Pins {
    folder: PathBuf,
    /// What the folder's name begins with.
    prefix: &'static str,
    /// Inode number of the namespace.
    number: u64,
    /// Its cookie.
    cookie: u64,
}

/// A pool's folder and what its name says.
#[derive(Clone, Debug)]
pub(super) struct PoolFolder {
    pub(super) path: PathBuf,
    pub(super) layout: u8,
    pub(super) geometry: Geometry,
}

impl Pins {
    /// The folder of the network namespace that the calling thread is in.
    ///
    /// # Errors
    /// The namespace has no number: /proc is not mounted.
    pub fn here() -> Result<Pins, XdpError> {
        Pins::of("")
    }

    /// The folder of the switch box in the network namespace that the calling thread is in.
    pub(crate) fn of_the_switch() -> Result<Pins, XdpError> {
        Pins::of(SWITCH)
    }

    fn of(prefix: &'static str) -> Result<Pins, XdpError> {
        let namespace = Path::new("/proc/thread-self/ns/net");
        let number = fs::metadata(namespace)
            .map(|metadata| std::os::unix::fs::MetadataExt::ino(&metadata))
            .map_err(failed("asking for the network namespace", namespace))?;
        let cookie =
            sys::network_namespace_cookie().map_err(failed("asking for the cookie of", namespace))?;
        let within =
            |place: &Path| Pins { folder: folder_in(place, prefix, number, cookie), prefix, number, cookie };
        let places = bpf_fs::all().map(within);
        // Where nothing is to be found, a place that cannot be looked into is what is to be said.
        let is = |what: fn(&io::Result<fs::Metadata>) -> bool| {
            places.iter().find(|pins| what(&fs::metadata(&pins.folder)))
        };
        let shut = |found: &io::Result<fs::Metadata>| {
            found.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
        };
        Ok(is(Result::is_ok).or_else(|| is(shut)).unwrap_or(&places[0]).clone())
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes the folder where it is not, in a place that those can reach whom `access` names, and locks it against
    /// other changes.
    pub(crate) fn make(&self, access: Access) -> Result<(Pins, Own<File>), XdpError> {
        if self.folder.is_dir() {
            let place = bpf_fs::of(&self.folder);
            if !bpf_fs::is_reachable(&self.folder, access) {
                return Err(XdpError::OutOfReach(place));
            }
            return Ok((self.clone(), self.lock_made()?));
        }
        let (place, _guard) = bpf_fs::choose(access)?;
        let pins = Pins { folder: folder_in(place, self.prefix, self.number, self.cookie), ..*self };
        let lock = pins.lock_made()?;
        Ok((pins, lock))
    }

    /// Makes the folder where it is not, and locks it. Another command may remove it before it is locked.
    fn lock_made(&self) -> Result<Own<File>, XdpError> {
        loop {
            make_folder(&self.folder)?;
            if let Some(lock) = self.lock()? {
                make_folder(&self.nics())?;
                return Ok(lock);
            }
        }
    }

    /// What is pinned for namespaces that are gone: they had the number that this one has.
    pub(crate) fn of_the_dead(&self) -> Vec<Pins> {
        let all =
            bpf_fs::all().into_iter().flat_map(|place| entries(&place.join("tsumugi")).unwrap_or_default());
        let is_dead = |folder: &PathBuf| {
            let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(name) = name.strip_prefix(self.prefix) else { return false };
            // Older versions named the number alone.
            let (number, cookie) = name.split_once('-').unwrap_or((name, ""));
            number == self.number.to_string() && cookie != self.cookie.to_string()
        };
        all.filter(is_dead).map(|folder| Pins { folder, ..*self }).collect()
    }

    /// Locks the folder against other changes. `None`: it is not there.
    pub(crate) fn lock(&self) -> Result<Option<Own<File>>, XdpError> {
        sys::lock_folder(&self.folder, true).map_err(failed("locking", &self.folder))
    }

    /// Removes the folder when nothing is left in it.
    pub(crate) fn clear(&self) -> Result<(), XdpError> {
        self.forget_programs(&[])?;
        for folder in [self.programs(), self.nics(), self.folder.clone()] {
            remove(&folder)?;
        }
        // Another namespace may still need the folder of them all.
        if let Some(all) = self.folder.parent() {
            let _ = fs::remove_dir(all);
        }
        Ok(())
    }

    fn programs(&self) -> PathBuf {
        self.folder.join("programs")
    }

    /// Has a program that was loaded taken for ours wherever it is attached.
    pub(crate) fn remember_program(&self, id: u32) -> Result<(), XdpError> {
        make_folder(&self.programs().join(id.to_string()))
    }

    /// The numbers of our programs.
    pub(crate) fn known_programs(&self) -> Result<Vec<u32>, XdpError> {
        let number = |path: PathBuf| path.file_name()?.to_str()?.parse().ok();
        Ok(entries(&self.programs())?.into_iter().filter_map(number).collect())
    }

    /// Forgets all programs but these.
    pub(crate) fn forget_programs(&self, but: &[u32]) -> Result<(), XdpError> {
        let mut gone = self.known_programs()?.into_iter().filter(|id| !but.contains(id));
        gone.try_for_each(|id| remove(&self.programs().join(id.to_string())))
    }

    pub(crate) fn nics(&self) -> PathBuf {
        self.folder.join("nics")
    }

    pub(super) fn nic(&self, index: u32, mode: Mode) -> PathBuf {
        self.nics().join(format!("{index}-{mode}"))
    }

    pub(super) fn pool(&self, geometry: Geometry) -> PoolFolder {
        let Geometry { flows, ring_bytes, window_pages, translations } = geometry;
        let name = format!("pool-{VERSION}-{flows}-{ring_bytes}-{window_pages}-{translations}");
        let path = self.folder.join(name);
        PoolFolder { path, layout: VERSION, geometry }
    }

    /// The pool that is there.
    pub(super) fn find_pool(&self) -> Result<Option<PoolFolder>, XdpError> {
        for path in entries(&self.folder)? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let numbers = name.strip_prefix("pool-").unwrap_or_default().split('-');
            let numbers: Result<Vec<u32>, _> = numbers.map(str::parse).collect();
            let found = match numbers.as_deref() {
                Ok(&[layout, flows, ring_bytes, window_pages, translations]) => {
                    let ring_bytes = ring_bytes.into();
                    Some((layout as u8, Geometry { flows, ring_bytes, window_pages, translations }))
                }
                // From before there were windows; only good to be removed.
                Ok(&[_, flows, ring_bytes]) => Some((0, Geometry::plain(flows, ring_bytes.into()))),
                _ => None,
            };
            if let Some((layout, geometry)) = found {
                return Ok(Some(PoolFolder { path, layout, geometry }));
            }
        }
        Ok(None)
    }
}

impl PoolFolder {
    pub(super) fn ports(&self) -> PathBuf {
        self.path.join("ports")
    }

    pub(super) fn port(&self, port: u16) -> PathBuf {
        self.ports().join(port.to_string())
    }

    /// The ports that there are memories for, in order.
    pub(super) fn list(&self) -> Result<Vec<u16>, XdpError> {
        let number = |path: PathBuf| path.file_name()?.to_str()?.parse().ok();
        let mut ports: Vec<u16> = entries(&self.ports())?.into_iter().filter_map(number).collect();
        ports.sort_unstable();
        Ok(ports)
    }

    /// Says what the memories are like.
    pub(super) fn describe(&self) -> String {
        let Geometry { flows, ring_bytes, window_pages, translations } = self.geometry;
        format!(
            "layout {}, {flows} flows, {ring_bytes} bytes of ring, {window_pages} pages of window, {translations} translations",
            self.layout
        )
    }
}

fn folder_in(place: &Path, prefix: &str, number: u64, cookie: u64) -> PathBuf {
    place.join("tsumugi").join(format!("{prefix}{number}-{cookie}"))
}

/// What lies in a folder; nothing when it is not there.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, XdpError> {
    let listed = fs::read_dir(folder)
        .and_then(|list| list.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>());
    match listed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(XdpError::Shut(bpf_fs::of(folder)))
        }
        listed => listed.map_err(failed("listing", folder)),
    }
}

/// Makes a folder and those above it, for everyone to look into.
pub(crate) fn make_folder(path: &Path) -> Result<(), XdpError> {
    bpf_fs::make_public(path).map_err(failed("making", path))
}

/// Removes a file or an empty folder; no error when it is not there.
pub(crate) fn remove(path: &Path) -> Result<(), XdpError> {
    let removed = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(failed("removing", path)),
    }
}
