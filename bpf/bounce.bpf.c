/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Sends back whatever it sees, for `tsumugi up` to find out whether what an XDP program sends leaves the NIC. It is
 * attached to nothing: the kernel runs it on frames that it is given, and does with them as it says
 * (BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18).
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int bounce(struct xdp_md *context)
{
	(void)context;
	return XDP_TX;
}

char dual_license[] SEC("license") = "Dual MIT/GPL";
