/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The receive half on receive memory: crates/tsumugi-proto/src/{receiver,receive_bitmap,queue}.rs in C, function by
 * function. tests/conformance.rs of tsumugi-rail holds the two together.
 *
 * The memory's owner may write anything into it at any time. So every index is masked or compared with a constant
 * each time it is used, and every loop has an end that no word of the memory can move.
 */
#ifndef TSUMUGI_RECEIVE_DEPOSIT_H
#define TSUMUGI_RECEIVE_DEPOSIT_H

/* Tries before a packet is given up as if it had been lost; only other CPUs' progress uses them up. */
#define CLAIMS_MAX 16
/* A whole bitmap of blocks, and as many again for other CPUs' progress. */
#define ADVANCES_MAX (2 * TSUMUGI_BITMAP_WORDS)

/* What became of a packet: a counter, or this. */
#define GIVEN_UP TSUMUGI_COUNTERS

enum claim {
	CLAIM_MINE,
	CLAIM_TAKEN,
	CLAIM_BEYOND,
	CLAIM_GIVEN_UP,
};

/* What matters here of a packet's header, out of the packet. */
struct packet {
	__u64 token;
	__u64 psn;
	__u64 ack;
	__u32 flow;
	__u32 epoch;
	__u32 body_crc;
	__u32 kind;
	__u32 flags;
	__u32 credit;
	__u32 body_bytes;
};

/* Where things lie in the frame, and what it is answered with. No padding: the verifier would see it as unset. */
struct frame {
	__u32 udp;     /* bytes before the UDP header */
	__u32 six;     /* IPv6 */
	__u32 bytes;   /* of the frame: of its first piece if the packet ends there */
	__u32 kind;    /* of the answer; 0: none */
	__u32 epoch;   /* of the memory's owner */
	__u32 port;    /* that it is for */
};

/* Bytes before the IP header. */
static __always_inline __u32 ip_of(const struct frame *frame)
{
	return frame->udp - (frame->six ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
}

/* Bytes before what UDP carries. */
static __always_inline __u32 payload_of(const struct frame *frame)
{
	return frame->udp + sizeof(struct udphdr);
}

static __always_inline void count(char *memory, __u32 counter)
{
	struct tsumugi_control *control = (void *)memory;

	add(&control->counters[counter & (TSUMUGI_COUNTERS - 1)], 1);
}

/* answer::refuse: of so many strangers of a kind one goes on to the owner, who may answer RESET. */
#define STRANGERS_PER_RESET 64
#define PROBES_PER_RESET 8

static __always_inline int refuse(char *memory, __u32 counter, __u32 kind)
{
	struct tsumugi_control *control = (void *)memory;
	__u64 before = __sync_fetch_and_add(&control->counters[counter & (TSUMUGI_COUNTERS - 1)], 1);
	__u64 one_in = kind == TSUMUGI_PROBE ? PROBES_PER_RESET : STRANGERS_PER_RESET;

	if (counter == TSUMUGI_COUNT_WRONG_EPOCH || (before & (one_in - 1)) != 0)
		return XDP_DROP;
	return XDP_PASS;
}

/* receiver::find. */
static __always_inline __u32 find(char *memory, const struct packet *packet, struct tsumugi_flow **found)
{
	__u64 token, index = packet->flow;
	struct tsumugi_flow *flow;

	/* Linux 6.1's verifier must see the bound in the very register that makes the place, all 64 bits of it. */
	opaque(index);
	if (index >= flows)
		return TSUMUGI_COUNT_UNKNOWN_FLOW;
	flow = (void *)(memory + TSUMUGI_PAGE_BYTES + index * sizeof(*flow));
	token = load_acquire(&flow->token);
	if (token == 0)
		return TSUMUGI_COUNT_UNKNOWN_FLOW;
	if (token != packet->token)
		return TSUMUGI_COUNT_WRONG_TOKEN;
	if (load(&flow->epoch) != packet->epoch)
		return TSUMUGI_COUNT_WRONG_EPOCH;
	*found = flow;
	return TSUMUGI_COUNT_DEPOSITED;
}

/* The word becomes `to`, unless it is more. 0: given up. */
static __always_inline int raise(__u64 *at, __u64 to)
{
	__u64 is = load(at), seen;

	for (int try = 0; try < CLAIMS_MAX && is < to; try++) {
		seen = compare_and_swap(at, is, to);
		if (likely(seen == is))
			return 1;
		is = seen;
	}
	return is >= to;
}

/*
 * answer::note: what the packet acknowledges of our flow to the peer, if no record tells it. If given up, a later packet
 * says as much.
 */
static __always_inline void note(struct tsumugi_flow *flow, const struct packet *packet)
{
	__u64 limit = packet->ack + packet->credit;

	if (!(packet->flags & TSUMUGI_FLAG_HAS_ACK))
		return;
	raise(&flow->acknowledged.ack, packet->ack);
	raise(&flow->acknowledged.limit, limit < packet->ack ? ~0ULL : limit);
}

/* receive_bitmap::age: distance from the block in `word` to `block`, negative when the word's is newer. */
static __always_inline __s32 age(__u64 word, __u64 block)
{
	return (__s32)((__u32)block - (__u32)(word >> 32));
}

static __always_inline __u64 *bitmap_word(struct tsumugi_flow *flow, __u64 block)
{
	return &flow->bitmap[block & (TSUMUGI_BITMAP_WORDS - 1)];
}

/* receive_bitmap::look; `seen` is the word for the PSN where it may be claimed. */
static __always_inline enum claim look(struct tsumugi_flow *flow, __u64 psn, __u64 *seen)
{
	__u64 base = load_acquire(&flow->received.base);
	__u64 block = psn / TSUMUGI_WORD_PSNS;
	__s32 older;

	if (psn < base)
		return CLAIM_TAKEN;
	if (block - base / TSUMUGI_WORD_PSNS >= TSUMUGI_BITMAP_WORDS)
		return CLAIM_BEYOND;
	*seen = load_acquire(bitmap_word(flow, block));
	older = age(*seen, block);
	if (older < 0 || (older == 0 && *seen & 1ULL << psn % TSUMUGI_WORD_PSNS))
		return CLAIM_TAKEN;
	return CLAIM_MINE;
}

/*
 * receive_bitmap::claim, for a PSN that look() has found free in `word`; `left` is the word as it was left.
 *
 * The base need not be looked at again: it passes no PSN whose bit is not set, and a word never reads the same again.
 */
static __always_inline enum claim claim(struct tsumugi_flow *flow, __u64 psn, __u64 word, __u64 *left)
{
	__u64 block = psn / TSUMUGI_WORD_PSNS, bit = 1ULL << psn % TSUMUGI_WORD_PSNS;
	__u64 *slot = bitmap_word(flow, block);
	__u64 wanted, seen;
	__s32 older;

	if (!raise(&flow->received.newest, block))
		return CLAIM_GIVEN_UP;
	for (int try = 0; try < CLAIMS_MAX; try++) {
		wanted = age(word, block) == 0 ? word | bit : block << 32 | bit;
		seen = compare_and_swap(slot, word, wanted);
		if (likely(seen == word)) {
			*left = wanted;
			return CLAIM_MINE;
		}
		word = seen;
		older = age(word, block);
		if (older < 0 || (older == 0 && word & bit))
			return CLAIM_TAKEN;
	}
	return CLAIM_GIVEN_UP;
}

/* How many bits are set from the lowest on. BPF has no instruction for it, and clang 14 dies of its builtin. */
static __always_inline __u32 trailing_ones(__u32 bits)
{
	__u64 rest = ~(__u64)bits; /* not 0: its upper half is set */
	__u32 ones = (__u32)((rest & -rest) - 1);

	ones -= ones >> 1 & 0x55555555;
	ones = (ones & 0x33333333) + (ones >> 2 & 0x33333333);
	ones = (ones + (ones >> 4)) & 0x0f0f0f0f;
	return ones * 0x01010101 >> 24;
}

/* receive_bitmap::advance. */
static __always_inline void advance(struct tsumugi_flow *flow, __u64 psn, __u64 own)
{
	__u64 base = load_acquire(&flow->received.base), block, word, run, seen;
	__s32 older;

	for (int try = 0; try < ADVANCES_MAX; try++) {
		block = base / TSUMUGI_WORD_PSNS;
		if (block == psn / TSUMUGI_WORD_PSNS)
			word = own;
		else
			word = read_modify_write(bitmap_word(flow, block));
		older = age(word, block);
		if (older != 0)
			return;
		run = trailing_ones((__u32)word >> base % TSUMUGI_WORD_PSNS);
		if (run == 0)
			return;
		seen = compare_and_swap(&flow->received.base, base, base + run);
		if (seen != base) {
			base = seen;
			continue;
		}
		base += run;
		if (base % TSUMUGI_WORD_PSNS != 0)
			return;
	}
}

/* queue::claim. */
static __always_inline __u32 claim_space(struct tsumugi_control *control, __u64 span, __u64 *position)
{
	__u64 head = load(&control->ring_head), seen;

	for (int try = 0; try < CLAIMS_MAX; try++) {
		if (head + span - load_acquire(&control->ring_tail) > ring_bytes)
			return TSUMUGI_COUNT_QUEUE_FULL;
		seen = compare_and_swap(&control->ring_head, head, head + span);
		if (likely(seen == head)) {
			*position = head;
			return TSUMUGI_COUNT_DEPOSITED;
		}
		head = seen;
	}
	return GIVEN_UP;
}

/* receiver::limit. */
static __always_inline __u64 limit_of(struct tsumugi_flow *flow)
{
	__u64 done = load_acquire(&flow->direct_writes.done), limit = load(&flow->limit);

	return limit + done < limit ? ~0ULL : limit + done;
}

/* receiver::admit; `seen` as look() says. */
static __always_inline __u32 admit(struct tsumugi_flow *flow, __u64 psn, __u64 *seen)
{
	switch (look(flow, psn, seen)) {
	case CLAIM_TAKEN:
		return TSUMUGI_COUNT_DUPLICATE;
	case CLAIM_BEYOND:
		return TSUMUGI_COUNT_BEYOND_BITMAP;
	default:
		break;
	}
	if (psn >= limit_of(flow))
		return TSUMUGI_COUNT_BEYOND_BITMAP;
	if (load(&flow->repeat) == TSUMUGI_REPEAT_GO_BACK_N && psn != load_acquire(&flow->received.base))
		return TSUMUGI_COUNT_OUT_OF_ORDER;
	return TSUMUGI_COUNT_DEPOSITED;
}

/*
 * Copies so many words from the beginning, and as many up to the end: for bodies between one and two times as long.
 * Leaves it to the helper if the frame is in pieces and the body not in the first. In this order: the last word may be a flag
 * for the others (direct_write.h).
 */
#define COPY_ENDS(words)                                                          \
	do {                                                                      \
		__u64 skip = bytes - 8 * (words);                                 \
		const char *last;                                                 \
		char *there;                                                      \
                                                                                  \
		opaque(skip); /* or the verifier sees less than 0 bytes from the end */ \
		last = from + skip;                                               \
		there = to + skip;                                                \
		if (from + 8 * (words) > end || last + 8 * (words) > end)         \
			break;                                                    \
		_Pragma("unroll") for (int i = 0; i < (words); i++)               \
			store(&U64(to + 8 * i), U64(from + 8 * i));               \
		_Pragma("unroll") for (int i = 0; i < (words); i++)               \
			store(&U64(there + 8 * i), U64(last + 8 * i));            \
		return;                                                           \
	} while (0)

/*
 * Copies a body that lies at `offset` of the frame. The pad is longer than any body.
 *
 * Short ones in words: that takes 3 ns less than the helper, 60 instead of 63 for all of a packet of 64 bytes.
 */
static __always_inline void copy_body(struct xdp_md *context, __u32 offset, char *to, __u64 bytes)
{
	const char *from = (void *)(long)context->data + (offset & 255), *end = (void *)(long)context->data_end;

	opaque(bytes);
	if (bytes <= 128) {
		if (bytes > 64)
			COPY_ENDS(8);
		else if (bytes > 32)
			COPY_ENDS(4);
		else if (bytes > 16)
			COPY_ENDS(2);
		else if (bytes >= 8)
			COPY_ENDS(1);
	}
	/*
	 * The verifier must see the bounds in the very register that the helper gets, not in a copy; and Linux 6.1's
	 * does not conclude from `!= 0` that it is 1 or more, so they are put on one less. The copy cannot fail: the
	 * frame was found to hold the body.
	 */
	bytes--;
	opaque(bytes);
	if (bytes <= 0xffff - 1)
		bpf_xdp_load_bytes(context, offset, to, bytes + 1);
}

/* receiver::place: the body lies at `offset` of the frame. Says what became of the packet. */
static __always_inline __u32 place(struct xdp_md *context, char *memory, struct tsumugi_flow *flow,
				   const struct packet *packet, __u32 offset)
{
	struct tsumugi_control *control = (void *)memory;
	__u64 position = 0, word = 0;
	__u32 verdict = admit(flow, packet->psn, &word), bytes = packet->body_bytes, owner = TSUMUGI_RECORD_PADDING;
	struct tsumugi_record *record;
	enum claim claimed;

	if (verdict != TSUMUGI_COUNT_DEPOSITED)
		return verdict;
	/* Space first, the PSN second: what is claimed as received is sure to be deposited. */
	verdict = claim_space(control, tsumugi_record_span(bytes), &position);
	if (verdict == TSUMUGI_COUNT_QUEUE_FULL) {
		store(&flow->received.xoff, 1);
		store_release(&control->xoff, 1);
	}
	if (verdict != TSUMUGI_COUNT_DEPOSITED)
		return verdict;
	/* The owner may have put anything into the head: the place is in the ring, and aligned, all the same. */
	record = (void *)(memory + tsumugi_ring_offset(flows) +
			  (position & (ring_bytes - 1) & ~(__u64)(TSUMUGI_RECORD_ALIGN - 1)));
	claimed = claim(flow, packet->psn, word, &word);
	if (claimed == CLAIM_MINE) {
		owner = packet->flow;
		copy_body(context, offset, (char *)(record + 1), bytes);
	}
	store(&record->sizes, tsumugi_record_sizes(owner, packet->credit, bytes));
	store(&record->psn, packet->psn);
	store(&record->ack, packet->ack);
	store(&record->crc, tsumugi_record_crc(packet->body_crc, packet->token,
					       packet->flags & TSUMUGI_FLAG_HAS_ACK ? TSUMUGI_RECORD_HAS_ACK : 0));
	store_release(&record->seal, load(&control->seal) + position);
	if (claimed == CLAIM_GIVEN_UP)
		return GIVEN_UP;
	if (claimed != CLAIM_MINE)
		return TSUMUGI_COUNT_DUPLICATE;
	store(&flow->received.echo, packet->psn);
	advance(flow, packet->psn, word);
	return TSUMUGI_COUNT_DEPOSITED;
}

/* receiver::deposit. */
static __always_inline __u32 deposit(struct xdp_md *context, char *memory, struct tsumugi_flow *flow,
				     const struct packet *packet, __u32 offset)
{
	__u32 verdict = place(context, memory, flow, packet, offset);

	if (verdict != GIVEN_UP)
		count(memory, verdict);
	return verdict;
}

#endif
