//! Writes into the memory of another process, and counts in it.
//!
//! On one host:    cargo run --example remote_write
//! On another:     cargo run --example remote_write -- HOST

use std::error::Error;
use std::time::Duration;
use tsumugi::remote_memory::RemoteMemory;
use tsumugi::{Config, Endpoint, Region, Rights};

const PORT: u16 = 7420;
const CHANNEL: u16 = 1;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        None => export(),
        Some(host) => import(&host),
    }
}

/// Lets others write into a page, and shows what they have written.
fn export() -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::open(Config::default().port(PORT).accept_unknown(true))?;
    let mut memory = RemoteMemory::open(&endpoint, CHANNEL)?;
    // Written without this process where the XDP program deposits; memory like any other elsewhere.
    let page = endpoint.remote().window(4096)?;
    memory.export("page", &page.all(), Rights::ALL)?;
    memory.on_notification(1, |written| {
        let mut text = vec![0; written.slice.bytes()];
        if written.slice.region().read(written.slice.at(), &mut text).is_ok() {
            println!("{} wrote: {}", written.source, String::from_utf8_lossy(&text));
        }
    });
    println!("'page' is exported; run the other side with this host's name");
    while memory.poll()? == 0 {
        std::thread::yield_now();
    }
    println!("writers so far: {}", page.word(4088)?.load(std::sync::atomic::Ordering::Acquire));
    drop(memory);
    Ok(endpoint.close()?)
}

/// Counts itself among the writers, and writes.
fn import(host: &str) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::open(Config::default().accept_unknown(true))?;
    let peer = endpoint.add_peer(format!("{host}:{PORT}"))?;
    let mut memory = RemoteMemory::open(&endpoint, CHANNEL)?;
    let page = memory.import(peer, "page", PATIENCE)?;
    let before = endpoint.remote().fetch_add(peer, page.target().plus(4088), 1)?;
    println!("writers before this one: {:?}", before.wait_timeout(PATIENCE)?);
    let text = Region::new(32)?;
    text.write(0, b"woven across the wire")?;
    page.write_and_notify(0, &text.slice(0..21)?, 1)?;
    drop(memory);
    Ok(endpoint.close()?)
}
