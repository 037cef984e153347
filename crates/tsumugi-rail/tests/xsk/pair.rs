//! Sockets in two nodes, and frames to pass between them.

use crate::nodes::{NIC, Nodes};
use std::time::{Duration, Instant};
use tsumugi_rail::ether::ETHERNET_BYTES;
use tsumugi_rail::nics::index_of;
use tsumugi_rail::xdp::Mode;
use tsumugi_rail::xsk::{ETHERTYPE, PushError, Redirect, Xsk, XskOptions};

/// How long to wait for what must come; a busy machine may take its time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two nodes, and the compiled program.
pub(crate) struct Pair {
    pub(crate) nodes: Nodes,
    frame_bytes: usize,
}

impl Pair {
    /// `None`, after saying so, when the test cannot run here.
    pub(crate) fn up(test: &str, mtu: u32) -> Option<Pair> {
        let nodes = Nodes::up_with_mtu(test, mtu)?;
        if !Redirect::IS_COMPILED {
            assert!(std::env::var_os("CI").is_none(), "CI compiles the redirect program");
            eprintln!("SKIPPED: {test}: this build has no redirect program (needs clang and libbpf-dev)");
            return None;
        }
        Some(Pair { nodes, frame_bytes: mtu as usize + ETHERNET_BYTES })
    }

    /// What to open in a node.
    pub(crate) fn options(&self, node: usize) -> XskOptions {
        let nic = self.nodes.inside(node, || index_of(NIC)).expect("a NIC");
        XskOptions { frame_bytes: self.frame_bytes, ..XskOptions::new(nic) }
    }

    /// Opens a socket in a node.
    pub(crate) fn open(&self, node: usize, options: &XskOptions) -> Xsk {
        self.nodes.inside(node, || Xsk::open(options)).unwrap_or_else(|error| panic!("node {node}: {error}"))
    }

    /// Opens a socket in a node that receives.
    pub(crate) fn receiver(&self, node: usize, options: &XskOptions, mode: Mode) -> (Redirect, Xsk) {
        let redirect = self.nodes.inside(node, || Redirect::attach(options.nic, mode));
        let mut redirect = redirect.unwrap_or_else(|error| panic!("node {node}: {error}"));
        let socket = self.open(node, options);
        redirect.enter(&socket).expect("the program takes the socket");
        (redirect, socket)
    }
}

/// A frame of `bytes` bytes whose payload tells its number.
pub(crate) fn frame(number: u32, bytes: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend(ETHERTYPE.to_be_bytes());
    frame.extend(number.to_le_bytes());
    let mut state = number;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    frame.extend(noise.take(bytes.saturating_sub(frame.len())));
    frame.truncate(bytes);
    frame
}

/// Puts a frame into the ring.
pub(crate) fn push(socket: &mut Xsk, frame: &[u8]) -> Result<(), PushError> {
    socket.push(frame.len(), |memory| memory.copy_from_slice(frame))
}

/// Waits until `count` frames have come.
pub(crate) fn receive(socket: &mut Xsk, count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    wait(|| {
        socket.receive(count - frames.len(), |pieces| frames.push(pieces.concat()));
        frames.len() == count
    });
    frames
}

/// Waits until something is so.
pub(crate) fn wait(mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "it does not come");
        std::thread::yield_now();
    }
}
