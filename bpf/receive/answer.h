/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Answers: crates/tsumugi-proto/src/answer.rs in C, and the received frame turned round to carry them.
 *
 * Most answers have no bitmap. Those are put together in registers and written in words: what is written in pieces and
 * read as a word waits for the pieces to reach the cache.
 */
#ifndef TSUMUGI_RECEIVE_ANSWER_H
#define TSUMUGI_RECEIVE_ANSWER_H

/* CRC32C: entry 256 k + b is byte b followed by k zero bytes. Set before loading. */
const volatile __u32 crc_table[16 * 256] = {};

/* What is written behind the UDP header, in front of the bitmap. */
struct reply {
	struct tsumugi_header header;
	__u64 echo;
	__u64 words; /* in the upper half; the lower is the delay, which is 0 */
};

#define REPLY_WORDS (sizeof(struct reply) / sizeof(__u64))

_Static_assert(sizeof(struct reply) == sizeof(struct tsumugi_header) + sizeof(struct tsumugi_answer), "the bitmap follows");

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
	case TSUMUGI_COUNT_BEYOND_BITMAP:
		return TSUMUGI_ACK;
	case TSUMUGI_COUNT_OUT_OF_ORDER:
		return TSUMUGI_NAK;
	case TSUMUGI_COUNT_QUEUE_FULL:
		return TSUMUGI_XOFF;
	case TSUMUGI_COUNT_DEPOSITED:
	case TSUMUGI_COUNT_DIRECT_WRITES:
		if (packet->flags & TSUMUGI_FLAG_ACK_REQUEST || packet->psn >= load_acquire(&flow->received.base))
			return TSUMUGI_ACK;
		return 0;
	default:
		return 0;
	}
}

/*
 * Whether the frame lies in several buffers. Such a frame is read and dropped, and never resized, sent back or redirected:
 * veth and generic XDP build it from a page pool that the queue does not name as its memory (skb_pp_cow_data of
 * net/core/skbuff.c), and bpf_xdp_adjust_tail, XDP_TX and redirection give its pages back to somebody else than the pool,
 * which hands them out again while they are in use.
 */
static __always_inline int is_scattered(struct xdp_md *context)
{
	const char *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;

	return bpf_xdp_get_buff_len(context) != (__u64)(end - data);
}

/* answer::is_left. */
static __always_inline int is_left(struct tsumugi_control *control)
{
	return load(&control->answers_left) != 0;
}

/* answer::owe. */
static __always_inline void owe(struct xdp_md *context, struct tsumugi_control *control, struct tsumugi_flow *flow,
				__u32 kind)
{
	if (is_scattered(context))
		store(&flow->received.ask_by_probe, 1);
	if (load(&flow->received.owed) < kind)
		store(&flow->received.owed, kind);
	/* Fully ordered: the owner either sees it before it sleeps or has said that it sleeps, and the bell is rung. */
	__sync_lock_test_and_set(&control->owed, 1);
}

/* answer::take_owed. */
static __always_inline __u32 take_owed(struct tsumugi_flow *flow, __u32 due)
{
	__u32 owed;

	if (likely(load(&flow->received.owed) == 0))
		return due;
	owed = __sync_lock_test_and_set(&flow->received.owed, 0);
	if (owed == 0)
		return due; /* another was faster */
	if (owed != TSUMUGI_NAK && (owed != TSUMUGI_XOFF || load(&flow->received.xoff) == 0))
		owed = TSUMUGI_ACK;
	return due > owed ? due : owed;
}

/* answer::flags. */
static __always_inline __u64 answer_flags(struct tsumugi_flow *flow)
{
	return TSUMUGI_FLAG_HAS_ACK | (load(&flow->received.ask_by_probe) ? TSUMUGI_FLAG_ASK_BY_PROBE : 0);
}

/* Blocks from the base's on that the bitmap may have bits of. */
static __always_inline __u32 blocks_in_use(struct tsumugi_flow *flow, __u64 first)
{
	__u64 newest = load(&flow->received.newest);

	if (newest < first)
		return 0;
	return newest - first < TSUMUGI_BITMAP_WORDS ? newest - first + 1 : TSUMUGI_BITMAP_WORDS;
}

/* What the bitmap says of a block. Without branches: each would double what the verifier has to follow, 32 times. */
static __always_inline __u32 block_bits(struct tsumugi_flow *flow, __u64 block)
{
	__u64 word = load_acquire(bitmap_word(flow, block)), older = (__u32)age(word, block);
	__u64 same = (older - 1) >> 63, newer = older >> 31;

	opaque(same);
	opaque(newer);
	/* The word's bits if it is of this block, every bit if it is of a newer one. */
	return (word & -same) | -newer;
}

/* The CRC over an answer without its bitmap: every byte by itself, where it lies, so that none waits for another. */
static __always_inline __u32 start_crc(__u64 echo, __u32 words)
{
	__u32 crc = crc_table[3 * 256 + (words & 255)];

	echo ^= 0xffffffff; /* what a CRC32C starts from */
#define BYTE(at) (crc_table[(15 - (at)) * 256 + (echo >> 8 * (at) & 255)])
	crc ^= BYTE(0) ^ BYTE(1) ^ BYTE(2) ^ BYTE(3) ^ BYTE(4) ^ BYTE(5) ^ BYTE(6) ^ BYTE(7);
#undef BYTE
	return crc;
}

/* What lies beyond the base, for an answer. */
struct gaps {
	__u32 words; /* of the bitmap in use; zeros behind them */
	__u32 crc;   /* over the answer and its bitmap, not yet inverted */
	__u32 bitmap[TSUMUGI_BITMAP_WORDS];
};

/* receive_bitmap::snapshot for when there may be something to tell. A global function, as answer() is. */
__attribute__((noinline)) int tell_gaps(struct tsumugi_flow *flow, struct gaps *gaps, __u64 base, __u64 echo)
{
	__u32 blocks, words = 0, known = base % TSUMUGI_WORD_PSNS, bits, news, crc;

	if (!flow || !gaps)
		return 0;
	blocks = blocks_in_use(flow, base / TSUMUGI_WORD_PSNS);
	for (__u32 i = 0; i < TSUMUGI_BITMAP_WORDS; i++) {
		if (i >= blocks)
			break;
		bits = block_bits(flow, base / TSUMUGI_WORD_PSNS + i);
		/* The word that holds the base says nothing new unless a bit beyond the base is set. */
		news = i == 0 ? bits >> known : bits;
		/* All ones if there is any: again without a branch. */
		news = (__s32)(news | -news) >> 31;
		opaque(news);
		words = (words & ~news) | ((i + 1) & news);
		gaps->bitmap[i] = bits;
	}
	gaps->words = words;
	/* Read back: what the verifier knows of it would keep it from seeing that all exits of the loop are alike. */
	words = load(&gaps->words);
	crc = start_crc(echo, words);
	for (__u32 i = 0; i < TSUMUGI_BITMAP_WORDS; i++) {
		if (i >= words)
			break;
		crc ^= gaps->bitmap[i];
		crc = crc_table[768 + (crc & 255)] ^ crc_table[512 + (crc >> 8 & 255)] ^
		      crc_table[256 + (crc >> 16 & 255)] ^ crc_table[crc >> 24];
	}
	gaps->crc = crc;
	return 0;
}

/*
 * Turns addresses and ports round, states the new lengths, and puts the reply behind them. `sum` is that of the bitmap,
 * which is stored by itself.
 */
static __always_inline int turn_round(struct xdp_md *context, const struct frame *frame, const struct reply *reply,
				      __u32 reply_bytes, __u64 sum)
{
	char *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	char *ip = data + (ip_of(frame) & 31), *udp = data + (frame->udp & 63);
	__u64 udp_bytes = sizeof(struct udphdr) + reply_bytes, word, other, ports, check = 0;
	const __u64 *from = (const __u64 *)reply;
	__u64 *to = (void *)(udp + sizeof(struct udphdr));

	if ((void *)(to + REPLY_WORDS) > (void *)end || data + ETH_HLEN > end)
		return -1;
	/* Two addresses of six bytes. */
	word = U64(data);
	other = U32(data + 8);
	U64(data) = word >> 48 | other << 16 | word << 48;
	U32(data + 8) = word >> 16;
	ports = U32(udp);
	ports = (ports >> 16 | ports << 16) & 0xffffffff;
	if (frame->six) {
		if (ip + sizeof(struct ipv6hdr) > end)
			return -1;
		/* RFC 8200, 8.1: over a pseudo header, UDP's header and what it carries; 0 stands for none. */
		sum += bpf_htons(udp_bytes) + bpf_htons(IPPROTO_UDP);
		sum += ports + bpf_htons(udp_bytes);
		for (__u32 i = 0; i < 2; i++) {
			word = U64(ip + 8 + 8 * i);
			other = U64(ip + 24 + 8 * i);
			U64(ip + 8 + 8 * i) = other;
			U64(ip + 24 + 8 * i) = word;
			sum += halves(word) + halves(other);
		}
		for (__u32 i = 0; i < REPLY_WORDS; i++)
			sum += halves(from[i]);
		check = fold(sum);
		check = check ? check : 0xffff;
		/* Length, next header, hop limit. */
		U32(ip + 4) = bpf_htons(udp_bytes) | IPPROTO_UDP << 16 | 64 << 24;
	} else {
		if (ip + sizeof(struct iphdr) > end)
			return -1;
		/* Version, header length and length; do not fragment; time to live and protocol. */
		word = 0x45 | (__u64)bpf_htons(sizeof(struct iphdr) + udp_bytes) << 16 | (__u64)bpf_htons(0x4000) << 48;
		other = 64 | IPPROTO_UDP << 8;
		sum = U64(ip + 12);
		U64(ip + 12) = sum >> 32 | sum << 32;
		U64(ip) = word;
		U32(ip + 8) = other | (__u32)fold(halves(sum) + halves(word) + other) << 16;
	}
	U64(udp) = ports | (__u64)bpf_htons(udp_bytes) << 32 | check << 48;
	for (__u32 i = 0; i < REPLY_WORDS; i++)
		to[i] = from[i];
	return 0;
}

/*
 * answer::make, put into the received frame to be sent back. What cannot be answered counts as a lost answer.
 *
 * A global function, so that the verifier looks at it once by itself and not again for each of the paths that lead
 * here; so it knows nothing of the arguments but their types.
 */
__attribute__((noinline)) int answer(struct xdp_md *context, struct tsumugi_flow *flow, struct frame *frame, __u64 psn)
{
	__u64 peer_token, base, first, limit, credit, sum = 0, bitmap_bytes;
	__u32 blocks, words = 0, crc, bytes;
	struct reply reply;
	struct gaps gaps;
	int longer;

	if (!flow || !frame)
		return XDP_DROP;
	peer_token = load_acquire(&flow->peer_token);
	if (peer_token == 0)
		return XDP_DROP;
	base = load_acquire(&flow->received.base);
	first = base / TSUMUGI_WORD_PSNS;
	reply.echo = load(&flow->received.echo);
	blocks = blocks_in_use(flow, first);
	/* Mostly nothing lies beyond the base, and one look tells. */
	if (blocks > 1 || (blocks == 1 && block_bits(flow, first) >> base % TSUMUGI_WORD_PSNS)) {
		__builtin_memset(&gaps, 0, sizeof(gaps));
		tell_gaps(flow, &gaps, base, reply.echo);
		words = gaps.words & 63;
		crc = gaps.crc;
		if (words != 0)
			sum = (__u32)bpf_csum_diff(0, 0, gaps.bitmap, sizeof(gaps.bitmap), 0);
	} else {
		crc = start_crc(reply.echo, 0);
	}
	reply.words = (__u64)words << 32;
	bytes = sizeof(reply) + sizeof(__u32) * words;
	limit = limit_of(flow);
	credit = limit > base ? limit - base : 0;
	if (credit > 0xffff)
		credit = 0xffff;
	reply.header.words[1] = peer_token;
	reply.header.words[2] = load(&flow->peer_flow) | (__u64)frame->epoch << 32;
	reply.header.words[3] = frame->kind == TSUMUGI_XOFF ? psn : load(&flow->checked);
	reply.header.words[4] = base;
	reply.header.words[5] = credit | (__u64)(bytes - sizeof(reply.header)) << 16 | (__u64)~crc << 32;
	reply.header.words[0] = TSUMUGI_VERSION | (frame->kind & 255) << 8 | answer_flags(flow) << 16;
	reply.header.words[0] |= (__u64)tsumugi_header_check(&reply.header) << 32;
	longer = (int)(payload_of(frame) + bytes) - (int)frame->bytes;
	if (longer != 0 && bpf_xdp_adjust_tail(context, longer))
		return XDP_DROP;
	if (turn_round(context, frame, &reply, bytes, sum))
		return XDP_DROP;
	/* One less than the length, as in copy_body(): Linux 6.1's verifier must not think that it may be 0. */
	bitmap_bytes = sizeof(__u32) * words - 1;
	opaque(bitmap_bytes);
	if (bitmap_bytes <= sizeof(gaps.bitmap) - 1 &&
	    bpf_xdp_store_bytes(context, payload_of(frame) + sizeof(reply), gaps.bitmap, bitmap_bytes + 1))
		return XDP_DROP;
	return XDP_TX;
}

#endif
