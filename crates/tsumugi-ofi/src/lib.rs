//! A provider that lets libfabric, and so the MPIs on top of it, send through Tsumugi.
//!
//! libfabric finds the library in a folder of `FI_PROVIDER_PATH` by its name, `lib*-fi.so`, and calls [`fi_prov_ini`].
//! From then on it calls what is in the tables of functions of the objects that it opens. A file needs only files further down:
//!
//! | module | object | |
//! |---|---|---|
//! | `provider` | [`fi_provider`] | what libfabric is given for that call |
//! | `getinfo` | | what is offered, and whether that is what the caller wants |
//! | `tables` | | how fabrics and domains are opened, and every object of theirs |
//! | `endpoint` | [`fid_ep`](abi::fid_ep) | messages, remote memory, atomics: each is an endpoint of the library's |
//! | `addresses` | [`fid_av`](abi::fid_av) | peers' addresses by number |
//! | `poll` | [`fid_poll`](abi::fid_poll) | queues and counters that are looked at together |
//! | `queue`, `counter` | [`fid_cq`](abi::fid_cq), [`fid_cntr`](abi::fid_cntr) | what has become of operations |
//! | `memory` | [`fid_mr`](abi::fid_mr) | registered memory |
//! | `domain`, `assistant` | [`fid_domain`](abi::fid_domain) | what all these belong to, and a thread that makes progress for it |
//! | `events` | [`fid_eq`](abi::fid_eq) | what callers are told of what is done later |
//! | `fabric` | [`fid_fabric`](abi::fid_fabric) | what domains and event queues belong to |
//! | `waiting` | | sleeping until something happens to a queue, a counter or an event queue |
//! | `active`, `registry` | | what domains, queues and counters know of endpoints; what endpoints know of registered memory |
//! | `settings`, `host` | | what users set; the libfabric that has loaded the library, its log and its parameters |
//!
//! `lock` says why objects may be used by several threads, and `object` is what they are made of. `limits`, `error`, `sockaddr` and
//! `atomics`, the arithmetic, need no other file but `abi`, libfabric's interface.

pub mod abi;

mod active;
mod addresses;
mod assistant;
mod atomics;
mod counter;
mod domain;
mod endpoint;
mod error;
mod events;
mod fabric;
mod getinfo;
mod host;
mod limits;
mod lock;
mod memory;
mod object;
mod poll;
mod provider;
mod queue;
mod registry;
mod settings;
mod sockaddr;
mod tables;
mod wait_set;
mod waiting;

use abi::fi_provider;
use provider::PROVIDER;

/// What libfabric calls first, once: returns what the provider is, or null if it can be none.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut fi_provider {
    let host = match host::find(&PROVIDER) {
        Ok(host) => host,
        Err(error) => {
            // There is no log to write it to.
            eprintln!("tsumugi: not used: {error}");
            return std::ptr::null_mut();
        }
    };
    settings::define(host);
    let provider = PROVIDER.get();
    // A provider that is older than what the caller wants is passed over, and every version is served.
    // SAFETY: the host calls this before it has the provider.
    unsafe { (*provider).fi_version = host.version };
    if log::set_logger(&host::Log).is_ok() {
        log::set_max_level(log::LevelFilter::Debug);
    }
    provider
}
