/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a box knows of groups, and what it is doing about a packet: the types and maps of group.h.
 */
#ifndef TSUMUGI_SWITCH_GROUP_STATE_H
#define TSUMUGI_SWITCH_GROUP_STATE_H

/* Groups of a box; GROUPS_MAX, WAYS of boxes.rs. */
#define GROUPS_MAX 256
#define WAYS 4
#define IS_BOX (1ull << 63)

/* What a packet came to; Event in tsumugi_wire::group has the same numbers. */
enum event {
	EVENT_JOIN,
	EVENT_ARRIVE,
	EVENT_AGAIN,
	EVENT_RELEASE,
	EVENT_UP,
	EVENT_DOWN,
	EVENT_LEAVE,
	EVENT_LOST,
	EVENT_UNKNOWN_SEAT,
	EVENT_WRONG_KEY,
	EVENT_REFUSED,
	EVENT_WRONG_GENERATION,
	EVENT_DISAGREEMENT,
	EVENT_MALFORMED,
	EVENT_NOT_MINE,
	EVENT_MULTICAST,
	EVENTS,
};

/* What is to be done; Step in boxes.rs. */
enum step {
	STEP_NOTHING,
	STEP_PASS,
	STEP_ANSWER_SENDER,
	STEP_ANSWER,
	STEP_JOINED_ALL,
	STEP_RELEASE_ALL,
	STEP_RELEASE_TO,
	STEP_UP, /* JOIN, ARRIVE and LEAVE alike: `kind` tells */
	STEP_SPREAD,
};

/* How to send to somebody: what a frame to him has where. The lengths and the rest are those of the frame that he sent. */
struct address {
	__u32 port; /* number of the one that he is at */
	__u32 six;  /* IPv6 */
	__u8 ethernet[12];
	__u16 udp[2];
	__u64 ip[4]; /* source and destination; IPv4: in the first word */
};

struct slot {
	__u64 member;
	__u64 token;
	__u64 arrived;
	__u64 first;
	__u64 peer_token;
	__u32 peer_flow;
	__u32 epoch;
	__u16 rank;
	__u16 weight;
	__u32 has_left;
	struct address address;
};

struct group {
	struct bpf_spin_lock lock;
	__u32 seen_s;
	__u64 job;
	__u64 key;
	__u64 number;
	__u16 size; /* 0: the place is free */
	__u16 weight;
	__u16 arrived;
	__u16 slots_used;
	__u8 is_six; /* all members come over IPv6, or all over IPv4: frames are turned into each other */
	__u8 is_root;
	__u8 is_formed;
	__u8 is_up;
	__u8 has_result;
	__u8 operation;
	__u8 count;
	__u8 result_operation;
	__u8 result_count;
	__u8 reserved[7];
	__u64 generation;
	__u64 words[TSUMUGI_GROUP_WORDS];
	__u64 result[TSUMUGI_GROUP_WORDS];
	__u64 up_token;
	__u64 up_seat_token;
	__u32 up_seat;
	__u32 reserved_2;
	struct slot slots[TSUMUGI_GROUP_SLOTS];
};

/* Zeros at first: free places. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GROUPS_MAX);
	__type(key, __u32);
	__type(value, struct group);
} groups SEC(".maps");

struct events {
	__u64 of[EVENTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct events);
} group_events SEC(".maps");

/* Set before the program is loaded: this box's number among boxes, the same after a restart, and how long a group may be silent
 * before another may have its place. */
const volatile __u64 box_number = 1;
const volatile __u32 lease_s = 60;

#define BODY_WORDS (TSUMUGI_GROUP_BYTES / 8)

/* A packet of a group, as it is in a frame. */
struct packet {
	struct tsumugi_header header;
	union {
		__u64 words[BODY_WORDS];
		struct tsumugi_join join;
		struct tsumugi_contribution contribution;
		struct tsumugi_group_answer answer;
	};
};

/* Longest headers in front of a packet: Ethernet, IPv6, UDP. */
#define HEADERS_MAX (ETH_HLEN + 40 + 8)

/* What is being done on this CPU: too much for the stack. */
struct work {
	/* The packet, and how to answer whoever sent it. */
	struct packet in;
	struct address sender;
	struct address onward; /* as it came */
	__u32 now_s;
	__u32 event; /* enum event */
	__u64 random[2];
	/* What is to be done: with the group at `place`, and a slot of it. */
	__u32 step; /* enum step */
	__u32 place;
	__u32 slot;
	__u32 slots;
	__u32 kind; /* of what is sent: enum tsumugi_kind */
	__u32 bytes; /* of the headers in front of the packet */
	__u64 up_token;
	__u64 up_seat_token;
	__u32 up_seat;
	__u32 is_partial; /* the sum of UDP is to be finished by whoever sends the frame */
	__u32 udp_came; /* bytes of the datagram that came */
	__u32 udp_bytes; /* and of the one that is sent */
	struct address to;
	struct packet out;
	__u8 headers[64];
	/* Of a packet for several receivers: what is behind its frames, and, where there is one, the frames' part in the sum of UDP. */
	union {
		struct tsumugi_table table;
		__u64 table_words[TSUMUGI_TABLE_BYTES(TSUMUGI_RECEIVERS_MAX) / 8];
	};
	__u64 frame_sum;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} works SEC(".maps");

#endif
