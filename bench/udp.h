/*
 * Two bare UDP sockets between the ranks, for which the kernel cuts up and joins datagrams: the floor of what is built on sockets.
 * Nothing is sent again: what is lost ends the job.
 */
#ifndef BENCH_UDP_H
#define BENCH_UDP_H

#include <stddef.h>

/* Joins a socket of each of the two ranks, for messages of up to `longest` bytes. */
void udp_open(size_t longest);

/* Fills what this rank sends, and clears what it receives. From here on messages have this size. */
void udp_prepare(size_t bytes);

/* Looks at the message that has come. */
void udp_expect(size_t bytes);

/* At most what the receiver's socket holds. */
enum { UDP_ONE_WAY_MAX = 64 << 10 };
void udp_send(size_t bytes);
void udp_receive(size_t bytes);

/* Sends a message and receives one, both at once. */
void udp_exchange(size_t bytes);

#endif
