/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Forwarding: which port a frame goes to, and what of it is the bridge's.
 */
#ifndef TSUMUGI_SWITCH_FORWARD_H
#define TSUMUGI_SWITCH_FORWARD_H

#define NS_IN_S 1000000000ull
#define TAG_BYTES 4
#define NETWORK_SHIFT 60
#define VLAN_SHIFT 48
#define ADDRESS_MASK 0xffffffffffffull

/* Most addresses that are known; beyond that the one that was used longest ago is forgotten. */
#define PLACES_MAX 16384
/* Most ports of a box; tsumugi_rail::switch::PORTS_MAX. */
#define PORTS_MAX 64
/* A source is shown to the bridge again after this time if it has been silent for IDLE_S, and after SHOW_MAX_S whatever it does. */
#define SHOW_S 30
#define IDLE_S 2
#define SHOW_MAX_S 120
/* So long a source goes by the bridge after a frame in several buffers. */
#define LONG_S 2

/* What happened to a frame; Outcome in tsumugi_rail::switch has the same order. */
enum outcome {
	FORWARDED, /* to the port that its destination is known at */
	FLOODED,   /* given to the bridge: for a group, or its destination is not known */
	SHOWN,     /* given to the bridge, which is to know where its source is */
	BRIDGED,   /* given to the bridge: the program cannot send it on (is_bridges()), or the port has just gone */
	LOCAL,     /* given to the bridge: it is for this host */
	FILTERED,  /* dropped: its destination is where it comes from */
	STORM,     /* dropped: too many that were to be flooded came from its port in this second */
	MALFORMED, /* dropped: its source is a group, nobody, or this host, or its tag is cut off */
	COUNTED,   /* taken: it was for the box, which counts for groups (group.h) */
	OUTCOMES,
	NO_PORT = OUTCOMES, /* not from a port: left alone, and not counted */
};

/* Set before the program is loaded. */
const volatile __u32 ageing_s = 300;
const volatile __u32 floods_per_s = 10000;
const volatile __u32 is_native = 1;
/* Whether time and chance are given: only in tests. */
const volatile __u32 is_given = 0;
struct given {
	__u64 random[2];
	__u32 time_s;
	__u32 reserved;
} given = {};

/* Where an address was last seen. Several CPUs may write it at once: each field is right by itself, and what an older frame
 * says of the port is corrected by the next. */
struct place {
	__u32 port;
	__u32 seen_s;
	__u32 shown_s; /* when it was last shown to the bridge */
	__u32 long_s;  /* when it last sent a frame in several buffers, or LONG_S before it was new */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PLACES_MAX);
	__type(key, __u64); /* network, VLAN and address */
	__type(value, struct place);
} places SEC(".maps");

/* This host's own addresses. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * PORTS_MAX);
	__type(key, __u64);
	__type(value, __u32);
} own SEC(".maps");

struct port {
	__u32 nic; /* index of the one that sends, 0: none does */
	__u32 number;
	__u32 network; /* which bridge it is a port of, below 16 */
	__u32 frame_bytes_max; /* that it sends, Ethernet header and VLAN tag included */
	/* Whether its NIC hands over, and takes, frames that the kernel has not finished: checksums, tags, and long ones that
	 * are still to be cut up. Real NICs do neither for a program. */
	__u32 is_virtual;
};

/* Ports by the index of their NIC. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PORTS_MAX);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

/* The same by their number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS_MAX);
	__type(key, __u32);
	__type(value, struct port);
} by_number SEC(".maps");

/* NICs by the number of their port. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, PORTS_MAX);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
} nics SEC(".maps");

/* What was to be flooded from a port: the second, and above it how many in that second. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} floods SEC(".maps");

struct counts {
	__u64 of[OUTCOMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PORTS_MAX);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

static __always_inline void count(__u32 port, enum outcome outcome)
{
	struct counts *its = bpf_map_lookup_elem(&counts, &port);

	if (likely(its && outcome < OUTCOMES))
		its->of[outcome]++;
}

static __always_inline __u64 key_of(const __u8 *address, __u32 network, __u32 vlan)
{
	return (__u64)network << NETWORK_SHIFT | (__u64)vlan << VLAN_SHIFT | (__u64)address[0] << 40 |
	       (__u64)address[1] << 32 | (__u64)address[2] << 24 | (__u64)address[3] << 16 | (__u64)address[4] << 8 |
	       address[5];
}

static __always_inline int is_own(__u64 key)
{
	key &= ADDRESS_MASK;
	return bpf_map_lookup_elem(&own, &key) != NULL;
}

static __always_inline int is_group(const __u8 *address)
{
	return address[0] & 1;
}

static __always_inline __u32 time_s(void)
{
	return is_given ? *(volatile __u32 *)&given.time_s : bpf_ktime_get_coarse_ns() / NS_IN_S;
}

/* Whether another frame of a port may be flooded in this second. */
static __always_inline int may_flood(__u32 port, __u32 now_s)
{
	__u64 *word = bpf_map_lookup_elem(&floods, &port), before;

	if (unlikely(!word))
		return 0;
	before = *(volatile __u64 *)word;
	if ((__u32)before != now_s)
		/* Who loses the race counts in the other's second. */
		__sync_val_compare_and_swap(word, before, (__u64)now_s);
	return __sync_fetch_and_add(word, 1ull << 32) >> 32 < floods_per_s;
}

/* A frame that has come in, and what is found out about it. */
struct frame {
	__u32 nic; /* index of the one that it came in by */
	const __u8 *data, *end;
	__u32 vlan; /* that is not in its bytes */
	int is_long; /* in several buffers, and so not to be sent on; natively others of its source neither */
	const struct port *from, *to; /* to: if it is to be forwarded */
};

/* Notes where the source of a frame is, and says what is to become of the frame. */
static __always_inline enum outcome decide(struct frame *frame)
{
	const struct ethhdr *header = (const void *)frame->data;
	__u32 now_s, from, vlan = frame->vlan;
	struct place *source, *destination;
	__u64 source_key, destination_key;
	int is_news;

	frame->from = bpf_map_lookup_elem(&ports, &frame->nic);
	if (unlikely(!frame->from || frame->data + ETH_HLEN > frame->end))
		return NO_PORT;
	from = frame->from->number;
	now_s = time_s();
	if (!vlan && (header->h_proto == bpf_htons(ETH_P_8021Q) || header->h_proto == bpf_htons(ETH_P_8021AD))) {
		if (frame->data + ETH_HLEN + TAG_BYTES > frame->end)
			return MALFORMED;
		vlan = (frame->data[ETH_HLEN] << 8 | frame->data[ETH_HLEN + 1]) & 0xfff;
	}
	source_key = key_of(header->h_source, frame->from->network, vlan);
	destination_key = key_of(header->h_dest, frame->from->network, vlan);

	source = bpf_map_lookup_elem(&places, &source_key);
	is_news = !source || source->port != from || now_s - source->seen_s >= ageing_s;
	if (unlikely(is_news)) {
		struct place new = { .port = from, .seen_s = now_s, .shown_s = now_s, .long_s = now_s - LONG_S };

		if (is_group(header->h_source) || (source_key & ADDRESS_MASK) == 0 || is_own(source_key))
			return MALFORMED;
		if (frame->is_long)
			new.long_s = now_s;
		bpf_map_update_elem(&places, &source_key, &new, BPF_ANY);
	} else {
		__u32 unseen_s = now_s - source->seen_s, unshown_s = now_s - source->shown_s;

		is_news = unshown_s >= SHOW_MAX_S || (unshown_s >= SHOW_S && unseen_s >= IDLE_S);
		if (is_news)
			source->shown_s = now_s;
		if (unseen_s)
			source->seen_s = now_s;
		if (unlikely(frame->is_long) && source->long_s != now_s)
			source->long_s = now_s;
		if (is_native && now_s - source->long_s < LONG_S)
			frame->is_long = 1;
	}

	destination = is_group(header->h_dest) ? NULL : bpf_map_lookup_elem(&places, &destination_key);
	if (unlikely(!destination || now_s - destination->seen_s >= ageing_s)) {
		if (is_own(destination_key))
			return LOCAL;
		return may_flood(from, now_s) ? FLOODED : STORM;
	}
	if (unlikely(is_news))
		return SHOWN;
	if (unlikely(destination->port == from))
		return FILTERED;
	frame->to = bpf_map_lookup_elem(&by_number, &destination->port);
	return frame->to && frame->to->nic ? FORWARDED : BRIDGED;
}

/* Whether XDP must leave a frame of so many bytes to the bridge. */
static __always_inline int is_bridges(const struct frame *frame, __u64 bytes)
{
	/* The kernel drops what is too long, as the bridge does; but it may be one that is still to be cut up. */
	if (frame->is_long || bytes > frame->to->frame_bytes_max)
		return 1;
	/* Perhaps not finished. */
	return frame->from->is_virtual && !frame->to->is_virtual;
}

#endif
