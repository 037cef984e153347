//! Barriers and reductions that a switch box counts: the box's half, [`boxes`], which runs in its program, and a member's, [`member`],
//! which runs in the library. For multicast a member only renews its [`lease`]. The packets between them are told in [`tsumugi_wire::group`].

pub mod boxes;
pub mod headers;
pub mod lease;
pub mod member;
mod spread;
