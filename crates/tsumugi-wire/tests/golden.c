/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Reads the golden vectors with tsumugi_wire.h and nothing of Rust's.
 *
 *     golden vectors FILE...   every vector must say what this program reads from its bytes
 *     golden layout            prints "name number" for every constant, size and offset
 */
#include "tsumugi_wire.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX 65536
#define FIELDS_MAX 128
#define LINE_MAX 160

/* A list of "key=value" lines. */
struct fields {
	int count;
	char line[FIELDS_MAX][LINE_MAX];
};

struct vector {
	char name[64];
	int size;
	unsigned char bytes[BYTES_MAX];
	struct fields fields;
};

static void put(struct fields *fields, const char *format, ...)
{
	va_list arguments;

	if (fields->count == FIELDS_MAX) {
		fprintf(stderr, "more than %d fields\n", FIELDS_MAX);
		exit(2);
	}
	va_start(arguments, format);
	vsnprintf(fields->line[fields->count++], LINE_MAX, format, arguments);
	va_end(arguments);
}

#define PUT(fields, key, value) put(fields, "%s=%llu", key, (unsigned long long)(value))

static __u32 crc32c(const unsigned char *bytes, size_t size)
{
	__u32 crc = ~0U;

	for (size_t i = 0; i < size; i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
	}
	return ~crc;
}

/* Returns the number of bytes at the body's `at` that a frame takes up, 0 when it is malformed. */
static size_t describe_frame(const unsigned char *body, size_t at, size_t size, struct fields *fields)
{
	struct tsumugi_whole whole;
	struct tsumugi_fragment fragment;
	struct tsumugi_remote remote;
	size_t data, span;

	if (size - at < sizeof(whole)) {
		put(fields, "body=frame_truncated %zu", at);
		return 0;
	}
	memcpy(&whole, body + at, sizeof(whole));
	if (whole.form == TSUMUGI_FORM_WHOLE) {
		if (size - at - sizeof(whole) < whole.bytes) {
			put(fields, "body=frame_truncated %zu", at);
			return 0;
		}
		put(fields, "whole=%u %zu %u", whole.channel, at + sizeof(whole), whole.bytes);
		span = (sizeof(whole) + whole.bytes + 7) & ~(size_t)7;
		return span < size - at ? span : size - at;
	}
	if (whole.form == TSUMUGI_FORM_REMOTE) {
		if (size - at < sizeof(remote) || size - at - sizeof(remote) < whole.bytes) {
			put(fields, "body=frame_truncated %zu", at);
			return 0;
		}
		memcpy(&remote, body + at, sizeof(remote));
		put(fields, "remote=%u %llu %llu %llu %zu %u", remote.opcode, remote.key, remote.address,
		    remote.operation, at + sizeof(remote), remote.bytes);
		span = (sizeof(remote) + remote.bytes + 7) & ~(size_t)7;
		return span < size - at ? span : size - at;
	}
	if (whole.form != TSUMUGI_FORM_FRAGMENT) {
		put(fields, "body=frame_form %u", whole.form);
		return 0;
	}
	if (size - at < sizeof(fragment)) {
		put(fields, "body=frame_truncated %zu", at);
		return 0;
	}
	memcpy(&fragment, body + at, sizeof(fragment));
	data = size - at - sizeof(fragment);
	if (data == 0 || fragment.total > TSUMUGI_MESSAGE_BYTES_MAX || fragment.offset >= fragment.total) {
		put(fields, "body=frame_range %llu %llu", fragment.offset, fragment.total);
		return 0;
	}
	if (data > fragment.total - fragment.offset) /* the rest is padding */
		data = fragment.total - fragment.offset;
	put(fields, "fragment=%u %u %llu %llu %zu %zu", fragment.channel, fragment.message, fragment.offset,
	    fragment.total, at + sizeof(fragment), data);
	return size - at;
}

static void describe_frames(const unsigned char *body, size_t size, struct fields *fields)
{
	for (size_t at = 0; at < size;) {
		size_t span = describe_frame(body, at, size, fields);

		if (span == 0)
			return;
		at += span;
	}
	put(fields, "body=ok");
}

static void describe_answer(__u64 ack, const unsigned char *body, size_t size, struct fields *fields)
{
	struct tsumugi_answer answer;
	__u32 bitmap[TSUMUGI_WORDS_MAX];
	__u64 base = ack - ack % TSUMUGI_WORD_PSNS, first = 0, psn;
	int within = 0;

	if (size < sizeof(answer)) {
		put(fields, "body=sack");
		return;
	}
	memcpy(&answer, body, sizeof(answer));
	if (answer.words > TSUMUGI_WORDS_MAX || size - sizeof(answer) < 4 * (size_t)answer.words) {
		put(fields, "body=sack");
		return;
	}
	memcpy(bitmap, body + sizeof(answer), 4 * (size_t)answer.words);
	PUT(fields, "echo", answer.echo);
	PUT(fields, "delay_ns", answer.delay_ns);
	PUT(fields, "words", answer.words);
	for (__u32 i = 0; i < answer.words; i++)
		PUT(fields, "word", bitmap[i]);
	for (psn = ack; psn - base < TSUMUGI_WORD_PSNS * answer.words && psn >= ack; psn++) {
		__u64 bit = psn - base;
		int has = bitmap[bit / 32] >> bit % 32 & 1;

		if (has && !within)
			first = psn;
		if (!has && within)
			put(fields, "received=%llu %llu", first, psn - 1);
		within = has;
	}
	if (within)
		put(fields, "received=%llu %llu", first, psn - 1);
	put(fields, "body=ok");
}

static void describe_offer(const unsigned char *body, size_t size, struct fields *fields)
{
	struct tsumugi_offer offer;

	if (size != sizeof(offer)) {
		put(fields, "body=offer_length %zu", size);
		return;
	}
	memcpy(&offer, body, sizeof(offer));
	if (offer.repeat > TSUMUGI_REPEAT_GO_BACK_N) {
		put(fields, "body=offer_repeat %u", offer.repeat);
		return;
	}
	PUT(fields, "job", offer.job);
	PUT(fields, "nonce", offer.nonce);
	PUT(fields, "cookie", offer.cookie);
	PUT(fields, "offer_token", offer.token);
	PUT(fields, "offer_flow", offer.flow);
	PUT(fields, "repeat", offer.repeat);
	PUT(fields, "listens", offer.flags & TSUMUGI_OFFER_LISTENS);
	PUT(fields, "trusts_wire", (offer.flags & TSUMUGI_OFFER_TRUSTS_WIRE) != 0);
	PUT(fields, "datagram_bytes", offer.datagram_bytes);
	PUT(fields, "message_bytes_max", offer.message_bytes_max);
	put(fields, "body=ok");
}

static void describe_challenge(const unsigned char *body, size_t size, struct fields *fields)
{
	struct tsumugi_challenge challenge;

	if (size != sizeof(challenge)) {
		put(fields, "body=challenge_length %zu", size);
		return;
	}
	memcpy(&challenge, body, sizeof(challenge));
	PUT(fields, "nonce", challenge.nonce);
	PUT(fields, "cookie", challenge.cookie);
	put(fields, "body=ok");
}

static void describe_piece(const unsigned char *body, size_t size, struct fields *fields)
{
	struct tsumugi_piece piece;
	size_t end;

	if (size < sizeof(piece))
		goto malformed;
	memcpy(&piece, body, sizeof(piece));
	end = piece.at + size - sizeof(piece);
	if (size == sizeof(piece) || piece.packet_bytes > TSUMUGI_PACKET_BODY_BYTES_MAX ||
	    piece.at % TSUMUGI_PIECE_ALIGN != 0 || end > piece.packet_bytes ||
	    (end < piece.packet_bytes && end % TSUMUGI_PIECE_ALIGN != 0))
		goto malformed;
	put(fields, "piece=%u %u %u %zu", piece.packet_bytes, piece.at, piece.packet_crc, size - sizeof(piece));
	put(fields, "body=ok");
	return;
malformed:
	put(fields, "body=piece %zu", size);
}

static void describe_join(const unsigned char *body, struct fields *fields)
{
	struct tsumugi_join join;

	memcpy(&join, body, sizeof(join));
	if (join.member >= join.size || join.weight == 0 || join.weight > join.size ||
	    (join.box == 0 && join.weight != 1)) {
		put(fields, "body=group");
		return;
	}
	PUT(fields, "group_job", join.job);
	PUT(fields, "group_key", join.key);
	PUT(fields, "group", join.group);
	PUT(fields, "box", join.box);
	PUT(fields, "first", join.first);
	PUT(fields, "size", join.size);
	PUT(fields, "member", join.member);
	PUT(fields, "weight", join.weight);
	PUT(fields, "via", join.via);
	put(fields, "body=ok");
}

static void describe_contribution(const unsigned char *body, struct fields *fields)
{
	struct tsumugi_contribution contribution;

	memcpy(&contribution, body, sizeof(contribution));
	if (contribution.operation > TSUMUGI_OPERATION_XOR || contribution.count > TSUMUGI_GROUP_WORDS ||
	    contribution.generation == 0) {
		put(fields, "body=group");
		return;
	}
	PUT(fields, "operation", contribution.operation);
	PUT(fields, "count", contribution.count);
	PUT(fields, "via", contribution.via);
	PUT(fields, "generation", contribution.generation);
	for (int i = 0; i < TSUMUGI_GROUP_WORDS; i++)
		PUT(fields, "value", contribution.words[i]);
	put(fields, "body=ok");
}

static void describe_group_answer(const unsigned char *body, struct fields *fields)
{
	struct tsumugi_group_answer answer;

	memcpy(&answer, body, sizeof(answer));
	if (answer.notice < TSUMUGI_JOINED || answer.notice > TSUMUGI_NO_BOX) {
		put(fields, "body=group");
		return;
	}
	PUT(fields, "notice", answer.notice);
	PUT(fields, "via", answer.via);
	PUT(fields, "member", answer.member);
	PUT(fields, "weight", answer.weight);
	PUT(fields, "seat", answer.seat);
	PUT(fields, "seat_token", answer.seat_token);
	PUT(fields, "generation", answer.generation);
	put(fields, "body=ok");
}

static void describe_group(const struct tsumugi_header *header, const unsigned char *body, struct fields *fields)
{
	if (!(header->flags & TSUMUGI_FLAG_MIXED)) {
		put(fields, "body=group_unmixed");
		return;
	}
	if (header->body_bytes != TSUMUGI_GROUP_BYTES) {
		put(fields, "body=group_length %u", header->body_bytes);
		return;
	}
	switch (header->kind) {
	case TSUMUGI_JOIN:
		describe_join(body, fields);
		break;
	case TSUMUGI_NOTICE:
		describe_group_answer(body, fields);
		break;
	case TSUMUGI_LEAVE:
		put(fields, "body=ok");
		break;
	default:
		describe_contribution(body, fields);
	}
}

static int is_for_several(const struct tsumugi_header *header)
{
	return header->kind == TSUMUGI_MULTICAST || header->kind == TSUMUGI_RELAY;
}

static int has_table(const struct tsumugi_header *header)
{
	return header->credit >= 1 && header->credit <= TSUMUGI_RECEIVERS_MAX &&
	       header->body_bytes >= TSUMUGI_GROUP_BYTES &&
	       header->body_bytes >= TSUMUGI_TABLE_BYTES(header->credit) && header->body_bytes % 8 == 0;
}

/* Reads the table in a body that has one. Returns the bytes of frames in front of it. */
static size_t read_table(const struct tsumugi_header *header, const unsigned char *body, struct tsumugi_table *table)
{
	size_t size = TSUMUGI_TABLE_BYTES(header->credit);

	memcpy(table, body + header->body_bytes - size, size);
	return header->body_bytes - size;
}

static void describe_multicast(const struct tsumugi_header *header, const unsigned char *body, struct fields *fields)
{
	struct tsumugi_table table;
	size_t frames;

	if (!(header->flags & TSUMUGI_FLAG_MIXED)) {
		put(fields, "body=group_unmixed");
		return;
	}
	if (!has_table(header)) {
		put(fields, "body=table %u %u", header->body_bytes, header->credit);
		return;
	}
	frames = read_table(header, body, &table);
	PUT(fields, "base", table.base);
	PUT(fields, "frames_crc", table.crc);
	for (int i = 0; i < header->credit; i++)
		put(fields, "entry=%u %u", table.entries[i].tag, table.entries[i].after);
	if (table.crc == (frames ? crc32c(body, frames) : 0)) {
		put(fields, "frames=ok");
	} else if (header->flags & TSUMUGI_FLAG_UNCHECKED && table.crc == 0) {
		put(fields, "frames=none");
	} else {
		put(fields, "frames=bad");
		put(fields, "body=ok");
		return;
	}
	describe_frames(body, frames, fields);
}

/* Whether the flag means something: body_crc is no CRC. */
static int is_mixed(const struct tsumugi_header *header)
{
	int has_words = is_for_several(header) ? has_table(header) : header->body_bytes == TSUMUGI_GROUP_BYTES;

	return header->flags & TSUMUGI_FLAG_MIXED && has_words;
}

static __u32 body_check(const struct tsumugi_header *header, const unsigned char *body)
{
	__u64 words[TSUMUGI_GROUP_BYTES / 8];
	union {
		struct tsumugi_table table;
		__u64 words[sizeof(struct tsumugi_table) / 8];
	} behind;

	if (is_mixed(header) && is_for_several(header)) {
		read_table(header, body, &behind.table);
		return tsumugi_table_check(behind.words, header->credit);
	}
	if (is_mixed(header)) {
		memcpy(words, body, sizeof(words));
		return tsumugi_group_mix(words);
	}
	return header->body_bytes ? crc32c(body, header->body_bytes) : 0;
}

static void describe_body(const struct tsumugi_header *header, const unsigned char *body, struct fields *fields)
{
	size_t size = header->body_bytes;

	if (header->body_crc == body_check(header, body)) {
		put(fields, "crc=ok");
	} else if (header->kind == TSUMUGI_DATA && header->flags & TSUMUGI_FLAG_UNCHECKED &&
		   header->body_crc == 0 && !is_mixed(header)) {
		put(fields, "crc=none");
	} else {
		put(fields, "crc=bad");
		put(fields, "body=unread");
		return;
	}
	switch (header->kind) {
	case TSUMUGI_DATA:
		if (is_mixed(header) && body[TSUMUGI_OFFSETOF(struct tsumugi_whole, form)] == 0)
			describe_contribution(body, fields);
		else
			describe_frames(body, size, fields);
		break;
	case TSUMUGI_JOIN:
	case TSUMUGI_ARRIVE:
	case TSUMUGI_LEAVE:
	case TSUMUGI_NOTICE:
	case TSUMUGI_RELEASE:
		describe_group(header, body, fields);
		break;
	case TSUMUGI_MULTICAST:
	case TSUMUGI_RELAY:
		describe_multicast(header, body, fields);
		break;
	case TSUMUGI_ACK:
	case TSUMUGI_NAK:
	case TSUMUGI_XOFF:
	case TSUMUGI_XON:
		describe_answer(header->ack, body, size, fields);
		break;
	case TSUMUGI_HELLO:
	case TSUMUGI_WELCOME:
		describe_offer(body, size, fields);
		break;
	case TSUMUGI_CHALLENGE:
		describe_challenge(body, size, fields);
		break;
	case TSUMUGI_PIECE:
		describe_piece(body, size, fields);
		break;
	default:
		put(fields, "body=ok");
	}
}

static void describe(const unsigned char *bytes, size_t size, struct fields *fields)
{
	struct tsumugi_header header;

	if (size < sizeof(header)) {
		put(fields, "result=truncated %zu %zu", size, sizeof(header));
		return;
	}
	memcpy(&header, bytes, sizeof(header));
	if (header.version != TSUMUGI_VERSION) {
		put(fields, "result=version %u", header.version);
	} else if (header.check != tsumugi_header_check(&header)) {
		put(fields, "result=check");
	} else if (header.kind < TSUMUGI_DATA || header.kind > TSUMUGI_KIND_LAST) {
		put(fields, "result=kind %u", header.kind);
	} else if (header.epoch == 0) {
		put(fields, "result=epoch");
	} else if (size - sizeof(header) < header.body_bytes) {
		put(fields, "result=truncated %zu %zu", size, sizeof(header) + header.body_bytes);
	} else {
		put(fields, "result=ok");
		PUT(fields, "version", header.version);
		PUT(fields, "kind", header.kind);
		PUT(fields, "flags", header.flags);
		PUT(fields, "path", header.path);
		PUT(fields, "token", header.token);
		PUT(fields, "flow", header.flow);
		PUT(fields, "epoch", header.epoch);
		PUT(fields, "psn", header.psn);
		PUT(fields, "ack", header.ack);
		PUT(fields, "credit", header.credit);
		PUT(fields, "body_bytes", header.body_bytes);
		PUT(fields, "body_crc", header.body_crc);
		PUT(fields, "rest", size - sizeof(header) - header.body_bytes);
		describe_body(&header, bytes + sizeof(header), fields);
	}
}

/* Compares what the vector says with what its bytes say. Returns the number of vectors: 0 or 1. */
static int finish(const struct vector *vector)
{
	static struct fields found;

	if (vector->name[0] == 0)
		return 0;
	found.count = 0;
	describe(vector->bytes, vector->size, &found);
	for (int i = 0; i < found.count || i < vector->fields.count; i++) {
		const char *expected = i < vector->fields.count ? vector->fields.line[i] : "(nothing)";
		const char *actual = i < found.count ? found.line[i] : "(nothing)";

		if (strcmp(expected, actual) != 0) {
			fprintf(stderr, "%s: the vector says %s, C reads %s\n", vector->name, expected, actual);
			exit(1);
		}
	}
	return 1;
}

static void add_hex(struct vector *vector, const char *text)
{
	unsigned int byte;

	for (; sscanf(text, "%2x", &byte) == 1; text += 2) {
		if (vector->size == BYTES_MAX) {
			fprintf(stderr, "%s: more than %d bytes\n", vector->name, BYTES_MAX);
			exit(2);
		}
		vector->bytes[vector->size++] = (unsigned char)byte;
	}
}

static int read_file(const char *path)
{
	static struct vector vector;
	char line[LINE_MAX], key[32], value[LINE_MAX];
	FILE *file = fopen(path, "r");
	int vectors = 0;

	if (!file) {
		perror(path);
		exit(2);
	}
	vector.name[0] = 0;
	while (fgets(line, sizeof(line), file)) {
		if (line[0] == '#' || line[0] == '\n')
			continue;
		if (sscanf(line, "%31[^=]=%127[^\n]", key, value) != 2) {
			fprintf(stderr, "%s: not key=value: %s", path, line);
			exit(2);
		}
		if (strcmp(key, "name") == 0) {
			vectors += finish(&vector);
			vector.size = vector.fields.count = 0;
			snprintf(vector.name, sizeof(vector.name), "%.63s", value);
		} else if (strcmp(key, "hex") == 0) {
			add_hex(&vector, value);
		} else if (strcmp(key, "encode") != 0) {
			put(&vector.fields, "%s=%s", key, value);
		}
	}
	vectors += finish(&vector);
	fclose(file);
	return vectors;
}

static void print(const char *name, unsigned long long number)
{
	printf("%s %llu\n", name, number);
}

#define SIZE(name) print("sizeof=" #name, sizeof(struct tsumugi_##name))
#define ALIGN(name) print("alignof=" #name, _Alignof(struct tsumugi_##name))
#define OFFSET(name, member) print(#name "." #member, TSUMUGI_OFFSETOF(struct tsumugi_##name, member))
#define CONSTANT(name) print(#name, TSUMUGI_##name)
#define COUNTER(name, constant) print(#name, TSUMUGI_COUNT_##constant)

static void print_memory(void)
{
	OFFSET(control, magic);
	OFFSET(control, version);
	OFFSET(control, flows);
	OFFSET(control, ring_bytes);
	OFFSET(control, epoch);
	OFFSET(control, checked_tick);
	OFFSET(control, checked_at);
	OFFSET(control, seal);
	OFFSET(control, answers_left);
	OFFSET(control, ring_head);
	OFFSET(control, ring_tail);
	OFFSET(control, sleeping);
	OFFSET(control, xoff);
	OFFSET(control, ring_read);
	OFFSET(control, counters);
	OFFSET(control, owed);
	SIZE(control);
	ALIGN(control);
	OFFSET(flow, token);
	OFFSET(flow, epoch);
	OFFSET(flow, repeat);
	OFFSET(flow, limit);
	OFFSET(flow, peer_token);
	OFFSET(flow, peer_flow);
	OFFSET(flow, checked);
	OFFSET(flow, received);
	OFFSET(flow, received.base);
	OFFSET(flow, received.echo);
	OFFSET(flow, received.xoff);
	OFFSET(flow, received.owed);
	OFFSET(flow, received.newest);
	OFFSET(flow, received.ask_by_probe);
	OFFSET(flow, acknowledged);
	OFFSET(flow, acknowledged.ack);
	OFFSET(flow, acknowledged.limit);
	OFFSET(flow, bitmap);
	OFFSET(flow, direct_writes);
	OFFSET(flow, direct_writes.started);
	OFFSET(flow, direct_writes.done);
	OFFSET(flow, direct_writes.held);
	SIZE(flow);
	ALIGN(flow);
	OFFSET(translation, key);
	OFFSET(translation, place);
	OFFSET(translation, used);
	SIZE(translation);
	ALIGN(translation);
	SIZE(record);
	CONSTANT(MAGIC);
	CONSTANT(PAGE_BYTES);
	CONSTANT(FLOWS_PER_PAGE);
	CONSTANT(PAD_BYTES);
	CONSTANT(BITMAP_WORDS);
	CONSTANT(COUNTERS);
	CONSTANT(RING_BYTES_MIN);
	CONSTANT(TRANSLATION_WAYS);
	CONSTANT(FRAME_BITS);
	CONSTANT(ASLEEP);
	CONSTANT(RUNG);
	print("PADDING", TSUMUGI_RECORD_PADDING);
	print("record_sizes", tsumugi_record_sizes(7, 992, 8972));
	print("record_sizes_padding", tsumugi_record_sizes(TSUMUGI_RECORD_PADDING, 0, 40));
	OFFSET(record, seal);
	OFFSET(record, sizes);
	OFFSET(record, psn);
	OFFSET(record, ack);
	OFFSET(record, crc);
	print("record_crc", tsumugi_record_crc(0x89abcdef, 0xfedcba98f6543210ULL, 0));
	print("record_crc_checked", tsumugi_record_crc(0x89abcdef, 0xfedcba98f6543210ULL, TSUMUGI_RECORD_CHECKED));
	print("record_crc_has_ack", tsumugi_record_crc(0x89abcdef, 0xfedcba98f6543210ULL, TSUMUGI_RECORD_HAS_ACK));
	print("span_0", tsumugi_record_span(0));
	print("span_8", tsumugi_record_span(8));
	print("span_9", tsumugi_record_span(9));
	print("span_8972", tsumugi_record_span(8972));
	print("flow_offset_9", tsumugi_flow_offset(9));
	print("ring_offset_9", tsumugi_ring_offset(9));
	print("memory_bytes_9_65536", tsumugi_memory_bytes(9, 65536, 0, 0));
	print("memory_bytes_9_65536_3_64", tsumugi_memory_bytes(9, 65536, 64, 3));
	print("window_offset_9_65536_64", tsumugi_window_offset(9, 65536, 64));
	print("translation_place", tsumugi_translation_place(0x7fff12345, 0x2fedc));
	COUNTER(deposited, DEPOSITED);
	COUNTER(duplicate, DUPLICATE);
	COUNTER(beyond_bitmap, BEYOND_BITMAP);
	COUNTER(out_of_order, OUT_OF_ORDER);
	COUNTER(queue_full, QUEUE_FULL);
	COUNTER(malformed, MALFORMED);
	COUNTER(corrupt, CORRUPT);
	COUNTER(unknown_flow, UNKNOWN_FLOW);
	COUNTER(wrong_token, WRONG_TOKEN);
	COUNTER(wrong_epoch, WRONG_EPOCH);
	COUNTER(violation, VIOLATION);
	COUNTER(handshake_refused, HANDSHAKE_REFUSED);
	COUNTER(remote_refused, REMOTE_REFUSED);
	COUNTER(direct_writes, DIRECT_WRITES);
	COUNTER(untranslated, UNTRANSLATED);
}

static void print_packets(void)
{
	SIZE(header);
	SIZE(whole);
	SIZE(fragment);
	SIZE(remote);
	SIZE(answer);
	SIZE(offer);
	SIZE(challenge);
	CONSTANT(VERSION);
	CONSTANT(DEFAULT_PORT);
	CONSTANT(IPV4_UDP_BYTES);
	CONSTANT(IPV6_UDP_BYTES);
	CONSTANT(DATAGRAM_BYTES_MIN);
	CONSTANT(DATAGRAM_BYTES_MAX);
	CONSTANT(ONE_BUFFER_BYTES);
	CONSTANT(BITMAP_PACKETS);
	CONSTANT(MESSAGE_BYTES_MAX);
	CONSTANT(RECORD_ALIGN);
	CONSTANT(PIECE_ALIGN);
	CONSTANT(PACKET_BODY_BYTES_MAX);
	CONSTANT(WORD_PSNS);
	CONSTANT(WORDS_MAX);
	CONSTANT(ANSWER_BYTES_MAX);
	CONSTANT(FLAG_ACK_REQUEST);
	CONSTANT(FLAG_RESENT);
	CONSTANT(FLAG_HAS_ACK);
	CONSTANT(FLAG_ASK_BY_PROBE);
	CONSTANT(FLAG_AWAY);
	CONSTANT(FLAG_AT_LEISURE);
	CONSTANT(FLAG_UNCHECKED);
	CONSTANT(FLAG_MIXED);
	CONSTANT(REMOTE_WRITE);
	CONSTANT(REMOTE_PIECE);
	CONSTANT(REPEAT_SELECTIVE);
	CONSTANT(REPEAT_GO_BACK_N);
	CONSTANT(DATA);
	CONSTANT(ACK);
	CONSTANT(NAK);
	CONSTANT(XOFF);
	CONSTANT(XON);
	CONSTANT(PROBE);
	CONSTANT(HELLO);
	CONSTANT(CHALLENGE);
	CONSTANT(WELCOME);
	CONSTANT(BYE);
	CONSTANT(BYE_ACK);
	CONSTANT(RESET);
	CONSTANT(PIECE);
	CONSTANT(SIZE_PROBE);
	CONSTANT(SIZE_ACK);
	CONSTANT(DAMAGED);
	CONSTANT(JOIN);
	CONSTANT(ARRIVE);
	CONSTANT(LEAVE);
	CONSTANT(NOTICE);
	CONSTANT(RELEASE);
	CONSTANT(MULTICAST);
	CONSTANT(RELAY);
	CONSTANT(KIND_LAST);
}

static void print_groups(void)
{
	__u64 words[TSUMUGI_GROUP_BYTES / 8];

	SIZE(join);
	SIZE(contribution);
	SIZE(group_answer);
	CONSTANT(GROUP_BYTES);
	CONSTANT(GROUP_WORDS);
	CONSTANT(GROUP_SLOTS);
	CONSTANT(GROUP_SLOT_BITS);
	OFFSET(join, frame);
	OFFSET(join, job);
	OFFSET(join, key);
	OFFSET(join, group);
	OFFSET(join, box);
	OFFSET(join, first);
	OFFSET(join, size);
	OFFSET(join, member);
	OFFSET(join, weight);
	OFFSET(join, via);
	OFFSET(contribution, frame);
	OFFSET(contribution, operation);
	OFFSET(contribution, count);
	OFFSET(contribution, via);
	OFFSET(contribution, generation);
	OFFSET(contribution, words);
	OFFSET(group_answer, frame);
	OFFSET(group_answer, notice);
	OFFSET(group_answer, via);
	OFFSET(group_answer, member);
	OFFSET(group_answer, weight);
	OFFSET(group_answer, seat);
	OFFSET(group_answer, seat_token);
	OFFSET(group_answer, generation);
	CONSTANT(OPERATION_NONE);
	CONSTANT(OPERATION_SUM);
	CONSTANT(OPERATION_MIN);
	CONSTANT(OPERATION_MAX);
	CONSTANT(OPERATION_AND);
	CONSTANT(OPERATION_OR);
	CONSTANT(OPERATION_XOR);
	CONSTANT(JOINED);
	CONSTANT(WAITING);
	CONSTANT(LOST);
	CONSTANT(UNKNOWN);
	CONSTANT(REFUSED);
	CONSTANT(DISAGREEMENT);
	CONSTANT(NO_BOX);
	for (int i = 0; i < TSUMUGI_GROUP_BYTES; i++)
		((unsigned char *)words)[i] = (unsigned char)i;
	print("group_mix", tsumugi_group_mix(words));
}

static void print_multicasts(void)
{
	__u64 words[sizeof(struct tsumugi_table) / 8];

	SIZE(table);
	SIZE(entry);
	CONSTANT(RECEIVERS_MAX);
	OFFSET(table, base);
	OFFSET(table, crc);
	OFFSET(table, entries);
	OFFSET(entry, tag);
	OFFSET(entry, after);
	print("table_bytes_1", TSUMUGI_TABLE_BYTES(1));
	print("table_bytes_63", TSUMUGI_TABLE_BYTES(TSUMUGI_RECEIVERS_MAX));
	for (size_t i = 0; i < sizeof(words); i++)
		((unsigned char *)words)[i] = (unsigned char)i;
	print("table_check_1", tsumugi_table_check(words, 1));
	print("table_check_63", tsumugi_table_check(words, TSUMUGI_RECEIVERS_MAX));
}

int main(int count, char **arguments)
{
	int vectors = 0;

	if (count == 2 && strcmp(arguments[1], "layout") == 0) {
		print_packets();
		print_groups();
		print_multicasts();
		print_memory();
		return 0;
	}
	if (count < 3 || strcmp(arguments[1], "vectors") != 0) {
		fprintf(stderr, "usage: golden vectors FILE... | golden layout\n");
		return 2;
	}
	for (int i = 2; i < count; i++)
		vectors += read_file(arguments[i]);
	printf("%d vectors agree\n", vectors);
	return 0;
}
