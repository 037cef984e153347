/*
 * How long a message takes: half of a round trip between two ranks.
 *
 * Each round trip is timed by itself, by rank 0. With --udp two bare UDP sockets do the same between the same processes: no MPI
 * over UDP can be faster.
 */
#include "common.h"
#include "udp.h"

#include <string.h>

enum { SAMPLES_MAX = 1 << 20 };

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
static bool bare;

static void round_trip(size_t bytes)
{
    int other = !rank;
    if (rank == 0)
        MPI_Send(out, (int)bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD);
    MPI_Recv(in, (int)bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Send(out, (int)bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD);
}

static void datagram_round_trip(size_t bytes)
{
    if (rank == 0)
        udp_send(bytes);
    udp_receive(bytes);
    if (rank == 1)
        udp_send(bytes);
}

static double batch(size_t bytes, int count)
{
    void (*action)(size_t) = bare ? datagram_round_trip : round_trip;
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
    if (bare) {
        udp_prepare(bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        datagram_round_trip(bytes);
        udp_expect(bytes);
        return;
    }
    fill(out, bytes, rank);
    memset(in, 0, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    round_trip(bytes);
    expect(in, bytes, !rank, "a message");
}

static void run(size_t bytes)
{
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
    tell(bare ? &udp_figure : &mpi_figure, bytes, (double[]){p50 * us, sum / sample_count * us, p99 * us});
}

int main(int argc, char **argv)
{
    const struct option options[] = {
        {"--udp", NULL, "two bare UDP sockets instead of MPI, sizes up to 64K", .flag = &bare},
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
            if (settings.sizes[at] <= UDP_ONE_WAY_MAX)
                settings.sizes[count++] = settings.sizes[at];
        if (count == 0)
            misused("--udp is for at most %d bytes: write a smaller --size, or leave out --udp", UDP_ONE_WAY_MAX);
    }
    samples = memory(sizeof *samples * SAMPLES_MAX);
    if (bare) {
        udp_open(UDP_ONE_WAY_MAX);
    } else {
        /* A message may be empty. */
        out = memory(settings.longest + 1);
        in = memory(settings.longest + 1);
    }
    for (int at = 0; at < count; at++)
        run(settings.sizes[at]);
    end();
    return 0;
}
