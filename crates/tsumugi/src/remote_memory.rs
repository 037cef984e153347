//! Virtual memory-mapped communication: export a piece of memory by name, import it elsewhere, write into it
//! (VMMC of P4: Konishi et al., *User-Space Communication: A Comparative Study*, 1997).
//!
//! The exporter says what may be reached, and by what name. The importer asks a peer for the name and gets the right to
//! write (and to read, if the exporter gives it) at any place in it. Nothing is received in the usual sense: data are
//! there. Whoever writes may choose a handler that is run on the other side when the data are there.
//!
//! ```
//! use std::time::Duration;
//! use tsumugi::remote_memory::RemoteMemory;
//! use tsumugi::{Config, Endpoint, Region, Rights};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let config = || Config::loopback().accept_unknown(true);
//! let (there, here) = (Endpoint::open(config())?, Endpoint::open(config())?);
//! let peer = here.add_peer(format!("127.0.0.1:{}", there.port()))?;
//! let (mut exporter, mut importer) = (RemoteMemory::open(&there, 1)?, RemoteMemory::open(&here, 1)?);
//!
//! let canvas = Region::new(4096)?;
//! exporter.export("canvas", &canvas.all(), Rights::WRITE)?;
//! exporter.on_notification(1, |written| println!("{} bytes are new", written.slice.bytes()));
//!
//! // One thread plays both sides here; otherwise `import` does all this by itself.
//! let mut import = importer.begin_import(peer, "canvas")?;
//! let canvas_there = loop {
//!     exporter.poll()?;
//!     if let Some(import) = importer.try_import(&mut import)? {
//!         break import;
//!     }
//! };
//!
//! let picture = Region::new(100)?;
//! canvas_there.write_and_notify(2000, &picture.all(), 1)?;
//! while exporter.poll()? == 0 {
//!     here.progress()?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! As [`crate::remote`] says: what is written before a notification is there when its handler runs.

mod wire;

use crate::channel::Channel;
use crate::error::{ChannelError, ReceiveError, SendError};
use crate::remote::{Notification, Operation, RegisterError, Registration, Remote, Rights, Target};
use crate::ticket::Ticket;
use crate::{Endpoint, PeerId};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};
use tsumugi_rail::{OutOfRegion, Slice};
use wire::{Exported, Word};

/// Longest name of an export, bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Time after which a peer that has no such export is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(10);

type Handler = Box<dyn FnMut(&Notification)>;

/// What a process exports, and its means to import what others do. Holds one channel, of the same number on all peers.
pub struct RemoteMemory {
    channel: Channel,
    remote: Remote,
    exports: BTreeMap<String, Export>,
    handlers: HashMap<u64, Handler>,
    /// Whoever has asked, until it is dropped.
    asked: Vec<Weak<Question>>,
    /// Notifications for handlers that there are none of, and words that made no sense.
    strays: u64,
}

struct Export {
    registration: Registration,
    rights: Rights,
}

/// Something could not be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// Names are unique in a process.
    #[error("'{0}' is exported already; withdraw it first or choose another name")]
    Taken(String),
    /// Names travel in one packet.
    #[error("a name of {0} bytes: take 1 to {NAME_BYTES_MAX}")]
    Name(usize),
    /// There is nothing to reach.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

/// Something could not be imported, or others not be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// Nobody there has exported it, until now.
    #[error(
        "{peer} has exported nothing called '{name}' within {timeout:?}; is the name right, and does the process there poll?"
    )]
    NotExported {
        /// Who was asked.
        peer: PeerId,
        /// For what.
        name: String,
        /// For how long.
        timeout: Duration,
    },
    /// Names travel in one packet.
    #[error("a name of {0} bytes: take 1 to {NAME_BYTES_MAX}")]
    Name(usize),
    /// It cannot be asked.
    #[error(transparent)]
    Send(#[from] SendError),
    /// Nothing can be received.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
}

/// Something was not written to what was imported, or read from it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// It does not lie within the export.
    #[error("not within what was imported: {0}")]
    Outside(#[from] OutOfRegion),
    /// The exporter has not given the right.
    #[error("the exporter has not given the right to do this")]
    NotPermitted,
    /// Why it cannot be sent.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// A question under way: see [`RemoteMemory::begin_import`].
/// Dropped, it is given up.
#[derive(Debug)]
pub struct Importing {
    question: Rc<Question>,
    /// When the peer is asked again.
    again: Option<Instant>,
}

#[derive(Debug)]
struct Question {
    peer: PeerId,
    name: String,
    answer: Cell<Option<Exported>>,
}

/// Memory of another process that may be reached.
#[derive(Clone)]
pub struct Import {
    remote: Remote,
    peer: PeerId,
    target: Target,
    bytes: u64,
    rights: Rights,
}

impl RemoteMemory {
    /// Takes the channel of this number.
    ///
    /// # Errors
    /// It is open already.
    pub fn open(endpoint: &Endpoint, channel: u16) -> Result<RemoteMemory, ChannelError> {
        Ok(RemoteMemory {
            channel: endpoint.channel(channel)?,
            remote: endpoint.remote(),
            exports: BTreeMap::new(),
            handlers: HashMap::new(),
            asked: Vec::new(),
            strays: 0,
        })
    }

    /// Lets others import memory by a name.
    ///
    /// # Errors
    /// The name is taken or too long, or there is nothing to export.
    pub fn export(&mut self, name: &str, slice: &Slice, rights: Rights) -> Result<(), ExportError> {
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            return Err(ExportError::Name(name.len()));
        }
        if self.exports.contains_key(name) {
            return Err(ExportError::Taken(name.to_owned()));
        }
        let registration = self.remote.register(slice, rights)?;
        self.exports.insert(name.to_owned(), Export { registration, rights });
        Ok(())
    }

    /// Ends an export: peers that have imported it are refused from now on. `false`: there was none of this name.
    pub fn withdraw(&mut self, name: &str) -> bool {
        self.exports.remove(name).is_some()
    }

    /// Has notifications for this handler, as senders number them, handled from now on.
    pub fn on_notification(&mut self, handler: u64, run: impl FnMut(&Notification) + 'static) {
        self.handlers.insert(handler, Box::new(run));
    }

    /// Notifications that nobody handles, and words of others that make no sense, so far.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Answers who wants to import, and runs the handlers of what was written. Returns how many were run.
    ///
    /// # Errors
    /// A peer is gone, said once; or the NIC is broken.
    pub fn poll(&mut self) -> Result<usize, ImportError> {
        while let Some(message) = self.channel.try_receive()? {
            let (source, word) = (message.source(), wire::decode(&message));
            drop(message);
            self.on_word(source, word)?;
        }
        let mut run = 0;
        for export in self.exports.values() {
            while let Some(notification) = export.registration.take_notification() {
                match self.handlers.get_mut(&notification.handler) {
                    Some(handler) => {
                        handler(&notification);
                        run += 1;
                    }
                    None => self.strays += 1,
                }
            }
        }
        Ok(run)
    }

    /// As [`RemoteMemory::poll`], but waits until a handler has run, no longer than `timeout`: then it returns 0.
    ///
    /// # Errors
    /// As [`RemoteMemory::poll`].
    pub fn poll_timeout(&mut self, timeout: Duration) -> Result<usize, ImportError> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let run = self.poll()?;
            let rest =
                deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
            if run > 0 || rest.is_zero() {
                return Ok(run);
            }
            self.wait(rest)?;
        }
    }

    /// Waits for a word or a notification, no longer than `timeout`.
    fn wait(&self, timeout: Duration) -> Result<(), ReceiveError> {
        let (shared, channel) = (&self.channel.shared, self.channel.number());
        let keys: Vec<u64> = self.exports.values().map(|export| export.registration.target().key).collect();
        shared.inner.borrow_mut().core.watch();
        shared.wait_until(shared.deadline(timeout), |core| {
            let has_notification = || keys.iter().any(|key| core.rma.served.has_notification(*key));
            (core.has_arrived(channel) || has_notification()).then_some(())
        })?;
        Ok(())
    }

    fn on_word(&mut self, source: PeerId, word: Option<Word>) -> Result<(), SendError> {
        match word {
            Some(Word::Wish(name)) => {
                let export = self.exports.get(&name);
                let found = export.map(|Export { registration, rights }| {
                    (registration.target(), registration.slice().bytes() as u64, *rights)
                });
                let answer = wire::encode_answer(&name, found);
                match self.channel.post(source, &answer) {
                    // It asks again; and a peer that is gone need not be told.
                    Ok(_) | Err(SendError::WouldBlock | SendError::Peer(_)) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            Some(Word::Answer(name, found)) => {
                // Only who asks is answered: others cannot make us grow.
                let asked = self.asked.iter().filter_map(Weak::upgrade);
                for question in asked.filter(|asked| asked.name == name) {
                    if self.remote.canonical(question.peer) == source {
                        question.answer.set(found);
                    }
                }
                Ok(())
            }
            None => {
                self.strays += 1;
                Ok(())
            }
        }
    }

    /// Imports what a peer exports by a name, waiting until it does.
    ///
    /// # Errors
    /// It does not within `timeout`, or cannot be asked.
    pub fn import(&mut self, peer: PeerId, name: &str, timeout: Duration) -> Result<Import, ImportError> {
        let mut importing = self.begin_import(peer, name)?;
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(import) = self.try_import(&mut importing)? {
                return Ok(import);
            }
            if Instant::now() >= deadline {
                return Err(ImportError::NotExported { peer, name: name.to_owned(), timeout });
            }
            self.wait(ASK_AGAIN)?;
        }
    }

    /// Begins to import what a peer exports by a name, without waiting.
    ///
    /// # Errors
    /// The name is too long.
    pub fn begin_import(&mut self, peer: PeerId, name: &str) -> Result<Importing, ImportError> {
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            return Err(ImportError::Name(name.len()));
        }
        let question = Rc::new(Question { peer, name: name.to_owned(), answer: Cell::new(None) });
        self.asked.retain(|asked| asked.strong_count() > 0);
        self.asked.push(Rc::downgrade(&question));
        Ok(Importing { question, again: None })
    }

    /// The import, if the peer has answered; it is asked now and then until it has.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn try_import(&mut self, importing: &mut Importing) -> Result<Option<Import>, ImportError> {
        self.poll()?;
        let Importing { question, again } = importing;
        if let Some((target, bytes, rights)) = question.answer.get() {
            let remote = self.remote.clone();
            return Ok(Some(Import { remote, peer: question.peer, target, bytes, rights }));
        }
        let now = Instant::now();
        if again.is_none_or(|again| now >= again) {
            match self.channel.post(question.peer, &wire::encode_wish(&question.name)) {
                Ok(_) | Err(SendError::WouldBlock) => *again = Some(now + ASK_AGAIN),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}

impl Import {
    /// What was told of otherwise than by name.
    #[must_use]
    pub fn of(endpoint: &Endpoint, peer: PeerId, target: Target, bytes: u64, rights: Rights) -> Import {
        Import { remote: endpoint.remote(), peer, target, bytes, rights }
    }

    /// Whose memory it is.
    #[must_use]
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// What it is called on the wire, for what is not offered here, such as atomics.
    #[must_use]
    pub fn target(&self) -> Target {
        self.target
    }

    /// Length, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes what is in `from` to `at`, without waiting.
    ///
    /// # Errors
    /// It does not lie within the import, is not permitted, or cannot be sent now.
    pub fn write(&self, at: u64, from: &Slice) -> Result<Ticket, AccessError> {
        let to = self.place(at, from.bytes(), Rights::WRITE)?;
        Ok(self.remote.write(self.peer, to, from)?)
    }

    /// Writes a copy of a few bytes to `at`, without waiting.
    ///
    /// # Errors
    /// As [`Import::write`].
    pub fn write_bytes(&self, at: u64, data: &[u8]) -> Result<Ticket, AccessError> {
        let to = self.place(at, data.len(), Rights::WRITE)?;
        Ok(self.remote.write_bytes(self.peer, to, data)?)
    }

    /// Writes, and has the exporter's handler of this number run when all of it is there.
    ///
    /// # Errors
    /// As [`Import::write`].
    pub fn write_and_notify(&self, at: u64, from: &Slice, handler: u64) -> Result<Ticket, AccessError> {
        let to = self.place(at, from.bytes(), Rights::WRITE)?;
        Ok(self.remote.write_and_notify(self.peer, to, from, handler)?)
    }

    /// Reads from `at`, without waiting.
    ///
    /// # Errors
    /// It does not lie within the import, is not permitted, or cannot be sent now.
    pub fn read(&self, at: u64, into: &Slice) -> Result<Operation, AccessError> {
        let from = self.place(at, into.bytes(), Rights::READ)?;
        Ok(self.remote.read(self.peer, from, into)?)
    }

    fn place(&self, at: u64, bytes: usize, rights: Rights) -> Result<Target, AccessError> {
        if !self.rights.has(rights) {
            return Err(AccessError::NotPermitted);
        }
        if bytes as u64 > self.bytes || at > self.bytes - bytes as u64 {
            let whole = usize::try_from(self.bytes).unwrap_or(usize::MAX);
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            return Err(OutOfRegion::Beyond { at, bytes, region: whole }.into());
        }
        Ok(self.target.plus(at))
    }
}
