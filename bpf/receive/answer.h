/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Answers: crates/tsumugi-proto/src/answer.rs in C, and the received frame turned round to carry them.
 */
#ifndef TSUMUGI_RECEIVE_ANSWER_H
#define TSUMUGI_RECEIVE_ANSWER_H

/* CRC32C four bytes at a time: table[k][b] is byte b followed by k zero bytes. Set before loading. */
const volatile __u32 crc_table[4 * 256] = {};

/* What is written behind the UDP header. */
struct reply {
	struct tsumugi_header header;
	__u64 echo;
	__u32 delay_ns;
	__u32 words;
	__u32 bitmap[TSUMUGI_WINDOW_WORDS];
};

#define REPLY_BYTES_MIN (sizeof(struct reply) - sizeof(__u32) * TSUMUGI_WINDOW_WORDS)

/* Where things lie in the frame, and what it is answered with. No padding, as above. */
struct frame {
	__u32 ip;      /* bytes before the IP header */
	__u32 udp;     /* bytes before the UDP header */
	__u32 payload; /* bytes before what UDP carries */
	__u32 six;     /* IPv6 */
	__u32 kind;    /* of the answer; 0: none */
	__u32 epoch;   /* of the memory's owner */
};

/* answer::ready: the owner has said how to address the peer. */
static __always_inline int ready(struct tsumugi_flow *flow)
{
	return load_acquire(&flow->peer_token) != 0;
}

/* answer::due: the kind of answer that the sender must have now, or 0. */
static __always_inline __u32 answer_due(struct tsumugi_flow *flow, const struct packet *packet, __u32 verdict)
{
	switch (verdict) {
	case TSUMUGI_COUNT_DUPLICATE:
	case TSUMUGI_COUNT_BEYOND_WINDOW:
		return TSUMUGI_ACK;
	case TSUMUGI_COUNT_OUT_OF_ORDER:
		return TSUMUGI_LOSE;
	case TSUMUGI_COUNT_QUEUE_FULL:
		return TSUMUGI_STOP;
	case TSUMUGI_COUNT_DEPOSITED:
		if (packet->flags & TSUMUGI_FLAG_ACK_REQUEST || packet->psn >= load_acquire(&flow->received.base))
			return TSUMUGI_ACK;
		return 0;
	default:
		return 0;
	}
}

static __always_inline __u32 crc32c(const __u32 *words, __u32 count)
{
	__u32 crc = ~0U;

	for (__u32 i = 0; i < 4 + TSUMUGI_WINDOW_WORDS; i++) {
		if (i >= count)
			break;
		crc ^= words[i];
		crc = crc_table[768 + (crc & 255)] ^ crc_table[512 + (crc >> 8 & 255)] ^
		      crc_table[256 + (crc >> 16 & 255)] ^ crc_table[crc >> 24];
	}
	return ~crc;
}

/* window::snapshot and answer::make. Returns the words in use. */
static __always_inline __u32 make_reply(struct reply *reply, struct tsumugi_flow *flow, const struct frame *frame,
					__u64 psn, __u64 peer_token)
{
	__u64 base = load_acquire(&flow->received.base), first = base / TSUMUGI_WORD_PSNS, limit, credit, word;
	__u64 older, same, newer;
	__u32 words, bits;

	reply->echo = load(&flow->received.echo);
	/* The last word with news: mostly there is none, and this is all there is to do. */
	for (words = TSUMUGI_WINDOW_WORDS; words > 0; words--) {
		word = load_acquire(window_word(flow, first + words - 1));
		older = (__u32)age(word, first + words - 1);
		if ((__s32)older > 0)
			continue;
		bits = older == 0 ? (__u32)word : ~0U;
		/* The word that holds the base says nothing new unless a bit beyond the base is set. */
		if (words == 1)
			bits >>= base % TSUMUGI_WORD_PSNS;
		if (bits != 0)
			break;
	}
	/* Without branches: each would double what the verifier has to follow, 32 times. */
	for (__u32 i = 0; i < words; i++) {
		word = load_acquire(window_word(flow, first + i));
		older = (__u32)age(word, first + i);
		same = (older - 1) >> 63;
		newer = older >> 31;
		opaque(same);
		opaque(newer);
		/* The word's bits if it is of this block, every bit if it is of a newer one. */
		reply->bitmap[i] = (word & -same) | -newer;
	}
	reply->words = words;
	limit = load(&flow->limit);
	credit = limit > base ? limit - base : 0;
	reply->header.version = TSUMUGI_VERSION;
	reply->header.kind = frame->kind;
	reply->header.flags = TSUMUGI_FLAG_HAS_ACK;
	reply->header.token = peer_token;
	reply->header.flow = load(&flow->peer_flow);
	reply->header.epoch = frame->epoch;
	reply->header.psn = frame->kind == TSUMUGI_STOP ? psn : 0;
	reply->header.ack = base;
	reply->header.credit = credit < 0xffff ? credit : 0xffff;
	reply->header.body_bytes = TSUMUGI_OFFSETOF(struct tsumugi_answer, bitmap) + words * sizeof(__u32);
	reply->header.body_crc = crc32c((const __u32 *)&reply->echo, 4 + words);
	reply->header.check = tsumugi_header_check(&reply->header);
	return words;
}

/* The sum of 16-bit words as the Internet checksums have it (RFC 1071). */
static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Turns addresses and ports round and states the new lengths. */
static __always_inline int turn_round(struct xdp_md *context, const struct frame *frame, const struct reply *reply,
				      __u32 reply_bytes)
{
	char *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	__u16 udp_bytes = sizeof(struct udphdr) + reply_bytes;
	struct ethhdr *ethernet = (void *)data;
	struct udphdr *udp = (void *)(data + (frame->udp & 63));
	__u8 mac[ETH_ALEN];
	__u16 port;
	__s64 sum;

	if ((void *)(ethernet + 1) > (void *)end || (void *)(udp + 1) > (void *)end)
		return -1;
	__builtin_memcpy(mac, ethernet->h_dest, ETH_ALEN);
	__builtin_memcpy(ethernet->h_dest, ethernet->h_source, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, mac, ETH_ALEN);
	port = udp->source;
	udp->source = udp->dest;
	udp->dest = port;
	udp->len = bpf_htons(udp_bytes);
	udp->check = 0;
	if (frame->six) {
		struct ipv6hdr *ip = (void *)(data + (frame->ip & 31));
		struct in6_addr address;

		if ((void *)(ip + 1) > (void *)end)
			return -1;
		address = ip->saddr;
		ip->saddr = ip->daddr;
		ip->daddr = address;
		ip->payload_len = bpf_htons(udp_bytes);
		ip->hop_limit = 64;
		/* RFC 8200, 8.1: over a pseudo header, UDP's header and what it carries; 0 stands for none. */
		sum = bpf_csum_diff(0, 0, (void *)&ip->saddr, 2 * sizeof(address), bpf_htonl(udp_bytes));
		sum = bpf_csum_diff(0, 0, (void *)udp, sizeof(*udp), (__u32)sum);
		sum = bpf_csum_diff(0, 0, (void *)reply, reply_bytes, (__u32)sum);
		port = fold((__u32)sum + (__u64)bpf_htons(IPPROTO_UDP));
		udp->check = port ? port : 0xffff;
	} else {
		struct iphdr *ip = (void *)(data + (frame->ip & 31));
		__u32 address;

		if ((void *)(ip + 1) > (void *)end)
			return -1;
		address = ip->saddr;
		ip->saddr = ip->daddr;
		ip->daddr = address;
		ip->tos = 0;
		ip->tot_len = bpf_htons(sizeof(*ip) + udp_bytes);
		ip->id = 0;
		ip->frag_off = bpf_htons(0x4000); /* do not fragment */
		ip->ttl = 64;
		ip->check = 0;
		sum = 0;
		for (__u32 i = 0; i < sizeof(*ip) / sizeof(__u32); i++)
			sum += ((__u32 *)ip)[i];
		ip->check = fold(sum);
	}
	return 0;
}

/*
 * Puts the answer into the received frame and sends it back. What cannot be answered counts as a lost answer.
 *
 * A global function, so that the verifier looks at it once by itself and not again for each of the ways that lead
 * here; so it knows nothing of the arguments but their types.
 */
__attribute__((noinline)) int answer(struct xdp_md *context, struct tsumugi_flow *flow, struct frame *frame, __u64 psn)
{
	struct reply reply = {};
	__u64 peer_token;
	__u32 bytes;

	if (!flow || !frame)
		return XDP_DROP;
	peer_token = load_acquire(&flow->peer_token);
	if (peer_token == 0)
		return XDP_DROP;
	bytes = REPLY_BYTES_MIN + sizeof(__u32) * make_reply(&reply, flow, frame, psn, peer_token);
	if (bpf_xdp_adjust_tail(context, (int)(frame->payload + bytes) - (int)bpf_xdp_get_buff_len(context)))
		return XDP_DROP;
	if (turn_round(context, frame, &reply, bytes) || bpf_xdp_store_bytes(context, frame->payload, &reply, bytes))
		return XDP_DROP;
	return XDP_TX;
}

#endif
