/*
 * How many bytes a second go from rank 0 to rank 1, or both ways at once: windows of messages. One way, the rank that has received
 * a window acknowledges it. With --udp two bare UDP sockets do it both ways, between the same processes.
 */
#include "common.h"
#include "udp.h"
#include "window.h"

static const struct figure one_way = {
    "bandwidth",
    "Bandwidth of windows of MPI_Isend, from rank 0 to rank 1",
    "MB/s",
    {{"value", "Bandwidth (MB/s)"}, {"messages_per_s", "Messages/s"}, {"window", "Window (messages)"}},
};
static const struct figure two_ways = {
    "bandwidth_both_ways",
    "Bandwidth of windows of MPI_Isend, both directions at once and together",
    "MB/s",
    {{"value", "Bandwidth (MB/s)"}, {"messages_per_s", "Messages/s"}, {"window", "Window (messages)"}},
};

static const struct figure udp_two_ways = {
    "udp_bandwidth_both_ways",
    "Bandwidth of bare UDP sockets, both directions at once and together",
    "MB/s",
    {{"value", "Bandwidth (MB/s)"}, {"messages_per_s", "Messages/s"}},
};

static bool both_ways, bare;

static double batch(size_t bytes, int count)
{
    int other = !rank;
    double begun = MPI_Wtime();
    for (int at = 0; at < count; at++) {
        if (bare) {
            udp_exchange(bytes);
        } else if (both_ways) {
            window_exchange(bytes, other, other);
        } else if (rank == 0) {
            window_exchange(bytes, other, -1);
            MPI_Recv(NULL, 0, MPI_BYTE, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            window_exchange(bytes, -1, other);
            MPI_Send(NULL, 0, MPI_BYTE, other, 2, MPI_COMM_WORLD);
        }
    }
    /* Of both directions a rank knows the end of one only: the later end counts. */
    return MPI_Wtime() - begun;
}

/* A window of which every byte is looked at. */
static void check(size_t bytes)
{
    if (bare) {
        udp_prepare(bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        udp_exchange(bytes);
        udp_expect(bytes);
        return;
    }
    window_prepare(bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    batch(bytes, 1);
    if (both_ways || rank == 1)
        window_expect(bytes, !rank);
}

int main(int argc, char **argv)
{
    int window = 64;
    const struct option options[] = {
        {"--both-ways", NULL, "both ranks send at once", .flag = &both_ways},
        {"--udp", NULL, "two bare UDP sockets instead of MPI, with --both-ways", .flag = &bare},
        {"--window", "MESSAGES", "how many are sent before one waits for an answer (64)", .number = &window},
        {0},
    };
    const struct program program = {
        "bandwidth",
        "bandwidth: how many bytes a second go from rank 0 to rank 1. MB/s are 10^6 bytes a second.\n\n"
        "  mpiexec -n 2 bandwidth\n"
        "  mpiexec -n 2 bandwidth --both-ways --size 64K..4M\n"
        "  mpiexec -n 2 bandwidth --both-ways --udp    what bare sockets carry, to compare with",
        "1..4M",
        options,
    };
    begin(&argc, &argv, &program);
    if (ranks != 2)
        misused("it takes 2 ranks and there are %d: write mpiexec -n 2", ranks);
    if (window > 4096)
        misused("--window %d: write at most 4096 messages", window);
    if (bare && !both_ways)
        misused("--udp is measured both ways only: write --both-ways as well");
    if (bare)
        udp_open(settings.longest);
    else
        window_open(window, settings.longest);
    for (int at = 0; at < settings.size_count; at++) {
        size_t bytes = settings.sizes[at];
        check(bytes);
        struct times times = measure(batch, bytes, warm_up(batch, bytes));
        check(bytes);
        double window = bare ? 1 : window_count(bytes), messages = window * (both_ways ? 2 : 1) / times.max;
        const struct figure *figure = bare ? &udp_two_ways : both_ways ? &two_ways : &one_way;
        tell(figure, bytes, (double[]){messages * bytes / 1e6, messages, window});
    }
    end();
    return 0;
}
