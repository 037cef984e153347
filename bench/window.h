/*
 * A window of messages: as many as a sender starts before it waits for all of them. Each has a place of its own in memory.
 */
#ifndef BENCH_WINDOW_H
#define BENCH_WINDOW_H

#include <stddef.h>

enum { WINDOW_BYTES_MAX = 64 << 20 };

/* Makes room for windows of up to `messages` messages of up to `longest` bytes. A window holds at most WINDOW_BYTES_MAX, but one
 * message always fits. */
void window_open(int messages, size_t longest);

/* How many messages a window of this size has. */
int window_count(size_t bytes);

/* Fills what this rank sends, and clears what it receives. */
void window_prepare(size_t bytes);

/* Looks at all that has come from a rank. */
void window_expect(size_t bytes, int from);

/* Sends a window `to` a rank and receives one `from` another, both at once; a negative rank: does not. */
void window_exchange(size_t bytes, int to, int from);

#endif
