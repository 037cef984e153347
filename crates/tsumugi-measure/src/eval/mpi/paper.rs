//! P1's figure 6: Sumimoto et al. (2000), section 4.3. NPB IS, class A, on up to 16 nodes; the text gives the speed-ups at 16.

use serde::Serialize;

/// How much quicker so many nodes are than one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct SpeedUp {
    pub(super) over: &'static str,
    pub(super) nodes: u32,
    pub(super) speed_up: f64,
}

/// Two MPIs: MPICH on PM/Ethernet, LAM on TCP/IP.
pub(super) const FIGURE_6: [SpeedUp; 3] = [
    SpeedUp { over: "PM/Ethernet", nodes: 16, speed_up: 11.8 },
    SpeedUp { over: "PM/Ethernet with interrupts", nodes: 16, speed_up: 11.2 },
    SpeedUp { over: "TCP/IP", nodes: 16, speed_up: 5.2 },
];

/// What is to be known of it.
pub(super) const CAPTION: &str = "P1 (Sumimoto et al., 2000) measured class A on Pentium III machines with Gigabit Ethernet, and compares two MPIs: \
    MPICH on PM/Ethernet with LAM on TCP/IP. Here one MPI uses both.";
