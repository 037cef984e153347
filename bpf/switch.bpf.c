/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The switch box: hands frames from NIC to NIC as an Ethernet switch does. It is attached to every port of a Linux bridge (or
 * of several, each a network by itself), and takes from the bridge what is frequent: frames for addresses whose port is known. All
 * else is the bridge's, as if there were no program: broadcasts and what must be flooded, what is for this host, and frames in
 * several buffers, which XDP must not send on (is_scattered() of receive/answer.h tells why).
 *
 * Both learn. The bridge learns from the frames that it gets; so a source goes by the bridge when it is new or has moved, and now
 * and then afterwards, and the bridge hardly ever floods what has a place here.
 *
 * It is there twice: for XDP, in the driver (native) or behind it (generic), and for tc, which comes after and has what the kernel
 * knows of a frame beside its bytes: tags, checksums that are still to be made, frames that are still to be cut up.
 *
 * Frames of one source keep their order. Behind the driver bridge and program both send at once. In it the bridge is later, so a
 * source that sends frames in several buffers goes by the bridge altogether while it does, and is shown again while it is silent,
 * if it ever is.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "tsumugi_wire.h"
#include "words.h"
#include "switch/forward.h"
#include "switch/group_state.h"
#include "switch/group.h"
#include "switch/groups.h"
#include "switch/group_frames.h"
#include "switch/multicast.h"

/* NICs by the number of their port, with the program that makes the frame for who is there out of one for all. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, PORTS_MAX);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
} all_nics SEC(".maps");

static __always_inline __u64 random_word(int which)
{
	return is_given ? *(volatile __u64 *)&given.random[which] :
			  (__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32();
}

/*
 * Takes a packet of a group that a frame has, and finds out what is to be done about it; `load` is the hook's function that reads bytes of a
 * frame. NULL: the frame is any other, or is to be handed on as if it were.
 */
#define TAKE_PACKET(load, context, data, end, nic)                                                          \
	({                                                                                                  \
		struct work *taken = may_have_packet(data, end) ? find_packet(data, end, nic) : NULL;       \
		if (unlikely(taken)) {                                                                      \
			if (is_for_several(taken->in.header.kind) && LOAD_TABLE(load, context, taken))      \
				taken->in.header.credit = 0;                                                \
			taken = count_packet(taken);                                                        \
		}                                                                                           \
		taken;                                                                                      \
	})

/* Reads the table behind the frames. 0: it is there. */
#define LOAD_TABLE(load, context, work)                                                                     \
	({                                                                                                  \
		const struct tsumugi_header *header = &(work)->in.header;                                   \
		__u32 bytes = TSUMUGI_TABLE_BYTES(header->credit & 63);                                      \
		__u32 at = ((work)->onward.six ? IPV6_HEADERS : IPV4_HEADERS) + sizeof(*header);            \
		!has_table(header) || load(context, at + frame_bytes_of(header), &(work)->table, bytes);    \
	})

static __always_inline struct work *find_packet(const char *data, const char *end, __u32 nic)
{
	struct port *from = bpf_map_lookup_elem(&ports, &nic);
	struct work *work = work_here();

	return from && work && read_packet(data, end, from->number, work) ? work : NULL;
}

static __always_inline struct work *count_packet(struct work *work)
{
	work->now_s = time_s();
	/* Tokens are given to those who join. */
	if (work->in.header.kind == TSUMUGI_JOIN) {
		work->random[0] = random_word(0);
		work->random[1] = random_word(1);
	}
	count_in(work);
	if (work->step == STEP_SPREAD && work->onward.six)
		find_frame_sum(work);
	return work->step == STEP_PASS ? NULL : work;
}

/* Who is sent to, where it is one. */
static __always_inline __u32 addressee(const struct work *work)
{
	return work->step == STEP_ANSWER_SENDER ? TO_SENDER : work->step == STEP_UP ? ONWARD : work->slot;
}

/* Puts what has been put together into the frame: the headers, and so many bytes behind them. */
#define STORE(store, context, work, count, ...)                                                            \
	((work)->bytes == IPV6_HEADERS ?                                                                   \
		 store(context, 0, (work)->headers, IPV6_HEADERS, ##__VA_ARGS__) ||                        \
			 store(context, IPV6_HEADERS, &(work)->out, count, ##__VA_ARGS__) :                \
		 store(context, 0, (work)->headers, IPV4_HEADERS, ##__VA_ARGS__) ||                        \
			 store(context, IPV4_HEADERS, &(work)->out, count, ##__VA_ARGS__))

/* Whether all whom a packet for all is for can be sent to by a frame for each port: there is no way to send several by one. */
static __always_inline int reaches_all(const struct work *work)
{
	if (work->step == STEP_SPREAD)
		return is_one_at_each_port(work, 1ull << (work->sender.port & (PORTS_MAX - 1)), 0);
	/* Who joins is told so before anybody relies on it. */
	if (work->in.header.kind == TSUMUGI_JOIN &&
	    (work->step == STEP_JOINED_ALL || work->out.answer.notice == TSUMUGI_JOINED))
		return is_one_at_each_port(work, 0, 1);
	return 1;
}

/* Makes the frame of a packet of a group that for all that have a slot, of which all_nics makes what each gets. */
static __always_inline int broadcast(struct xdp_md *context, struct work *work)
{
	work->out.header.words[0] = TSUMUGI_VERSION | work->kind << 8;
	work->out.header.flow = work->place;
	if (bpf_xdp_store_bytes(context, work->sender.six ? IPV6_HEADERS : IPV4_HEADERS, &work->out, sizeof(work->out)))
		return XDP_DROP;
	return bpf_redirect_map(&all_nics, 0, BPF_F_BROADCAST);
}

/* The same of a packet for several, which come by other ports than it. */
static __always_inline int spread_by_all(struct xdp_md *context, struct work *work)
{
	work->in.header.flow = work->place;
	/* The others have tokens of their own. */
	work->in.header.token = work->frame_sum;
	if (bpf_xdp_store_bytes(context, work->sender.six ? IPV6_HEADERS : IPV4_HEADERS, &work->in.header,
				sizeof(work->in.header)))
		return XDP_DROP;
	return bpf_redirect_map(&all_nics, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
}

/* Makes a frame as long as what it is to have in it, if that is shorter than what came. */
static __always_inline int trim(struct xdp_md *context, const struct work *work)
{
	int more = work->udp_came - work->udp_bytes;

	return more > 0 ? bpf_xdp_adjust_tail(context, -more) : 0;
}

/* A slot at a port. TSUMUGI_GROUP_SLOTS: there is none. */
static __always_inline __u32 slot_at_port(const struct group *group, __u32 port)
{
	for (__u32 i = 0; i < TSUMUGI_GROUP_SLOTS; i++) {
		if (i >= group->slots_used)
			break;
		if (group->slots[i].address.port == port && !group->slots[i].has_left)
			return i;
	}
	return TSUMUGI_GROUP_SLOTS;
}

SEC("xdp.frags/devmap")
int tsumugi_tell(struct xdp_md *context)
{
	__u32 nic = context->egress_ifindex, number;
	const char *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct work *work = work_here();
	struct group *group;
	struct port *to;
	int six;

	to = bpf_map_lookup_elem(&ports, &nic);
	if (!to || !work || data + ETH_HLEN > end)
		return XDP_DROP;
	six = U16(data + 12) == bpf_htons(ETH_P_IPV6);
	if (bpf_xdp_load_bytes(context, six ? IPV6_HEADERS : IPV4_HEADERS, &work->out, sizeof(work->out)))
		return XDP_DROP;
	work->place = work->out.header.flow;
	work->kind = work->out.header.kind;
	work->is_partial = 0;
	group = group_at(work->place);
	if (!group)
		return XDP_DROP;
	number = slot_at_port(group, to->number);
	if (number == TSUMUGI_GROUP_SLOTS)
		return XDP_DROP;
	if (is_for_several(work->kind)) {
		work->in.header = work->out.header;
		work->onward.six = six;
		work->frame_sum = work->in.header.token;
		work->udp_came = sizeof(struct udphdr) + sizeof(work->in.header) + work->in.header.body_bytes;
		if (LOAD_TABLE(bpf_xdp_load_bytes, context, work) || put_part(work, number) < 0 ||
		    work->to.six != (__u32)six || trim(context, work) ||
		    STORE(bpf_xdp_store_bytes, context, work, sizeof(work->out.header)))
			return XDP_DROP;
		return XDP_PASS;
	}
	work->step = work->kind == TSUMUGI_NOTICE ? STEP_JOINED_ALL : STEP_RELEASE_ALL;
	if (put_together(work, number) < 0 || work->to.six != (__u32)six ||
	    STORE(bpf_xdp_store_bytes, context, work, sizeof(work->out)))
		return XDP_DROP;
	return XDP_PASS;
}

SEC("xdp.frags")
int tsumugi_switch(struct xdp_md *context)
{
	__u64 bytes = bpf_xdp_get_buff_len(context);
	struct frame frame = {
		.nic = context->ingress_ifindex,
		.data = (void *)(long)context->data,
		.end = (void *)(long)context->data_end,
	};
	enum outcome outcome;
	struct work *work;
	int port;

	frame.is_long = bytes != (__u64)(frame.end - frame.data);
	work = frame.is_long ? NULL :
			       TAKE_PACKET(bpf_xdp_load_bytes, context, (char *)frame.data, (char *)frame.end, frame.nic);
	if (unlikely(work)) {
		/* Nobody else finishes a sum here. */
		work->is_partial = 0;
		if (work->step != STEP_UP)
			count(work->sender.port, COUNTED);
		if (work->step == STEP_NOTHING)
			return XDP_DROP;
		if (!reaches_all(work)) {
			conclude(work, EVENT_REFUSED, STEP_ANSWER_SENDER, 0);
			say(work, TSUMUGI_REFUSED, work->in.header.kind == TSUMUGI_JOIN ? work->in.join.via : 0, 0, 0, 0);
		}
		if (work->step == STEP_JOINED_ALL || work->step == STEP_RELEASE_ALL)
			return broadcast(context, work);
		if (work->step == STEP_SPREAD)
			return spread_by_all(context, work);
		port = put_together(work, addressee(work));
		if (port < 0 || trim(context, work) || STORE(bpf_xdp_store_bytes, context, work, sizeof(work->out)))
			return XDP_DROP;
		if (work->step != STEP_UP)
			return bpf_redirect_map(&nics, port, XDP_DROP);
		frame.data = (void *)(long)context->data;
		frame.end = (void *)(long)context->data_end;
	}
	outcome = decide(&frame);
	if (likely(outcome == FORWARDED)) {
		__u32 to = frame.to->number;

		if (unlikely(is_bridges(&frame, bytes) || bpf_redirect_map(&nics, to, XDP_PASS) != XDP_REDIRECT))
			outcome = BRIDGED;
	}
	if (unlikely(outcome == NO_PORT))
		return XDP_PASS;
	count(frame.from->number, outcome);
	if (likely(outcome == FORWARDED))
		return XDP_REDIRECT;
	return outcome >= FILTERED ? XDP_DROP : XDP_PASS;
}

/* Makes a frame as long as what it is to have in it, if that is shorter than what came. */
static __always_inline int trim_skb(struct __sk_buff *context, const struct work *work)
{
	return work->udp_bytes < work->udp_came ?
		       bpf_skb_change_tail(context, work->bytes - sizeof(struct udphdr) + work->udp_bytes, 0) :
		       0;
}

static __always_inline __u32 nic_of(__u32 port)
{
	struct port *to = bpf_map_lookup_elem(&by_number, &port);

	return to ? to->nic : 0;
}

/* Puts the frame for somebody together in place of what is there. Returns the NIC that it is to leave by, or 0. */
static __always_inline __u32 replace(struct __sk_buff *context, struct work *work, __u32 number)
{
	int port = put_together(work, number);

	if (port < 0 || trim_skb(context, work) ||
	    STORE(bpf_skb_store_bytes, context, work, sizeof(work->out), BPF_F_INVALIDATE_HASH))
		return 0;
	return nic_of(port);
}

/*
 * Makes the frame a slot's part of a packet for several, if it gets one and is a box or not, as `box` says; the part that was made before leaves by
 * `nic`, unless that is 0. Returns the NIC that the last is to leave by. A global function, which the verifier goes through once.
 */
__attribute__((noinline)) int replace_by_part(struct __sk_buff *context, __u32 number, __u32 box, __u32 nic)
{
	struct work *work = work_here();
	struct group *group = work ? group_at(work->place) : NULL;
	int port;

	if (!group || box != slot_at(group, number)->member >> 63)
		return nic;
	port = put_part(work, number);
	if (port < 0)
		return nic;
	if (nic)
		bpf_clone_redirect(context, nic, 0);
	/* What is behind the header stays. */
	if (trim_skb(context, work) ||
	    STORE(bpf_skb_store_bytes, context, work, sizeof(work->out.header), BPF_F_INVALIDATE_HASH))
		return 0;
	return nic_of(port);
}

/* Sends each slot its part of a packet for several: boxes first, which get all of it. */
static __always_inline int spread(struct __sk_buff *context, struct work *work)
{
	__u32 slots = work->slots, nic = 0;

	for (__u32 i = 0; i < 2 * TSUMUGI_GROUP_SLOTS; i++) {
		if (i % TSUMUGI_GROUP_SLOTS < slots)
			nic = replace_by_part(context, i % TSUMUGI_GROUP_SLOTS, i < TSUMUGI_GROUP_SLOTS, nic);
	}
	return nic ? bpf_redirect(nic, 0) : TC_ACT_SHOT;
}

/* Does what is to be done about a packet of a group, if that is not to send it onward. */
static __always_inline int answer(struct __sk_buff *context, struct work *work)
{
	__u32 slots = work->slots, nic = 0;

	if (work->step == STEP_NOTHING)
		return TC_ACT_SHOT;
	if (work->step == STEP_SPREAD)
		return spread(context, work);
	if (work->step == STEP_JOINED_ALL || work->step == STEP_RELEASE_ALL) {
		for (__u32 i = 0; i < TSUMUGI_GROUP_SLOTS; i++) {
			if (i >= slots)
				break;
			if (nic)
				bpf_clone_redirect(context, nic, 0);
			nic = replace(context, work, i);
		}
	} else {
		nic = replace(context, work, addressee(work));
	}
	return nic ? bpf_redirect(nic, 0) : TC_ACT_SHOT;
}

/*
 * Brings a packet of a group to where the program can read it: drivers, and the kernel where it has cut up what was long, leave no more than
 * the headers in front.
 */
static __always_inline void pull_packet(struct __sk_buff *context)
{
	const char *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	__u32 at = IPV4_HEADERS;
	__u8 first[2];

	if (data + IPV4_HEADERS > end)
		return;
	if (U16(data + 12) == bpf_htons(ETH_P_IPV6)) {
		if (data[ETH_HLEN + 6] != IPPROTO_UDP)
			return;
		at = IPV6_HEADERS;
	} else if (U16(data + 12) != bpf_htons(ETH_P_IP) || data[ETH_HLEN + 9] != IPPROTO_UDP) {
		return;
	}
	if (data + at + sizeof(struct packet) <= end || context->len < at + sizeof(struct packet))
		return;
	if (!bpf_skb_load_bytes(context, at, first, sizeof(first)) && first[0] == TSUMUGI_VERSION &&
	    first[1] >= TSUMUGI_JOIN && first[1] <= TSUMUGI_RELAY)
		bpf_skb_pull_data(context, at + sizeof(struct packet));
}

SEC("classifier")
int tsumugi_tc(struct __sk_buff *context)
{
	struct frame frame = {
		.nic = context->ifindex,
		.vlan = context->vlan_present ? context->vlan_tci & 0xfff : 0,
	};
	enum outcome outcome;
	struct work *work;

	if (!context->gso_size)
		pull_packet(context);
	frame.data = (void *)(long)context->data;
	frame.end = (void *)(long)context->data_end;
	work = context->gso_size ?
		       NULL :
		       TAKE_PACKET(bpf_skb_load_bytes, context, (char *)frame.data, (char *)frame.end, frame.nic);
	if (unlikely(work)) {
		if (work->step != STEP_UP) {
			count(work->sender.port, COUNTED);
			return answer(context, work);
		}
		if (!replace(context, work, ONWARD))
			return TC_ACT_SHOT;
		frame.data = (void *)(long)context->data;
		frame.end = (void *)(long)context->data_end;
	}
	outcome = decide(&frame);
	/* What is still to be cut up will fit. */
	if (likely(outcome == FORWARDED) && unlikely(!context->gso_size && context->len > frame.to->frame_bytes_max))
		outcome = BRIDGED;
	if (unlikely(outcome == NO_PORT))
		return TC_ACT_UNSPEC;
	count(frame.from->number, outcome);
	if (likely(outcome == FORWARDED))
		return bpf_redirect(frame.to->nic, 0);
	return outcome >= FILTERED ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

char dual_license[] SEC("license") = "Dual MIT/GPL";
