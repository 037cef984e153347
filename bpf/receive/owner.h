/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Whether a memory's owner is still there. A process that was killed leaves its memory as it was, epoch and all, and
 * the program would go on depositing and acknowledging for nobody. Its sockets the kernel has closed.
 */
#ifndef TSUMUGI_RECEIVE_OWNER_H
#define TSUMUGI_RECEIVE_OWNER_H

/* Between two looks for the owner of a memory. */
#define OWNER_CHECK_NS 100000000LL

/*
 * Whether there is a socket that the kernel would deliver this packet to. A global function, as answer() is; it runs
 * so rarely that the verifier's time is all that it costs.
 */
__attribute__((noinline)) int has_socket(struct xdp_md *context, struct frame *frame)
{
	char *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *found;
	struct udphdr *udp;
	__u32 tuple_bytes;

	if (!frame)
		return 1;
	udp = (void *)(data + (frame->udp & 63));
	if ((void *)(udp + 1) > (void *)end)
		return 1;
	if (frame->six) {
		struct ipv6hdr *ip = (void *)(data + (ip_of(frame) & 31));

		if ((void *)(ip + 1) > (void *)end)
			return 1;
		__builtin_memcpy(tuple.ipv6.saddr, &ip->saddr, sizeof(ip->saddr));
		__builtin_memcpy(tuple.ipv6.daddr, &ip->daddr, sizeof(ip->daddr));
		tuple.ipv6.sport = udp->source;
		tuple.ipv6.dport = udp->dest;
		tuple_bytes = sizeof(tuple.ipv6);
	} else {
		struct iphdr *ip = (void *)(data + (ip_of(frame) & 31));

		if ((void *)(ip + 1) > (void *)end)
			return 1;
		tuple.ipv4.saddr = ip->saddr;
		tuple.ipv4.daddr = ip->daddr;
		tuple.ipv4.sport = udp->source;
		tuple.ipv4.dport = udp->dest;
		tuple_bytes = sizeof(tuple.ipv4);
	}
	found = bpf_sk_lookup_udp(context, &tuple, tuple_bytes, BPF_F_CURRENT_NETNS, 0);
	if (!found)
		return 0;
	bpf_sk_release(found);
	return 1;
}

/*
 * Looks for the owner now and then; when there is none, takes the memory from it. For packets of a flow only: whoever
 * does not know a token, or sends to another address with the same port, must not bring this about.
 */
static __always_inline int owned(struct xdp_md *context, char *memory, struct frame *frame)
{
	struct tsumugi_control *control = (void *)memory;
	__u32 tick = bpf_jiffies64();
	__u64 now, before;

	/* Compiled into a load. The clock goes on with the tick only, and takes 6 ns to read. */
	if (likely(tick == load(&control->checked_tick)))
		return 1;
	store(&control->checked_tick, tick);
	now = bpf_ktime_get_coarse_ns();
	before = load(&control->checked_at);
	if ((__s64)(now - before) < OWNER_CHECK_NS)
		return 1;
	/* Of several CPUs the first looks. */
	if (compare_and_swap(&control->checked_at, before, now) != before)
		return 1;
	if (has_socket(context, frame))
		return 1;
	/* Unless somebody has taken the memory over meanwhile. */
	compare_and_swap(&control->epoch, frame->epoch, 0);
	return 0;
}

#endif
