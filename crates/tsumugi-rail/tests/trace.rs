//! What [`Traced`] writes is what tshark reads.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::Command;
use tsumugi_rail::sim::{HostOptions, LinkOptions, Network};
use tsumugi_rail::{Packet, Rail, Traced};
use tsumugi_wire::{Header, Instant, Kind};

/// A packet with `bytes` of body.
fn packet(bytes: u16) -> ([u8; 48], Vec<u8>) {
    let header = Header { body_bytes: bytes, ..Header::new(Kind::Data, 1) };
    (header.encode(), (0..bytes).map(|at| at as u8).collect())
}

/// Trace of the receiver, and of the sender, of packets sent at 1.000000007 s and taken at 2 s.
fn traces(from: &str, to: &str, bodies: &[u16]) -> [Vec<u8>; 2] {
    let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let network = Network::new(1, LinkOptions::default());
    network.set_host_options(HostOptions { coalesce: 1.0, ..HostOptions::default() });
    let mut a = Traced::new(network.rail(from, 1472), Vec::new(), 0).unwrap();
    let mut b = Traced::new(network.rail(to, 1472), Vec::new(), 0).unwrap();
    let packets: Vec<_> = bodies.iter().map(|bytes| packet(*bytes)).collect();
    let burst: Vec<Packet<'_>> = packets.iter().map(|(head, body)| Packet { head, body }).collect();
    assert_eq!(a.send(Instant(1_000_000_007), to, &burst).unwrap(), burst.len());
    let mut datagrams = 0;
    while b.receive(Instant(2_000_000_000), &mut |_, _| datagrams += 1).unwrap() > 0 {}
    assert!(bodies.len() < 5 || datagrams < bodies.len(), "nothing was coalesced");
    assert_eq!((a.packets(), b.packets()), (bodies.len() as u64, bodies.len() as u64));
    [b.finish().1.unwrap(), a.finish().1.unwrap()]
}

/// Field values of every packet, as tshark sees them; `None` without tshark.
fn tshark(pcap: &[u8], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    if Command::new("tshark").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI needs tshark: apt-get install tshark");
        eprintln!("SKIPPED: tshark is not installed (apt-get install tshark)");
        return None;
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(pcap).unwrap();
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-E", "separator=|", "-o", "udp.check_checksum:TRUE"]);
    command.args(["-o", "ip.check_checksum:TRUE", "-r"]).arg(file.path());
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
}

#[test]
fn tshark_reads_every_packet_with_good_checksums() {
    let bodies = [1000, 1000, 1000, 7, 0, 0, 1424, 1424, 1];
    let [received, sent] = traces("10.0.0.1:7411", "10.0.0.2:7412", &bodies);
    let fields = [
        "frame.time_epoch",
        "ip.src",
        "ip.dst",
        "udp.srcport",
        "udp.dstport",
        "udp.length",
        "ip.checksum.status",
        "udp.checksum.status",
    ];
    for (trace, time) in [(received, "2.000000000"), (sent, "1.000000007")] {
        let Some(rows) = tshark(&trace, &fields) else { return };
        assert_eq!(rows.len(), bodies.len());
        for (row, bytes) in rows.iter().zip(bodies) {
            let length = (8 + 48 + bytes).to_string();
            // Status 1 is "good".
            let expected = [time, "10.0.0.1", "10.0.0.2", "7411", "7412", &length, "1", "1"];
            assert_eq!(row[..], expected[..]);
        }
    }
}

#[test]
fn tshark_reads_ipv6() {
    let bodies = [1000, 1000, 7];
    let [received, sent] = traces("[fd00::1]:1", "[fd00::2]:2", &bodies);
    for trace in [received, sent] {
        let Some(rows) = tshark(&trace, &["ipv6.src", "ipv6.dst", "udp.length", "udp.checksum.status"])
        else {
            return;
        };
        let lengths = ["1056", "1056", "63"];
        assert_eq!(rows.len(), 3);
        for (row, length) in rows.iter().zip(lengths) {
            assert_eq!(row[..], ["fd00::1", "fd00::2", length, "1"]);
        }
    }
}

#[test]
fn bytes_that_are_no_packet_are_written_as_they_are() {
    let network = Network::new(1, LinkOptions::default());
    let (from, to) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:1".parse().unwrap());
    let mut a = network.rail(from, 1472);
    let mut b = Traced::new(network.rail(to, 1472), Vec::new(), 0).unwrap();
    a.send(Instant(0), to, &[Packet { head: b"garbage", body: b"" }, Packet { head: b"", body: b"" }])
        .unwrap();
    b.receive(Instant(1_000_000), &mut |_, _| {}).unwrap();
    assert_eq!(b.packets(), 2);
    let pcap = b.finish().1.unwrap();
    assert_eq!(pcap.len(), 24 + 2 * (16 + 28) + 7);
}

/// A disk that is full after the file's header.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0 -= 1;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_ends_the_trace_and_not_the_traffic() {
    let network = Network::new(1, LinkOptions::default());
    let (from, to) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:1".parse().unwrap());
    let mut a = Traced::new(network.rail(from, 1472), Full(2), 0).unwrap();
    let mut b = network.rail(to, 1472);
    for _ in 0..3 {
        assert_eq!(a.send(Instant(0), to, &[Packet { head: b"x", body: b"" }]).unwrap(), 1);
    }
    let mut received = 0;
    b.receive(Instant(1_000_000), &mut |_, _| received += 1).unwrap();
    assert_eq!(received, 3);
    assert_eq!(a.packets(), 1);
    assert_eq!(a.finish().1.err().unwrap().kind(), io::ErrorKind::StorageFull);
    assert!(Traced::new(b, Full(0), 0).is_err());
}
