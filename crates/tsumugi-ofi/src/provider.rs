//! The provider as the host sees it: its name, and the functions that it calls first.

use crate::abi::{fi_context, fi_provider};
use crate::host::{Provider, VERSION};
use crate::{getinfo, tables};
use std::ffi::CStr;
use std::ptr;

/// The provider's name.
const NAME: &CStr = c"tsumugi";

/// Which version of the protocol this speaks, for whoever looks into the file without loading it: `tsumugi-mpiexec` does, on every
/// node of a job.
#[used]
static PROTOCOL: [u8; 24] = protocol(tsumugi_wire::limits::VERSION);

/// "tsumugi wire protocol N", and a zero: `tsumugi_mpi::provider::MARK` and the number. Tests of `tsumugi-mpiexec` start jobs with it.
const fn protocol(version: u8) -> [u8; 24] {
    assert!(version < 10, "make room for another digit");
    let mut text = *b"tsumugi wire protocol _\0";
    text[22] = b'0' + version;
    text
}

/// The provider.
pub(crate) static PROVIDER: Provider = Provider::new(fi_provider {
    version: VERSION,
    fi_version: 0,
    context: fi_context { internal: [ptr::null_mut(); 4] },
    name: NAME.as_ptr(),
    getinfo: Some(getinfo::getinfo),
    fabric: Some(tables::open_fabric),
    cleanup: Some(cleanup),
});

/// What the host calls last. Objects that are still open stay as they are: the process ends, or their owner has lost them.
unsafe extern "C" fn cleanup() {
    log::set_max_level(log::LevelFilter::Off);
}
