//! What is compared: a transport with its settings, and what it is called.

use tsumugi_rail::xdp::Mode;

use crate::peers::Transport;

/// The driver depositor's program on the NICs that another transport uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// Not attached.
    Absent,
    /// Attached, with nothing for it but the other transport's packets.
    Idle,
    /// Attached, and busy with round trips of Tsumugi's.
    Busy,
}

impl Program {
    /// As rows have it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Program::Absent => "absent",
            Program::Idle => "idle",
            Program::Busy => "busy",
        }
    }
}

/// What is compared in a test.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) transport: Transport,
    /// Where bare frames are taken out of the kernel.
    pub(crate) mode: Option<Mode>,
    /// How Tsumugi sends: `udp` or `packet`.
    pub(crate) engine: &'static str,
    /// Who deposits what arrives for Tsumugi: `user` or `driver`.
    pub(crate) depositor: &'static str,
    /// Tsumugi's wait.
    pub(crate) wait: &'static str,
    /// Tsumugi's repetition.
    pub(crate) repeat: &'static str,
    /// Whether [`FAULTS`](super::plan::FAULTS) are injected.
    pub(crate) faults: bool,
    /// Whether messages are built in the library's buffers.
    pub(crate) in_place: bool,
    /// Where that is what is compared: what the driver depositor's program does meanwhile.
    pub(crate) program: Option<Program>,
}

impl Entry {
    /// The entry with the usual settings.
    pub(crate) const fn new(transport: Transport) -> Entry {
        let mode = match transport {
            Transport::RawXdp => Some(Mode::Native),
            _ => None,
        };
        Entry {
            transport,
            mode,
            engine: "udp",
            depositor: "user",
            wait: "spin",
            repeat: "selective",
            faults: false,
            in_place: false,
            program: None,
        }
    }

    /// Tsumugi with another way of sending and of taking in.
    pub(crate) const fn ours(engine: &'static str, depositor: &'static str) -> Entry {
        Entry { engine, depositor, ..Entry::new(Transport::Tsumugi) }
    }

    /// What it is called in tables and legends.
    pub(crate) fn name(&self) -> String {
        let mut name = self.transport.name().to_owned();
        if let Some(mode) = self.mode {
            name.push_str(", ");
            name.push_str(&mode.to_string());
        }
        name.push_str(match self.program {
            None => "",
            Some(Program::Absent) => ", not attached",
            Some(Program::Idle) => ", attached, idle",
            Some(Program::Busy) => ", attached, busy",
        });
        if self.transport == Transport::Tsumugi {
            if (self.engine, self.depositor) != ("udp", "user") {
                name.push_str(&format!(" {}+{}", self.engine, self.depositor));
            }
            name.push_str(", ");
            name.push_str(self.wait);
            if self.in_place {
                name.push_str(", in place");
            }
        }
        name
    }

    /// What every peer is divided by.
    pub(crate) fn is_base(&self) -> bool {
        *self == Entry::new(Transport::Tsumugi)
    }

    /// Whether it receives through the driver depositor.
    pub(crate) fn is_driven(&self) -> bool {
        self.transport == Transport::Tsumugi && self.depositor == "driver"
    }

    /// Whether the driver depositor's program is attached to the NICs meanwhile. Only where it must be: on a veth
    /// pair it takes the other side's segmentation offload away, which is TCP's bandwidth.
    pub(crate) fn is_attached(&self) -> bool {
        self.is_driven() || matches!(self.program, Some(Program::Idle | Program::Busy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_from_the_base_is_in_the_name() {
        assert_eq!(Entry::new(Transport::Tsumugi).name(), "tsumugi, spin");
        assert_eq!(Entry::ours("udp", "driver").name(), "tsumugi udp+driver, spin");
        let adaptive = Entry { wait: "adaptive", ..Entry::ours("udp", "driver") };
        assert_eq!(adaptive.name(), "tsumugi udp+driver, adaptive");
        assert_eq!(Entry::ours("packet", "user").name(), "tsumugi packet+user, spin");
        assert_eq!(Entry::new(Transport::RawXdp).name(), "raw-xdp, native");
    }

    #[test]
    fn the_program_is_attached_for_the_driver_depositor_alone() {
        assert!(Entry::ours("packet", "driver").is_attached());
        assert!(!Entry::ours("packet", "user").is_attached());
        assert!(!Entry::new(Transport::TcpSpin).is_attached());
        let tcp = |program| Entry { program: Some(program), ..Entry::new(Transport::TcpSpin) };
        assert_eq!(
            [Program::Absent, Program::Idle, Program::Busy].map(|program| tcp(program).is_attached()),
            [false, true, true]
        );
        assert_eq!(tcp(Program::Busy).name(), "tcp-spin, attached, busy");
        assert!(Entry::ours("udp", "user").is_base());
        assert!(!Entry::ours("udp", "driver").is_base());
    }
}
