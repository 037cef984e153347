//! libfabric as a C program sees it: what it exports, and the tables of functions behind what it opens.

#![allow(clippy::missing_safety_doc, reason = "tests")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::ptr::{self, null_mut};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tsumugi_fi::abi::*;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

type Getinfo =
    unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int;
type Fabric = unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int;

/// What libfabric exports.
pub(crate) struct Host {
    getinfo: Getinfo,
    fabric: Fabric,
    dupinfo: fi_dupinfo_fn,
    freeinfo: fi_freeinfo_fn,
}

/// libfabric, which finds the provider that was built with this test; `None` where it is not installed.
pub(crate) fn host() -> Option<&'static Host> {
    static HOST: LazyLock<Option<Host>> = LazyLock::new(|| {
        let folder = provider();
        // SAFETY: set before libfabric is loaded, which reads it once, and nobody else reads the environment meanwhile: every test
        // begins with this.
        unsafe {
            std::env::set_var("FI_PROVIDER_PATH", &folder);
            std::env::set_var("FI_PROVIDER", "tsumugi");
            std::env::set_var("FI_TSUMUGI_CLOSE_TIMEOUT", "0.1");
        }
        // SAFETY: libfabric may be loaded, and its functions have these types (tests/abi.rs).
        unsafe {
            let library = libc::dlopen(c"libfabric.so.1".as_ptr(), libc::RTLD_NOW);
            if library.is_null() {
                assert!(std::env::var_os("CI").is_none(), "libfabric is not installed: `make setup`");
                eprintln!("not tried: libfabric is not installed");
                return None;
            }
            let find = |name: &str| {
                let name = CString::new(name).unwrap();
                let found = libc::dlsym(library, name.as_ptr());
                assert!(!found.is_null(), "libfabric has no {name:?}");
                found
            };
            Some(Host {
                getinfo: std::mem::transmute::<*mut c_void, Getinfo>(find("fi_getinfo")),
                fabric: std::mem::transmute::<*mut c_void, Fabric>(find("fi_fabric")),
                dupinfo: std::mem::transmute::<*mut c_void, fi_dupinfo_fn>(find("fi_dupinfo")),
                freeinfo: std::mem::transmute::<*mut c_void, fi_freeinfo_fn>(find("fi_freeinfo")),
            })
        }
    });
    HOST.as_ref()
}

/// A folder with the provider under a name that libfabric takes.
fn provider() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().join("libtsumugi_fi.so");
    let folder = folder_of(std::process::id());
    std::fs::create_dir_all(&folder).unwrap();
    let link = folder.join(PROVIDER);
    let _ = std::fs::remove_file(&link);
    symlink(&built, &link).unwrap();
    // It stays as long as the process lives, so that backtraces find the provider's symbols.
    // SAFETY: the function may be called when the process ends.
    assert_eq!(unsafe { libc::atexit(remove_folder) }, 0);
    folder
}

/// Needs no further open file: a test may have none left.
extern "C" fn remove_folder() {
    let folder = folder_of(std::process::id());
    let _ = std::fs::remove_file(folder.join(PROVIDER));
    let _ = std::fs::remove_dir(folder);
}

/// What the provider's file is called in there.
const PROVIDER: &str = "libtsumugi-fi.so";

/// The folder that a process makes for the provider.
pub(crate) fn folder_of(process: u32) -> PathBuf {
    std::env::temp_dir().join(format!("tsumugi-provider-{process}"))
}

/// A description, freed with this.
pub(crate) struct Info(pub(crate) *mut fi_info);

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: libfabric made it.
        unsafe { (host().unwrap().freeinfo)(self.0) };
    }
}

impl Info {
    pub(crate) fn hints() -> Info {
        // SAFETY: of null it makes a new one.
        let info = Info(unsafe { (host().unwrap().dupinfo)(ptr::null()) });
        // SAFETY: it has all its attributes.
        unsafe {
            (*info.0).caps =
                FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV;
            (*(*info.0).ep_attr).r#type = FI_EP_RDM;
            (*info.0).mode = FI_CONTEXT;
        }
        info
    }

    /// What is offered on the loopback interface, or the error code.
    pub(crate) fn get(&self) -> Result<Info, c_int> {
        self.get_at(Some("127.0.0.1"), FI_SOURCE, FI_VERSION(1, 17))
    }

    pub(crate) fn get_at(&self, node: Option<&str>, flags: u64, version: u32) -> Result<Info, c_int> {
        let node = node.map(|node| CString::new(node).unwrap());
        let mut found = null_mut();
        // SAFETY: strings and hints are whole.
        let code = unsafe {
            let node = node.as_ref().map_or(ptr::null(), |node| node.as_ptr());
            (host().unwrap().getinfo)(version, node, ptr::null(), flags, self.0, &raw mut found)
        };
        if code == 0 { Ok(Info(found)) } else { Err(-code) }
    }
}

pub(crate) fn close(fid: *mut fid) -> c_int {
    // SAFETY: an open object.
    unsafe { (*(*fid).ops).close.unwrap()(fid) }
}

pub(crate) fn bind(fid: *mut fid, to: *mut fid, flags: u64) -> c_int {
    // SAFETY: open objects.
    unsafe { (*(*fid).ops).bind.unwrap()(fid, to, flags) }
}

pub(crate) fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: an open object; the argument is what the command says.
    unsafe { (*(*fid).ops).control.unwrap()(fid, command, arg) }
}

/// What a side is opened with.
#[derive(Clone, Copy)]
pub(crate) struct SideOptions {
    pub(crate) format: fi_cq_format,
    pub(crate) wait: fi_wait_obj,
    pub(crate) selective: u64,
    pub(crate) threading: fi_threading,
    pub(crate) progress: fi_progress,
    pub(crate) mr_mode: c_int,
}

impl Default for SideOptions {
    fn default() -> SideOptions {
        SideOptions {
            format: FI_CQ_FORMAT_TAGGED,
            wait: FI_WAIT_NONE,
            selective: 0,
            threading: FI_THREAD_SAFE,
            progress: FI_PROGRESS_MANUAL,
            mr_mode: 0,
        }
    }
}

/// An endpoint and what it needs.
pub(crate) struct Side {
    pub(crate) fabric: *mut fid_fabric,
    pub(crate) domain: *mut fid_domain,
    pub(crate) av: *mut fid_av,
    pub(crate) cq: *mut fid_cq,
    pub(crate) cntr: *mut fid_cntr,
    pub(crate) ep: *mut fid_ep,
    options: SideOptions,
}

impl Side {
    pub(crate) fn open(options: SideOptions) -> Side {
        let side = Side::unbound(options);
        side.bind_all();
        assert_eq!(side.enable(), 0);
        side
    }

    /// With an endpoint that is bound to nothing.
    pub(crate) fn unbound(options: SideOptions) -> Side {
        let hints = Info::hints();
        // SAFETY: everything is whole and open.
        unsafe {
            (*(*hints.0).domain_attr).threading = options.threading;
            (*(*hints.0).domain_attr).data_progress = options.progress;
            (*(*hints.0).domain_attr).mr_mode = options.mr_mode;
            let info = hints.get().unwrap();
            let mut side = Side {
                fabric: null_mut(),
                domain: null_mut(),
                av: null_mut(),
                cq: null_mut(),
                cntr: null_mut(),
                ep: null_mut(),
                options,
            };
            let open = host().unwrap().fabric;
            assert_eq!(open((*info.0).fabric_attr, &raw mut side.fabric, null_mut()), 0);
            let fabric = side.fabric;
            assert_eq!((*(*fabric).ops).domain.unwrap()(fabric, info.0, &raw mut side.domain, null_mut()), 0);
            (side.av, side.cq, side.cntr) = (side.open_av(), side.open_cq(), side.open_cntr());
            let open = (*(*side.domain).ops).endpoint.unwrap();
            assert_eq!(open(side.domain, info.0, &raw mut side.ep, null_mut()), 0);
            side
        }
    }

    /// A further address vector.
    pub(crate) fn open_av(&self) -> *mut fid_av {
        let mut av = null_mut();
        // SAFETY: an open domain.
        unsafe {
            let mut attr: fi_av_attr = std::mem::zeroed();
            let open = (*(*self.domain).ops).av_open.unwrap();
            assert_eq!(open(self.domain, &raw mut attr, &raw mut av, null_mut()), 0);
            assert_eq!(attr.r#type, FI_AV_TABLE);
        }
        av
    }

    /// A further completion queue.
    pub(crate) fn open_cq(&self) -> *mut fid_cq {
        let mut cq = null_mut();
        // SAFETY: an open domain.
        unsafe {
            let mut attr: fi_cq_attr = std::mem::zeroed();
            (attr.format, attr.wait_obj) = (self.options.format, self.options.wait);
            let open = (*(*self.domain).ops).cq_open.unwrap();
            assert_eq!(open(self.domain, &raw mut attr, &raw mut cq, null_mut()), 0);
        }
        cq
    }

    /// A further counter.
    pub(crate) fn open_cntr(&self) -> *mut fid_cntr {
        let mut cntr = null_mut();
        // SAFETY: an open domain.
        unsafe {
            let mut attr: fi_cntr_attr = std::mem::zeroed();
            attr.wait_obj = self.options.wait;
            let open = (*(*self.domain).ops).cntr_open.unwrap();
            assert_eq!(open(self.domain, &raw mut attr, &raw mut cntr, null_mut()), 0);
        }
        cntr
    }

    /// An event queue.
    pub(crate) fn open_eq(&self, flags: u64) -> *mut fid_eq {
        let mut eq = null_mut();
        // SAFETY: an open fabric.
        unsafe {
            let mut attr: fi_eq_attr = std::mem::zeroed();
            (attr.wait_obj, attr.flags) = (FI_WAIT_UNSPEC, flags);
            let open = (*(*self.fabric).ops).eq_open.unwrap();
            assert_eq!(open(self.fabric, &raw mut attr, &raw mut eq, null_mut()), 0);
        }
        eq
    }

    /// Binds the endpoint to everything that it needs.
    pub(crate) fn bind_all(&self) {
        // SAFETY: open objects.
        unsafe {
            let ep = &raw mut (*self.ep).fid;
            assert_eq!(bind(ep, &raw mut (*self.av).fid, 0), 0);
            let flags = FI_TRANSMIT | FI_RECV | self.options.selective;
            assert_eq!(bind(ep, &raw mut (*self.cq).fid, flags), 0);
            let flags = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
            assert_eq!(bind(ep, &raw mut (*self.cntr).fid, flags), 0);
        }
    }

    pub(crate) fn enable(&self) -> c_int {
        // SAFETY: an open endpoint.
        control(unsafe { &raw mut (*self.ep).fid }, FI_ENABLE, null_mut())
    }

    /// The endpoint's address.
    pub(crate) fn name(&self) -> Vec<u8> {
        let (mut name, mut length) = (vec![0u8; 64], 64);
        // SAFETY: there is so much room.
        unsafe {
            let ep = self.ep;
            let getname = (*(*ep).cm).getname.unwrap();
            assert_eq!(getname(&raw mut (*ep).fid, name.as_mut_ptr().cast(), &raw mut length), 0);
        }
        name.truncate(length);
        name
    }

    /// Inserts a peer's address, and returns its number.
    pub(crate) fn insert(&self, name: &[u8]) -> fi_addr_t {
        let mut number = FI_ADDR_NOTAVAIL;
        // SAFETY: one address.
        let inserted = unsafe {
            let insert = (*(*self.av).ops).insert.unwrap();
            insert(self.av, name.as_ptr().cast(), 1, &raw mut number, 0, null_mut())
        };
        assert_eq!(inserted, 1);
        number
    }

    /// Removes a peer's address.
    pub(crate) fn remove(&self, mut number: fi_addr_t) {
        // SAFETY: one number.
        let code = unsafe { (*(*self.av).ops).remove.unwrap()(self.av, &raw mut number, 1, 0) };
        assert_eq!(code, 0);
    }

    /// The next entry, if there is one; an error as its code and text.
    pub(crate) fn read(&self) -> Option<Result<(fi_cq_tagged_entry, fi_addr_t), Failed>> {
        assert_eq!(self.options.format, FI_CQ_FORMAT_TAGGED);
        // SAFETY: there is room for an entry of the queue's format.
        unsafe {
            let mut entry: fi_cq_tagged_entry = std::mem::zeroed();
            let mut from = 0;
            let ops = (*self.cq).ops;
            let got = (*ops).readfrom.unwrap()(self.cq, (&raw mut entry).cast(), 1, &raw mut from);
            if got == 1 {
                return Some(Ok((entry, from)));
            }
            if got == -(FI_EAGAIN as isize) {
                return None;
            }
            assert_eq!(got, -(FI_EAVAIL as isize));
            let mut failed: fi_cq_err_entry = std::mem::zeroed();
            assert_eq!((*ops).readerr.unwrap()(self.cq, &raw mut failed, 0), 1);
            let strerror = (*ops).strerror.unwrap();
            let text = strerror(self.cq, failed.prov_errno, failed.err_data, null_mut(), 0);
            let text = std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned();
            Some(Err(Failed { entry: failed, text }))
        }
    }

    pub(crate) fn tagged(&self) -> &fi_ops_tagged {
        // SAFETY: an open endpoint's table.
        unsafe { &*(*self.ep).tagged }
    }

    pub(crate) fn msg(&self) -> &fi_ops_msg {
        // SAFETY: an open endpoint's table.
        unsafe { &*(*self.ep).msg }
    }

    pub(crate) fn rma(&self) -> &fi_ops_rma {
        // SAFETY: an open endpoint's table.
        unsafe { &*(*self.ep).rma }
    }

    pub(crate) fn atomic(&self) -> &fi_ops_atomic {
        // SAFETY: an open endpoint's table.
        unsafe { &*(*self.ep).atomic }
    }

    /// Registers memory under a key.
    pub(crate) fn register(&self, memory: &mut [u8], access: u64, key: u64) -> *mut fid_mr {
        let mut region = null_mut();
        // SAFETY: the memory is there, and the test keeps it.
        let code = unsafe {
            let domain = self.domain;
            let reg = (*(*domain).mr).reg.unwrap();
            let (start, bytes) = (memory.as_mut_ptr().cast(), memory.len());
            reg(&raw mut (*domain).fid, start, bytes, access, 0, key, 0, &raw mut region, null_mut())
        };
        assert_eq!(code, 0);
        region
    }

    /// Closes everything, in the order that libfabric asks for.
    pub(crate) fn close(self) {
        // SAFETY: an open endpoint.
        assert_eq!(close(unsafe { &raw mut (*self.ep).fid }), 0);
        self.close_others();
    }

    /// Closes everything but the endpoint, which is closed already.
    pub(crate) fn close_others(self) {
        // SAFETY: open objects.
        unsafe {
            assert_eq!(close(&raw mut (*self.cntr).fid), 0);
            assert_eq!(close(&raw mut (*self.cq).fid), 0);
            assert_eq!(close(&raw mut (*self.av).fid), 0);
            assert_eq!(close(&raw mut (*self.domain).fid), 0);
            assert_eq!(close(&raw mut (*self.fabric).fid), 0);
        }
    }
}

/// An error entry.
pub(crate) struct Failed {
    pub(crate) entry: fi_cq_err_entry,
    pub(crate) text: String,
}

/// Two sides that know each other.
pub(crate) struct Pair {
    pub(crate) here: Side,
    pub(crate) there: Side,
    /// Each other's numbers.
    pub(crate) to_there: fi_addr_t,
    pub(crate) to_here: fi_addr_t,
}

impl Pair {
    pub(crate) fn open(options: SideOptions) -> Pair {
        Pair::of(Side::open(options), Side::open(options))
    }

    /// Lets two sides know each other.
    pub(crate) fn of(here: Side, there: Side) -> Pair {
        let (to_there, to_here) = (here.insert(&there.name()), there.insert(&here.name()));
        Pair { here, there, to_there, to_here }
    }

    /// Tries until there is room, and both sides make progress meanwhile.
    pub(crate) fn attempt(&self, mut call: impl FnMut() -> isize) {
        let begun = Instant::now();
        loop {
            match call() {
                0 => return,
                code => assert_eq!(code, -(FI_EAGAIN as isize)),
            }
            assert!(begun.elapsed() < PATIENCE, "no room");
            self.progress();
        }
    }

    /// Progress without reading anything.
    pub(crate) fn progress(&self) {
        for side in [&self.here, &self.there] {
            // SAFETY: an open counter.
            unsafe { (*(*side.cntr).ops).read.unwrap()(side.cntr) };
        }
    }

    /// The next entry of one side.
    pub(crate) fn wait(&self, side: &Side) -> Result<(fi_cq_tagged_entry, fi_addr_t), Failed> {
        let begun = Instant::now();
        loop {
            if let Some(entry) = side.read() {
                return entry;
            }
            assert!(begun.elapsed() < PATIENCE, "nothing comes");
            self.progress();
        }
    }

    pub(crate) fn close(self) {
        self.here.close();
        self.there.close();
    }
}

/// A context that can be told from others.
pub(crate) fn context(number: usize) -> *mut c_void {
    ptr::without_provenance_mut(number)
}
