/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the program finds by a UDP port: an endpoint's receive memory and its doorbell.
 */
#ifndef TSUMUGI_RECEIVE_MAPS_H
#define TSUMUGI_RECEIVE_MAPS_H

/* The loader puts the size of an endpoint's memory in place of this number: it depends on the geometry. */
#define MEMORY_BYTES 0x14534d47

/* One entry for each UDP port. */
#define PORTS 65536

struct memory {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, sizeof(__u32)); /* no types: the kernel would want the value's, too */
	__uint(value_size, MEMORY_BYTES);
};

/* UDP port to receive memory. An array, because the kernel compiles looking into it into a few instructions. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, PORTS);
	__type(key, __u32);
	__array(values, struct memory);
} endpoints SEC(".maps");

struct bell {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

/* UDP port to doorbell: one each, so that nobody is woken for another. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, PORTS);
	__type(key, __u32);
	__array(values, struct bell);
} bells SEC(".maps");

/* Geometry of every endpoint memory, set before loading. The verifier knows the values as constants. */
const volatile __u32 flows = 0;
const volatile __u64 ring_bytes = 0;
const volatile __u32 window_pages = 0;
const volatile __u32 translation_buckets = 0; /* a power of two, or 0 with no window */

/* The receive memory for a port. */
static __always_inline char *memory_of(__u32 port)
{
	__u32 first = 0;
	void *endpoint = bpf_map_lookup_elem(&endpoints, &port);

	return endpoint ? bpf_map_lookup_elem(endpoint, &first) : NULL;
}

#endif
