//! Why packets are sent again.

/// Why a packet is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// Something that was sent later on the same path has arrived.
    Overtaken = 0,
    /// Nothing was acknowledged for a while.
    TimedOut,
    /// Its path fell silent, or went, while another delivered.
    PathSilent,
    /// A Go-back-N receiver missed something before it.
    WentBack,
    /// The receiver had no room.
    Refused,
    /// The NIC's queue was full: it had not been sent.
    NotTaken,
    /// The flow was suspended with the packet under way.
    Suspended,
}

impl Cause {
    /// Every cause with the name that tools print.
    pub const ALL: [(Cause, &'static str); 7] = [
        (Cause::Overtaken, "overtaken"),
        (Cause::TimedOut, "timed_out"),
        (Cause::PathSilent, "path_silent"),
        (Cause::WentBack, "went_back"),
        (Cause::Refused, "refused"),
        (Cause::NotTaken, "not_taken"),
        (Cause::Suspended, "suspended"),
    ];
}
