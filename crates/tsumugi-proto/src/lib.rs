//! The Tsumugi protocol, sans-IO: nothing here sends, receives, sleeps or reads a clock.
//!
//! A flow has two halves, and each half has two hands:
//!
//! | half      | hand                  | runs                                         | module      |
//! |-----------|-----------------------|----------------------------------------------|-------------|
//! | sending   | what to send, and again | in the library                             | [`sender`]  |
//! | sending   | over which path       | in the library                               | [`path_policy`] |
//! | sending   | how long a packet     | in the library                               | [`path_mtu`] |
//! | sending   | what may be asked for | in the library                               | [`unchecked`] |
//! | receiving | check, claim, place   | in the library *or* in the XDP program       | [`receiver`], [`receive_bitmap`], [`queue`], [`translation`] |
//! | receiving | put in order          | in the library                               | [`reorder`], [`pieces`] |
//! | both      | connect to a peer     | in the library                               | [`handshake`] |
//!
//! What the XDP program also does is kept small and works on shared memory with atomics only
//! ([`memory::ReceiveMemory`]). The program does the same in C, and one suite holds both to the same answers. [`xdp`]
//! puts it together as that program does.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod answer;
pub mod group;
pub mod handshake;
pub mod memory;
pub mod path_mtu;
pub mod path_policy;
pub mod pieces;
pub mod queue;
pub mod receive_bitmap;
pub mod receiver;
pub mod reorder;
pub mod sender;
pub mod translation;
pub mod unchecked;
pub mod xdp;

pub use memory::ReceiveMemory;
pub use receiver::Verdict;
pub use sender::Sender;
