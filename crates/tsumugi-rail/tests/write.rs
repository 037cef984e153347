//! The bare one-sided write over a real veth pair, between two namespaces. Needs root.

mod nodes;

use nodes::{NIC, Nodes, eventually, four};
use std::net::UdpSocket;
use std::time::Duration;
use tsumugi_rail::nics::index_of;
use tsumugi_rail::packet::FrameSocket;
use tsumugi_rail::xdp::{AttachError, Mode, WriteError, WriteFrame, WriteTarget};

const MODES: [Mode; 2] = [Mode::Native, Mode::Generic];

/// Two nodes, and the compiled program. `None`, after saying so, when the test cannot run here.
fn up(test: &str, mtu: u32) -> Option<Nodes> {
    let nodes = Nodes::up_with_mtu(test, mtu)?;
    if !WriteTarget::IS_COMPILED {
        assert!(std::env::var_os("CI").is_none(), "CI compiles the write program");
        eprintln!("SKIPPED: {test}: this build has no write program (needs clang and libbpf-dev)");
        return None;
    }
    Some(nodes)
}

fn target(nodes: &Nodes, mode: Mode) -> Result<WriteTarget, WriteError> {
    nodes.inside(1, || WriteTarget::attach(index_of(NIC).expect("a NIC"), mode))
}

fn sender(nodes: &Nodes) -> (FrameSocket, WriteFrame) {
    let socket = nodes.inside(0, || FrameSocket::open(index_of(NIC).expect("a NIC")));
    (socket.expect("root may"), WriteFrame::new(nodes.mac(0), nodes.mac(1)))
}

fn send(socket: &FrameSocket, frame: &[u8]) {
    eventually("the NIC takes the frame", || socket.send(frame).expect("the NIC is there").then_some(()));
}

fn arrives(target: &WriteTarget, sequence: u64) {
    eventually("the write arrives", || (target.sequence() == sequence).then_some(()));
}

/// Every length is written as a whole, and nothing before it is published.
fn every_length_is_whole(mtu: u32, lengths: impl Iterator<Item = usize> + Clone) {
    let Some(nodes) = up("every_length_is_whole", mtu) else { return };
    for mode in MODES {
        let target = target(&nodes, mode).expect("root may");
        let (socket, mut frame) = sender(&nodes);
        assert_eq!(target.sequence(), 0, "a new memory");
        for (sequence, bytes) in (1..).zip(lengths.clone()) {
            let payload: Vec<u8> = (0..bytes).map(|at| (at as u64 * 7 + sequence) as u8).collect();
            send(&socket, frame.fill(sequence, &payload));
            arrives(&target, sequence);
            let mut written = vec![0; bytes];
            target.read(&mut written);
            assert!(written == payload, "{mode:?}: {bytes} bytes");
        }
    }
}

#[test]
fn what_fits_an_ordinary_frame_is_written() {
    every_length_is_whole(1500, (1..140).chain((140..1490).step_by(45)).chain([1490]));
}

#[test]
fn what_fits_the_memory_is_written_though_it_lies_in_several_buffers() {
    every_length_is_whole(9000, [64, 65, 1500, 3484, 3485, WriteFrame::PAYLOAD_BYTES_MAX].into_iter());
}

#[test]
fn a_frame_that_lies_about_its_length_writes_nothing() {
    let Some(nodes) = up("a_frame_that_lies_about_its_length_writes_nothing", 9000) else { return };
    for mode in MODES {
        let target = target(&nodes, mode).expect("root may");
        let (socket, mut frame) = sender(&nodes);
        send(&socket, frame.fill(1, &[1; 100]));
        arrives(&target, 1);
        let lie = |frame: &[u8], bytes: u16| {
            let mut lie = frame.to_vec();
            lie[14..16].copy_from_slice(&bytes.to_le_bytes());
            lie
        };
        let honest = frame.fill(2, &[2; 100]).to_vec();
        for bytes in [101, 4033, u16::MAX] {
            send(&socket, &lie(&honest, bytes));
        }
        send(&socket, &lie(&[&honest[..], &[2; 8000]].concat(), 8000));
        // Shorter than what is copied at once, and nothing in it.
        send(&socket, &lie(&honest[..60], 0));
        send(&socket, &honest[..20]);
        send(&socket, frame.fill(3, &[3]));
        arrives(&target, 3);
        let mut written = [0; 100];
        target.read(&mut written);
        assert!(written[64..].iter().all(|byte| *byte == 1), "{mode:?}: {written:?}");
    }
}

#[test]
fn other_traffic_passes_the_program() {
    let Some(nodes) = up("other_traffic_passes_the_program", 1500) else { return };
    for mode in MODES {
        let target = target(&nodes, mode).expect("root may");
        let to = nodes.inside(1, || UdpSocket::bind(four(1, 4711))).expect("the address is there");
        let from = nodes.inside(0, || UdpSocket::bind(four(0, 0))).expect("the address is there");
        from.send_to(b"hello", four(1, 4711)).expect("there is a route");
        to.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        assert_eq!(to.recv(&mut [0; 9]).expect("it arrives"), 5);
        assert_eq!(target.sequence(), 0);
    }
}

#[test]
fn a_nic_has_one_program_at_a_time_and_none_when_its_owner_is_gone() {
    let Some(nodes) = up("a_nic_has_one_program_at_a_time", 1500) else { return };
    for mode in MODES {
        let first = target(&nodes, mode).expect("root may");
        let second = target(&nodes, mode).expect_err("the NIC has a program");
        assert!(matches!(second, WriteError::Attach(AttachError::Taken { .. })), "{second}");
        drop(first);
        eventually("it is detached", || (!nodes.shell(1, "ip link show nic0").contains("xdp")).then_some(()));
    }
    let nowhere = nodes.inside(1, || WriteTarget::attach(4000, Mode::Native)).expect_err("no such NIC");
    assert!(nowhere.to_string().contains("the write program, NIC 4000"), "{nowhere}");
}

#[test]
fn a_nic_that_is_gone_or_down_is_an_error() {
    let Some(nodes) = up("a_nic_that_is_gone_or_down_is_an_error", 1500) else { return };
    let (socket, mut frame) = sender(&nodes);
    assert!(socket.send(frame.fill(1, &[1; 1491])).is_err(), "longer than the MTU");
    nodes.shell(0, "ip link set nic0 down");
    assert!(socket.send(frame.fill(1, &[1])).is_err());
    assert!(nodes.inside(0, || FrameSocket::open(4000)).is_err());
}
