/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Direct writes into the window: receiver::write_directly and crates/tsumugi-proto/src/translation.rs in C. A direct
 * write leaves no record, and the process that the memory belongs to need not run.
 */
#ifndef TSUMUGI_RECEIVE_DIRECT_WRITE_H
#define TSUMUGI_RECEIVE_DIRECT_WRITE_H

/* It has to be deposited. */
#define NOT_HERE (TSUMUGI_COUNTERS + 1)

/* Bits of an address within its page, and of a page's number. */
#define PAGE_BITS 12
#define ADDRESS_BITS (64 - TSUMUGI_FRAME_BITS + PAGE_BITS)

struct bucket {
	struct tsumugi_translation ways[TSUMUGI_TRANSLATION_WAYS];
};

/*
 * The way of a bucket that holds a page's translation, above the window's page; negative: none does. A global function, so
 * that the verifier does not follow each way into what comes after.
 */
__attribute__((noinline)) int look_into(struct bucket *bucket, __u64 key, __u64 page)
{
	struct tsumugi_translation *translation;
	__u64 place;
	__u32 frame;

	if (!bucket || key == 0)
		return -1;
	for (__u32 way = 0; way < TSUMUGI_TRANSLATION_WAYS; way++) {
		translation = &bucket->ways[way];
		if (load_acquire(&translation->key) != key)
			continue;
		/* The key is read again after the place (invariant 5 of the memory). */
		place = load_acquire(&translation->place);
		frame = place & ((1 << TSUMUGI_FRAME_BITS) - 1);
		if (place >> TSUMUGI_FRAME_BITS == page && load(&translation->key) == key && frame < window_pages)
			return way << TSUMUGI_FRAME_BITS | frame;
	}
	return -1;
}

/* A translation that was found: what is written down when it was used, and the window's page. */
struct found {
	__u64 *used;
	__u32 frame;
};

static __always_inline struct bucket *bucket_of(char *memory, __u64 choice)
{
	/* The mask is in this register, and no copy of it, for Linux 6.1's verifier. */
	choice &= translation_buckets - 1;
	opaque(choice);
	if (choice >= translation_buckets)
		choice = 0;
	return (void *)(memory + tsumugi_translations_offset(flows, ring_bytes) + choice * sizeof(struct bucket));
}

/* translation::look_up. */
static __always_inline int look_up(char *memory, __u64 key, __u64 page, struct found *found)
{
	__u64 mixed = (key ^ page * 0x9e3779b97f4a7c15ULL) * 0xbf58476d1ce4e5b9ULL;
	struct bucket *bucket;
	int way;

	mixed ^= mixed >> 32;
	bucket = bucket_of(memory, mixed & 0xffffffff);
	way = look_into(bucket, key, page);
	if (way < 0) {
		bucket = bucket_of(memory, mixed >> 32);
		way = look_into(bucket, key, page);
	}
	if (way < 0)
		return -1;
	found->frame = way & ((1 << TSUMUGI_FRAME_BITS) - 1);
	found->used = &bucket->ways[way >> TSUMUGI_FRAME_BITS & (TSUMUGI_TRANSLATION_WAYS - 1)].used;
	return 0;
}

/* receiver::translate. */
static __always_inline int translate(char *memory, const struct tsumugi_remote *remote, struct found *first,
				     struct found *last)
{
	__u64 address = remote->address, end = address + remote->bytes - 1, key = remote->key;
	__u64 pages = (end >> PAGE_BITS) - (address >> PAGE_BITS);

	if (end < address || end >> ADDRESS_BITS)
		return -1;
	if (look_up(memory, key, address >> PAGE_BITS, first))
		return -1;
	*last = *first;
	if (pages == 0)
		return 0;
	if (look_up(memory, key, end >> PAGE_BITS, last))
		return -1;
	return last->frame == first->frame + pages ? 0 : -1;
}

/* receiver::no_direct_write_in_progress. */
static __always_inline int no_direct_write_in_progress(struct tsumugi_flow *flow)
{
	__u64 done = load_acquire(&flow->direct_writes.done);

	return load_acquire(&flow->direct_writes.started) == done;
}

/* receiver::is_in_turn. */
static __always_inline int is_in_turn(struct tsumugi_control *control, struct tsumugi_flow *flow, __u64 psn)
{
	__u64 read;

	if (load_acquire(&flow->received.base) != psn || !no_direct_write_in_progress(flow))
		return 0;
	read = load_acquire(&control->ring_read);
	return load(&control->ring_head) == read && load(&flow->direct_writes.held) == 0;
}

/* What is written, behind the packet's header; NULL: the body is too short, or does not begin in the frame's first piece. */
static __always_inline struct tsumugi_remote *remote_of(struct xdp_md *context, const struct frame *frame, __u32 body_bytes)
{
	struct tsumugi_remote *remote =
		(void *)(long)context->data + (payload_of(frame) & 127) + sizeof(struct tsumugi_header);

	if (body_bytes < sizeof(*remote) || (void *)(remote + 1) > (void *)(long)context->data_end)
		return NULL;
	return remote;
}

/* Whether a body begins as one that may be written directly: for most packets that is all. */
static __always_inline int may_write_directly(struct xdp_md *context, const struct frame *frame, __u32 body_bytes)
{
	struct tsumugi_remote *remote = window_pages ? remote_of(context, frame, body_bytes) : NULL;

	if (!remote)
		return 0;
	return remote->form == TSUMUGI_FORM_REMOTE &&
	       (remote->opcode == TSUMUGI_REMOTE_WRITE || remote->opcode == TSUMUGI_REMOTE_PIECE);
}

/*
 * Copies what is written. The last word of a short write comes last, for it may be a flag for the rest: who sees it sees all.
 * The helper gives no such order, so its part ends before that word. Nobody may count on it but on x86, where stores are
 * seen in their order.
 */
static __always_inline void copy_written(struct xdp_md *context, __u32 offset, char *to, __u64 bytes, int is_short)
{
	const char *from = (void *)(long)context->data + (offset & 255);
	__u64 last = 0;

	/* copy_body() copies what is in one piece and no longer than this in words, from the first to the last. */
	if (!is_short || bytes <= sizeof(last) ||
	    (bytes <= 128 && from + bytes <= (char *)(long)context->data_end)) {
		copy_body(context, offset, to, bytes);
		return;
	}
	bytes -= sizeof(last);
	copy_body(context, offset, to, bytes);
	bpf_xdp_load_bytes(context, offset + bytes, &last, sizeof(last));
	opaque(bytes);
	if (bytes <= 0xffff - sizeof(last))
		store_release((__u64 *)(to + bytes), last);
}

/*
 * receiver::write_directly, for a body that may be; counts what became of it. A global function, as answer() is; so it
 * looks for the memory again.
 */
__attribute__((noinline)) int write_directly(struct xdp_md *context, struct tsumugi_flow *flow, struct frame *frame,
					     __u64 psn, __u32 body_bytes)
{
	struct tsumugi_remote *remote;
	struct found first, last;
	__u32 bytes, verdict;
	__u64 word = 0, at, before;
	enum claim claimed;
	char *memory;
	int is_short;

	if (!flow || !frame)
		return NOT_HERE;
	memory = memory_of(frame->port);
	remote = remote_of(context, frame, body_bytes);
	if (!memory || !remote)
		return NOT_HERE;
	/* Alone in its packet. */
	bytes = remote->bytes;
	if (bytes == 0 || bytes > body_bytes - sizeof(*remote) ||
	    body_bytes > sizeof(*remote) + (((__u64)bytes + 7) & ~7ULL))
		return NOT_HERE;
	is_short = remote->opcode == TSUMUGI_REMOTE_WRITE;
	verdict = admit(flow, psn, &word);
	if (verdict == TSUMUGI_COUNT_DEPOSITED) {
		if (is_short && !is_in_turn((void *)memory, flow, psn))
			return NOT_HERE;
		if (translate(memory, remote, &first, &last)) {
			count(memory, TSUMUGI_COUNT_UNTRANSLATED);
			return NOT_HERE;
		}
		/* In the window it is for sure; the verifier wants to see it, of the register that makes the place. */
		at = ((__u64)first.frame << PAGE_BITS) + (remote->address & (TSUMUGI_PAGE_BYTES - 1));
		opaque(at);
		if (at >= (__u64)window_pages << PAGE_BITS)
			return NOT_HERE;
		/* Ordered: who sees the PSN's bit sees that a write has started; who sees it done sees what was written. */
		add_ordered(&flow->direct_writes.started, 1);
		claimed = claim(flow, psn, word, &word);
		if (claimed == CLAIM_MINE) {
			copy_written(context, (payload_of(frame) & 127) + sizeof(struct tsumugi_header) + sizeof(*remote),
				     memory + tsumugi_window_offset(flows, ring_bytes, translation_buckets) + at, bytes,
				     is_short);
			before = __sync_fetch_and_add(
				&((struct tsumugi_control *)memory)->counters[TSUMUGI_COUNT_DIRECT_WRITES], 1);
			store(first.used, before + 1);
			store(last.used, before + 1);
			add_ordered(&flow->direct_writes.done, 1);
			store(&flow->received.echo, psn);
			advance(flow, psn, word);
			return TSUMUGI_COUNT_DIRECT_WRITES;
		}
		add_ordered(&flow->direct_writes.started, -1);
		if (claimed == CLAIM_GIVEN_UP)
			return GIVEN_UP;
		verdict = TSUMUGI_COUNT_DUPLICATE;
	}
	count(memory, verdict);
	return verdict;
}

#endif
