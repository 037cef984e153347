//! The handshake with a peer: cookies on one side, retries on the other.
//!
//! See [`tsumugi_wire::handshake`] for the exchange.

use core::hash::Hasher;
use core::net::SocketAddr;
use siphasher::sip::SipHasher24;
use tsumugi_wire::time::{Instant, MILLISECOND_NS, SECOND_NS};

/// How long a cookie is good for, ns: at least this, at most twice.
const COOKIE_LIFE_NS: u64 = 10 * SECOND_NS;
/// First time to wait for an answer to a HELLO, ns.
const HELLO_INTERVAL_NS: u64 = 20 * MILLISECOND_NS;
/// Longest time between two HELLOs, ns.
const HELLO_INTERVAL_NS_MAX: u64 = 500 * MILLISECOND_NS;

/// Makes and checks cookies: proof that the sender of a HELLO hears what is sent to its address,
/// asked for before anything is remembered about it.
#[derive(Clone, Debug)]
pub struct Cookies {
    key: (u64, u64),
}

impl Cookies {
    /// Cookies under a random `key`.
    #[must_use]
    pub const fn new(key: (u64, u64)) -> Cookies {
        Cookies { key }
    }

    /// The key, for an endpoint that goes on elsewhere.
    #[must_use]
    pub const fn key(&self) -> (u64, u64) {
        self.key
    }

    /// The cookie for a HELLO from `from` with `epoch` and `nonce`.
    ///
    /// `known` says how things stood with the address when the challenge was made: under which epoch it was
    /// known, after how many connections; 0 if it was not known. A HELLO of an earlier incarnation, or of a
    /// connection that is over, therefore cannot displace a later one: its cookie was made before the later
    /// one was known, and nobody is left to answer a new challenge.
    #[must_use]
    pub fn make(&self, now: Instant, from: SocketAddr, epoch: u32, nonce: u64, known: u32) -> u64 {
        self.at(now.0 / COOKIE_LIFE_NS, from, epoch, nonce, known)
    }

    /// Whether `cookie` was made here for the same HELLO, not too long ago.
    #[must_use]
    pub fn check(
        &self,
        now: Instant,
        from: SocketAddr,
        epoch: u32,
        nonce: u64,
        known: u32,
        cookie: u64,
    ) -> bool {
        let bucket = now.0 / COOKIE_LIFE_NS;
        cookie == self.at(bucket, from, epoch, nonce, known)
            || bucket > 0 && cookie == self.at(bucket - 1, from, epoch, nonce, known)
    }

    fn at(&self, bucket: u64, from: SocketAddr, epoch: u32, nonce: u64, known: u32) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key.0, self.key.1);
        match from {
            SocketAddr::V4(v4) => hasher.write(&v4.ip().octets()),
            SocketAddr::V6(v6) => hasher.write(&v6.ip().octets()),
        }
        hasher.write_u16(from.port());
        hasher.write_u32(epoch);
        hasher.write_u64(nonce);
        hasher.write_u32(known);
        hasher.write_u64(bucket);
        hasher.finish().max(1) // 0 means "no cookie"
    }
}

/// The connecting side: when to say HELLO (again), and with what.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// Random number that the answers must repeat.
    pub nonce: u64,
    /// From the last CHALLENGE; 0 before.
    pub cookie: u64,
    /// When the next HELLO is due.
    pub due: Instant,
    interval_ns: u64,
    refused: bool,
    /// When the last HELLO went out, for a first estimate of the round trip.
    pub said_at: Instant,
}

impl Handshake {
    /// A handshake whose first HELLO is due at once.
    #[must_use]
    pub const fn new(now: Instant, nonce: u64) -> Handshake {
        Handshake { nonce, cookie: 0, due: now, interval_ns: HELLO_INTERVAL_NS, refused: false, said_at: now }
    }

    /// A HELLO went out.
    pub fn said(&mut self, now: Instant) {
        self.said_at = now;
        self.due = now.plus(self.interval_ns);
        self.interval_ns = (self.interval_ns * 2).min(HELLO_INTERVAL_NS_MAX);
    }

    /// Whether a CHALLENGE says that the cookie of this handshake is not good any more. It may have overtaken a
    /// WELCOME, or be late: the handshake has failed only if no WELCOME has come when the next HELLO is due.
    pub fn refused(&mut self, nonce: u64, cookie: u64) -> bool {
        let refused = nonce == self.nonce && self.cookie != 0 && cookie != 0 && cookie != self.cookie;
        self.refused |= refused;
        refused
    }

    /// Whether the cookie of this handshake was refused.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        self.refused
    }

    /// A CHALLENGE arrived; `true` when it answers this handshake and changes the next HELLO, which is due now.
    pub fn challenged(&mut self, now: Instant, nonce: u64, cookie: u64) -> bool {
        if nonce != self.nonce || cookie == 0 || cookie == self.cookie {
            return false;
        }
        self.cookie = cookie;
        self.due = now;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_good_for_its_hello_only_and_for_some_time_only() {
        let cookies = Cookies::new((1, 2));
        let from: SocketAddr = "10.0.0.1:7".parse().unwrap();
        let other: SocketAddr = "10.0.0.1:8".parse().unwrap();
        let now = Instant(15 * SECOND_NS);
        let cookie = cookies.make(now, from, 3, 4, 0);
        assert!(cookies.check(now, from, 3, 4, 0, cookie));
        assert!(cookies.check(now.plus(COOKIE_LIFE_NS), from, 3, 4, 0, cookie));
        assert!(!cookies.check(now.plus(2 * COOKIE_LIFE_NS), from, 3, 4, 0, cookie), "old");
        assert!(!cookies.check(now, other, 3, 4, 0, cookie), "another address");
        assert!(!cookies.check(now, from, 4, 4, 0, cookie), "another epoch");
        assert!(!cookies.check(now, from, 3, 5, 0, cookie), "another nonce");
        assert!(!cookies.check(now, from, 3, 4, 9, cookie), "a later incarnation is known");
        assert!(!Cookies::new((1, 3)).check(now, from, 3, 4, 0, cookie), "another key");
    }
}
