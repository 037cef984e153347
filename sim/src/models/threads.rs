//! Streams: several messages to a host at once, written and read in pieces of other sizes.

use super::{Part, Site, Wrong, length, payload, text};
use crate::random::Random;
use std::collections::HashSet;
use tsumugi::stream::{Incoming, Outgoing, StreamOptions, Streams, WriteError};

#[derive(Default)]
struct Book {
    me: usize,
    taken: Vec<u64>,
    seen: HashSet<(usize, u64)>,
    wrong: Option<Wrong>,
}

pub(super) struct Threads {
    port: Streams<Book>,
    sent: Vec<u64>,
    /// Handlers and writers that have not ended.
    running: usize,
    taken: Vec<u64>,
}

/// From whom, which one, and how long.
const HEAD_BYTES: usize = 24;

/// Reads a message in pieces.
async fn take(mut incoming: Incoming<Book>) {
    if let Err(wrong) = read(&mut incoming).await {
        incoming.with(|book| book.wrong = Some(wrong));
    }
}

async fn read(incoming: &mut Incoming<Book>) -> Result<(), Wrong> {
    let mut head = [0; HEAD_BYTES];
    incoming.read_exact(&mut head).await.map_err(text)?;
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let (from, number, bytes) = (word(0) as usize, word(8), word(16) as usize);
    let mut all = Vec::new();
    let mut piece = vec![0; 1 + (number as usize * 97 + 13) % 700];
    loop {
        match incoming.read(&mut piece).await.map_err(text)? {
            0 => break,
            count => all.extend_from_slice(&piece[..count]),
        }
    }
    incoming.with(|book| {
        if all != payload(from, book.me, number, bytes) || !book.seen.insert((from, number)) {
            return Err(format!("thread {number} of host {from} is not what was sent, or came twice"));
        }
        book.taken[from] += 1;
        Ok(())
    })
}

/// Writes a message in pieces.
async fn write(mut outgoing: Outgoing, data: Vec<u8>, piece: usize) {
    for part in data.chunks(piece) {
        if outgoing.piece(part).await.is_err() {
            return; // it will be missed
        }
    }
    let _ = outgoing.end().await;
}

impl Threads {
    pub(super) fn open(site: &Site, hosts: usize) -> Result<Threads, Wrong> {
        let book = Book { me: site.me, taken: vec![0; hosts], ..Book::default() };
        let mut port = Streams::open(&site.endpoint, 3, StreamOptions::default(), book).map_err(text)?;
        port.register("take", take).map_err(text)?;
        Ok(Threads { port, sent: vec![0; hosts], running: 0, taken: vec![0; hosts] })
    }
}

impl Part for Threads {
    fn act(&mut self, random: &mut Random, site: &Site) -> Result<(), Wrong> {
        let to = site.another(random);
        let (number, bytes, piece) = (self.sent[to], length(random), length(random));
        match self.port.begin(site.peer(to), "take") {
            Ok(outgoing) => {
                let head = [site.me as u64, number, bytes as u64].map(u64::to_le_bytes).concat();
                let data = [head, payload(site.me, to, number, bytes)].concat();
                self.port.spawn(write(outgoing, data, piece));
                self.sent[to] += 1;
            }
            Err(WriteError::Unfinished { .. }) => {}
            Err(error) => return Err(format!("a thread: {error}")),
        }
        Ok(())
    }

    fn poll(&mut self, _: &Site, _: bool) -> Result<(), Wrong> {
        self.port.poll().map_err(text)?;
        self.running = self.port.running();
        let (taken, wrong) = self.port.with(|book| (book.taken.clone(), book.wrong.take()));
        self.taken = taken;
        wrong.map_or(Ok(()), Err)
    }

    fn sent_to(&self, host: usize) -> u64 {
        self.sent[host]
    }

    fn taken_from(&self, host: usize) -> u64 {
        self.taken[host]
    }

    fn is_quiet(&self) -> bool {
        self.running == 0
    }
}
