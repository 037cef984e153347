//! The Tsumugi protocol, sans-IO: nothing here sends, receives, sleeps or reads a clock.
//!
//! A flow has two halves, and each half has two hands:
//!
//! | half      | hand                  | runs                                         | module      |
//! |-----------|-----------------------|----------------------------------------------|-------------|
//! | sending   | what to send, and again | in the library                             | [`sender`]  |
//! | sending   | over which path       | in the library                               | [`trunk`]   |
//! | sending   | how long a packet     | in the library                               | [`path_mtu`] |
//! | sending   | what may be asked for | in the library                               | [`unchecked`] |
//! | receiving | check, claim, place   | in the library *or* in the NIC's driver      | [`receiver`], [`window`], [`queue`], [`translation`] |
//! | receiving | put in order          | in the library                               | [`reorder`], [`pieces`] |
//! | both      | come to know a peer   | in the library                               | [`handshake`] |
//!
//! What the driver also does is kept small and works on shared memory with atomics only
//! ([`memory::ReceiveMemory`]); a program in C repeats it, and one suite holds both to the same answers. [`driver`] puts
//! it together as that program does.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod answer;
pub mod driver;
pub mod handshake;
pub mod memory;
pub mod path_mtu;
pub mod pieces;
pub mod queue;
pub mod receiver;
pub mod reorder;
pub mod sender;
pub mod translation;
pub mod trunk;
pub mod unchecked;
pub mod window;

pub use memory::ReceiveMemory;
pub use receiver::Verdict;
pub use sender::Sender;
