//! Keys that are typed on the terminal, which is in raw mode.
//!
//! crossterm's own reader goes on for ever when the terminal is gone: it reads nothing, and takes that for an event to come.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read};
use rustix::stdio::stdin;
use rustix::time::Timespec;
use std::io;
use std::time::Duration;

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    Sort,
    Halt,
    Sooner,
    Later,
    End,
}

/// Keys that are typed within `time`; the first ends the wait. [`Key::End`] when the terminal is gone, too.
pub(super) fn typed(time: Duration) -> io::Result<Vec<Key>> {
    let timeout = Timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos().into() };
    let terminal = stdin();
    match poll(&mut [PollFd::new(&terminal, PollFlags::IN)], Some(&timeout)) {
        Ok(0) | Err(Errno::INTR) => return Ok(Vec::new()),
        ready => ready?,
    };
    let mut bytes = [0; 256];
    match read(terminal, &mut bytes) {
        Ok(0) | Err(Errno::IO) => Ok(vec![Key::End]),
        Err(Errno::INTR) => Ok(Vec::new()),
        count => Ok(keys(&bytes[..count?])),
    }
}

/// The keys that bytes stand for, those of arrows as terminals have them since the VT100.
fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let [first, behind @ ..] = rest {
        let (key, taken) = match (first, behind) {
            (0x1b, [b'[' | b'O', b'A', ..]) => (Some(Key::Up), 3),
            (0x1b, [b'[' | b'O', b'B', ..]) => (Some(Key::Down), 3),
            (0x1b, []) | (b'q' | 0x03, _) => (Some(Key::End), 1),
            // Some other key, whose bytes are no keys.
            (0x1b, _) => (None, rest.len()),
            (b'k', _) => (Some(Key::Up), 1),
            (b'j', _) => (Some(Key::Down), 1),
            (b's', _) => (Some(Key::Sort), 1),
            (b' ', _) => (Some(Key::Halt), 1),
            (b'+', _) => (Some(Key::Sooner), 1),
            (b'-', _) => (Some(Key::Later), 1),
            _ => (None, 1),
        };
        keys.extend(key);
        rest = &rest[taken..];
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_keys() {
        assert_eq!(keys(b"\x1b[A\x1bOBjk"), [Key::Up, Key::Down, Key::Down, Key::Up]);
        assert_eq!(keys(b"s +-x"), [Key::Sort, Key::Halt, Key::Sooner, Key::Later]);
        assert_eq!(keys(b"\x1b[6~q"), []);
        assert_eq!([keys(b"\x1b"), keys(b"\x03"), keys(b"q")], [[Key::End]; 3]);
    }
}
