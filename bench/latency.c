/*
 * How long a message takes: half of a round trip between two ranks.
 *
 * Each round trip is timed by itself, by rank 0. With --udp two bare UDP sockets do the same between the same processes: no MPI
 * over UDP can be faster.
 */
#include "common.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* DATAGRAM_MAX: what one packet holds at MTU 1500. */
enum { SAMPLES_MAX = 1 << 20, DATAGRAM_MAX = 1472, PATIENCE_S = 10 };

static const struct figure mpi_figure = {
    "latency",
    "Latency of MPI_Send and MPI_Recv: half a round trip, the median of all",
    "us",
    {{"value", "Latency (us)"}, {"mean", "Mean (us)"}, {"p99", "p99 (us)"}},
};
static const struct figure udp_figure = {
    "udp_latency",
    "Latency of bare UDP sockets: half a round trip, the median of all",
    "us",
    {{"value", "Latency (us)"}, {"mean", "Mean (us)"}, {"p99", "p99 (us)"}},
};

static char *out, *in;
static double *samples;
static size_t sample_count;
static int udp = -1;

static void round_trip(size_t bytes)
{
    int other = !rank;
    if (rank == 0)
        MPI_Send(out, (int)bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD);
    MPI_Recv(in, (int)bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Send(out, (int)bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD);
}

static void send_datagram(size_t bytes)
{
    if (send(udp, out, bytes, 0) != (ssize_t)bytes)
        fail("a datagram of %zu bytes cannot be sent", bytes);
}

/* Looks until a datagram is there. One that is lost does not come again. */
static void receive_datagram(size_t bytes)
{
    double begun = MPI_Wtime();
    ssize_t got;
    for (int looks = 1; (got = recv(udp, in, DATAGRAM_MAX, MSG_DONTWAIT)) < 0; looks++)
        if (looks % (1 << 20) == 0 && MPI_Wtime() > begun + PATIENCE_S)
            fail("a datagram was lost");
    if ((size_t)got != bytes)
        fail("a datagram has %zd bytes and not %zu", got, bytes);
}

static void datagram_round_trip(size_t bytes)
{
    if (rank == 0)
        send_datagram(bytes);
    receive_datagram(bytes);
    if (rank == 1)
        send_datagram(bytes);
}

static double batch(size_t bytes, int count)
{
    void (*action)(size_t) = udp < 0 ? round_trip : datagram_round_trip;
    double begun = MPI_Wtime(), last = begun;
    for (int at = 0; at < count; at++) {
        action(bytes);
        double now = MPI_Wtime();
        /* The first one finds the other rank still busy with the end of the batch before, unless there is only one. */
        if ((at > 0 || count == 1) && sample_count < SAMPLES_MAX)
            samples[sample_count++] = now - last;
        last = now;
    }
    return last - begun;
}

/* A round trip of which every byte is looked at. */
static void check(size_t bytes)
{
    memset(in, 0, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    if (udp < 0)
        round_trip(bytes);
    else
        datagram_round_trip(bytes);
    expect(in, bytes, !rank, "a message");
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
    bool bound = bind(udp, (struct sockaddr *)&own, bytes) == 0;
    getsockname(udp, (struct sockaddr *)&own, &bytes);
    MPI_Sendrecv(&own, sizeof own, MPI_BYTE, !rank, 2, &peer, sizeof peer, MPI_BYTE, !rank, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (!bound || connect(udp, (struct sockaddr *)&peer, sizeof peer) != 0)
        fail("the UDP sockets of the two ranks cannot be joined");
}

static void run(size_t bytes)
{
    fill(out, bytes, rank);
    check(bytes);
    int count = warm_up(batch, bytes);
    sample_count = 0;
    measure(batch, bytes, count);
    check(bytes);
    double sum = 0;
    for (size_t at = 0; at < sample_count; at++)
        sum += samples[at];
    double p50 = percentile(samples, sample_count, 0.5), p99 = percentile(samples, sample_count, 0.99);
    double us = 1e6 / 2;
    tell(udp < 0 ? &mpi_figure : &udp_figure, bytes, (double[]){p50 * us, sum / sample_count * us, p99 * us});
}

int main(int argc, char **argv)
{
    bool bare = false;
    const struct option options[] = {
        {"--udp", NULL, "two bare UDP sockets instead of MPI, sizes up to 1472", .flag = &bare},
        {0},
    };
    const struct program program = {
        "latency",
        "latency: how long a message takes between two ranks, half a round trip.\n\n"
        "  mpiexec -n 2 latency\n"
        "  mpiexec -n 2 latency --size 8,1K --time 2\n"
        "  mpiexec -n 2 latency --udp             what bare sockets take, to compare with",
        "0,1..1M",
        options,
    };
    begin(&argc, &argv, &program);
    if (ranks != 2)
        misused("it takes 2 ranks and there are %d: write mpiexec -n 2", ranks);
    int count = settings.size_count;
    if (bare) {
        /* Longer ones are left out. */
        count = 0;
        for (int at = 0; at < settings.size_count; at++)
            if (settings.sizes[at] <= DATAGRAM_MAX)
                settings.sizes[count++] = settings.sizes[at];
        if (count == 0)
            misused("a UDP packet holds at most %d bytes: write a smaller --size, or leave out --udp", DATAGRAM_MAX);
    }
    size_t room = settings.longest < DATAGRAM_MAX ? DATAGRAM_MAX : settings.longest;
    out = memory(room);
    in = memory(room);
    samples = memory(sizeof *samples * SAMPLES_MAX);
    if (bare)
        join();
    for (int at = 0; at < count; at++)
        run(settings.sizes[at]);
    end();
    return 0;
}
