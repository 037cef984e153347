/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What programs that read and write frames have in common: words at any address, and the Internet checksum (RFC 1071).
 */
#ifndef TSUMUGI_WORDS_H
#define TSUMUGI_WORDS_H

#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

/* Words at any address, as in a packet (tsumugi_wire.h). */
#define U16(at) (*(__u16 *)(at))
#define U32(at) (*(__u32 *)(at))
#define U64(at) (*(__u64 *)(at))

/* The sum of a word's halves, for the Internet checksums. */
static __always_inline __u64 halves(__u64 word)
{
	return (word & 0xffffffff) + (word >> 32);
}

/* What was summed up in pieces of 16 or 32 bits, brought down to 16. */
static __always_inline __u16 folded(__u64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* The Internet checksum of that. */
static __always_inline __u16 fold(__u64 sum)
{
	return ~folded(sum);
}

#endif
