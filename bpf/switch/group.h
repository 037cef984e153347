/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Groups: crates/tsumugi-proto/src/group/boxes.rs in C, function by function; what holds is told there. tests/groups.rs of
 * tsumugi-rail holds the two together.
 *
 * Everything that is known of a group is read and written under its lock. While a program holds one it must not call any function,
 * so all of this is inlined into count_in(), and what is to be sent is put together after it.
 */
#ifndef TSUMUGI_SWITCH_GROUP_H
#define TSUMUGI_SWITCH_GROUP_H

/* Groups of a box; GROUPS_MAX, WAYS of boxes.rs. */
#define GROUPS_MAX 256
#define WAYS 4
#define IS_BOX (1ull << 63)

/* What a packet came to; Event in boxes.rs has the same order. */
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
	struct address to;
	struct packet out;
	__u8 headers[64];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} works SEC(".maps");

/* group::boxes::start_of. */
static __always_inline __u32 start_of(__u64 job, __u64 number)
{
	__u64 mixed = (job ^ (number << 32 | number >> 32)) * 0xbf58476d1ce4e5b9ull;

	return (mixed >> 56) % GROUPS_MAX;
}

static __always_inline struct group *group_at(__u32 place)
{
	return bpf_map_lookup_elem(&groups, &place);
}

static __always_inline struct slot *slot_at(struct group *group, __u32 slot)
{
	return &group->slots[slot & (TSUMUGI_GROUP_SLOTS - 1)];
}

static __always_inline int is_group_of(const struct group *group, const struct tsumugi_join *join)
{
	return group->size != 0 && group->job == join->job && group->number == join->group;
}

static __always_inline int is_free(const struct group *group, __u32 now_s)
{
	return group->size == 0 || now_s - group->seen_s >= lease_s;
}

/* What came of the packet, and what is to be done. */
static __always_inline void conclude(struct work *work, enum event event, enum step step, __u32 slot)
{
	work->event = event;
	work->step = step;
	work->slot = slot;
}

static __always_inline void clear(struct packet *out)
{
	__builtin_memset(out->words, 0, sizeof(out->words));
}

/* A verdict about a slot, which may be none (`weight` 0). */
static __always_inline void say(struct work *work, enum tsumugi_verdict verdict, __u8 via, __u16 member, __u16 weight,
				__u64 generation)
{
	clear(&work->out);
	work->kind = TSUMUGI_VERDICT;
	work->out.answer.verdict = verdict;
	work->out.answer.via = via;
	work->out.answer.member = member;
	work->out.answer.weight = weight;
	work->out.answer.generation = generation;
}

/* Group::joined. */
static __always_inline void say_joined(struct packet *out, const struct slot *slot, __u32 seat, __u8 via,
				       __u64 generation)
{
	out->answer.verdict = TSUMUGI_JOINED;
	out->answer.via = via;
	out->answer.weight = slot->weight;
	out->answer.seat = seat;
	out->answer.seat_token = slot->token;
	out->answer.generation = generation;
}

static __always_inline void contribute(struct work *work, __u8 via, __u8 operation, __u8 count, __u64 generation,
				       const __u64 *words)
{
	clear(&work->out);
	work->out.contribution.operation = operation;
	work->out.contribution.count = count;
	work->out.contribution.via = via;
	work->out.contribution.generation = generation;
	for (int i = 0; i < TSUMUGI_GROUP_WORDS; i++)
		work->out.contribution.words[i] = words[i];
}

/* Group::released. */
static __always_inline void tell_released(struct group *group, struct work *work)
{
	work->kind = TSUMUGI_DATA;
	contribute(work, 0, group->result_operation, group->result_count, group->generation - 1, group->result);
}

/* What a packet to the box above needs. */
static __always_inline void go_up(struct group *group, struct work *work, enum tsumugi_kind kind)
{
	work->kind = kind;
	work->up_token = group->up_token;
	work->up_seat = group->up_seat;
	work->up_seat_token = group->up_seat_token;
}

/* Group::gathered. */
static __always_inline void tell_gathered(struct group *group, struct work *work, __u32 via)
{
	go_up(group, work, TSUMUGI_ARRIVE);
	contribute(work, via, group->operation, group->count, group->generation, group->words);
}

/* Group::begin. */
static __always_inline void begin(struct group *group, __u64 generation)
{
	if (generation > group->generation) {
		group->generation = generation;
		group->has_result = 0;
		group->is_up = 0;
		group->arrived = 0;
	}
}

/* Group::complete. */
static __always_inline void complete(struct group *group, struct work *work)
{
	for (int i = 0; i < TSUMUGI_GROUP_WORDS; i++)
		group->result[i] = group->words[i];
	group->result_operation = group->operation;
	group->result_count = group->count;
	group->has_result = 1;
	group->is_up = 0;
	group->arrived = 0;
	group->generation++;
	tell_released(group, work);
}

/* Operation::combine, for all words. */
static __always_inline void combine(__u64 *sum, const __u64 *words, __u8 operation)
{
#define EACH(result)                                            \
	for (int i = 0; i < TSUMUGI_GROUP_WORDS; i++) {         \
		__u64 one = sum[i], other = words[i];           \
		sum[i] = (result);                              \
	}                                                       \
	break
	switch (operation) {
	case TSUMUGI_OPERATION_SUM:
		EACH(one + other);
	case TSUMUGI_OPERATION_MIN:
		EACH(other < one ? other : one);
	case TSUMUGI_OPERATION_MAX:
		EACH(other > one ? other : one);
	case TSUMUGI_OPERATION_AND:
		EACH(one & other);
	case TSUMUGI_OPERATION_OR:
		EACH(one | other);
	case TSUMUGI_OPERATION_XOR:
		EACH(one ^ other);
	default:
		for (int i = 0; i < TSUMUGI_GROUP_WORDS; i++)
			sum[i] = 0;
	}
#undef EACH
}

/* Group::join. The lock is held. */
static __always_inline void join(struct group *group, struct work *work)
{
	const struct tsumugi_join *join = &work->in.join;
	__u64 member = join->box ? join->box | IS_BOX : join->member, generation;
	__u32 known = TSUMUGI_GROUP_SLOTS, total;
	__u16 before = 0, weight = join->weight;
	struct slot *slot;

	conclude(work, EVENT_WRONG_KEY, STEP_NOTHING, 0);
	if (group->key != join->key)
		return;
	for (__u32 i = 0; i < TSUMUGI_GROUP_SLOTS; i++) {
		if (i >= group->slots_used)
			break;
		if (group->slots[i].member == member) {
			known = i;
			break;
		}
	}
	if (known < TSUMUGI_GROUP_SLOTS) {
		slot = slot_at(group, known);
		if (!join->box && join->first < slot->first) {
			work->event = EVENT_AGAIN;
			return;
		}
		before = slot->weight;
	} else {
		known = group->slots_used;
	}
	if (before > weight)
		weight = before;
	total = group->weight - before + weight;
	if (group->size != join->size || group->is_six != work->sender.six || total > group->size ||
	    known >= TSUMUGI_GROUP_SLOTS) {
		conclude(work, EVENT_REFUSED, STEP_ANSWER_SENDER, 0);
		say(work, TSUMUGI_REFUSED, join->via, 0, 0, 0);
		return;
	}
	slot = slot_at(group, known);
	if (known == group->slots_used) {
		slot->member = member;
		slot->token = work->random[0];
		slot->arrived = 0;
		slot->rank = join->member;
		group->slots_used++;
	}
	group->weight = total;
	slot->weight = weight;
	slot->first = join->first;
	slot->has_left = 0;
	if (join->member < slot->rank)
		slot->rank = join->member;
	slot->peer_token = work->in.header.token;
	slot->peer_flow = work->in.header.flow;
	slot->epoch = work->in.header.epoch;
	slot->address = work->sender;
	begin(group, join->first);
	if (member == 0)
		group->is_root = 1;
	group->seen_s = work->now_s;
	generation = group->generation;
	if (!group->is_formed && group->is_root) {
		if (group->weight != group->size) {
			conclude(work, EVENT_JOIN, STEP_ANSWER, known);
			say(work, TSUMUGI_WAITING, join->via, 0, weight, 0);
			return;
		}
		group->is_formed = 1;
		conclude(work, EVENT_JOIN, STEP_JOINED_ALL, 0);
		work->kind = TSUMUGI_VERDICT;
		return;
	}
	if (group->is_formed) {
		conclude(work, EVENT_JOIN, STEP_ANSWER, known);
		work->kind = TSUMUGI_VERDICT;
		clear(&work->out);
		say_joined(&work->out, slot, work->place << TSUMUGI_GROUP_SLOT_BITS | known, join->via, generation);
		return;
	}
	conclude(work, EVENT_JOIN, STEP_UP, known);
	go_up(group, work, TSUMUGI_JOIN);
	clear(&work->out);
	work->out.join.job = join->job;
	work->out.join.key = join->key;
	work->out.join.group = join->group;
	work->out.join.box = box_number;
	work->out.join.first = generation;
	work->out.join.size = join->size;
	work->out.join.member = join->member;
	work->out.join.weight = group->weight;
	work->out.join.via = known;
}

/* Group::arrive. The lock is held. */
static __always_inline void arrive(struct group *group, struct work *work, __u32 number)
{
	const struct tsumugi_contribution *in = &work->in.contribution;
	struct slot *slot = slot_at(group, number);
	__u64 generation = in->generation;
	__u16 weight = slot->weight, late = 0;

	if (generation + 1 == group->generation) {
		if (group->has_result) {
			conclude(work, EVENT_AGAIN, STEP_RELEASE_TO, number);
			tell_released(group, work);
			return;
		}
		conclude(work, EVENT_LOST, STEP_ANSWER, number);
		say(work, TSUMUGI_LOST, in->via, 0, weight, generation);
		return;
	}
	if (generation < group->generation) {
		conclude(work, EVENT_WRONG_GENERATION, STEP_NOTHING, 0);
		return;
	}
	begin(group, generation);
	if (slot->arrived == generation) {
		if (group->is_up) {
			conclude(work, EVENT_AGAIN, STEP_UP, number);
			tell_gathered(group, work, number);
			return;
		}
		for (__u32 i = 0; i < TSUMUGI_GROUP_SLOTS; i++) {
			if (i >= group->slots_used)
				break;
			if (group->slots[i].arrived != generation) {
				late = group->slots[i].rank;
				break;
			}
		}
		conclude(work, EVENT_AGAIN, STEP_ANSWER, number);
		say(work, TSUMUGI_WAITING, in->via, late, weight, generation);
		return;
	}
	if (group->arrived == 0) {
		group->operation = in->operation;
		group->count = in->count;
		for (int i = 0; i < TSUMUGI_GROUP_WORDS; i++)
			group->words[i] = in->words[i];
	} else if (group->operation != in->operation || group->count != in->count) {
		conclude(work, EVENT_DISAGREEMENT, STEP_ANSWER, number);
		say(work, TSUMUGI_DISAGREEMENT, in->via, 0, weight, generation);
		return;
	} else {
		combine(group->words, in->words, in->operation);
	}
	slot->arrived = generation;
	group->arrived += weight;
	if (group->arrived < group->weight) {
		conclude(work, EVENT_ARRIVE, STEP_NOTHING, 0);
	} else if (group->is_root) {
		conclude(work, EVENT_RELEASE, STEP_RELEASE_ALL, 0);
		complete(group, work);
	} else {
		group->is_up = 1;
		conclude(work, EVENT_UP, STEP_UP, number);
		tell_gathered(group, work, number);
	}
}

/* Group::leave. The lock is held. */
static __always_inline void leave(struct group *group, struct work *work, __u32 number)
{
	__u32 left = 1;

	slot_at(group, number)->has_left = 1;
	conclude(work, EVENT_LEAVE, STEP_NOTHING, 0);
	for (__u32 i = 0; i < TSUMUGI_GROUP_SLOTS; i++) {
		if (i >= group->slots_used)
			break;
		left &= group->slots[i].has_left;
	}
	if (!left)
		return;
	group->size = 0;
	if (!group->is_root) {
		conclude(work, EVENT_LEAVE, STEP_UP, 0);
		go_up(group, work, TSUMUGI_LEAVE);
		clear(&work->out);
	}
}

/* Group::on_verdict. The lock is held. */
static __always_inline void on_verdict(struct group *group, struct work *work)
{
	const struct tsumugi_group_answer *answer = &work->in.answer;
	__u32 due = group->is_up && answer->generation == group->generation, via = answer->via;
	struct slot *slot = slot_at(group, via);

	conclude(work, EVENT_NOT_MINE, STEP_NOTHING, 0);
	switch (answer->verdict) {
	case TSUMUGI_JOINED:
		group->up_seat = answer->seat;
		group->up_seat_token = answer->seat_token;
		if (answer->weight != group->weight) {
			work->event = EVENT_DOWN;
			return;
		}
		if (!group->is_formed) {
			group->is_formed = 1;
			conclude(work, EVENT_DOWN, STEP_JOINED_ALL, 0);
			work->kind = TSUMUGI_VERDICT;
			return;
		}
		break;
	case TSUMUGI_UNKNOWN:
		group->is_formed = 0;
		break;
	case TSUMUGI_LOST:
		if (!due)
			return;
		group->is_up = 0;
		group->has_result = 0;
		group->arrived = 0;
		group->generation++;
		break;
	case TSUMUGI_WAITING:
		if (!due && group->is_formed)
			return;
		break;
	case TSUMUGI_REFUSED:
		if (group->is_formed)
			return;
		break;
	case TSUMUGI_DISAGREEMENT:
		if (!due)
			return;
		break;
	default:
		return;
	}
	if (via >= group->slots_used)
		return;
	conclude(work, EVENT_DOWN, STEP_ANSWER, via);
	if (answer->verdict == TSUMUGI_JOINED) {
		work->kind = TSUMUGI_VERDICT;
		clear(&work->out);
		say_joined(&work->out, slot, work->place << TSUMUGI_GROUP_SLOT_BITS | via, 0, group->generation);
	} else {
		say(work, answer->verdict, 0, answer->member, slot->weight, answer->generation);
	}
}

/* Group::on_release. The lock is held. */
static __always_inline void on_release(struct group *group, struct work *work)
{
	const struct tsumugi_contribution *in = &work->in.contribution;

	conclude(work, EVENT_NOT_MINE, STEP_NOTHING, 0);
	if (!group->is_up || in->generation != group->generation)
		return;
	group->operation = in->operation;
	group->count = in->count;
	for (int i = 0; i < TSUMUGI_GROUP_WORDS; i++)
		group->words[i] = in->words[i];
	conclude(work, EVENT_DOWN, STEP_RELEASE_ALL, 0);
	complete(group, work);
}

/* Join::decode. */
static __always_inline int is_join(const struct tsumugi_join *join)
{
	return join->member < join->size && join->weight >= 1 && join->weight <= join->size &&
	       (join->box != 0 || join->weight == 1);
}

/* Contribution::decode. */
static __always_inline int is_contribution(const struct tsumugi_contribution *contribution)
{
	return contribution->operation <= TSUMUGI_OPERATION_XOR && contribution->count <= TSUMUGI_GROUP_WORDS &&
	       contribution->generation != 0;
}

/* Groups::on_join. */
static __always_inline void on_join(struct work *work)
{
	const struct tsumugi_join *in = &work->in.join;
	__u32 start = start_of(in->job, in->group), place = GROUPS_MAX;
	struct group *group;

	if (!is_join(in))
		return;
	for (__u32 way = 0; way < 3 * WAYS; way++) {
		__u32 at = start + way % WAYS;

		/* Where it is, else where it may be, else where one is that not all have joined: any of them. */
		if (way >= 2 * WAYS)
			at = start + (way + work->random[0]) % WAYS;
		at %= GROUPS_MAX;
		group = group_at(at);
		if (!group)
			return;
		if (way < WAYS ? is_group_of(group, in) : way < 2 * WAYS ? is_free(group, work->now_s) : !group->is_formed) {
			place = at;
			break;
		}
	}
	if (place == GROUPS_MAX)
		goto refused;
	group = group_at(place);
	if (!group)
		return;
	work->place = place;
	bpf_spin_lock(&group->lock);
	if (!is_group_of(group, in)) {
		if (!is_free(group, work->now_s) && group->is_formed) {
			/* Another CPU has given the place away at this moment. */
			bpf_spin_unlock(&group->lock);
			goto refused;
		}
		group->job = in->job;
		group->key = in->key;
		group->number = in->group;
		group->size = in->size;
		group->weight = 0;
		group->arrived = 0;
		group->slots_used = 0;
		group->is_six = work->sender.six;
		group->is_root = 0;
		group->is_formed = 0;
		group->is_up = 0;
		group->has_result = 0;
		group->operation = 0;
		group->count = 0;
		group->result_operation = 0;
		group->result_count = 0;
		group->generation = 0;
		for (int i = 0; i < TSUMUGI_GROUP_WORDS; i++)
			group->words[i] = group->result[i] = 0;
		group->up_token = work->random[1];
		group->up_seat_token = 0;
		group->up_seat = 0;
	}
	join(group, work);
	work->slots = group->slots_used;
	bpf_spin_unlock(&group->lock);
	return;
refused:
	conclude(work, EVENT_REFUSED, STEP_ANSWER_SENDER, 0);
	say(work, TSUMUGI_REFUSED, in->via, 0, 0, 0);
}

/* Groups::on_seat. */
static __always_inline void on_seat(struct work *work)
{
	const struct tsumugi_header *header = &work->in.header;
	__u32 place = header->flow >> TSUMUGI_GROUP_SLOT_BITS, number = header->flow & (TSUMUGI_GROUP_SLOTS - 1);
	int arrives = header->kind == TSUMUGI_ARRIVE, has_seat = 0;
	struct group *group;
	struct slot *slot;

	if (arrives && !is_contribution(&work->in.contribution))
		return;
	group = group_at(place);
	if (group) {
		work->place = place;
		bpf_spin_lock(&group->lock);
		slot = slot_at(group, number);
		has_seat = group->size != 0 && group->is_formed && group->is_six == work->sender.six &&
			   number < group->slots_used && slot->token == header->token;
		if (has_seat) {
			group->seen_s = work->now_s;
			slot->peer_flow = header->psn;
			slot->peer_token = header->ack;
			if (arrives)
				arrive(group, work, number);
			else
				leave(group, work, number);
		}
		work->slots = group->slots_used;
		bpf_spin_unlock(&group->lock);
	}
	if (!has_seat) {
		int is_told = arrives || is_contribution(&work->in.contribution);

		conclude(work, EVENT_UNKNOWN_SEAT, STEP_ANSWER_SENDER, 0);
		say(work, TSUMUGI_UNKNOWN, is_told ? work->in.contribution.via : 0, 0, 0,
		    is_told ? work->in.contribution.generation : 0);
	}
}

/* Groups::on_from_above. */
static __always_inline void on_from_above(struct work *work)
{
	const struct tsumugi_header *header = &work->in.header;
	struct group *group = group_at(header->flow);
	int is_mine;

	conclude(work, EVENT_NOT_MINE, STEP_PASS, 0);
	if (!group)
		return;
	work->place = header->flow;
	bpf_spin_lock(&group->lock);
	is_mine = group->size != 0 && group->is_six == work->sender.six && !group->is_root &&
		  group->up_token == header->token;
	if (is_mine) {
		group->seen_s = work->now_s;
		conclude(work, EVENT_MALFORMED, STEP_NOTHING, 0);
		if (header->kind == TSUMUGI_VERDICT) {
			if (work->in.answer.verdict >= TSUMUGI_JOINED && work->in.answer.verdict <= TSUMUGI_NO_BOX)
				on_verdict(group, work);
		} else if (is_contribution(&work->in.contribution)) {
			on_release(group, work);
		}
	}
	work->slots = group->slots_used;
	bpf_spin_unlock(&group->lock);
}

/* Whether the body is what its sender sent. */
static __always_inline int is_sound(const struct packet *packet)
{
	return packet->header.body_bytes == TSUMUGI_GROUP_BYTES && packet->header.flags & TSUMUGI_FLAG_MIXED &&
	       packet->header.body_crc == tsumugi_group_mix(packet->words);
}

/* Groups::on_packet. A global function, which the verifier goes through once. */
__attribute__((noinline)) int count_in(struct work *work)
{
	struct events *events;
	__u32 zero = 0, event;

	if (!work)
		return 0;
	conclude(work, EVENT_MALFORMED, STEP_NOTHING, 0);
	work->place = 0;
	work->slots = 0;
	if (!is_sound(&work->in))
		goto counted;
	switch (work->in.header.kind) {
	case TSUMUGI_JOIN:
		on_join(work);
		break;
	case TSUMUGI_ARRIVE:
	case TSUMUGI_LEAVE:
		on_seat(work);
		break;
	default:
		on_from_above(work);
	}
counted:
	events = bpf_map_lookup_elem(&group_events, &zero);
	event = work->event;
	if (events && event < EVENTS)
		events->of[event]++;
	return 0;
}

#endif
