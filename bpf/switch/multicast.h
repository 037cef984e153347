/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Packets for several receivers: out of one that came, what each slot of a group gets. The frames in it stay where they lie; headers are
 * new, and what is behind the frames goes where a member gets it. What holds is told in crates/tsumugi-proto/src/group/spread.rs, the
 * format in crates/tsumugi-wire/src/multicast.rs.
 */
#ifndef TSUMUGI_SWITCH_MULTICAST_H
#define TSUMUGI_SWITCH_MULTICAST_H

/* Bytes of frames in front of the table. */
static __always_inline __u32 frame_bytes_of(const struct tsumugi_header *header)
{
	return header->body_bytes - TSUMUGI_TABLE_BYTES(header->credit);
}

static __always_inline __u64 table_sum(const struct work *work)
{
	__u64 sum = 0;

	for (__u32 i = 0; i < TSUMUGI_TABLE_BYTES(TSUMUGI_RECEIVERS_MAX) / 8; i++) {
		if (i >= TSUMUGI_TABLE_BYTES(work->in.header.credit) / 8)
			break;
		sum += halves(work->table_words[i]);
	}
	return sum;
}

/*
 * The frames' part in the sum of UDP, which they have had since they came: over IPv6, without looking at them. Until here `frame_sum` is the
 * checksum that came.
 */
static __always_inline void find_frame_sum(struct work *work)
{
	const struct address *came = &work->onward;
	__u64 others = pseudo_sum(came, work->udp_came) + came->udp[0] + came->udp[1] + bpf_htons(work->udp_came) +
		       halves(header_sum(&work->in.header)) + halves(table_sum(work));

	work->frame_sum = (__u16)~work->frame_sum + (__u64)fold(others);
}

/*
 * Group::part: puts together the headers of what a slot of the group at `place` gets. Returns the number of the port that it is to leave by, or
 * -1: it gets nothing. A global function, which the verifier goes through once. The slot is read without the lock, as put_together() does.
 */
__attribute__((noinline)) int put_part(struct work *work, __u32 number)
{
	struct tsumugi_header *header;
	const struct tsumugi_header *in;
	const struct tsumugi_entry *entry;
	struct group *group;
	struct slot *slot;
	__u64 member, sum;

	if (!work)
		return -1;
	in = &work->in.header;
	header = &work->out.header;
	group = group_at(work->place);
	if (!group)
		return -1;
	slot = slot_at(group, number);
	if (slot->has_left)
		return -1;
	work->to = slot->address;
	*header = *in;
	header->flow = slot->peer_flow;
	header->token = slot->peer_token;
	work->udp_bytes = sizeof(struct udphdr) + sizeof(*header);
	if (slot->member & IS_BOX) {
		/* Its psn and ack stay: a box below that cannot do it answers the sender. */
		header->kind = TSUMUGI_RELAY;
		work->udp_bytes += in->body_bytes;
		sum = work->frame_sum + table_sum(work);
	} else {
		member = slot->member - 1;
		if (member >= TSUMUGI_RECEIVERS_MAX || member >= in->credit)
			return -1;
		entry = &work->table.entries[member];
		if (entry->tag == 0 || entry->tag != (__u32)header->token)
			return -1;
		header->kind = TSUMUGI_DATA;
		header->flags = in->flags & ~(TSUMUGI_FLAG_MIXED | TSUMUGI_FLAG_HAS_ACK);
		header->psn = work->table.base + entry->after;
		header->ack = 0;
		header->credit = 0;
		header->body_bytes = frame_bytes_of(in);
		header->body_crc = work->table.crc;
		work->udp_bytes += header->body_bytes;
		sum = work->frame_sum;
	}
	header->check = tsumugi_header_check(header);
	put_headers(work, &work->to, sum + header_sum(header));
	return work->to.port & (PORTS_MAX - 1);
}

/*
 * Whether no port is that of two members of a group, or of one and among `ports`. Then a frame for each port reaches all. Member 0 counts if
 * `with_first`: not where it is who sends.
 */
static __always_inline int is_one_at_each_port(const struct work *work, __u64 ports, int with_first)
{
	struct group *group = group_at(work->place);
	__u64 port;

	if (!group)
		return 0;
	for (__u32 i = 0; i < TSUMUGI_GROUP_SLOTS; i++) {
		if (i >= group->slots_used)
			break;
		if ((group->slots[i].member == 0 && !with_first) || group->slots[i].has_left)
			continue;
		port = 1ull << (group->slots[i].address.port & (PORTS_MAX - 1));
		if (ports & port)
			return 0;
		ports |= port;
	}
	return 1;
}

#endif
