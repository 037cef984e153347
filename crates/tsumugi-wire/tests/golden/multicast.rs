//! The cases of packets that a switch box makes DATA of for several receivers.

use super::{Cases, fragment, header, packet, remote, wholes};
use crate::common::body_crc;
use tsumugi_wire::group::BODY_BYTES;
use tsumugi_wire::header::HEADER_BYTES;
use tsumugi_wire::limits::ONE_BUFFER_BYTES;
use tsumugi_wire::multicast::{Entry, RECEIVERS_MAX, TABLE_BYTES, Table, table_bytes};
use tsumugi_wire::remote::Opcode;
use tsumugi_wire::{Flags, Header, Kind, Psn};

/// What the entries' numbers are counted from.
const BASE: Psn = Psn(1 << 33);

/// Member 0's packet to the box in which it has slot 17 of group 3; its JOIN had the flow 8 and this token.
fn multicast(receivers: usize) -> Header {
    let join_token = 0xfedc_ba98_7654_3210;
    Header {
        flow: 3 << 6 | 17,
        psn: Psn(8),
        ack: Psn(join_token),
        credit: receivers as u16,
        flags: Flags::MIXED,
        ..header(Kind::Multicast)
    }
}

/// The same, from the box above to the box that has the group at place 3.
fn relay(receivers: usize) -> Header {
    Header { kind: Kind::Relay, flow: 3, psn: Psn(0), ack: Psn(0), ..multicast(receivers) }
}

/// Entries for so many receivers, each with another number of another flow.
fn entries(receivers: usize) -> Vec<Entry> {
    let its = |index: u64| {
        Entry::new(0x0123_4567_0000_0000 | (0x89ab_0001 + index), BASE, BASE.plus(index * index))
    };
    (0..receivers as u64).map(its).collect()
}

fn table(crc: u32, base: Psn, entries: &[Entry]) -> Vec<u8> {
    let table = Table { crc, base, entries };
    [&table.encode_head()[..], table.entry_bytes()].concat()
}

/// Frames, and a table with their CRC.
fn body(frames: &[u8], entries: &[Entry]) -> Vec<u8> {
    [frames, &table(body_crc(frames), BASE, entries)].concat()
}

pub(super) fn good(cases: &mut Cases) {
    let message = wholes(&[(7, 64)]);
    let five = body(&message, &entries(5));
    cases.add("multicast", "a message of 64 bytes for 5 receivers", packet(multicast(5), &five));
    cases.add("relay", "the same, to a box below", packet(relay(5), &five));
    let one = body(&message, &entries(1));
    cases.add("multicast_one", "for a single receiver", packet(multicast(1), &one));
    let two = body(&fragment(2800, 1 << 30, 1000), &entries(2));
    cases.add("multicast_fragment", "a piece of a long message", packet(multicast(2), &two));
    let several = [wholes(&[(1, 3), (2, 17)]), remote(Opcode::Write, 13), fragment(0, 4000, 40)].concat();
    let three = body(&several, &entries(3));
    cases.add("multicast_frames", "frames of all forms", packet(multicast(3), &three));

    let mut some = entries(7);
    for absent in [0, 3, 6] {
        some[absent] = Entry::ABSENT;
    }
    let absent = body(&message, &some);
    cases.add("multicast_absent", "members 1, 4 and 7 get nothing", packet(multicast(7), &absent));
    cases.add("relay_absent", "the same, to a box below", packet(relay(7), &absent));
    let nobody = body(&message, &[Entry::ABSENT; 3]);
    cases.add("multicast_nobody", "nobody gets anything", packet(multicast(3), &nobody));
    let no_tag = body(&message, &[Entry::new(7 << 32, BASE, BASE.plus(9)); 2]);
    cases.add(
        "multicast_no_tag",
        "without a tag it is nobody's, whatever its number",
        packet(multicast(2), &no_tag),
    );

    let all = entries(RECEIVERS_MAX);
    let most = ONE_BUFFER_BYTES - HEADER_BYTES - table_bytes(RECEIVERS_MAX);
    let longest = fragment(2800, 1 << 30, most - 24);
    cases.add(
        "multicast_63",
        "as many receivers as there may be, and as long as one buffer",
        packet(multicast(RECEIVERS_MAX), &body(&longest, &all)),
    );
    cases.add("relay_63", "the same, to a box below", packet(relay(RECEIVERS_MAX), &body(&longest, &all)));
    let short = body(&wholes(&[(7, 8)]), &entries(7));
    assert_eq!(short.len(), BODY_BYTES);
    cases.add("multicast_shortest", "88 bytes, of which 72 are the table", packet(multicast(7), &short));
    let message = wholes(&[(7, 32)]);
    let mut made_long = entries(2);
    made_long.resize(4, Entry::ABSENT);
    cases.add(
        "multicast_made_long",
        "for 2, with entries of none to make it 88 bytes",
        packet(multicast(4), &body(&message, &made_long)),
    );
    cases.add(
        "multicast_no_frames",
        "88 bytes of table: the DATA have an empty body, and CRC 0",
        packet(multicast(9), &body(&[], &entries(9))),
    );
    let of_88 = body(&wholes(&[(7, 80)]), &entries(2));
    cases.add(
        "multicast_88",
        "88 bytes of frames, of which the DATA have a CRC",
        packet(multicast(2), &of_88),
    );

    let asking = Header { flags: Flags::MIXED.with(Flags::ACK_REQUEST), path: 3, ..multicast(5) };
    cases.add("multicast_ack_request", "the DATA ask for ACKs, and have this path", packet(asking, &five));
    let asking = Header { flags: asking.flags, path: 3, ..relay(5) };
    cases.add("relay_ack_request", "the same, to a box below", packet(asking, &five));
    let at_leisure = asking.flags.with(Flags::AT_LEISURE).with(Flags::RESENT);
    let asking = Header { flags: at_leisure, ..multicast(5) };
    cases.add(
        "multicast_flags",
        "for ACKs that nobody waits for, and not the first time",
        packet(asking, &five),
    );
    let frames = wholes(&[(7, 64)]);
    let unchecked = [&frames[..], &table(0, BASE, &entries(5))].concat();
    let trusting = Header { flags: Flags::MIXED.with(Flags::UNCHECKED), ..multicast(5) };
    cases.add(
        "multicast_unchecked",
        "the DATA are UNCHECKED; the table is not",
        packet(trusting, &unchecked),
    );

    let last = Psn(u64::MAX - u64::from(u32::MAX));
    let highest = [Entry::new(u64::MAX, last, Psn(u64::MAX)); RECEIVERS_MAX];
    let most = Header {
        flags: Flags(u8::MAX),
        path: u8::MAX,
        token: u64::MAX,
        flow: u32::MAX,
        epoch: u32::MAX,
        psn: Psn(u64::MAX),
        ack: Psn(u64::MAX),
        ..multicast(RECEIVERS_MAX)
    };
    let frames = wholes(&[(u16::MAX, 8)]);
    let full = [&frames[..], &table(body_crc(&frames), last, &highest)].concat();
    cases.add("multicast_maximal", "every field at its highest", packet(most, &full));

    let mut ignored = five.clone();
    let reserved = frames_end(&five, 5) + 12;
    ignored[reserved..reserved + 4].fill(0xff);
    cases.foreign("multicast_reserved", "reserved bytes are ignored", packet(multicast(5), &ignored));
    let mut damaged = packet(multicast(5), &five);
    damaged[HEADER_BYTES + 40] ^= 0x80;
    cases.foreign(
        "multicast_damaged_frames",
        "one bit of the frames: a box does not notice, and whoever gets the DATA does",
        damaged,
    );
    let mut damaged = packet(relay(5), &five);
    damaged[HEADER_BYTES + frames_end(&five, 5) - 1] ^= 1;
    cases.foreign("relay_damaged_frames", "their last byte, which lies in front of the table", damaged);
    let no_crc = [&wholes(&[(7, 64)])[..], &table(0, BASE, &entries(5))].concat();
    cases.foreign("multicast_crc_zero", "0 does not mean unchecked", packet(multicast(5), &no_crc));
}

/// Where the table begins in a body for so many receivers.
fn frames_end(body: &[u8], receivers: usize) -> usize {
    body.len() - table_bytes(receivers)
}

pub(super) fn refused(cases: &mut Cases) {
    let message = wholes(&[(7, 64)]);
    let five = body(&message, &entries(5));
    for (name, of) in [("multicast", multicast as fn(usize) -> Header), ("relay", relay)] {
        let mut refuse = |what: &str, why: &str, receivers: usize, body: &[u8], verdict| {
            cases.refuse_body(&format!("{name}_{what}"), why, packet(of(receivers), body), verdict);
        };
        refuse("without_body", "there must be one", 5, &[], "table 0 5");
        refuse("no_receivers", "in a body that is long enough", 0, &five, "table 128 0");
        let all = body(&message, &entries(64));
        refuse("64", "one receiver more than there may be", 64, &all, "table 600 64");
        refuse("most", "65535 receivers", usize::from(u16::MAX), &all, "table 600 65535");
        refuse("table_long", "the table is longer than the body", 15, &five, "table 128 15");
        let three = [&message[..], &[0; 4], &table(0, BASE, &entries(3))].concat();
        refuse("odd_4", "76 bytes of frames are no multiple of 8", 3, &three, "table 116 3");
        let three = [&message[..71], &table(0, BASE, &entries(3))].concat();
        refuse("odd_7", "nor are 71, the last byte of padding left off", 3, &three, "table 111 3");
        let short = body(&wholes(&[(7, 8)]), &entries(6));
        refuse("short", "80 bytes, of which no box can make an answer", 6, &short, "table 80 6");
        let short = body(&[], &entries(8));
        refuse("short_no_frames", "80 bytes of table", 8, &short, "table 80 8");

        let unmixed = Header { flags: Flags(0), ..of(5) };
        cases.refuse_body(
            &format!("{name}_unmixed"),
            "with a CRC instead",
            packet(unmixed, &five),
            "group_unmixed",
        );
        let places =
            [("base", 0), ("crc", 8), ("reserved", 12), ("tag", TABLE_BYTES), ("after", TABLE_BYTES + 39)];
        for (field, at) in places {
            let mut damaged = packet(of(5), &five);
            damaged[HEADER_BYTES + frames_end(&five, 5) + at] ^= 0x80;
            cases.refuse_body(&format!("{name}_damaged_{field}"), "one bit of this field", damaged, "unread");
        }
        let mut crc = Header { body_bytes: five.len() as u16, ..of(5) };
        crc.body_crc = body_crc(&five);
        let crc = [&crc.encode()[..], &five].concat();
        cases.refuse_body(
            &format!("{name}_crc"),
            "a CRC where the flag says that there is none",
            crc,
            "unread",
        );
        let mut other = packet(of(5), &five);
        other[40] = 4;
        crate::common::exercise::seal(&mut other);
        cases.refuse_body(
            &format!("{name}_other_table"),
            "the check is of a table for 5, not for 4",
            other,
            "unread",
        );
    }
    let zero = Header { body_bytes: five.len() as u16, ..multicast(5) };
    let zero = Header { flags: Flags::MIXED.with(Flags::UNCHECKED), ..zero };
    let zero = [&zero.encode()[..], &five].concat();
    cases.refuse_body(
        "multicast_unchecked_zero",
        "the table's check is compared all the same",
        zero,
        "unread",
    );
    let form = body(&[7, 0, 4, 0, 0, 0, 0, 0].repeat(6), &entries(5));
    cases.refuse_body(
        "multicast_form_4",
        "a box does not look, and whoever gets the DATA finds an unknown form",
        packet(multicast(5), &form),
        "frame_form 4",
    );
    let end = body(&wholes(&[(7, 64)])[..64], &entries(5));
    cases.refuse_body(
        "multicast_past_end",
        "a frame that would go on where the table begins",
        packet(multicast(5), &end),
        "frame_truncated 0",
    );
}
