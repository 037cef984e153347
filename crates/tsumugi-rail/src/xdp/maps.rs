//! The kernel objects of one endpoint: receive memory and doorbell.

use super::XdpError;
use crate::sys::{self, Own};
use aya::maps::{ArrayOfMaps, Map, MapData, MapError};
use std::error::Error;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use tsumugi_wire::memory::Geometry;

/// `BPF_MAP_TYPE_ARRAY` of linux/bpf.h.
const ARRAY: u32 = 2;
/// `BPF_MAP_TYPE_RINGBUF` of linux/bpf.h.
const RING_BUFFER: u32 = 27;
/// `BPF_F_MMAPABLE` of linux/bpf.h.
const MMAPABLE: u32 = 1 << 10;
/// Bytes of a doorbell: one page, the least there is.
pub(super) const BELL_BYTES: u32 = 4096;

/// Makes the array whose single element is an endpoint's memory, all zero.
pub(super) fn make_memory(port: u16, geometry: Geometry) -> Result<MapData, XdpError> {
    let map = aya_obj::Map::new_from_params(ARRAY, 4, geometry.bytes() as u32, 1, MMAPABLE);
    MapData::create(map, "tsumugi_memory", None).map_err(failed("making receive memory", port))
}

/// Makes an endpoint's doorbell.
pub(super) fn make_bell(port: u16) -> Result<MapData, XdpError> {
    let map = aya_obj::Map::new_from_params(RING_BUFFER, 0, 0, BELL_BYTES, 0);
    MapData::create(map, "tsumugi_bell", None).map_err(failed("making a doorbell", port))
}

/// Opens one that is pinned. A child of this process does not get it: what a process that has died had of it must be free.
pub(super) fn open(pin: &Path) -> Result<Own<MapData>, MapError> {
    let map = MapData::from_pin(pin)?;
    let descriptor = map.fd().as_fd().as_raw_fd();
    Ok(Own::with(map, descriptor))
}

/// An error about a map of `port`'s endpoint whose permissions have been looked at: what is refused now is the call itself.
pub(super) fn refused(doing: &'static str, port: u16) -> impl Fn(MapError) -> XdpError + Copy {
    move |error| {
        let causes = std::iter::successors(Some(&error as &dyn Error), |&cause| cause.source());
        let mut of_the_system = causes.filter_map(|cause| cause.downcast_ref::<std::io::Error>());
        if of_the_system.any(|cause| cause.raw_os_error() == Some(libc::EPERM)) {
            XdpError::BpfRefused
        } else {
            failed(doing, port)(error)
        }
    }
}

/// Maps an endpoint's memory into this process.
pub(super) fn map(memory: &MapData, port: u16, bytes: usize) -> Result<sys::Mapping, XdpError> {
    sys::Mapping::of_map(memory.fd().as_fd(), bytes).map_err(|source| XdpError::Mapping { port, source })
}

/// Enters an endpoint's object into one of the program's arrays from ports.
pub(super) fn enter(ports: &mut Map, port: u16, object: &MapData) -> Result<(), XdpError> {
    let failed = failed("entering it", port);
    let mut ports: ArrayOfMaps<_, MapData> = ports.try_into().map_err(failed)?;
    ports.set(u32::from(port), object, 0).map_err(failed)
}

/// An error about a map of `port`'s endpoint.
pub(super) fn failed(doing: &'static str, port: u16) -> impl Fn(MapError) -> XdpError + Copy {
    move |source| XdpError::Map { doing, port, source }
}
