/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Hands frames of the first local experimental ethertype (IEEE Std 802) to the AF_XDP socket of the queue that they
 * arrived on. Everything else, and frames for no socket, goes on to the kernel's network stack; so do frames in several
 * buffers, which must not be redirected (is_scattered() of receive/answer.h tells why).
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
	const char *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	const struct ethhdr *ethernet = (const void *)data;

	if (data + sizeof(*ethernet) > end || ethernet->h_proto != bpf_htons(ETHERTYPE))
		return XDP_PASS;
	if (bpf_xdp_get_buff_len(context) != (__u64)(end - data))
		return XDP_PASS;
	return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
}

char dual_license[] SEC("license") = "Dual MIT/GPL";
