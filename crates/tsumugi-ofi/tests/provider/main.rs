//! The provider behind a real libfabric, in one process: what C programs call, and what the man pages promise of it.

mod binding;
mod host;
mod messages;
mod objects;
mod remote;
