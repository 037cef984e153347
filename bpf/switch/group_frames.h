/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Packets of groups in frames: found, and put together. A frame that is sent is as long as the one that came, and takes its place;
 * only headers and packet are new. How it is sent is the hook's (hooks.h).
 */
#ifndef TSUMUGI_SWITCH_GROUP_FRAMES_H
#define TSUMUGI_SWITCH_GROUP_FRAMES_H

#define IPV4_HEADERS (ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr))
#define IPV6_HEADERS (ETH_HLEN + sizeof(struct ipv6hdr) + sizeof(struct udphdr))
#define UDP_BYTES (sizeof(struct udphdr) + sizeof(struct packet))
/* To whom a packet goes, beside slots. */
#define TO_SENDER TSUMUGI_GROUP_SLOTS
#define ONWARD (TSUMUGI_GROUP_SLOTS + 1)

_Static_assert(sizeof(struct packet) == sizeof(struct tsumugi_header) + TSUMUGI_GROUP_BYTES, "without gaps");

static __always_inline struct work *work_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&works, &zero);
}

/* The sum of UDP's pseudo header (RFC 768; RFC 8200, 8.1). */
static __always_inline __u64 pseudo_sum(const struct address *to, __u32 udp_bytes)
{
	__u64 sum = bpf_htons(IPPROTO_UDP) + bpf_htons(udp_bytes) + halves(to->ip[0]);

	/* Zeros, for IPv4. */
	return sum + halves(to->ip[1]) + halves(to->ip[2]) + halves(to->ip[3]);
}

/* Whether a frame is as long as one with a packet of a group, or has one for several receivers: nearly no others. */
static __always_inline int may_have_packet(const char *data, const char *end)
{
	if (data + IPV4_HEADERS + sizeof(struct packet) == end || data + IPV6_HEADERS + sizeof(struct packet) == end)
		return 1;
	if (data + IPV6_HEADERS + sizeof(struct packet) > end)
		return data + IPV4_HEADERS + sizeof(struct packet) <= end && is_for_several(data[IPV4_HEADERS + 1]);
	return is_for_several(data[IPV4_HEADERS + 1]) || is_for_several(data[IPV6_HEADERS + 1]);
}

/*
 * Reads the packet of a group that a frame of such a length has: no VLAN tag among its bytes, no IP options. 0: it is any other
 * frame.
 */
static __always_inline int read_packet(const char *data, const char *end, __u32 port, struct work *work)
{
	struct address *onward = &work->onward, *sender = &work->sender;
	const struct tsumugi_header *header = &work->in.header;
	const char *ip = data + ETH_HLEN, *udp, *packet;
	__u32 udp_bytes;
	int six;

	if (data + IPV4_HEADERS + sizeof(struct packet) > end)
		return 0;
	six = U16(data + 12) == bpf_htons(ETH_P_IPV6);
	if (six) {
		if (data + IPV6_HEADERS + sizeof(struct packet) > end)
			return 0;
		udp = ip + sizeof(struct ipv6hdr);
		if ((ip[0] & 0xf0) != 0x60 || ip[6] != IPPROTO_UDP || U16(ip + 4) != U16(udp + 4))
			return 0;
	} else {
		udp = ip + sizeof(struct iphdr);
		if (U16(data + 12) != bpf_htons(ETH_P_IP) || ip[0] != 0x45 || ip[9] != IPPROTO_UDP ||
		    U16(ip + 6) & bpf_htons(0x3fff) ||
		    bpf_ntohs(U16(ip + 2)) != sizeof(struct iphdr) + bpf_ntohs(U16(udp + 4)))
			return 0;
	}
	udp_bytes = bpf_ntohs(U16(udp + 4));
	packet = udp + sizeof(struct udphdr);
	if (packet + sizeof(struct packet) > end)
		return 0;
	if (packet[0] != TSUMUGI_VERSION || packet[1] < TSUMUGI_JOIN || packet[1] > TSUMUGI_RELAY ||
	    (is_for_several(packet[1]) ? udp_bytes < UDP_BYTES : udp_bytes != UDP_BYTES))
		return 0;
	for (__u32 i = 0; i < sizeof(struct packet) / 8; i++)
		((__u64 *)&work->in)[i] = U64(packet + 8 * i);
	if (header->check != tsumugi_header_check(header) || header->epoch == 0)
		return 0;
	if (is_for_several(header->kind) && udp_bytes != sizeof(struct udphdr) + sizeof(*header) + header->body_bytes)
		return 0;
	work->udp_came = udp_bytes;
	onward->port = sender->port = port;
	onward->six = sender->six = six;
	U64(onward->ethernet) = U64(data);
	U32(onward->ethernet + 8) = U32(data + 8);
	U64(sender->ethernet) = (__u64)U32(data + 6) | (__u64)U16(data + 10) << 32 | (__u64)U16(data) << 48;
	U32(sender->ethernet + 8) = U32(data + 2);
	onward->udp[0] = sender->udp[1] = U16(udp);
	onward->udp[1] = sender->udp[0] = U16(udp + 2);
	if (six) {
		onward->ip[0] = sender->ip[2] = U64(ip + 8);
		onward->ip[1] = sender->ip[3] = U64(ip + 16);
		onward->ip[2] = sender->ip[0] = U64(ip + 24);
		onward->ip[3] = sender->ip[1] = U64(ip + 32);
	} else {
		onward->ip[0] = U64(ip + 12);
		sender->ip[0] = onward->ip[0] << 32 | onward->ip[0] >> 32;
		onward->ip[1] = onward->ip[2] = onward->ip[3] = 0;
		sender->ip[1] = sender->ip[2] = sender->ip[3] = 0;
	}
	/* Then the sum of the pseudo header stands there alone. One in 65,536 that is finished looks so, too. */
	work->is_partial = U16(udp + 6) != 0 && U16(udp + 6) == folded(pseudo_sum(onward, udp_bytes));
	work->frame_sum = U16(udp + 6);
	return 1;
}

/* The sum of a header. */
static __always_inline __u64 header_sum(const struct tsumugi_header *header)
{
	return halves(header->words[0]) + halves(header->words[1]) + halves(header->words[2]) +
	       halves(header->words[3]) + halves(header->words[4]) + halves(header->words[5]);
}

/* Headers in front of the packet, whose sum is `packet_sum`, for somebody's address. */
static __always_inline void put_headers(struct work *work, const struct address *to, __u64 packet_sum)
{
	__u32 udp_bytes = work->udp_bytes;
	__u64 pseudo = pseudo_sum(to, udp_bytes), sum;
	__u8 *ip = work->headers + ETH_HLEN, *udp;
	__u16 check = 0;

	work->bytes = to->six ? IPV6_HEADERS : IPV4_HEADERS;
	U64(work->headers) = U64(to->ethernet);
	U32(work->headers + 8) = U32(to->ethernet + 8);
	if (to->six) {
		U16(work->headers + 12) = bpf_htons(ETH_P_IPV6);
		U32(ip) = 0x60;
		U32(ip + 4) = bpf_htons(udp_bytes) | IPPROTO_UDP << 16 | 64 << 24;
		for (int i = 0; i < 4; i++)
			U64(ip + 8 + 8 * i) = to->ip[i];
		udp = ip + sizeof(struct ipv6hdr);
	} else {
		U16(work->headers + 12) = bpf_htons(ETH_P_IP);
		/* Version, header length and length; do not fragment; time to live and protocol. */
		U64(ip) = 0x45 | (__u64)bpf_htons(sizeof(struct iphdr) + udp_bytes) << 16 | (__u64)bpf_htons(0x4000) << 48;
		sum = halves(U64(ip)) + (64 | IPPROTO_UDP << 8) + halves(to->ip[0]);
		U32(ip + 8) = 64 | IPPROTO_UDP << 8 | (__u32)fold(sum) << 16;
		U64(ip + 12) = to->ip[0];
		udp = ip + sizeof(struct iphdr);
	}
	U16(udp) = to->udp[0];
	U16(udp + 2) = to->udp[1];
	U16(udp + 4) = bpf_htons(udp_bytes);
	if (work->is_partial) {
		check = folded(pseudo);
	} else if (to->six) {
		/* Over IPv4, none is needed: the packet has better ones. */
		check = fold(pseudo + to->udp[0] + to->udp[1] + bpf_htons(udp_bytes) + halves(packet_sum));
		check = check ? check : 0xffff;
	}
	U16(udp + 6) = check;
}

/*
 * Puts together the frame for a slot of the group at `place`, TO_SENDER or ONWARD, out of the body in `out` and `kind`. Returns the
 * number of the port that it is to leave by, or -1. A global function, which the verifier goes through once.
 *
 * The slot is read without the lock. It is written when its member joins again or arrives: then with the same, unless the member is on
 * another port now, and a frame that is half for the one and half for the other is nobody's.
 */
__attribute__((noinline)) int put_together(struct work *work, __u32 number)
{
	struct tsumugi_header *header;
	struct group *group;
	struct slot *slot;
	__u64 sum = 0;

	if (!work)
		return -1;
	header = &work->out.header;
	header->words[0] = TSUMUGI_VERSION | work->kind << 8 | TSUMUGI_FLAG_MIXED << 16;
	header->psn = header->ack = 0;
	header->words[5] = TSUMUGI_GROUP_BYTES << 16;
	if (number < TSUMUGI_GROUP_SLOTS) {
		group = group_at(work->place);
		if (!group)
			return -1;
		slot = slot_at(group, number);
		work->to = slot->address;
		header->token = slot->peer_token;
		header->flow = slot->peer_flow;
		header->epoch = slot->epoch;
		if (work->kind == TSUMUGI_DATA) {
			header->psn = work->out.contribution.generation - slot->first;
			if (slot->member & IS_BOX)
				header->kind = TSUMUGI_RELEASE;
		} else if (work->step == STEP_JOINED_ALL) {
			clear(&work->out);
			say_joined(&work->out, slot, work->place << TSUMUGI_GROUP_SLOT_BITS | number, 0,
				   group->generation);
		}
	} else if (number == TO_SENDER) {
		const struct tsumugi_header *in = &work->in.header;

		work->to = work->sender;
		header->token = in->kind == TSUMUGI_JOIN ? in->token : in->ack;
		header->flow = in->kind == TSUMUGI_JOIN ? in->flow : in->psn;
		header->epoch = in->epoch;
	} else {
		work->to = work->onward;
		header->epoch = 1;
		if (work->kind == TSUMUGI_JOIN) {
			header->flow = work->place;
			header->token = work->up_token;
		} else {
			header->flow = work->up_seat;
			header->token = work->up_seat_token;
			header->psn = work->place;
			header->ack = work->up_token;
		}
	}
	header->body_crc = tsumugi_group_mix(work->out.words);
	header->check = tsumugi_header_check(header);
	for (__u32 i = 0; i < sizeof(struct packet) / 8; i++)
		sum += halves(((__u64 *)&work->out)[i]);
	work->udp_bytes = UDP_BYTES;
	put_headers(work, &work->to, sum);
	return work->to.port & (PORTS_MAX - 1);
}

#endif
