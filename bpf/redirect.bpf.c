/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Hands frames of the first local experimental ethertype (IEEE Std 802) to the AF_XDP socket of the queue that they
 * arrived on. Everything else, and frames for no socket, goes on to the kernel's network stack.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETHERTYPE 0x88b5
#define QUEUES_MAX 256

/* Queue to socket. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, QUEUES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

SEC("xdp.frags")
int redirect(struct xdp_md *context)
{
	struct ethhdr *ethernet = (void *)(long)context->data;

	if ((void *)(ethernet + 1) > (void *)(long)context->data_end || ethernet->h_proto != bpf_htons(ETHERTYPE))
		return XDP_PASS;
	return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
}

char dual_license[] SEC("license") = "Dual MIT/GPL";
