/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Writes what frames of the second local experimental ethertype (IEEE Std 802) carry into memory that a process has
 * mapped, for measurements: what a one-sided write costs by itself. Nothing but the length is checked, and nothing is
 * acknowledged. Other frames go on to the kernel's network stack.
 *
 * crates/tsumugi-rail/src/xdp/write.rs has the other side of both: who makes such frames, and who maps the memory.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "words.h"
#include "receive/atomic.h"

#define ETHERTYPE 0x88b6
#define SLOT_BYTES 4096
/* The sequence number has a cache line to itself: who looks at it does not disturb the copy. */
#define PAYLOAD_AT 64
#define PAYLOAD_BYTES_MAX (SLOT_BYTES - PAYLOAD_AT)
/* Payloads up to here are copied in words, always so many. */
#define SHORT_BYTES 64

/* In front of the payload. Numbers are little-endian. */
struct header {
	struct ethhdr ethernet;
	__u16 bytes;
	__u64 sequence;
};

/* What the process maps. */
struct slot {
	__u64 sequence; /* of the latest write, stored when its payload is there */
	__u8 unused[PAYLOAD_AT - sizeof(__u64)];
	__u64 payload[PAYLOAD_BYTES_MAX / sizeof(__u64)];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot);
} memory SEC(".maps");

/* Copies the payload; 0 if that is done. For 64 bytes the program takes 70 ns with the helper, and 35 with the words. */
static __always_inline long copy(struct xdp_md *context, const struct header *header, struct slot *slot, __u64 bytes)
{
	const __u64 *from = (const void *)(header + 1);

	if (bytes <= SHORT_BYTES && (void *)from + SHORT_BYTES <= (void *)(long)context->data_end) {
#pragma unroll
		for (int i = 0; i < SHORT_BYTES / 8; i++)
			slot->payload[i] = from[i];
		return 0;
	}
	/* As in copy_body() of receive/deposit.h. */
	bytes--;
	opaque(bytes);
	if (bytes > PAYLOAD_BYTES_MAX - 1)
		return -1;
	return bpf_xdp_load_bytes(context, sizeof(*header), slot->payload, bytes + 1);
}

SEC("xdp.frags")
int write(struct xdp_md *context)
{
	const struct header *header = (void *)(long)context->data;
	struct slot *slot;
	__u64 sequence;
	__u32 key = 0;

	if ((void *)(header + 1) > (void *)(long)context->data_end)
		return XDP_PASS;
	if (header->ethernet.h_proto != bpf_htons(ETHERTYPE))
		return XDP_PASS;
	slot = bpf_map_lookup_elem(&memory, &key);
	if (!slot)
		return XDP_DROP;
	sequence = header->sequence;
	if (copy(context, header, slot, header->bytes) == 0)
		store_release(&slot->sequence, sequence);
	return XDP_DROP;
}

char dual_license[] SEC("license") = "Dual MIT/GPL";
