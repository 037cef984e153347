//! Packets that the kernel has freed and not given back yet.
//!
//! A packet that is read on another CPU than the one that received it is freed by the latter, when that next receives
//! something (Linux, `skb_attempt_defer_free` in net/core/skbuff.c). On a CPU that receives nothing any more it waits for
//! ever, and with it the page pool of a NIC that lent the page. Sixty seconds after the pool's end the kernel says
//! `page_pool_release_retry() stalled pool shutdown`, as it does of a page that has leaked. So whoever has taken a NIC or
//! its program away lets every CPU receive a packet: then nothing waits, and a stalled pool is a leak.

use crate::sys;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// A packet over loopback takes microseconds; a CPU that is busy with others', milliseconds.
const PATIENCE: Duration = Duration::from_millis(100);

/// Has every CPU give back what it has freed, by a packet over loopback. Does what can be done: CPUs that this process may
/// not use keep what they have, and so do all where loopback is down.
pub fn give_back() {
    // A thread, because it moves from CPU to CPU, and its caller stays where it is.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for cpu in 0..sys::cpus() {
                if sys::move_to(cpu).is_ok() {
                    let _ = receive_one();
                }
            }
        });
    });
}

/// Loopback hands a packet over on the CPU that sends it (Linux, `loopback_xmit`).
fn receive_one() -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send_to(&[0], socket.local_addr()?)?;
    socket.recv(&mut [0]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets that each CPU has received: the first number of its line in /proc/net/softnet_stat.
    fn received() -> Vec<u32> {
        let table = std::fs::read_to_string("/proc/net/softnet_stat").expect("/proc");
        let first = |line: &str| u32::from_str_radix(line.split(' ').next().expect("a number"), 16);
        table.lines().map(|line| first(line).expect("hexadecimal")).collect()
    }

    #[test]
    fn every_cpu_receives_a_packet() {
        let before = received();
        give_back();
        let after = received();
        assert!(before.iter().zip(&after).all(|(before, after)| before != after), "{before:?}, {after:?}");
    }
}
