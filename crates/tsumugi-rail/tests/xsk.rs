//! AF_XDP sockets on a real veth pair, between two namespaces. Needs root.

mod nodes;
#[path = "xsk/pair.rs"]
mod pair;

use pair::{Pair, frame, push, receive, wait};
use std::net::UdpSocket;
use std::process::Command;
use tsumugi_rail::ether::ETHERNET_BYTES;
use tsumugi_rail::xdp::{AttachError, Mode};
use tsumugi_rail::xsk::{
    CopyMode, ONE_BUFFER_BYTES, PushError, Redirect, RedirectError, Xsk, XskError, XskOptions, XskStatistics,
};

const MODES: [Mode; 2] = [Mode::Native, Mode::Generic];

/// Every length from the shortest to the longest, and that nothing is lost, doubled or out of order.
fn every_length_is_whole(mtu: u32, lengths: &[usize]) {
    let Some(pair) = Pair::up("every_length_is_whole", mtu) else { return };
    for mode in MODES {
        let (to, from) = (pair.options(1), pair.options(0));
        let (_program, mut receiver) = pair.receiver(1, &to, mode);
        let mut sender = pair.open(0, &from);
        for (number, bytes) in lengths.iter().enumerate() {
            let sent = frame(number as u32, *bytes);
            push(&mut sender, &sent).expect("there is room");
            assert!(sender.kick().expect("the NIC is there"));
            assert!(receive(&mut receiver, 1) == [sent], "{mode:?}: {bytes} bytes");
        }
        assert_eq!(receiver.receive(9, |_| panic!("more frames than were sent")), 0);
        assert_eq!(receiver.statistics().expect("statistics").receive_dropped, 0);
    }
}

#[test]
fn frames_go_out_and_come_in_whole() {
    let lengths: Vec<usize> = (ETHERNET_BYTES + 4..1515).step_by(7).chain([1513, 1514]).collect();
    every_length_is_whole(1500, &lengths);
}

#[test]
fn frames_of_one_buffer_come_in_whole_on_a_wire_for_longer_ones() {
    every_length_is_whole(9000, &[60, 1514, 2048, 3000, ETHERNET_BYTES + ONE_BUFFER_BYTES]);
}

/// Frames in several buffers must not be redirected: they go on to the kernel, which knows no such ethertype.
#[test]
fn longer_frames_are_left_to_the_kernel() {
    let Some(pair) = Pair::up("longer_frames_are_left_to_the_kernel", 9000) else { return };
    for mode in MODES {
        let (to, from) = (pair.options(1), pair.options(0));
        let (_program, mut receiver) = pair.receiver(1, &to, mode);
        let mut sender = pair.open(0, &from);
        // 3520 bytes is what veth and generic XDP lay into one page (skb_pp_cow_data of net/core/skbuff.c).
        for bytes in [3521, 3840, 4096, 4097, 8192, 9014] {
            push(&mut sender, &frame(0, bytes)).expect("there is room");
            push(&mut sender, &frame(1, 100)).expect("there is room");
            assert!(sender.kick().expect("the NIC is there"));
            assert!(receive(&mut receiver, 1) == [frame(1, 100)], "{mode:?}: {bytes} bytes");
        }
        assert_eq!(receiver.receive(9, |_| panic!("more frames than should come")), 0);
    }
}

/// Rings of 64 entries, so that their places are used some hundred times, by bursts of changing length.
#[test]
fn thousands_of_frames_wrap_around_the_rings() {
    let Some(pair) = Pair::up("thousands_of_frames_wrap_around_the_rings", 1500) else { return };
    for mode in MODES {
        let small = |options| XskOptions { receive_frames: 64, send_frames: 64, ..options };
        let (_program, mut receiver) = pair.receiver(1, &small(pair.options(1)), mode);
        let mut sender = pair.open(0, &small(pair.options(0)));
        let (mut sent, mut came) = (0, 0);
        while came < 20_000 {
            let burst = 1 + came % 61;
            for _ in 0..burst {
                push(&mut sender, &frame(sent, 100)).expect("there is room");
                sent += 1;
            }
            assert!(sender.kick().expect("the NIC is there"));
            for arrived in receive(&mut receiver, burst as usize) {
                assert!(arrived == frame(came, 100), "{mode:?}: frame {came}");
                came += 1;
            }
        }
        let clean = XskStatistics { send_ring_empty: 0, ..receiver.statistics().expect("statistics") };
        assert_eq!(clean, XskStatistics::default());
    }
}

#[test]
fn a_full_ring_refuses_and_loses_nothing() {
    let Some(pair) = Pair::up("a_full_ring_refuses_and_loses_nothing", 1500) else { return };
    let (_program, mut receiver) = pair.receiver(1, &pair.options(1), Mode::Native);
    let options = XskOptions { send_frames: 100, receive_frames: 0, ..pair.options(0) };
    let mut sender = pair.open(0, &options);
    let fill = |sender: &mut Xsk| (0..500).take_while(|n| push(sender, &frame(*n, 64)).is_ok()).count();
    for _ in 0..3 {
        assert_eq!(fill(&mut sender), 100);
        assert_eq!(push(&mut sender, &frame(0, 64)), Err(PushError::Full));
        assert_eq!(receiver.receive(9, |_| panic!("nobody has kicked")), 0);
        assert!(sender.kick().expect("the NIC is there"));
        let came = receive(&mut receiver, 100);
        assert!(came.iter().zip(0..).all(|(came, number)| *came == frame(number, 64)));
    }
    // A NIC that is down takes nothing; when it is up again, the ring empties.
    pair.nodes.shell(0, "ip link set nic0 down");
    assert_eq!(fill(&mut sender), 100);
    assert!(!sender.kick().expect("down is not gone"));
    assert_eq!(push(&mut sender, &frame(0, 64)), Err(PushError::Full));
    pair.nodes.shell(0, "ip link set nic0 up");
    wait(|| sender.kick().expect("the NIC is there"));
    assert_eq!(fill(&mut sender), 100);
    assert_eq!(push(&mut sender, &frame(0, 1515)), Err(PushError::TooLong(1514)));
    assert_eq!(sender.statistics().expect("statistics").send_invalid, 0);
}

/// In a process of its own, where nobody else opens sockets.
#[test]
fn closing_frees_everything() {
    let program = std::env::current_exe().expect("this program has a path");
    let output =
        Command::new(program).args(["--exact", "open_and_close", "--ignored", "--nocapture"]).output();
    let output = output.expect("it starts");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
}

#[test]
#[ignore = "run by closing_frees_everything"]
fn open_and_close() {
    let Some(pair) = Pair::up("closing_frees_everything", 1500) else { return };
    let options = pair.options(0);
    let held = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("our mappings").lines().count();
        (maps, std::fs::read_dir("/proc/self/fd").expect("our descriptors").count())
    };
    let once = || {
        let (program, socket) = pair.receiver(0, &options, Mode::Native);
        let second = pair.nodes.inside(0, || Xsk::open(&options)).expect_err("the queue has a socket");
        assert!(matches!(second, XskError::Busy { queue: 0, .. }), "{second}");
        let second = pair.nodes.inside(0, || Redirect::attach(options.nic, Mode::Native));
        let second = second.expect_err("the NIC has a program");
        assert!(matches!(second, RedirectError::Attach(AttachError::Taken { .. })), "{second}");
        let during = held();
        drop((program, socket));
        during
    };
    // The first time may leave something behind that belongs to the allocator.
    once();
    let before = held();
    for _ in 0..4 {
        let during = once();
        assert!(during.0 > before.0 && during.1 > before.1, "{during:?}, {before:?} without a socket");
        assert_eq!(held(), before);
    }
}

#[test]
fn other_traffic_passes_the_program() {
    let Some(pair) = Pair::up("other_traffic_passes_the_program", 1500) else { return };
    for mode in MODES {
        let (_program, mut socket) = pair.receiver(1, &pair.options(1), mode);
        let to = pair.nodes.inside(1, || UdpSocket::bind("10.77.0.2:4711")).expect("the address is there");
        let from = pair.nodes.inside(0, || UdpSocket::bind("10.77.0.1:0")).expect("the address is there");
        from.send_to(b"hello", "10.77.0.2:4711").expect("there is a route");
        let mut buffer = [0; 9];
        to.set_read_timeout(Some(std::time::Duration::from_secs(30))).expect("a timeout");
        assert_eq!(to.recv(&mut buffer).expect("it arrives"), 5);
        assert_eq!(socket.receive(9, |_| panic!("that was not for the socket")), 0);
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    let Some(pair) = Pair::up("what_cannot_be_opened_says_why", 1500) else { return };
    let options = pair.options(0);
    let refused = |options: &XskOptions| pair.nodes.inside(0, || Xsk::open(options)).expect_err("impossible");
    let error = refused(&XskOptions { queue: 4000, ..options });
    assert!(matches!(error, XskError::NoSuchQueue { queue: 4000, .. }), "{error}");
    let error = refused(&XskOptions { nic: 4000, ..options });
    assert!(matches!(error, XskError::NoSuchNic { nic: 4000 }), "{error}");
    // A veth has no memory of its own to spare.
    let error = refused(&XskOptions { copy: CopyMode::ZeroCopy, ..options });
    assert!(matches!(error, XskError::NotOffered { .. }), "{error}");
    assert!(!pair.open(0, &options).zero_copy().expect("the kernel says"));
}
