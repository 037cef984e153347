//! Processes that fork, with sockets and with the XDP receive path.

use crate::cluster::{Cluster, PORT, eventually, four};
use crate::process::Process;
use crate::remote::Remote;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// An echo in node 0.
fn echo(cluster: &Cluster, receive_path: &str) -> Process {
    let mut echo = cluster.start(0, &format!("echo port={PORT} receive={receive_path}"));
    assert_eq!(echo.hear(), "open");
    echo
}

#[test]
fn children_of_every_form_leave_the_endpoint_alone() {
    let Some(cluster) = Cluster::with_xdp("children_of_every_form_leave_the_endpoint_alone", "") else {
        return;
    };
    for (receive_path, send_path) in [("xdp", "auto"), ("socket", "udp"), ("xdp", "packet")] {
        let _echo = echo(&cluster, receive_path);
        let settings = format!("port={PORT} echo={} receive={receive_path} send={send_path}", four(0, PORT));
        let mut forks = cluster.start(1, &format!("forks {settings}"));
        assert_eq!(forks.hear(), format!("open {}", u8::from(receive_path == "xdp")));
        for form in ["inherits", "exits", "execs", "spawns", "anew", "daemon", "clone", "nested"] {
            assert_eq!(forks.hear(), format!("done {form}"));
        }
        assert_eq!(forks.hear(), "closed");
        forks.finish_while(|| ());
    }
}

#[test]
fn a_child_has_no_descriptor_of_an_endpoint() {
    let Some(cluster) = Cluster::with_xdp("a_child_has_no_descriptor_of_an_endpoint", "") else { return };
    for (receive_path, send_path) in
        [("xdp", "auto"), ("xdp", "packet"), ("socket", "xsk"), ("socket", "udp")]
    {
        let _echo = echo(&cluster, receive_path);
        // An address of the same network that nobody has.
        let settings = format!("echo={} silent={}", four(0, PORT), four(41, PORT));
        let mut role =
            cluster.start(1, &format!("descriptors {settings} receive={receive_path} send={send_path}"));
        println!("{receive_path}, {send_path}: {}", role.hear());
    }
}

#[test]
fn a_child_is_not_taken_for_its_dead_parent() {
    /// For a machine that has other things to do.
    const MARGIN: Duration = Duration::from_secs(3);
    /// Between two looks of the program for the owner, and a little more.
    const LOOK: Duration = Duration::from_millis(150);
    let Some(cluster) = Cluster::with_xdp("a_child_is_not_taken_for_its_dead_parent", "") else { return };
    for receive_path in ["xdp", "socket"] {
        let settings = format!("port={PORT} receive={receive_path}");
        let mut parent = cluster.start(1, &format!("leaves_a_child {settings}"));
        assert_eq!(parent.hear(), format!("open {}", u8::from(receive_path == "xdp")));
        let mut sender = Remote::open(&cluster, 0, &format!("{settings} peer={}", four(1, PORT)));
        sender.order("post 1");
        let child: u32 = parent.hear_number();
        parent.see_killed();
        std::thread::sleep(LOOK);
        let asked = Instant::now();
        sender.order("post 200");
        let failure =
            eventually("the sender to hear of it", || Some(sender.failure()).filter(|it| !it.is_empty()));
        let took = asked.elapsed();
        println!("{receive_path}: after {took:?}: {failure}");
        assert!(failure.contains("Gone") && took < MARGIN, "{failure} after {took:?}");
        // Nothing was acknowledged by the child, or by the program for it.
        let fates = sender.ask("tickets");
        assert!(fates.contains("pending=0 delivered=1 "), "{fates}");
        let lives = |process| std::path::Path::new(&format!("/proc/{process}")).exists();
        assert!(lives(child), "the child is still there");
        if receive_path == "xdp" {
            assert_eq!(cluster.status(1).ports[&PORT]["claimed"], 0);
        }
        // The next server has port and memory at once.
        let mut next = Remote::open(&cluster, 1, &settings);
        assert_eq!(next.report().uses_xdp(), receive_path == "xdp");
        assert!(lives(child), "the child is still there");
    }
}

#[test]
fn who_is_gone_has_no_port_any_more() {
    let Some(cluster) = Cluster::with_xdp("who_is_gone_has_no_port_any_more", "") else { return };
    for receive_path in ["xdp", "socket"] {
        for _ in 0..5 {
            let echo = echo(&cluster, receive_path);
            let mut next = cluster.start(0, &format!("next_owner port={PORT} receive={receive_path}"));
            assert_eq!(next.hear(), "ready");
            echo.signal(Signal::KILL);
            // Asks for the port as soon as the kernel says that nobody listens there.
            assert_eq!(next.hear(), format!("open {}", u8::from(receive_path == "xdp")));
        }
    }
}

#[test]
fn interrupted_calls_go_on() {
    let Some(cluster) = Cluster::with_xdp("interrupted_calls_go_on", "") else { return };
    for receive_path in ["xdp", "socket"] {
        let _echo = echo(&cluster, receive_path);
        let settings = format!("port={PORT} echo={} receive={receive_path}", four(0, PORT));
        let mut interrupted = cluster.start(1, &format!("interrupted {settings}"));
        assert_eq!(interrupted.hear(), "closed");
    }
}

#[test]
fn two_endpoints_of_one_process_do_not_mix() {
    let Some(cluster) = Cluster::with_xdp("two_endpoints_of_one_process_do_not_mix", "") else { return };
    for receive_path in ["xdp", "socket"] {
        let _echo = echo(&cluster, receive_path);
        let own = four(1, PORT).ip();
        // Packets to one's own address take the loopback interface, which has no program.
        let settings = format!("echo={} own={own} receive={receive_path}", four(0, PORT));
        let mut two = cluster.start(1, &format!("two_endpoints {settings}"));
        assert_eq!(two.hear(), "done");
    }
}
