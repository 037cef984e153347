//! What a NIC's driver can do for programs: the kernel's generic netlink family "netdev" (Linux 6.3,
//! Documentation/netlink/specs/netdev.yaml).

use super::BUFFER_BYTES;
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable, Nla as _, NlaBuffer, NlasIterator, Parseable as _, ParseableParametrized,
};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::{Socket, protocols::NETLINK_GENERIC};
use std::io;

/// linux/netdev.h: asking about a device, the attributes of question and answer, and the feature.
const DEV_GET: u8 = 1;
const IFINDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;
const BASIC: u64 = 1;
const NDO_XMIT: u64 = 4;
const RX_SG: u64 = 32;

/// A message of the family.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Netdev(Vec<DefaultNla>);

impl GenlFamily for Netdev {
    fn family_name() -> &'static str {
        "netdev"
    }

    fn command(&self) -> u8 {
        DEV_GET
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Netdev {
    fn buffer_len(&self) -> usize {
        self.0.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.0.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Netdev {
    fn parse_with_param(bytes: &[u8], _: GenlHeader) -> Result<Netdev, DecodeError> {
        let parse = |attribute: Result<NlaBuffer<_>, DecodeError>| DefaultNla::parse(&attribute?);
        NlasIterator::new(bytes).map(parse).collect::<Result<_, _>>().map(Netdev)
    }
}

/// What a driver does for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForPrograms {
    /// It takes one.
    pub(crate) takes: bool,
    /// It sends frames that programs on other NICs hand to it, as it is now.
    pub(crate) sends: bool,
    /// It hands over frames in several buffers.
    pub(crate) pieces: bool,
}

/// What the driver of the NIC with this index does for programs; `None`: the kernel does not say.
pub(crate) fn for_programs(interface: u32) -> Option<ForPrograms> {
    let mut socket = Socket::new(NETLINK_GENERIC).ok()?;
    socket.bind_auto().ok()?;
    let asked = GenlCtrlAttrs::FamilyName(Netdev::family_name().to_owned());
    let asked = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![asked] };
    let answer = ask(&socket, GenlMessage::from_payload(asked)).ok()?;
    let family = answer.payload.nlas.iter().find_map(|attribute| match attribute {
        GenlCtrlAttrs::FamilyId(id) => Some(*id),
        _ => None,
    })?;
    let mut asked =
        GenlMessage::from_payload(Netdev(vec![DefaultNla::new(IFINDEX, interface.to_ne_bytes().to_vec())]));
    asked.set_resolved_family_id(family);
    let answer = ask(&socket, asked).ok()?;
    said(&answer.payload)
}

/// What an answer says.
fn said(answer: &Netdev) -> Option<ForPrograms> {
    let features = answer.0.iter().find(|attribute| attribute.kind() == XDP_FEATURES)?;
    let mut bytes = [0; 8];
    if features.value_len() != bytes.len() {
        return None;
    }
    features.emit_value(&mut bytes);
    let has = |feature| u64::from_ne_bytes(bytes) & feature != 0;
    Some(ForPrograms { takes: has(BASIC), sends: has(NDO_XMIT), pieces: has(RX_SG) })
}

fn ask<F>(socket: &Socket, question: GenlMessage<F>) -> io::Result<GenlMessage<F>>
where
    F: std::fmt::Debug,
    GenlMessage<F>: NetlinkSerializable + NetlinkDeserializable,
{
    let mut question = NetlinkMessage::from(question);
    question.header.flags = NLM_F_REQUEST;
    question.finalize();
    let mut bytes = vec![0; question.buffer_len()];
    question.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut answer = vec![0; BUFFER_BYTES];
    let bytes = socket.recv(&mut &mut answer[..], libc::MSG_DONTWAIT)?;
    let answer = NetlinkMessage::<GenlMessage<F>>::deserialize(&answer[..bytes])
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    match answer.payload {
        NetlinkPayload::InnerMessage(message) => Ok(message),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_feature_is_found_among_the_attributes() {
        let answer = |value: &[u8]| {
            Netdev(vec![
                DefaultNla::new(IFINDEX, vec![7, 0, 0, 0]),
                DefaultNla::new(XDP_FEATURES, value.to_vec()),
            ])
        };
        let found = |takes, sends, pieces| Some(ForPrograms { takes, sends, pieces });
        assert_eq!(said(&answer(&0x23u64.to_ne_bytes())), found(true, false, true));
        assert_eq!(said(&answer(&0x47u64.to_ne_bytes())), found(true, true, false));
        assert_eq!(said(&answer(&0u64.to_ne_bytes())), found(false, false, false));
        assert_eq!(said(&answer(&[4])), None);
        assert_eq!(said(&Netdev(Vec::new())), None);
    }

    #[test]
    fn the_kernel_says_nothing_or_that_the_loopback_interface_sends_none() {
        assert!(!for_programs(1).is_some_and(|said| said.sends));
        assert_eq!(for_programs(0x7fff_fff0), None);
    }
}
