/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A group: Group of crates/tsumugi-proto/src/group/boxes.rs in C, function by function; what holds is told there. tests/groups.rs of
 * tsumugi-rail holds the two together.
 *
 * Everything that is known of a group is read and written under its lock. While a program holds one it must not call any function,
 * so all of this is inlined into count_in() (groups.h), and what is to be sent is put together after it.
 */
#ifndef TSUMUGI_SWITCH_GROUP_H
#define TSUMUGI_SWITCH_GROUP_H

static __always_inline struct group *group_at(__u32 place)
{
	return bpf_map_lookup_elem(&groups, &place);
}

static __always_inline struct slot *slot_at(struct group *group, __u32 slot)
{
	return &group->slots[slot & (TSUMUGI_GROUP_SLOTS - 1)];
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

/* A notice about a slot, which may be none (`weight` 0). */
static __always_inline void say(struct work *work, enum tsumugi_notice notice, __u8 via, __u16 member, __u16 weight,
				__u64 generation)
{
	clear(&work->out);
	work->kind = TSUMUGI_NOTICE;
	work->out.answer.notice = notice;
	work->out.answer.via = via;
	work->out.answer.member = member;
	work->out.answer.weight = weight;
	work->out.answer.generation = generation;
}

/* Group::joined. */
static __always_inline void say_joined(struct packet *out, const struct slot *slot, __u32 seat, __u8 via,
				       __u64 generation)
{
	out->answer.notice = TSUMUGI_JOINED;
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
		if (!join->box && slot->epoch == work->in.header.epoch && join->first < slot->first) {
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
		work->kind = TSUMUGI_NOTICE;
		return;
	}
	if (group->is_formed) {
		conclude(work, EVENT_JOIN, STEP_ANSWER, known);
		work->kind = TSUMUGI_NOTICE;
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

/* Group::multicast. The lock is held. */
static __always_inline void multicast(struct group *group, struct work *work, __u32 number)
{
	if (slot_at(group, number)->member == 0)
		conclude(work, EVENT_MULTICAST, STEP_SPREAD, 0);
	else
		conclude(work, EVENT_REFUSED, STEP_NOTHING, 0);
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

/* Group::on_notice. The lock is held. */
static __always_inline void on_notice(struct group *group, struct work *work)
{
	const struct tsumugi_group_answer *answer = &work->in.answer;
	__u32 due = group->is_up && answer->generation == group->generation, via = answer->via;
	struct slot *slot = slot_at(group, via);

	conclude(work, EVENT_NOT_MINE, STEP_NOTHING, 0);
	switch (answer->notice) {
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
			work->kind = TSUMUGI_NOTICE;
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
	if (answer->notice == TSUMUGI_JOINED) {
		work->kind = TSUMUGI_NOTICE;
		clear(&work->out);
		say_joined(&work->out, slot, work->place << TSUMUGI_GROUP_SLOT_BITS | via, 0, group->generation);
	} else {
		say(work, answer->notice, 0, answer->member, slot->weight, answer->generation);
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

#endif
