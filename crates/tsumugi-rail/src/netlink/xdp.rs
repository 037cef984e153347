//! Which XDP programs are attached to a NIC, and why the kernel attaches none.

use super::{BUFFER_BYTES, Questions, unexpected};
use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkExtentMask, LinkInfo, LinkMessage as Link, LinkXdp,
};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// linux/if_link.h: how to attach. The modes are for [`why_refused`].
const UPDATE_IF_NOEXIST: u32 = 1;
pub(crate) const GENERIC: u32 = 2;
pub(crate) const NATIVE: u32 = 4;
/// What detaches.
const NO_PROGRAM: RawFd = -1;
/// Bytes of a message's header, and of an acknowledgement up to its attributes: the header, the error, and the header
/// of the question.
const HEADER_BYTES: usize = 16;
const ACKNOWLEDGEMENT_BYTES: usize = 2 * HEADER_BYTES + 4;
/// linux/netlink.h: the attribute with the kernel's words.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// A NIC and the programs on it, by their numbers in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct XdpOn {
    /// The NIC's name.
    pub(crate) nic: String,
    /// In the driver.
    pub(crate) native: Option<u32>,
    /// In the network stack.
    pub(crate) generic: Option<u32>,
    /// In the NIC itself.
    pub(crate) hardware: Option<u32>,
}

impl Questions {
    /// The NIC with this index in the network namespace of whoever opened the socket, and the programs on it. `None`:
    /// there is no such NIC.
    pub(crate) fn xdp(&mut self, interface: u32) -> io::Result<Option<XdpOn>> {
        match self.link(interface, None) {
            Ok(answer) => Ok(Some(xdp_on(&answer))),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What a veth is the one end of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OtherEnd {
    /// A NIC by itself, of this name.
    Alone(String),
    /// The port, of this name, of a bridge or the like.
    Port(String),
    /// It is where the caller may not ask.
    Unseen,
}

impl Questions {
    /// The other end of a NIC; `None`: it is no veth.
    pub(crate) fn other_end(&mut self, interface: u32) -> io::Result<Option<OtherEnd>> {
        let own = self.link(interface, None)?;
        let is_veth = |info: &LinkInfo| matches!(info, LinkInfo::Kind(InfoKind::Veth));
        let (mut found, mut other, mut namespace) = (false, None, None);
        for attribute in &own.attributes {
            match attribute {
                LinkAttribute::LinkInfo(infos) => found = infos.iter().any(is_veth),
                LinkAttribute::Link(index) => other = Some(*index),
                LinkAttribute::LinkNetNsId(id) => namespace = Some(*id),
                _ => {}
            }
        }
        if !found {
            return Ok(None);
        }
        let Some(Ok(other)) = other.map(|index| self.link(index, namespace)) else {
            return Ok(Some(OtherEnd::Unseen));
        };
        let (mut name, mut is_port) = (String::new(), false);
        for attribute in &other.attributes {
            match attribute {
                LinkAttribute::IfName(its) => name.clone_from(its),
                LinkAttribute::Controller(_) => is_port = true,
                _ => {}
            }
        }
        Ok(Some(if is_port { OtherEnd::Port(name) } else { OtherEnd::Alone(name) }))
    }

    /// A NIC, in the namespace that this one knows by a number.
    pub(super) fn link(&mut self, interface: u32, namespace: Option<i32>) -> io::Result<Link> {
        let mut question = Link::default();
        question.header.index = interface;
        question.attributes = vec![LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])];
        question.attributes.extend(namespace.map(LinkAttribute::IfNetnsId));
        match self.ask(Message::GetLink(question))? {
            Message::NewLink(answer) => Ok(answer),
            other => Err(unexpected(&other)),
        }
    }
}

fn xdp_on(answer: &Link) -> XdpOn {
    let mut found = XdpOn::default();
    for attribute in &answer.attributes {
        match attribute {
            LinkAttribute::IfName(name) => found.nic.clone_from(name),
            LinkAttribute::Xdp(programs) => {
                for program in programs {
                    match program {
                        LinkXdp::DrvProgId(id) => found.native = Some(*id),
                        LinkXdp::SkbProgId(id) => found.generic = Some(*id),
                        LinkXdp::HwProgId(id) => found.hardware = Some(*id),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// Why the kernel does not attach a program, in its own words: only netlink's acknowledgements carry them
/// (NLMSGERR_ATTR_MSG), and a link does not. `None`: it says nothing, or would attach it by now, which is undone.
pub(crate) fn why_refused(interface: u32, program: BorrowedFd<'_>, mode: u32) -> Option<String> {
    let mut socket = Socket::new(NETLINK_ROUTE).ok()?;
    socket.bind_auto().ok()?;
    socket.set_ext_ack(true).ok()?;
    // Else the words would lie behind a copy of the question.
    socket.set_cap_ack(true).ok()?;
    let answer = set(&socket, interface, program.as_raw_fd(), mode | UPDATE_IF_NOEXIST)?;
    if code(&answer)? == 0 {
        set(&socket, interface, NO_PROGRAM, mode)?;
        return None;
    }
    words(answer.get(ACKNOWLEDGEMENT_BYTES..)?)
}

/// Attaches a program, and returns the acknowledgement.
fn set(socket: &Socket, interface: u32, program: RawFd, flags: u32) -> Option<Vec<u8>> {
    let mut question = Link::default();
    question.header.index = interface;
    question.attributes = vec![LinkAttribute::Xdp(vec![LinkXdp::Fd(program), LinkXdp::Flags(flags)])];
    let mut question = NetlinkMessage::from(Message::SetLink(question));
    question.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    question.finalize();
    let mut bytes = vec![0; question.buffer_len()];
    question.serialize(&mut bytes);
    socket.send(&bytes, 0).ok()?;
    let mut answer = vec![0; BUFFER_BYTES];
    let bytes = socket.recv(&mut &mut answer[..], libc::MSG_DONTWAIT).ok()?;
    answer.truncate(bytes);
    Some(answer)
}

/// The error of an acknowledgement, which stands behind its header.
fn code(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let code = i32::from_ne_bytes(answer.get(HEADER_BYTES..HEADER_BYTES + 4)?.try_into().ok()?);
    (i32::from(kind) == libc::NLMSG_ERROR).then_some(code)
}

/// The text among the attributes of an acknowledgement.
fn words(mut attributes: &[u8]) -> Option<String> {
    while let Some(head) = attributes.first_chunk::<4>() {
        let bytes = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]);
        let value = attributes.get(head.len()..bytes)?;
        if kind == NLMSGERR_ATTR_MSG {
            let text = CStr::from_bytes_until_nul(value).ok()?;
            return Some(text.to_string_lossy().trim_end_matches('.').to_owned());
        }
        attributes = attributes.get(bytes.next_multiple_of(libc::NLA_ALIGNTO as usize)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn the_kernels_words_are_found_among_the_attributes() {
        let mut attributes = attribute(2, &7u32.to_ne_bytes());
        attributes.extend(attribute(NLMSGERR_ATTR_MSG, b"Peer MTU is too large to set XDP.\0"));
        assert_eq!(words(&attributes).as_deref(), Some("Peer MTU is too large to set XDP"));
        for cut in 0..attributes.len() - 4 {
            assert_eq!(words(&attributes[..cut]), None, "{cut}");
        }
        // A length of 0 would never end.
        assert_eq!(words(&[0; 64]), None);
    }

    #[test]
    fn the_loopback_interface_has_no_program_and_no_such_nic_is_none() {
        let mut questions = Questions::open().unwrap();
        let lo = questions.xdp(1).unwrap().expect("lo");
        assert_eq!((lo.nic.as_str(), lo.native), ("lo", None));
        assert_eq!(questions.xdp(0x7fff_fff0).unwrap(), None);
    }
}
