//! What is compared: a transport with its settings, and what it is called.

use tsumugi_rail::xdp::Mode;

use crate::peers::Transport;
use crate::peers::ours::Model;
use crate::sizes;

/// The XDP program on the NICs that another transport uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub(crate) enum Program {
    /// Not attached.
    Absent,
    /// Attached, with nothing for it but the other transport's packets.
    Idle,
    /// Attached, and busy with round trips of Tsumugi's.
    Busy,
}

/// The wait in which processes poll the NICs.
pub(crate) const BUSY_POLL: &str = "busy-poll";

/// What is compared in a test.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) transport: Transport,
    /// Where bare frames are taken out of the kernel.
    pub(crate) mode: Option<Mode>,
    /// Tsumugi's send path: `udp`, `packet` or `xsk`.
    pub(crate) send: &'static str,
    /// Tsumugi's receive path: `socket` or `xdp`.
    pub(crate) receive: &'static str,
    /// Tsumugi's wait.
    pub(crate) wait: &'static str,
    /// The programming model that Tsumugi is used by.
    pub(crate) model: Model,
    /// Tsumugi's repetition.
    pub(crate) repeat: &'static str,
    /// Whether [`FAULTS`](super::plan::FAULTS) are injected.
    pub(crate) faults: bool,
    /// Whether messages are built in the library's buffers.
    pub(crate) in_place: bool,
    /// Where that is what is compared: the length of its messages, bytes. Otherwise it is the test's.
    pub(crate) size_bytes: Option<u64>,
    /// Where that is what is compared: what the XDP program does meanwhile.
    pub(crate) program: Option<Program>,
}

impl Entry {
    /// The entry with the usual settings.
    pub(crate) const fn new(transport: Transport) -> Entry {
        let mode = if transport.is_frames() { Some(Mode::Native) } else { None };
        Entry {
            transport,
            mode,
            send: "udp",
            receive: "socket",
            wait: "spin",
            model: Model::Channel,
            repeat: "selective",
            faults: false,
            in_place: false,
            size_bytes: None,
            program: None,
        }
    }

    /// Tsumugi with another send path and receive path.
    pub(crate) const fn ours(send_path: &'static str, receive_path: &'static str) -> Entry {
        Entry { send: send_path, receive: receive_path, ..Entry::new(Transport::Tsumugi) }
    }

    /// What it is called in tables and legends.
    pub(crate) fn name(&self) -> String {
        let mut name = self.transport.into_str().to_owned();
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
            if (self.send, self.receive) != ("udp", "socket") {
                name.push_str(&format!(" {}+{}", self.send, self.receive));
            }
            name.push_str(", ");
            name.push_str(self.wait);
            name.push_str(match self.model {
                Model::Write => ", remote writes",
                Model::Message => ", tagged messages",
                Model::Channel | Model::ActiveMessage | Model::Stream => "",
            });
            if self.in_place {
                name.push_str(", in place");
            }
            if let Some(bytes) = self.size_bytes {
                name.push_str(&format!(", {}", sizes::show(bytes)));
            }
        }
        name
    }

    /// What every other entry is divided by.
    pub(crate) fn is_base(&self) -> bool {
        *self == Entry::new(Transport::Tsumugi)
    }

    /// Whether it uses the XDP receive path.
    pub(crate) fn uses_xdp(&self) -> bool {
        self.transport == Transport::Tsumugi && self.receive == "xdp"
    }

    /// Whether the XDP program is attached to the NICs meanwhile. Only where it must be: on a veth
    /// pair it takes the other side's segmentation offload away, which is TCP's bandwidth.
    pub(crate) fn is_attached(&self) -> bool {
        self.uses_xdp() || matches!(self.program, Some(Program::Idle | Program::Busy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_from_the_base_is_in_the_name() {
        assert_eq!(Entry::new(Transport::Tsumugi).name(), "tsumugi, spin");
        assert_eq!(Entry::ours("udp", "xdp").name(), "tsumugi udp+xdp, spin");
        let adaptive = Entry { wait: "adaptive", ..Entry::ours("udp", "xdp") };
        assert_eq!(adaptive.name(), "tsumugi udp+xdp, adaptive");
        assert_eq!(Entry::ours("packet", "socket").name(), "tsumugi packet+socket, spin");
        assert_eq!(Entry::new(Transport::RawXdp).name(), "raw-xdp, native");
        assert_eq!(Entry::new(Transport::RawWrite).name(), "raw-write, native");
    }

    #[test]
    fn the_program_is_attached_for_the_xdp_receive_path_alone() {
        assert!(Entry::ours("packet", "xdp").is_attached());
        assert!(!Entry::ours("packet", "socket").is_attached());
        assert!(!Entry::new(Transport::TcpSpin).is_attached());
        let tcp = |program| Entry { program: Some(program), ..Entry::new(Transport::TcpSpin) };
        assert_eq!(
            [Program::Absent, Program::Idle, Program::Busy].map(|program| tcp(program).is_attached()),
            [false, true, true]
        );
        assert_eq!(tcp(Program::Busy).name(), "tcp-spin, attached, busy");
        assert!(Entry::ours("udp", "socket").is_base());
        assert!(!Entry::ours("udp", "xdp").is_base());
    }
}
