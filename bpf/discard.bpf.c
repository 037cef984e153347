/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Drops IPv4 packets at once, for measurements: what a frame costs until a program sees it, and nothing more. The rest
 * goes on to the kernel's network stack, or nobody would answer for the NIC's address (ARP).
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

SEC("xdp.frags")
int discard(struct xdp_md *context)
{
	struct ethhdr *ethernet = (void *)(long)context->data;

	if ((void *)(ethernet + 1) > (void *)(long)context->data_end || ethernet->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	return XDP_DROP;
}

char dual_license[] SEC("license") = "Dual MIT/GPL";
