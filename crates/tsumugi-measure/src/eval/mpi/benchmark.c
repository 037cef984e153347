/*
 * What two ranks get of an MPI: `tsumugi eval mpi` builds this with the MPI's own compiler and runs it in a lab.
 *
 *   benchmark SECONDS          how long each figure is measured
 *   benchmark SECONDS udp      the same by two UDP sockets and no MPI, between the same processes: the figures that take one
 *                              datagram each way
 *
 * Rank 0 prints one line of JSON for each figure: {"figure": "one_way", "bytes": 8, "value": 2345.6}.
 *
 *   one_way   half a round trip, ns           median of batches
 *   stream    messages a second               bursts of messages, each burst acknowledged
 *   barrier   ns                              median of batches
 *
 * Each rank runs on a CPU of its own, as on hosts.
 */
#define _GNU_SOURCE
#include <ifaddrs.h>
#include <mpi.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* DATAGRAM_MAX: at MTU 1500. */
enum { BATCHES_MAX = 4096, BATCH = 64, BURST = 64, BYTES_MAX = 4 << 20, DATAGRAM_MAX = 1472 };

static int rank;
static double seconds;
static char *out, *in;
static int udp = -1;

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

/* A burst of messages from rank 0 to rank 1, and a word that they are there. */
static void burst(int bytes)
{
    MPI_Request requests[BURST];
    for (int at = 0; at < BURST; at++)
        if (rank == 0)
            MPI_Isend(out, bytes, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &requests[at]);
        else
            MPI_Irecv(in, bytes, MPI_CHAR, 0, 2, MPI_COMM_WORLD, &requests[at]);
    MPI_Waitall(BURST, requests, MPI_STATUSES_IGNORE);
    if (rank == 0)
        MPI_Recv(in, 0, MPI_CHAR, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(out, 0, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
}

/* An address of this host that others reach; 0 where there is none. */
static in_addr_t own_address(void)
{
    in_addr_t found = 0;
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return 0;
    for (struct ifaddrs *one = all; one; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && !(one->ifa_flags & IFF_LOOPBACK))
            found = ((struct sockaddr_in *)one->ifa_addr)->sin_addr.s_addr;
    freeifaddrs(all);
    return found;
}

/* Joins a UDP socket of each rank. */
static void join(void)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = own_address()}, peer;
    socklen_t bytes = sizeof own;
    udp = socket(AF_INET, SOCK_DGRAM, 0);
    int bound = bind(udp, (struct sockaddr *)&own, bytes) == 0;
    getsockname(udp, (struct sockaddr *)&own, &bytes);
    MPI_Sendrecv(&own, sizeof own, MPI_BYTE, !rank, 4, &peer, sizeof peer, MPI_BYTE, !rank, 4, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (!bound || connect(udp, (struct sockaddr *)&peer, sizeof peer) != 0) {
        perror("benchmark: joining UDP sockets");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Looks until a datagram is there. One that is lost does not come again. */
static void receive_datagram(void)
{
    double begun = MPI_Wtime();
    for (int looks = 1; recv(udp, in, BYTES_MAX, MSG_DONTWAIT) < 0; looks++)
        if (looks % (1 << 20) == 0 && MPI_Wtime() > begun + 10) {
            fprintf(stderr, "benchmark: a datagram was lost\n");
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

static void datagram_round_trip(int bytes)
{
    if (rank == 0)
        send(udp, out, bytes, 0);
    receive_datagram();
    if (rank == 1)
        send(udp, out, bytes, 0);
}

/* What a barrier of two ranks is: each says that it is there. */
static void datagram_barrier(int bytes)
{
    send(udp, out, bytes, 0);
    receive_datagram();
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
    if (count > 2 && strcmp(arguments[2], "udp") == 0) {
        join();
        for (size_t at = 0; one_way[at] <= DATAGRAM_MAX; at++)
            tell("one_way", one_way[at], median(datagram_round_trip, one_way[at], BATCH) / 2);
        tell("barrier", 0, median(datagram_barrier, 0, BATCH));
        MPI_Finalize();
        return 0;
    }
    for (size_t at = 0; at < sizeof one_way / sizeof *one_way; at++)
        tell("one_way", one_way[at], median(round_trip, one_way[at], BATCH) / 2);
    for (size_t at = 0; at < sizeof streams / sizeof *streams; at++) {
        int batch = streams[at] < 1024 ? BATCH : 1;
        tell("stream", streams[at], BURST * 1e9 / median(burst, streams[at], batch));
    }
    tell("barrier", 0, median(barrier, 0, BATCH));
    MPI_Finalize();
    return 0;
}
