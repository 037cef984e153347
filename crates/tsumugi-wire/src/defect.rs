//! Defects that can be switched on, to prove that the simulation's checkers find them.
//!
//! A place that one of them breaks asks `defect!(Name)`. That is the constant `false`, and nothing of it is left in the
//! program, unless the cargo feature `defects` is on: then every defect is there, and off until it is
//! [switched on](Defect::switch_on). Only `cargo xtask defects` builds so.

// Not `crate::atomic`: this is no part of what loom looks at.
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Whether the [`Defect`] of this name is on: `defect!(XoffIgnored)`.
#[macro_export]
macro_rules! defect {
    ($name:ident) => {
        $crate::defect::Defect::$name.is_on()
    };
}

/// Position in [`Defect::ALL`] of the one that is on, counted from 1; 0: none.
static ON: AtomicU8 = AtomicU8::new(0);

/// Makes [`Defect`] of names and what each breaks.
macro_rules! defects {
    ($(#[doc = $breaks:literal] $name:ident,)*) => {
        /// What can be broken on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Defect {
            $(#[doc = $breaks] $name,)*
        }

        impl Defect {
            /// All of them.
            pub const ALL: &[Defect] = &[$(Defect::$name),*];

            /// What it breaks, in words.
            #[must_use]
            pub fn breaks(self) -> &'static str {
                match self {
                    $(Defect::$name => $breaks,)*
                }
                .trim_start()
            }
        }
    };
}

impl Defect {
    /// Whether this program was built with defects.
    pub const BUILT_IN: bool = cfg!(feature = "defects");

    /// Whether this one breaks the process.
    #[inline(always)]
    #[must_use]
    pub fn is_on(self) -> bool {
        Self::BUILT_IN && ON.load(Relaxed) == self as u8 + 1
    }

    /// Breaks the process, for good, and mends what another broke. Of no effect unless [built in](Defect::BUILT_IN).
    pub fn switch_on(self) {
        ON.store(self as u8 + 1, Relaxed);
    }

    /// The one that is on.
    #[must_use]
    pub fn current() -> Option<Defect> {
        Self::ALL.iter().copied().find(|defect| defect.is_on())
    }
}

defects! {
    /// a packet that arrives twice is deposited twice
    NoDuplicateCheck,
    /// a PSN is claimed before there is room for its packet
    BitBeforeSpace,
    /// credit and receive bitmap let a sender run beyond what the receiver can tell apart
    BitmapNotLimited,
    /// the sender sends what it has no credit for
    CreditIgnored,
    /// credit is given though the memory for received messages is full
    CreditWithoutMemory,
    /// the bitmap is read one PSN too far
    SackOffByOne,
    /// what is acknowledged beyond a hole counts as lost
    LossMarksAcked,
    /// neither reordering nor silence makes a packet lost
    NothingSentAgain,
    /// a sender that got XOFF and has nothing outstanding waits for ever for an XON that was lost
    LostXonForgotten,
    /// the sender goes on after XOFF
    XoffIgnored,
    /// the receiver never says that there is room again
    XonNeverSent,
    /// a damaged body is taken
    NoCrcCheck,
    /// any packet with a flow's number and epoch belongs to it
    TokenNotChecked,
    /// packets of an earlier incarnation belong to the flow
    EpochNotChecked,
    /// a packet is handed out before those ahead of it
    ReorderSkips,
    /// fragments are put behind each other as they arrive
    FragmentOffsetIgnored,
    /// an empty message at the end of a packet that several share is lost
    LastFrameLost,
    /// a packet has what another has in it when it is sent again
    BodyChangedOnResend,
    /// a Go-back-N flow takes packets in any order
    GoBackNOutOfOrder,
    /// a message is reported delivered when the packet before its last is acknowledged
    DeliveredTooEarly,
    /// a peer ends and the caller is not told
    FailureNotReported,
    /// a peer ends and whoever waits on a channel is not told
    ChannelsNotTold,
    /// what was outstanding with a peer that has restarted is dropped without a word
    RestartUnnoticed,
    /// a peer that is silent for longer than the time-out is waited for all the same
    SilenceIgnored,
    /// kernels are not asked about a peer that is silent, so that one that is stopped counts as dead
    EvidenceNotAsked,
    /// that nobody has the peer's port is not believed
    RefusalNotBelieved,
    /// a peer is silent though it is the link here that is down
    LinkDownIgnored,
    /// an old HELLO displaces a later connection
    CookieWithoutStanding,
    /// a flow is used anew by a peer that has given it up
    FormerFlowTaken,
    /// a peer that says HELLO need not prove that it hears what is sent to its address
    CookieNotChecked,
    /// a RESET need not repeat the token
    ResetNotChecked,
    /// records of every lap of the queue have the same seal
    SealWithoutPosition,
    /// a record is given back though the application has a message of it
    RecordReleasedEarly,
    /// what a released message took up is never counted as free
    MemoryNeverFree,
    /// a long message's buffer is used again while fragments of it are under way
    BufferGivenBackEarly,
    /// an endpoint that connects has a timer that is always due
    TimerAlwaysDue,
    /// an answer announces credit from what was read on, and what was deposited from further on
    CreditFromElsewhere,
    /// the XDP program sends a frame in several buffers back as an answer
    LongFrameSentBack,
    /// the XDP program announces credit as if nothing had been received yet
    CreditFromZero,
    /// more credit is granted, and receive paths do not know of it
    CreditNotKept,
    /// the XDP program notes one packet more than is acknowledged
    NotedTooFar,
    /// nobody compares the CRC of a body that the XDP program took
    XdpRecordNotCompared,
    /// nobody asks again for a damaged packet that the XDP program took
    DamagedNotWanted,
    /// what the XDP program has deposited counts as compared
    CheckedTooEarly,
    /// the turn of a damaged packet passes when a packet behind it is written directly
    DamagedPassedOver,
    /// nobody sends XON for an XOFF that the XDP program sent after the queue was last given back
    XoffByXdp,
    /// a peer has left before what it sent is read
    ByeBeforeReading,
    /// an endpoint that made no call for longer than the time-out calls its peers silent
    SilentUnasked,
    /// what is under way on a path that falls silent stays there
    SilentPathKeepsPackets,
    /// a path that falls silent is used as before
    SilentPathNotLeft,
    /// policies pick silent paths, too
    SilentPathPicked,
    /// a silent path is probed once, and never again
    SilentPathNotProbed,
    /// a PROBE is answered over a path that works, and not over the one that it came by
    AnsweredOverAnotherPath,
    /// a path that has given a sign of life is not used
    PathNotRevived,
    /// the only path to a peer stays silent once our NIC has been without a carrier
    LonePathNotRevived,
    /// what a peer tells of its NICs is ignored
    NicsIgnored,
    /// peers are told of NICs once, and not when they change
    NicsToldOnce,
    /// what timed out on a path goes over the same path again
    ResentWhereLost,
    /// nobody asks, over the path that a time-out has tried, how far packets have come
    TriedUnasked,
    /// a policy that is chosen later is ignored
    PolicyNotChanged,
    /// a broadcast packet goes over one path only
    BroadcastOverOnePath,
    /// round robin stays on the path that has its turn
    TurnsForgotten,
    /// what comes by several paths is handed out as it comes
    PathsNotInOrder,
    /// a short write is done before what was sent before it
    ShortWriteEarly,
    /// a long read counts as done with its first part
    ReadHalfDone,
    /// whoever waits for a reply is not told that the peer is gone
    PromiseForgotten,
    /// the pieces of a long write go to the place of the first
    PieceOutOfPlace,
    /// a short write is written directly while something before it is missing or in progress
    DirectWriteOutOfTurn,
    /// a short write is written directly while records before it have not been read
    DirectWriteBeforeUnread,
    /// the turn of a packet passes though its record has not been read
    TurnPassedUnread,
    /// what is held waits for ever for a direct write that is done
    DirectWriteUnseen,
    /// a direct write takes up credit, which nobody grants anew
    DirectWriteTakesCredit,
    /// a message matches the newest of the receives that it is for, and not the oldest
    NewestReceive,
    /// a receive for several tags gets the newest of the messages that wait, and not the oldest
    NewestMessage,
    /// the handler of an active message runs twice
    RequestTwice,
    /// the handler of a stream that waits for more is not told that it is there
    ReaderNotWoken,
    /// an atomic operation is done twice
    AtomicTwice,
    /// a barrier leaves out its last round
    BarrierCutShort,
    /// a switch box sends a receiver what was meant for its flow before the present one
    MulticastTagIgnored,
    /// of what is sent for several receivers, each is to get the number that the first of them has
    MulticastOneNumber,
}
