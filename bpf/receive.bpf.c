/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The XDP receive path: checks Tsumugi's DATA packets, places them in the receive memory of the process that they
 * are for, and answers them and PROBEs, all in the NIC driver's poll: a process that computes meanwhile still gives
 * signs of life. Everything else goes on to the kernel's network stack.
 *
 * The receive memory of an endpoint is the one element of a mapped array. The verifier cannot relate a variable
 * place to a variable length, so the element ends with a pad as long as the longest record: whatever begins in
 * the ring ends in the element.
 *
 * Linux 5.18 has all that is used here. Whoever adds to it looks first since when there has been what he wants:
 *
 *   4.12  arrays of maps
 *   4.16  bpf_csum_diff in XDP
 *   5.0   bpf_sk_lookup_udp and bpf_sk_release in XDP
 *   5.5   arrays that can be mapped
 *   5.6   bpf_jiffies64; global functions
 *   5.8   bpf_ringbuf_output; bpf_xdp_adjust_tail that makes a frame longer (shorter: 4.18)
 *   5.11  bpf_ktime_get_coarse_ns
 *   5.12  atomics that return what was there, on x86-64 (on arm64: 5.18); global functions that take memory
 *   5.18  bpf_xdp_get_buff_len, bpf_xdp_load_bytes, bpf_xdp_store_bytes, and frames in several pieces (xdp.frags)
 *
 * The verifier's limit is a million instructions looked at: Linux 6.18 looks at 69,000 (examples/xdp_cost.rs of
 * tsumugi-rail tells).
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "tsumugi_wire.h"
#include "words.h"
#include "receive/atomic.h"
#include "receive/maps.h"
#include "receive/deposit.h"
#include "receive/direct_write.h"
#include "receive/answer.h"
#include "receive/owner.h"

/* Finds the UDP header. Whatever is in any way unusual is left to the kernel: -1. */
static __always_inline int find_udp(struct xdp_md *context, struct frame *frame)
{
	char *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	__u32 at = ETH_HLEN, ip_bytes;
	__u16 protocol;

	if (data + ETH_HLEN > end)
		return -1;
	/* In words, where a structure that is packed would be read in bytes. */
	protocol = U16(data + TSUMUGI_OFFSETOF(struct ethhdr, h_proto));
	if (protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD)) {
		/* One tag: its two bytes, then what it tags. */
		if (data + ETH_HLEN + 4 > end)
			return -1;
		protocol = U16(data + ETH_HLEN + 2);
		at += 4;
	}
	if (likely(protocol == bpf_htons(ETH_P_IP))) {
		struct iphdr *ip = (void *)(data + at);

		if ((void *)(ip + 1) > (void *)end)
			return -1;
		/* No options, and no fragment: neither an offset nor more to follow. */
		if (*(__u8 *)ip != 0x45 || ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(0x3fff))
			return -1;
		ip_bytes = bpf_ntohs(ip->tot_len);
		if (ip_bytes < sizeof(*ip) + sizeof(struct udphdr))
			return -1;
		frame->six = 0;
		frame->udp = at + sizeof(*ip);
	} else if (protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(data + at);

		if ((void *)(ip + 1) > (void *)end)
			return -1;
		if (ip->version != 6 || ip->nexthdr != IPPROTO_UDP)
			return -1;
		ip_bytes = sizeof(*ip) + bpf_ntohs(ip->payload_len);
		frame->six = 1;
		frame->udp = at + sizeof(*ip);
	} else {
		return -1;
	}
	/* The frame may be longer than the packet (Ethernet's shortest), never shorter. */
	frame->bytes = end - data;
	if (unlikely(at + ip_bytes > frame->bytes)) {
		frame->bytes = bpf_xdp_get_buff_len(context);
		if (at + ip_bytes > frame->bytes)
			return -1;
	}
	frame->kind = 0;
	return ip_bytes - (frame->udp - at);
}

/* Reads the packet's header as Header::decode does. XDP_TX says that it is a DATA or PROBE, alone in its datagram. */
static __always_inline int decode(struct xdp_md *context, char *memory, const struct frame *frame, __u32 bytes,
				  struct packet *packet)
{
	struct tsumugi_header *header = (void *)(long)context->data + payload_of(frame);

	if (bytes < sizeof(*header))
		goto malformed;
	if ((void *)(header + 1) > (void *)(long)context->data_end)
		return XDP_PASS; /* a driver that splits frames this early */
	/* Header::kind_in_any_version: the owner tells both sides that their versions differ. */
	if (header->version != TSUMUGI_VERSION && (header->kind == TSUMUGI_HELLO || header->kind == TSUMUGI_RESET))
		return XDP_PASS;
	if (header->version != TSUMUGI_VERSION || header->check != tsumugi_header_check(header) ||
	    header->kind < TSUMUGI_DATA || header->kind > TSUMUGI_KIND_LAST || header->epoch == 0 ||
	    bytes - sizeof(*header) < header->body_bytes)
		goto malformed;
	/* Every other kind is the owner's; so are datagrams that were coalesced in transit. */
	if ((header->kind != TSUMUGI_DATA && header->kind != TSUMUGI_PROBE) ||
	    bytes - sizeof(*header) != header->body_bytes)
		return XDP_PASS;
	packet->token = header->token;
	packet->psn = header->psn;
	packet->ack = header->ack;
	packet->flow = header->flow;
	packet->epoch = header->epoch;
	packet->body_crc = header->body_crc;
	packet->kind = header->kind;
	packet->credit = header->credit;
	packet->body_bytes = header->body_bytes;
	packet->flags = header->flags;
	return XDP_TX;
malformed:
	count(memory, TSUMUGI_COUNT_MALFORMED);
	return XDP_DROP;
}

static __always_inline void ring_bell(char *memory, const struct frame *frame)
{
	struct tsumugi_control *control = (void *)memory;
	void *bell;

	/* Once: a stroke sends an interrupt to this CPU, and who is awake by now sleeps only after it has said so again. */
	if (load(&control->sleeping) != TSUMUGI_ASLEEP ||
	    compare_and_swap(&control->sleeping, TSUMUGI_ASLEEP, TSUMUGI_RUNG) != TSUMUGI_ASLEEP)
		return;
	bell = bpf_map_lookup_elem(&bells, &frame->port);
	/*
	 * A full bell has rung often enough. Nobody reads what is in it, and a word more on the stack would be too much for
	 * Linux 6.1, which allows 512 bytes, each function's rounded up to 32.
	 */
	if (bell)
		bpf_ringbuf_output(bell, (void *)&frame->port, sizeof(frame->port), BPF_RB_FORCE_WAKEUP);
}

SEC("xdp.frags")
int receive(struct xdp_md *context)
{
	struct tsumugi_flow *flow = NULL;
	struct packet packet = {};
	struct frame frame;
	struct udphdr *udp;
	__u32 verdict, news;
	char *memory;
	int bytes, action;

	bytes = find_udp(context, &frame);
	if (bytes < 0)
		return XDP_PASS;
	udp = (void *)(long)context->data + frame.udp;
	if ((void *)(udp + 1) > (void *)(long)context->data_end)
		return XDP_PASS;
	frame.port = bpf_ntohs(udp->dest);
	memory = memory_of(frame.port);
	if (!memory)
		return XDP_PASS;
	frame.epoch = load(&((struct tsumugi_control *)memory)->epoch);
	if (frame.epoch == 0)
		return XDP_PASS; /* nobody owns it */
	if (bpf_ntohs(udp->len) < sizeof(*udp) || bpf_ntohs(udp->len) > bytes)
		return XDP_PASS;
	action = decode(context, memory, &frame, bpf_ntohs(udp->len) - sizeof(*udp), &packet);
	if (action != XDP_TX)
		return action;
	verdict = find(memory, &packet, &flow);
	if (!flow)
		return refuse(memory, verdict, packet.kind);
	if (!owned(context, memory, &frame))
		return XDP_PASS; /* the kernel answers as for any port that nobody has */
	if (packet.kind == TSUMUGI_PROBE) {
		/* As long as the program cannot answer, the owner does, over the path that is asked about. */
		if (!ready(flow) || is_left((void *)memory))
			return XDP_PASS;
		note(flow, &packet);
		frame.kind = TSUMUGI_ACK;
		news = 1;
	} else {
		verdict = NOT_HERE;
		if (may_write_directly(context, &frame, packet.body_bytes))
			verdict = write_directly(context, flow, &frame, packet.psn, packet.body_bytes);
		if (verdict == NOT_HERE)
			verdict = deposit(context, memory, flow, &packet,
					  payload_of(&frame) + sizeof(struct tsumugi_header));
		if (verdict == GIVEN_UP)
			return XDP_DROP;
		if (verdict != TSUMUGI_COUNT_DEPOSITED)
			note(flow, &packet);
		news = verdict == TSUMUGI_COUNT_DEPOSITED || verdict == TSUMUGI_COUNT_DIRECT_WRITES ||
		       packet.flags & TSUMUGI_FLAG_HAS_ACK;
		frame.kind = answer_due(flow, &packet, verdict);
	}
	frame.kind = take_owed(flow, frame.kind);
	if (frame.kind != 0 && (is_scattered(context) || is_left((void *)memory))) {
		owe(context, (void *)memory, flow, frame.kind);
		frame.kind = 0;
		news = 1;
	}
	if (news)
		ring_bell(memory, &frame);
	if (frame.kind == 0)
		return XDP_DROP;
	return answer(context, flow, &frame, packet.psn);
}

char dual_license[] SEC("license") = "Dual MIT/GPL";
