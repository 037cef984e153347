/*
 * What two ranks get of an MPI: `tsumugi eval mpi` builds this with the MPI's own compiler and runs it in a lab.
 *
 *   benchmark SECONDS     how long each figure is measured
 *
 * Rank 0 prints one line of JSON for each figure: {"figure": "one_way", "bytes": 8, "value": 2345.6}.
 *
 *   one_way   half a round trip, ns           median of batches
 *   stream    messages a second               windows of messages, each window acknowledged
 *   barrier   ns                              median of batches
 *
 * Each rank runs on a CPU of its own, as on hosts.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES_MAX = 4096, BATCH = 64, WINDOW = 64, BYTES_MAX = 4 << 20 };

static int rank;
static double seconds;
static char *out, *in;

/* Moves this process to the `nth` of the CPUs that it may use. */
static void pin(int nth)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    nth %= CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && nth-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
}

static int ascending(const void *left, const void *right)
{
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

static void tell(const char *figure, int bytes, double value)
{
    if (rank == 0)
        printf("{\"figure\": \"%s\", \"bytes\": %d, \"value\": %.1f}\n", figure, bytes, value);
}

/* Sends a message there and back. */
static void round_trip(int bytes)
{
    int other = !rank;
    if (rank == 0)
        MPI_Send(out, bytes, MPI_CHAR, other, 1, MPI_COMM_WORLD);
    MPI_Recv(in, bytes, MPI_CHAR, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Send(out, bytes, MPI_CHAR, other, 1, MPI_COMM_WORLD);
}

static void barrier(int bytes)
{
    (void)bytes;
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A window of messages from rank 0 to rank 1, and a word that they are there. */
static void window(int bytes)
{
    MPI_Request requests[WINDOW];
    for (int at = 0; at < WINDOW; at++)
        if (rank == 0)
            MPI_Isend(out, bytes, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &requests[at]);
        else
            MPI_Irecv(in, bytes, MPI_CHAR, 0, 2, MPI_COMM_WORLD, &requests[at]);
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    if (rank == 0)
        MPI_Recv(in, 0, MPI_CHAR, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(out, 0, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
}

/* Does something for a while, in batches; the median of what one took, ns. */
static double median(void (*action)(int), int bytes, int batch)
{
    static double times[BATCHES_MAX];
    int count = 0, goes_on = 1;
    for (int warm_up = 0; warm_up < batch; warm_up++)
        action(bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    double end = MPI_Wtime() + seconds;
    while (goes_on) {
        double begun = MPI_Wtime();
        for (int at = 0; at < batch; at++)
            action(bytes);
        double now = MPI_Wtime();
        times[count++] = (now - begun) / batch * 1e9;
        goes_on = now < end && count < BATCHES_MAX;
        /* Rank 0 decides when it is enough. */
        MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    qsort(times, count, sizeof *times, ascending);
    return times[count / 2];
}

int main(int count, char **arguments)
{
    static const int one_way[] = {8, 1 << 10, 4 << 10, 16 << 10, 64 << 10};
    static const int streams[] = {8, 1 << 20, 4 << 20};
    int ranks;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    seconds = count > 1 ? atof(arguments[1]) : 0.2;
    if (ranks != 2) {
        fprintf(stderr, "benchmark: two ranks are needed, there are %d\n", ranks);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    pin(rank);
    out = malloc(BYTES_MAX);
    in = malloc(BYTES_MAX);
    if (!out || !in)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(out, rank, BYTES_MAX);
    memset(in, rank, BYTES_MAX);
    for (size_t at = 0; at < sizeof one_way / sizeof *one_way; at++)
        tell("one_way", one_way[at], median(round_trip, one_way[at], BATCH) / 2);
    for (size_t at = 0; at < sizeof streams / sizeof *streams; at++) {
        int batch = streams[at] < 1024 ? BATCH : 1;
        tell("stream", streams[at], WINDOW * 1e9 / median(window, streams[at], batch));
    }
    tell("barrier", 0, median(barrier, 0, BATCH));
    MPI_Finalize();
    return 0;
}
