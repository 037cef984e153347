/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Shows that tsumugi_wire.h compiles for BPF: the header check on a packet, as the XDP program runs it, and the checks of a
 * group's body and of a table, as a switch box does. */
#include "tsumugi_wire.h"
#include <linux/bpf.h>

__attribute__((section("xdp"), used)) int header_ok(struct xdp_md *context)
{
	const void *data = (const void *)(long)context->data;
	const void *end = (const void *)(long)context->data_end;
	const struct tsumugi_header *header = data + 42;

	if ((const void *)(header + 1) > end)
		return XDP_PASS;
	if (header->version != TSUMUGI_VERSION || header->check != tsumugi_header_check(header))
		return XDP_PASS;
	if (header->kind == TSUMUGI_MULTICAST) {
		const struct tsumugi_table *table = (const void *)(header + 1);

		/* With all receivers, and without frames. */
		if ((const void *)(table + 1) > end || header->credit != TSUMUGI_RECEIVERS_MAX ||
		    header->body_crc != tsumugi_table_check((const __u64 *)table, TSUMUGI_RECEIVERS_MAX))
			return XDP_PASS;
	} else if (header->flags & TSUMUGI_FLAG_MIXED) {
		const struct tsumugi_contribution *body = (const void *)(header + 1);

		if ((const void *)(body + 1) > end || header->body_crc != tsumugi_group_mix((const __u64 *)body))
			return XDP_PASS;
	}
	return header->kind == TSUMUGI_DATA ? XDP_DROP : XDP_PASS;
}
