//! Both sides of a case over TCP: what P2's processes did.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::flow::{BUCKET_NS, MESSAGE_BYTES, Received, Sent, SentFlow};
use crate::conditions::Side;
use crate::cpu::{machine_ns, process_cpu_time};

/// Takes one connection to its end.
pub(super) fn sink(tell_port: impl FnOnce(u16) -> io::Result<()>) -> io::Result<Received> {
    let listener = TcpListener::bind("0.0.0.0:0")?;
    tell_port(listener.local_addr()?.port())?;
    let (mut stream, _) = listener.accept()?;
    let mut received = Received::default();
    let mut piece = vec![0; 64 << 10];
    loop {
        match stream.read(&mut piece)? {
            0 => return Ok(Received { side: Side::here(), ..received }),
            count => received
                .count(machine_ns() / BUCKET_NS, count as u64, || process_cpu_time().as_nanos() as u64),
        }
    }
}

/// Sends to all of them for `time_s`, to the first of them for `alone_s` before.
pub(super) fn source(to: &[SocketAddr], alone_s: f64, time_s: f64) -> io::Result<Sent> {
    let streams = to.iter().map(TcpStream::connect).collect::<io::Result<Vec<TcpStream>>>()?;
    let begin = machine_ns() / BUCKET_NS + 1;
    thread::sleep(Duration::from_nanos((begin * BUCKET_NS).saturating_sub(machine_ns())));
    let start = Instant::now();
    let joined = start + Duration::from_secs_f64(alone_s);
    let ended = joined + Duration::from_secs_f64(time_s);
    thread::scope(|scope| {
        let senders = streams.iter().enumerate().map(|(flow, stream)| {
            let begins = if flow == 0 { start } else { joined };
            scope.spawn(move || send(stream, begins, joined, ended))
        });
        let senders: Vec<_> = senders.collect();
        thread::sleep(joined.saturating_duration_since(Instant::now()));
        let cpu = process_cpu_time();
        thread::sleep(ended.saturating_duration_since(Instant::now()));
        let cpu_ns = (process_cpu_time() - cpu).as_nanos() as u64;
        let sent = senders.into_iter().map(|sender| {
            let messages = sender.join().unwrap_or_else(|_| Err(io::Error::other("a sender panicked")))?;
            Ok(SentFlow { messages, paths: Vec::new() })
        });
        let flows = sent.collect::<io::Result<Vec<SentFlow>>>()?;
        Ok(Sent { begin, cpu_ns, send: "tcp".to_owned(), flows, side: Side::here() })
    })
}

/// One sender, `write` by `write` of a message; returns how many it sent while all did.
fn send(mut stream: &TcpStream, begins: Instant, joined: Instant, ended: Instant) -> io::Result<u64> {
    thread::sleep(begins.saturating_duration_since(Instant::now()));
    let message = [0x5a; MESSAGE_BYTES];
    let mut messages = 0;
    loop {
        let now = Instant::now();
        if now >= ended {
            return Ok(messages);
        }
        stream.write_all(&message)?;
        messages += u64::from(now >= joined);
    }
}
