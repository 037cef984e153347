/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The packet formats and the receive-memory layout of Tsumugi, for C: XDP programs (BPF)
 * and tests in user space. The truth is crates/tsumugi-wire; its tests compile this file and compare
 * every constant, size and offset, and the meaning of every golden vector.
 *
 * All integers are little-endian, on the wire and in memory; this header is for little-endian machines.
 *
 * The structures are naturally aligned and not `packed` on purpose: clang turns every access to a packed
 * structure into single-byte loads for BPF. In a packet they lie at any address; the XDP program may point
 * into it where the machine loads unaligned words (x86-64, arm64), user space copies out first.
 */
#ifndef TSUMUGI_WIRE_H
#define TSUMUGI_WIRE_H

/* __u8 … __u64: from vmlinux.h where it is used, from the kernel's headers, or made here. */
#ifndef __VMLINUX_H__
#if defined(__linux__) || defined(__bpf__)
#include <linux/types.h>
#else
#include <stdint.h>
typedef uint8_t __u8;
typedef uint16_t __u16;
typedef uint32_t __u32;
typedef uint64_t __u64;
#endif
#endif

#define TSUMUGI_OFFSETOF(type, member) __builtin_offsetof(type, member)
#define TSUMUGI_ALIGNED(bytes) __attribute__((aligned(bytes)))

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "Tsumugi's C header is for little-endian machines");

/* ---- limits (limits.rs) ------------------------------------------------------------------------ */

#define TSUMUGI_VERSION 1
#define TSUMUGI_DEFAULT_PORT 7411
#define TSUMUGI_IPV4_UDP_BYTES 28
#define TSUMUGI_IPV6_UDP_BYTES 48
#define TSUMUGI_DATAGRAM_BYTES_MIN 508
#define TSUMUGI_DATAGRAM_BYTES_MAX (9000 - TSUMUGI_IPV4_UDP_BYTES)
#define TSUMUGI_ONE_BUFFER_BYTES (1500 - TSUMUGI_IPV4_UDP_BYTES)
#define TSUMUGI_BITMAP_PACKETS 1024
#define TSUMUGI_MESSAGE_BYTES_MAX (1ULL << 40)
#define TSUMUGI_RECORD_ALIGN 64

/* ---- the header (header.rs) -------------------------------------------------------------------- */

enum tsumugi_kind {
	TSUMUGI_DATA = 1,
	TSUMUGI_ACK = 2,
	TSUMUGI_NAK = 3,
	TSUMUGI_XOFF = 4,
	TSUMUGI_XON = 5,
	TSUMUGI_PROBE = 6,
	TSUMUGI_HELLO = 7,
	TSUMUGI_CHALLENGE = 8,
	TSUMUGI_WELCOME = 9,
	TSUMUGI_BYE = 10,
	TSUMUGI_BYE_ACK = 11,
	TSUMUGI_RESET = 12,
	TSUMUGI_PIECE = 13,
	TSUMUGI_SIZE_PROBE = 14,
	TSUMUGI_SIZE_ACK = 15,
	TSUMUGI_DAMAGED = 16,
	TSUMUGI_JOIN = 17,
	TSUMUGI_ARRIVE = 18,
	TSUMUGI_LEAVE = 19,
	TSUMUGI_NOTICE = 20,
	TSUMUGI_RELEASE = 21,
	TSUMUGI_MULTICAST = 22,
	TSUMUGI_RELAY = 23,
	TSUMUGI_KIND_LAST = TSUMUGI_RELAY,
};

#define TSUMUGI_FLAG_ACK_REQUEST 1 /* the sender wants an ACK at once */
#define TSUMUGI_FLAG_RESENT 2      /* sent before */
#define TSUMUGI_FLAG_HAS_ACK 4     /* ack and credit are meaningful */
#define TSUMUGI_FLAG_ASK_BY_PROBE 8 /* an answer: who wants an ACK for a long packet sends a PROBE behind it */
#define TSUMUGI_FLAG_AWAY 16 /* an answer: the process leaves, and another will go on */
#define TSUMUGI_FLAG_AT_LEISURE 32 /* with ACK_REQUEST: who must make a system call for the ACK may take its time */
#define TSUMUGI_FLAG_UNCHECKED 64 /* DATA, where both sides agreed: the body's CRC is 0 and not compared */
#define TSUMUGI_FLAG_MIXED 128 /* to and from switch boxes: body_crc is tsumugi_group_mix(), or tsumugi_table_check() */

struct tsumugi_header {
	union {
		struct {
			__u8 version;
			__u8 kind;  /* enum tsumugi_kind */
			__u8 flags; /* TSUMUGI_FLAG_* */
			__u8 path;  /* as the sender counts them */
			__u32 check; /* tsumugi_header_check() */
			__u64 token; /* handed out by the receiver with flow */
			__u32 flow;  /* index into the receiver's flow table */
			__u32 epoch; /* incarnation of the sender, never 0 */
			__u64 psn;   /* DATA: its number; ACK, NAK, XON: all before it is compared; XOFF: the number refused; BYE: the next */
			__u64 ack;   /* every PSN before it has been deposited */
			__u16 credit;     /* PSNs from ack on that the receiver takes */
			__u16 body_bytes; /* that follow the header */
			__u32 body_crc;   /* CRC32C of the body, 0 when it is empty */
		};
		__u64 words[6];
	};
};

#define TSUMUGI_MIX(word)                      \
	do {                                   \
		sum ^= (word);                 \
		sum *= 0xbf58476d1ce4e5b9ULL;  \
		sum ^= sum >> 32;              \
	} while (0)

/* The header check: over the six words with `check` taken as 0. */
static inline __u32 tsumugi_header_check(const struct tsumugi_header *header)
{
	__u64 sum = 0;

	/* Unrolled: the verifier then sees six constant offsets and no loop. */
	TSUMUGI_MIX(header->words[0] & 0xffffffffULL);
	TSUMUGI_MIX(header->words[1]);
	TSUMUGI_MIX(header->words[2]);
	TSUMUGI_MIX(header->words[3]);
	TSUMUGI_MIX(header->words[4]);
	TSUMUGI_MIX(header->words[5]);
	return (__u32)sum;
}

/* ---- bodies (frame.rs, ack.rs, handshake.rs) --------------------------------------------------- */

#define TSUMUGI_FORM_WHOLE 1
#define TSUMUGI_FORM_FRAGMENT 2
#define TSUMUGI_FORM_REMOTE 3

/* In front of a whole message; the message is padded to 8 bytes, at the packet's end it need not be. */
struct tsumugi_whole {
	__u16 channel;
	__u8 form;
	__u8 reserved;
	__u32 bytes;
};

/* In front of a piece of a longer message, which goes to the end of the packet. */
struct tsumugi_fragment {
	__u16 channel;
	__u8 form;
	__u8 reserved;
	__u32 message;
	__u64 offset; /* bytes */
	__u64 total;  /* bytes */
};

/* In front of what is to be done to remote memory, or came of it; the data are padded as a whole message is. */
struct tsumugi_remote {
	__u16 opcode; /* TSUMUGI_REMOTE_* */
	__u8 form;
	__u8 reserved;
	__u32 bytes; /* of data */
	__u64 key;     /* a reply: how it went */
	__u64 address; /* a reply: place of the data in what was asked for */
	__u64 operation;
};

#define TSUMUGI_REMOTE_WRITE 1
#define TSUMUGI_REMOTE_PIECE 2

#define TSUMUGI_PIECE_ALIGN 64
#define TSUMUGI_PACKET_BODY_BYTES_MAX (TSUMUGI_DATAGRAM_BYTES_MAX - sizeof(struct tsumugi_header))

/* PIECE: in front of the data, a part of a packet's body. */
struct tsumugi_piece {
	__u16 packet_bytes; /* of the packet's body */
	__u16 at;           /* in it: a multiple of TSUMUGI_PIECE_ALIGN */
	__u32 packet_crc;   /* CRC32C of the packet's body */
};

#define TSUMUGI_WORD_PSNS 32
#define TSUMUGI_WORDS_MAX (TSUMUGI_BITMAP_PACKETS / TSUMUGI_WORD_PSNS + 1)

/* ACK, NAK, XOFF, XON. Bit i of word j stands for PSN (ack - ack % 32) + 32 j + i. */
struct tsumugi_answer {
	__u64 echo; /* PSN deposited last, in order of time */
	__u32 delay_ns;
	__u32 words;
	__u32 bitmap[];
};

#define TSUMUGI_ANSWER_BYTES_MAX (sizeof(struct tsumugi_answer) + 4 * TSUMUGI_WORDS_MAX)

#define TSUMUGI_REPEAT_SELECTIVE 0
#define TSUMUGI_REPEAT_GO_BACK_N 1

#define TSUMUGI_OFFER_LISTENS 1 /* a TCP socket on the port tells whether the process is there */
#define TSUMUGI_OFFER_TRUSTS_WIRE 2 /* takes DATA without a CRC of the body */

/* HELLO, WELCOME. */
struct tsumugi_offer {
	__u64 job;
	__u64 nonce;
	__u64 cookie;
	__u64 token;
	__u32 flow;
	__u8 repeat; /* TSUMUGI_REPEAT_* */
	__u8 flags; /* TSUMUGI_OFFER_* */
	__u16 datagram_bytes;
	__u64 message_bytes_max;
	__u64 reserved_2;
};

struct tsumugi_challenge {
	__u64 nonce;
	__u64 cookie; /* never 0 */
};

/* ---- packets to and from switch boxes (group.rs, multicast.rs) --------------------------------- */

#define TSUMUGI_GROUP_BYTES 88 /* of every body but those with a table, which have no fewer */
#define TSUMUGI_GROUP_WORDS 8 /* that are combined */
#define TSUMUGI_GROUP_SLOTS 64
#define TSUMUGI_GROUP_SLOT_BITS 6

enum tsumugi_operation {
	TSUMUGI_OPERATION_NONE = 0,
	TSUMUGI_OPERATION_SUM = 1,
	TSUMUGI_OPERATION_MIN = 2,
	TSUMUGI_OPERATION_MAX = 3,
	TSUMUGI_OPERATION_AND = 4,
	TSUMUGI_OPERATION_OR = 5,
	TSUMUGI_OPERATION_XOR = 6,
};

enum tsumugi_notice {
	TSUMUGI_JOINED = 1,
	TSUMUGI_WAITING = 2,
	TSUMUGI_LOST = 3,
	TSUMUGI_UNKNOWN = 4,
	TSUMUGI_REFUSED = 5,
	TSUMUGI_DISAGREEMENT = 6,
	TSUMUGI_NO_BOX = 7,
};

/* JOIN. The header's flow, token and epoch are those of the releases that are wanted. */
struct tsumugi_join {
	__u64 frame; /* 0: no frame, as in the two below */
	__u64 job;
	__u64 key;
	__u64 group;
	__u64 box; /* 0, or the number of the box that joins */
	__u64 first; /* generation whose release has PSN 0 */
	__u16 size; /* members in all */
	__u16 member;
	__u16 weight; /* members that the sender stands for */
	__u8 via; /* slot of a box below to which the answer goes on */
	__u8 reserved[33];
};

/* ARRIVE, RELEASE, and a release, which is DATA. */
struct tsumugi_contribution {
	__u64 frame;
	__u8 operation; /* enum tsumugi_operation */
	__u8 count; /* words that mean something; the others are 0 */
	__u8 via;
	__u8 reserved[5];
	__u64 generation; /* from 1 */
	__u64 words[TSUMUGI_GROUP_WORDS];
};

/* NOTICE. */
struct tsumugi_group_answer {
	__u64 frame;
	__u8 notice; /* enum tsumugi_notice */
	__u8 via;
	__u16 member; /* that has not arrived */
	__u16 weight;
	__u8 reserved[2];
	__u32 seat;
	__u32 reserved_2;
	__u64 seat_token;
	__u64 generation;
	__u8 reserved_3[48];
};

_Static_assert(sizeof(struct tsumugi_join) == TSUMUGI_GROUP_BYTES, "bodies of groups are of one length");
_Static_assert(sizeof(struct tsumugi_contribution) == TSUMUGI_GROUP_BYTES, "bodies of groups are of one length");
_Static_assert(sizeof(struct tsumugi_group_answer) == TSUMUGI_GROUP_BYTES, "bodies of groups are of one length");

/* MULTICAST, RELAY: what is behind the frames; the header's credit says for how many receivers. */
#define TSUMUGI_RECEIVERS_MAX 63
struct tsumugi_table {
	__u64 base; /* PSN that the entries' are counted from */
	__u32 crc;  /* CRC32C of the frames */
	__u32 reserved;
	struct tsumugi_entry {
		__u32 tag;   /* lower half of the token of the receiver's flow, 0: nothing is for it */
		__u32 after; /* its PSN is so many after the base */
	} entries[TSUMUGI_RECEIVERS_MAX]; /* member n of the group is receiver n - 1 */
};

/* Bytes of a table for so many. */
#define TSUMUGI_TABLE_BYTES(receivers) (16 + 8 * (receivers))

/* What body_crc is where the flags have TSUMUGI_FLAG_MIXED. */
static inline __u32 tsumugi_group_mix(const __u64 *body)
{
	__u64 sum = 0;

	TSUMUGI_MIX(body[0]);
	TSUMUGI_MIX(body[1]);
	TSUMUGI_MIX(body[2]);
	TSUMUGI_MIX(body[3]);
	TSUMUGI_MIX(body[4]);
	TSUMUGI_MIX(body[5]);
	TSUMUGI_MIX(body[6]);
	TSUMUGI_MIX(body[7]);
	TSUMUGI_MIX(body[8]);
	TSUMUGI_MIX(body[9]);
	TSUMUGI_MIX(body[10]);
	return (__u32)sum;
}

/* The same of a table for so many receivers, at most TSUMUGI_RECEIVERS_MAX. */
static inline __u32 tsumugi_table_check(const __u64 *table, __u32 receivers)
{
	__u64 sum = 0;

	for (__u32 i = 0; i < TSUMUGI_TABLE_BYTES(TSUMUGI_RECEIVERS_MAX) / 8; i++) {
		if (i >= TSUMUGI_TABLE_BYTES(receivers) / 8)
			break;
		TSUMUGI_MIX(table[i]);
	}
	return (__u32)sum;
}
#undef TSUMUGI_MIX

/* ---- receive memory (memory.rs; who writes what and the invariants are told there) ------------- */

#define TSUMUGI_MAGIC 0x016967756d757374ULL /* "tsumugi\1" */
#define TSUMUGI_PAGE_BYTES 4096
#define TSUMUGI_FLOWS_PER_PAGE 8
#define TSUMUGI_PAD_BYTES (64 * 1024)
#define TSUMUGI_BITMAP_WORDS (TSUMUGI_BITMAP_PACKETS / 32)
#define TSUMUGI_COUNTERS 64
#define TSUMUGI_RING_BYTES_MIN 4096
#define TSUMUGI_TRANSLATION_WAYS 4
#define TSUMUGI_FRAME_BITS 18
#define TSUMUGI_ASLEEP 1
#define TSUMUGI_RUNG 2

enum tsumugi_counter {
	TSUMUGI_COUNT_DEPOSITED = 0,
	TSUMUGI_COUNT_DUPLICATE,
	TSUMUGI_COUNT_BEYOND_BITMAP,
	TSUMUGI_COUNT_OUT_OF_ORDER,
	TSUMUGI_COUNT_QUEUE_FULL,
	TSUMUGI_COUNT_MALFORMED,
	TSUMUGI_COUNT_CORRUPT,
	TSUMUGI_COUNT_UNKNOWN_FLOW,
	TSUMUGI_COUNT_WRONG_TOKEN,
	TSUMUGI_COUNT_WRONG_EPOCH,
	TSUMUGI_COUNT_VIOLATION,
	TSUMUGI_COUNT_HANDSHAKE_REFUSED,
	TSUMUGI_COUNT_REMOTE_REFUSED,
	TSUMUGI_COUNT_DIRECT_WRITES,
	TSUMUGI_COUNT_UNTRANSLATED,
};

/* Page 0. */
struct tsumugi_control {
	__u64 magic;
	__u32 version;
	__u32 flows;
	__u64 ring_bytes; /* a power of two */
	__u32 epoch;      /* 0 while nobody owns the memory */
	__u32 checked_tick; /* the kernel's tick when the XDP program last read the clock; XDP program */
	__u64 checked_at; /* last look for the owner's socket, CLOCK_MONOTONIC_COARSE, ns; XDP program */
	__u64 seal;       /* the owner's secret, random with each epoch: see tsumugi_record */
	__u32 answers_left; /* not 0: what the XDP program sends back does not leave the NIC, the owner answers; owner */
	__u64 ring_head TSUMUGI_ALIGNED(64); /* bytes claimed since the beginning; receive paths */
	__u64 ring_tail TSUMUGI_ALIGNED(64); /* bytes released since the beginning; owner */
	__u32 sleeping TSUMUGI_ALIGNED(64);  /* TSUMUGI_ASLEEP: ring the doorbell, once; owner. TSUMUGI_RUNG: receive paths */
	__u32 xoff TSUMUGI_ALIGNED(64);      /* not 0 when some flow's `xoff` is */
	__u64 ring_read TSUMUGI_ALIGNED(64); /* bytes read since the beginning, and done or held; owner */
	__u64 counters[TSUMUGI_COUNTERS] TSUMUGI_ALIGNED(64); /* by enum tsumugi_counter */
	__u32 owed TSUMUGI_ALIGNED(64);      /* not 0 when some flow's `owed` is */
} TSUMUGI_ALIGNED(4096);

/* Pages 1 and on: one peer's flow. */
struct tsumugi_flow {
	__u64 token; /* 0 while the entry is free */
	__u32 epoch;
	__u32 repeat; /* TSUMUGI_REPEAT_* */
	__u64 limit;  /* PSNs from here on, and as many more as direct writes are done, are beyond the credit granted */
	__u64 peer_token; /* of our flow to this peer; 0 while unknown: nothing is answered. Set after peer_flow */
	__u32 peer_flow;  /* index of our flow to this peer in the peer's table */
	__u64 checked;    /* every PSN before it is compared with its CRC; owner */
	struct {
		__u64 base; /* every PSN before it is deposited */
		__u64 echo; /* PSN deposited last, in order of time */
		__u32 xoff;    /* a packet was refused for want of room; until XON */
		__u32 owed;    /* enum tsumugi_kind of the answer due for a packet in several buffers; 0: none */
		__u64 newest; /* block of 32 PSNs: no later one has a bit in the bitmap */
		__u32 ask_by_probe; /* not 0 once an answer was owed */
	} received TSUMUGI_ALIGNED(64);
	struct {
		__u64 ack;   /* our flow to this peer: every PSN before it is acknowledged */
		__u64 limit; /* our flow to this peer: the end of our credit */
	} acknowledged TSUMUGI_ALIGNED(64);
	/* The receive bitmap. Upper half: number of the block of 32 PSNs; lower half: its bits. */
	__u64 bitmap[TSUMUGI_BITMAP_WORDS] TSUMUGI_ALIGNED(64);
	struct {
		__u64 started; /* direct writes begun: in progress or done, and what the owner is placing itself */
		__u64 done;    /* direct writes that are done: they leave no record */
		__u64 held;    /* packets read and held because one before them is missing; owner */
	} direct_writes TSUMUGI_ALIGNED(64);
} TSUMUGI_ALIGNED(512);

/* Behind the ring's pad, in buckets of TSUMUGI_TRANSLATION_WAYS: where a page lies in the window. */
struct tsumugi_translation {
	__u64 key;   /* 0: none */
	__u64 place; /* tsumugi_translation_place() */
	__u64 used;  /* one more than there were direct writes when it was used last; 0: not since the owner looked */
} TSUMUGI_ALIGNED(32);

/* The page that addresses name, and the window's page. */
static inline __u64 tsumugi_translation_place(__u64 page, __u32 frame)
{
	return page << TSUMUGI_FRAME_BITS | frame;
}

/* In front of what is deposited in the ring. */
struct tsumugi_record {
	__u64 seal;  /* the control page's, plus the record's position: it is published; so it is written last */
	__u64 sizes; /* tsumugi_record_sizes() */
	__u64 psn;
	__u64 ack; /* what the packet acknowledges of the flow in the other direction, if TSUMUGI_RECORD_HAS_ACK */
	__u64 crc; /* tsumugi_record_crc() */
};

#define TSUMUGI_RECORD_PADDING 0xffffffffU
#define TSUMUGI_RECORD_CHECKED (1ULL << 63)
#define TSUMUGI_RECORD_HAS_ACK (1ULL << 62)

/* Bytes of body, the credit that comes with the acknowledgement, and the flow or TSUMUGI_RECORD_PADDING. */
static inline __u64 tsumugi_record_sizes(__u32 flow, __u16 credit, __u16 bytes)
{
	return (__u64)flow << 32 | (__u64)credit << 16 | bytes;
}

/*
 * The CRC32C that the packet announced, the lower 30 bits of the flow's token, which tell a record of an entry's former
 * flow from one of its present flow, and TSUMUGI_RECORD_CHECKED and TSUMUGI_RECORD_HAS_ACK.
 */
static inline __u64 tsumugi_record_crc(__u32 body_crc, __u64 token, __u64 marks)
{
	return marks | (token & 0x3fffffffULL) << 32 | body_crc;
}

/* Bytes of ring that a record with a body of `bytes` takes up. */
static inline __u64 tsumugi_record_span(__u32 bytes)
{
	return (sizeof(struct tsumugi_record) + (__u64)bytes + TSUMUGI_RECORD_ALIGN - 1) &
	       ~(__u64)(TSUMUGI_RECORD_ALIGN - 1);
}

/* Bytes of the entry of flow `index` from the start of receive memory. */
static inline __u64 tsumugi_flow_offset(__u32 index)
{
	return TSUMUGI_PAGE_BYTES + (__u64)index * sizeof(struct tsumugi_flow);
}

/* Bytes before the ring. */
static inline __u64 tsumugi_ring_offset(__u32 flows)
{
	return TSUMUGI_PAGE_BYTES +
	       ((__u64)flows + TSUMUGI_FLOWS_PER_PAGE - 1) / TSUMUGI_FLOWS_PER_PAGE * TSUMUGI_PAGE_BYTES;
}

/* Bytes before the translations; of the whole mapping if there is no window. */
static inline __u64 tsumugi_translations_offset(__u32 flows, __u64 ring_bytes)
{
	return tsumugi_ring_offset(flows) + ring_bytes + TSUMUGI_PAD_BYTES;
}

/* Bytes before the window, in memory with so many buckets of translations. */
static inline __u64 tsumugi_window_offset(__u32 flows, __u64 ring_bytes, __u32 buckets)
{
	__u64 bytes = (__u64)buckets * TSUMUGI_TRANSLATION_WAYS * sizeof(struct tsumugi_translation);

	return tsumugi_translations_offset(flows, ring_bytes) +
	       ((bytes + TSUMUGI_PAGE_BYTES - 1) & ~(__u64)(TSUMUGI_PAGE_BYTES - 1));
}

/* Bytes of the whole mapping. */
static inline __u64 tsumugi_memory_bytes(__u32 flows, __u64 ring_bytes, __u32 buckets, __u32 window_pages)
{
	if (window_pages == 0)
		return tsumugi_translations_offset(flows, ring_bytes);
	return tsumugi_window_offset(flows, ring_bytes, buckets) + (__u64)window_pages * TSUMUGI_PAGE_BYTES +
	       TSUMUGI_PAD_BYTES;
}

#endif
