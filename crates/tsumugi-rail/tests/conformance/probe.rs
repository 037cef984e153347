//! PROBE: a question that the XDP program answers for a process that computes.

use super::frames::Wrapping;
use super::pair::Pair;
use super::{FLOW, PEER_EPOCH, ROOMY, TOKEN, data, open};
use std::sync::atomic::Ordering;
use tsumugi_proto::ReceiveMemory;
use tsumugi_proto::xdp::Fate;
use tsumugi_wire::ack::Sack;
use tsumugi_wire::handshake::Repeat;
use tsumugi_wire::{Flags, Header, Kind, Psn};

/// A PROBE of the open flow, which acknowledges everything before `ack`.
pub(crate) fn probe(ack: u64) -> Header {
    let mut header = Header::new(Kind::Probe, PEER_EPOCH);
    (header.token, header.flow) = (TOKEN, FLOW);
    (header.flags, header.ack, header.credit) = (Flags::HAS_ACK, Psn(ack), 9);
    header
}

#[test]
fn a_probe_is_answered_and_what_it_acknowledges_noted() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::Selective);
    for psn in [0, 1, 40] {
        pair.take(Wrapping::PLAIN, &data(psn, Flags(0), &[1])).expect("the same");
    }
    for (ack, wrapping) in (7..).zip([
        Wrapping::PLAIN,
        Wrapping { six: true, ..Wrapping::PLAIN },
        Wrapping { vlan: true, trailer: 18, ..Wrapping::PLAIN },
    ]) {
        let (fate, verdict) = pair.fate(wrapping, &probe(ack).encode()).expect("the same");
        let Fate::Answer(answer) = fate else { panic!("{fate:?}") };
        assert_eq!(verdict, None);
        let (header, body, _) = Header::decode(&answer).expect("a packet");
        let sack = Sack::decode(body).expect("an answer");
        assert_eq!((header.kind, header.ack, header.psn), (Kind::Ack, Psn(2), Psn(0)));
        assert_eq!((sack.echo, &sack.bitmap[..sack.words]), (Psn(40), &[3, 1 << 8][..]));
        let noted = &pair.xdp.memory.flow(FLOW).expect("an entry of the table").acknowledged.0;
        assert_eq!((noted.ack.load(Ordering::Relaxed), noted.limit.load(Ordering::Relaxed)), (ack, ack + 9));
    }
    // An XON that was lost is asked for in this way: nothing but the credit is told.
    pair.both(|memory| memory.flow(FLOW).expect("an entry of the table").limit.store(5, Ordering::Relaxed));
    let Ok((Fate::Answer(answer), _)) = pair.fate(Wrapping::PLAIN, &probe(0).encode()) else { panic!() };
    assert_eq!(Header::decode(&answer).expect("a packet").0.credit, 3);
}

#[test]
fn a_probe_rings_for_a_sleeper() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::Selective);
    pair.take(Wrapping::PLAIN, &probe(1).encode()).expect("the same");
    assert!(!pair.rung(), "nobody sleeps");
    pair.both(|memory| memory.control().sleeping.0.store(1, Ordering::Release));
    pair.take(Wrapping::PLAIN, &probe(1).encode()).expect("the same");
    assert!(pair.rung());
}

#[test]
fn a_probe_that_cannot_be_answered_is_the_owner_s() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::Selective);
    pair.both(|memory| {
        memory.control().sleeping.0.store(1, Ordering::Release);
        memory.flow(FLOW).expect("an entry of the table").peer_token.store(0, Ordering::Release);
    });
    assert_eq!(pair.fate(Wrapping::PLAIN, &probe(7).encode()), Ok((Fate::Pass, None)));
    assert!(!pair.rung(), "its socket wakes it");
    let noted = &pair.xdp.memory.flow(FLOW).expect("an entry of the table").acknowledged.0;
    assert_eq!(noted.ack.load(Ordering::Relaxed), 0, "the owner hears all of it");
}

#[test]
fn a_probe_among_others_is_the_owner_s() {
    let Some(mut pair) = Pair::load(ROOMY) else { return };
    open(&pair, Repeat::Selective);
    let probe = probe(7).encode();
    for datagram in
        [[&probe[..], &data(0, Flags(0), &[1])].concat(), [&data(0, Flags(0), &[1]), &probe[..]].concat()]
    {
        assert_eq!(pair.fate(Wrapping::PLAIN, &datagram), Ok((Fate::Pass, None)));
    }
}
