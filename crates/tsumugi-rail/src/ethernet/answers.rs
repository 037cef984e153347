//! Whether the answers of the XDP program leave the NIC, while an endpoint is open.
//!
//! `up` has found that out by trying, but for NICs whose other end may get a program later, or lose it (`xdp/answers.rs`).
//! The counters of the NIC's driver tell. While the driver drops all, the program leaves its answers to us. Now and then
//! it is tried again.

use crate::given_up::GivenUp;
use crate::xdp::{Attached, Claim, Mode, SentBack};
use tsumugi_wire::Instant;
use tsumugi_wire::time::{MILLISECOND_NS, SECOND_NS};

/// Time between two looks at the counters of the NIC's driver: at first, and when nothing has been dropped for a while.
const LOOK_FIRST_NS: u64 = 50 * MILLISECOND_NS;
const LOOK_NS: u64 = SECOND_NS;
/// How often it is looked at first.
const FIRST_LOOKS: u32 = 40;
/// Time after which the program may try again.
const RETRY_NS: u64 = 10 * SECOND_NS;

/// What may be given up.
const ANSWERS: &str = "answers by the XDP program";

/// What is known of the program's answers.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The NICs whose drivers count what XDP programs send back, and what they had counted.
    nics: Vec<(String, SentBack)>,
    /// The NIC that drops them.
    dropped_by: Option<String>,
    /// Whether the program leaves them to us.
    left: bool,
    look_at: Instant,
    looks: u32,
}

impl Answers {
    /// Takes note of where the program is attached.
    pub(super) fn watch(&mut self, attached: &[Attached]) {
        let natives = attached.iter().filter(|it| it.is_attached() && it.mode == Mode::Native);
        let names: Vec<&String> = natives.filter_map(|it| it.nic.as_ref()).collect();
        self.nics.retain(|(nic, _)| names.contains(&nic));
        for name in names {
            if !self.nics.iter().any(|(nic, _)| nic == name)
                && let Some(counted) = SentBack::by(name)
            {
                self.nics.push((name.clone(), counted));
                self.looks = 0;
            }
        }
    }

    /// Looks whether answers leave the NIC, if it is time. Something has arrived since the last call.
    pub(super) fn look(&mut self, now: Instant, claim: &Claim) {
        if now < self.look_at || self.nics.is_empty() && !self.left {
            return;
        }
        self.looks = self.looks.saturating_add(1);
        if self.left {
            self.leave(claim, false);
            for (nic, counted) in &mut self.nics {
                *counted = SentBack::by(nic).unwrap_or(*counted);
            }
            self.look_at = now.plus(LOOK_FIRST_NS);
            return;
        }
        let (mut dropped_by, mut sent) = (None, false);
        for (nic, before) in &mut self.nics {
            let counted = SentBack::by(nic).unwrap_or(*before);
            let before = std::mem::replace(before, counted);
            sent |= counted.sent > before.sent;
            // A queue that was full now and then is no reason.
            if counted.dropped > before.dropped && counted.sent == before.sent {
                dropped_by = Some(nic.clone());
            }
        }
        let is_quick = self.looks < FIRST_LOOKS || self.dropped_by.is_some();
        self.look_at = now.plus(if is_quick { LOOK_FIRST_NS } else { LOOK_NS });
        let port = claim.port();
        if dropped_by.is_some() {
            self.leave(claim, true);
            self.look_at = now.plus(RETRY_NS);
            if self.dropped_by != dropped_by {
                self.dropped_by = dropped_by;
                self.loss().inspect(|loss| tracing::warn!(port, "the endpoint goes on without {loss}"));
            }
        } else if sent && self.dropped_by.take().is_some() {
            tracing::info!(port, "{ANSWERS} get away again");
        }
    }

    fn leave(&mut self, claim: &Claim, on: bool) {
        self.left = on;
        claim.leave_answers(on);
    }

    /// What is lost, if anything.
    pub(super) fn loss(&self) -> Option<GivenUp> {
        let nic = self.dropped_by.as_ref()?;
        let why = format!("the other end of {nic} drops what programs in the driver send");
        let remedy = format!(
            "mend it there: `ethtool -K NIC gro on`, or as root: `tsumugi down {nic}` and `tsumugi up {nic} --xdp generic`"
        );
        Some(GivenUp { what: ANSWERS, why, remedy })
    }
}
