//! Memory that the other side writes, and writing the other side's.

use tsumugi::remote::Registration;
use tsumugi::{Endpoint, PeerId, Region, Rights, Target};

/// Bytes of a page.
const PAGE: usize = 4096;

/// A window of ours.
pub(super) struct Window {
    region: Region,
    /// `None` when it is revoked.
    registration: Option<Registration>,
}

/// What is written: no two of different `number` are alike anywhere.
fn pattern(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at / 251 + at + 7 * number) as u8).collect()
}

impl Window {
    /// Makes and registers it, and says where it is.
    pub(super) fn lend(endpoint: &Endpoint, pages: usize) -> (Window, String) {
        let remote = endpoint.remote();
        let region = remote.window(pages * PAGE).expect("memory");
        let registration = remote.register(&region.all(), Rights::WRITE).expect("something to register");
        let Target { key, address } = registration.target();
        let said = format!("{key} {address} {}", u8::from(remote.is_window(&region.all())));
        (Window { region, registration: Some(registration) }, said)
    }

    pub(super) fn revoke(&mut self) {
        self.registration = None;
    }

    /// Whether it holds what was written as this number, from end to end.
    pub(super) fn holds(&self, number: u64) -> bool {
        let mut bytes = vec![0; self.region.bytes()];
        self.region.read(0, &mut bytes).expect("all of it");
        bytes == pattern(number, bytes.len())
    }
}

/// Writes all of the other side's window, then its beginning and its end once more: short writes, which have their turn.
pub(super) fn fill(endpoint: &Endpoint, peer: PeerId, order: &str) -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<u64> = order.split(' ').map(|number| number.parse().expect("a number")).collect();
    let [key, address, pages, number] = numbers[..] else {
        panic!("key, address, pages and number: {order}")
    };
    let (to, bytes) = (Target { key, address }, pages as usize * PAGE);
    let (remote, data) = (endpoint.remote(), pattern(number, bytes));
    let from = Region::new(bytes)?;
    // What the short writes mend.
    let mut first = data.clone();
    first[..8].fill(0);
    first[bytes - 100..].fill(0);
    from.write(0, &first)?;
    remote.write(peer, to, &from.all())?;
    remote.write_bytes(peer, to, &data[..8])?;
    endpoint.progress()?;
    remote.write_bytes(peer, to.plus(bytes as u64 - 100), &data[bytes - 100..])?;
    Ok(())
}
