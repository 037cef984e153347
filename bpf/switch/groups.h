/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The groups of a box: Groups of crates/tsumugi-proto/src/group/boxes.rs in C. Finds the group that a packet is about, and takes its
 * lock.
 */
#ifndef TSUMUGI_SWITCH_GROUPS_H
#define TSUMUGI_SWITCH_GROUPS_H

/* group::boxes::start_of. */
static __always_inline __u32 start_of(__u64 job, __u64 number)
{
	__u64 mixed = (job ^ (number << 32 | number >> 32)) * 0xbf58476d1ce4e5b9ull;

	return (mixed >> 56) % GROUPS_MAX;
}

static __always_inline int is_group_of(const struct group *group, const struct tsumugi_join *join)
{
	return group->size != 0 && group->job == join->job && group->number == join->group;
}

static __always_inline int is_free(const struct group *group, __u32 now_s)
{
	return group->size == 0 || now_s - group->seen_s >= lease_s;
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
	int arrives = header->kind == TSUMUGI_ARRIVE, multicasts = header->kind == TSUMUGI_MULTICAST, has_seat = 0;
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
			else if (multicasts)
				multicast(group, work, number);
			else
				leave(group, work, number);
		}
		work->slots = group->slots_used;
		bpf_spin_unlock(&group->lock);
	}
	if (!has_seat) {
		int is_told = arrives || (!multicasts && is_contribution(&work->in.contribution));

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
		if (header->kind == TSUMUGI_NOTICE) {
			if (work->in.answer.notice >= TSUMUGI_JOINED && work->in.answer.notice <= TSUMUGI_NO_BOX)
				on_notice(group, work);
		} else if (header->kind == TSUMUGI_RELAY) {
			conclude(work, EVENT_MULTICAST, STEP_SPREAD, 0);
		} else if (is_contribution(&work->in.contribution)) {
			on_release(group, work);
		}
	}
	work->slots = group->slots_used;
	bpf_spin_unlock(&group->lock);
}

static __always_inline int is_for_several(__u8 kind)
{
	return kind == TSUMUGI_MULTICAST || kind == TSUMUGI_RELAY;
}

/* Whether a packet for several receivers has a table, and its frames end where a word does (multicast::split). */
static __always_inline int has_table(const struct tsumugi_header *header)
{
	__u32 receivers = header->credit;

	return receivers >= 1 && receivers <= TSUMUGI_RECEIVERS_MAX && header->body_bytes >= TSUMUGI_GROUP_BYTES &&
	       header->body_bytes >= TSUMUGI_TABLE_BYTES(receivers) && header->body_bytes % 8 == 0;
}

/* Whether the body, or of one for several receivers the table, is what its sender sent. */
static __always_inline int is_sound(const struct work *work)
{
	const struct tsumugi_header *header = &work->in.header;

	if (!(header->flags & TSUMUGI_FLAG_MIXED))
		return 0;
	if (!is_for_several(header->kind))
		return header->body_bytes == TSUMUGI_GROUP_BYTES && header->body_crc == tsumugi_group_mix(work->in.words);
	return has_table(header) && header->body_crc == tsumugi_table_check(work->table_words, header->credit);
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
	if (!is_sound(work))
		goto counted;
	switch (work->in.header.kind) {
	case TSUMUGI_JOIN:
		on_join(work);
		break;
	case TSUMUGI_ARRIVE:
	case TSUMUGI_LEAVE:
	case TSUMUGI_MULTICAST:
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
