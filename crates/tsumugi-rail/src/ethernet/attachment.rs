//! Whether the XDP program still deposits for an endpoint that is open: it may be taken off its NICs at any time.
//!
//! The check costs nothing per packet. While the program runs, it leaves a trace in the memory with every tick of the
//! kernel's clock; only when there is none is the kernel asked. When the program is gone, packets come through the
//! sockets and are deposited in the same memory; when `up` attaches it again, it finds that memory and continues.

use super::XDP;
use super::answers::Answers;
use crate::RailError;
use crate::given_up::GivenUp;
use crate::xdp::{Attached, Claim};
use tsumugi_wire::Instant;
use tsumugi_wire::time::{MILLISECOND_NS, SECOND_NS};

/// Time between two looks for the program's traces.
const TRACES_EVERY_NS: u64 = 50 * MILLISECOND_NS;
/// Time between two questions to the kernel while there are none.
const ASK_EVERY_NS: u64 = 100 * MILLISECOND_NS;
/// The same while there are some: they tell of one NIC at least, and another may have lost the program.
const ASK_ALL_EVERY_NS: u64 = SECOND_NS;

/// Why nothing is pinned any more.
const DOWN: &str = "`tsumugi down` was called";
/// What may be given up beside the whole of it.
const XDP_ON_SOME_NICS: &str = "the XDP receive path on some NICs";

/// What is known of the program's attachment.
#[derive(Debug)]
pub(super) struct Attachment {
    /// Whether it is attached to some NIC, as of `asked_at`.
    served: bool,
    asked_at: Instant,
    /// Where it is attached no more, and why.
    lost: Vec<String>,
    /// The tick of its last trace, as of `looked_at`.
    tick: u32,
    looked_at: Instant,
    answers: Answers,
}

impl Attachment {
    /// Of a memory that has just been claimed.
    pub(super) fn new() -> Attachment {
        Attachment {
            served: true,
            asked_at: Instant(0),
            lost: Vec::new(),
            tick: 0,
            looked_at: Instant(0),
            answers: Answers::default(),
        }
    }

    /// Whether the program deposits, as far as is known.
    pub(super) const fn is_served(&self) -> bool {
        self.served
    }

    /// Looks whether the program is still attached, if it is time.
    ///
    /// # Errors
    /// It is not, and it is demanded.
    #[inline]
    pub(super) fn look(&mut self, now: Instant, claim: &mut Claim, demanded: bool) -> Result<(), RailError> {
        if now.since(self.looked_at) < TRACES_EVERY_NS {
            return Ok(());
        }
        self.looked_at = now;
        let tick = claim.tick();
        let ran = std::mem::replace(&mut self.tick, tick) != tick;
        if ran {
            self.answers.look(now, claim);
        }
        if now.since(self.asked_at) < if ran { ASK_ALL_EVERY_NS } else { ASK_EVERY_NS } {
            return Ok(());
        }
        self.asked_at = now;
        self.ask(claim, demanded)
    }

    #[cold]
    fn ask(&mut self, claim: &mut Claim, demanded: bool) -> Result<(), RailError> {
        let attached = if claim.is_pinned() { claim.attachments() } else { Ok(Vec::new()) };
        // What cannot be looked at is believed to be as it was.
        let Ok(attached) = attached else { return Ok(()) };
        self.answers.watch(&attached);
        let lost = attached.iter().filter(|it| !it.is_attached()).map(ToString::to_string);
        let mut lost: Vec<String> = lost.collect();
        if attached.is_empty() {
            lost.push(DOWN.to_owned());
        }
        let is_news = lost != self.lost;
        (self.served, self.lost) = (attached.iter().any(Attached::is_attached), lost);
        if !self.served && demanded {
            return Err(RailError::XdpGone { port: claim.port(), why: self.lost.join(", ") });
        }
        if is_news {
            let port = claim.port();
            match self.loss() {
                Some(loss) => tracing::warn!(port, "the endpoint goes on without {loss}"),
                None => tracing::info!(port, "{XDP} is back"),
            }
        }
        Ok(())
    }

    /// All that is lost.
    pub(super) fn losses(&self) -> impl Iterator<Item = GivenUp> {
        self.loss().into_iter().chain(self.answers.loss())
    }

    fn loss(&self) -> Option<GivenUp> {
        let what = if self.served { XDP_ON_SOME_NICS } else { XDP };
        let remedy = if self.lost.iter().any(|why| why == DOWN) {
            // The memory went with the pool.
            "as root: `tsumugi up NIC`, and open the endpoint anew"
        } else {
            "as root: `tsumugi status` tells more, `tsumugi up NIC` attaches it again"
        };
        let why = self.lost.join(", ");
        (!self.lost.is_empty()).then(|| GivenUp { what, why, remedy: remedy.to_owned() })
    }
}
