//! The provider as the host sees it: its name, and the functions that it calls first.

use crate::abi::{fi_context, fi_provider};
use crate::host::{Provider, VERSION};
use crate::{getinfo, tables};
use std::ffi::CStr;
use std::ptr;
use tsumugi_wire::limits::MARKED_VERSION;

/// The provider's name.
const NAME: &CStr = c"tsumugi";

/// Which version of the protocol this speaks.
#[used]
static PROTOCOL: [u8; MARKED_VERSION.len()] = MARKED_VERSION;

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
