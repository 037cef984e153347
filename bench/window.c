#include "window.h"

#include "common.h"

#include <string.h>

static char *out, *in;
static MPI_Request *requests;
static int most;

void window_open(int messages, size_t longest)
{
    most = messages;
    size_t bytes = (size_t)messages * longest;
    if (bytes > WINDOW_BYTES_MAX)
        bytes = longest > WINDOW_BYTES_MAX ? longest : WINDOW_BYTES_MAX;
    out = memory(bytes);
    in = memory(bytes);
    requests = memory(sizeof *requests * messages * 2);
}

int window_count(size_t bytes)
{
    size_t fit = bytes ? WINDOW_BYTES_MAX / bytes : (size_t)most;
    return fit < 1 ? 1 : fit > (size_t)most ? most : (int)fit;
}

/* Differs from message to message and from rank to rank. */
static unsigned seed(int from, int message)
{
    return (unsigned)from * 4096u + (unsigned)message;
}

void window_prepare(size_t bytes)
{
    for (int at = 0; at < window_count(bytes); at++)
        fill(out + at * bytes, bytes, seed(rank, at));
    memset(in, 0, window_count(bytes) * bytes);
}

void window_expect(size_t bytes, int from)
{
    for (int at = 0; at < window_count(bytes); at++)
        expect(in + at * bytes, bytes, seed(from, at), "a message");
}

void window_exchange(size_t bytes, int to, int from)
{
    int started = 0;
    if (from >= 0)
        for (int at = 0; at < window_count(bytes); at++)
            MPI_Irecv(in + at * bytes, (int)bytes, MPI_BYTE, from, 1, MPI_COMM_WORLD, &requests[started++]);
    if (to >= 0)
        for (int at = 0; at < window_count(bytes); at++)
            MPI_Isend(out + at * bytes, (int)bytes, MPI_BYTE, to, 1, MPI_COMM_WORLD, &requests[started++]);
    MPI_Waitall(started, requests, MPI_STATUSES_IGNORE);
}
