/*
 * How many messages a second many pairs of ranks exchange: of n ranks, each of 0 … n/2−1 sends to the one n/2 above it.
 *
 * All pairs work at once. A batch takes as long as its slowest pair.
 */
#include "common.h"
#include "window.h"

#include <stdio.h>

static const struct figure figure = {
    "message_rate",
    "Message rate of all pairs together: windows of MPI_Isend",
    "messages/s",
    {{"value", "Messages/s"}, {"mb_per_s", "MB/s"}, {"pairs", "Pairs"}, {"pairs_on_one_node", "on one node"}},
};

static int sends_to = -1, receives_from = -1;

static double batch(size_t bytes, int count)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    for (int at = 0; at < count; at++) {
        window_exchange(bytes, sends_to, receives_from);
        if (sends_to >= 0)
            MPI_Recv(NULL, 0, MPI_BYTE, sends_to, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(NULL, 0, MPI_BYTE, receives_from, 2, MPI_COMM_WORLD);
    }
    return MPI_Wtime() - begun;
}

/* A window of which every byte is looked at. */
static void check(size_t bytes)
{
    window_prepare(bytes);
    batch(bytes, 1);
    if (receives_from >= 0)
        window_expect(bytes, receives_from);
}

/* How many pairs the MPI takes to be on one node: their messages need no network. */
static int pairs_on_one_node(void)
{
    MPI_Comm node;
    int lowest = rank, lowest_of_sender = -1, same, all;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Bcast(&lowest, 1, MPI_INT, 0, node);
    MPI_Comm_free(&node);
    if (sends_to >= 0)
        MPI_Send(&lowest, 1, MPI_INT, sends_to, 3, MPI_COMM_WORLD);
    else
        MPI_Recv(&lowest_of_sender, 1, MPI_INT, receives_from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    same = lowest == lowest_of_sender;
    MPI_Allreduce(&same, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

int main(int argc, char **argv)
{
    int window = 64;
    const struct option options[] = {
        {"--window", "MESSAGES", "how many are sent before one waits for an answer (64)", .number = &window},
        {0},
    };
    const struct program program = {
        "message_rate",
        "message_rate: how many messages a second go between many pairs of ranks. Of n ranks, each of 0 to n/2-1\n"
        "sends to the one n/2 above it. Place the ranks so that the two of a pair are on different nodes.\n\n"
        "  mpiexec -n 8 message_rate\n"
        "  mpiexec -n 8 message_rate --size 8,64 --window 256",
        "1..4K",
        options,
    };
    begin(&argc, &argv, &program);
    if (ranks % 2)
        misused("it takes pairs of ranks and there are %d: write an even number, such as mpiexec -n %d", ranks, ranks + 1);
    if (window > 4096)
        misused("--window %d: write at most 4096 messages", window);
    int pairs = ranks / 2;
    if (rank < pairs)
        sends_to = rank + pairs;
    else
        receives_from = rank - pairs;
    window_open(window, settings.longest);
    int on_one_node = pairs_on_one_node();
    for (int at = 0; at < settings.size_count; at++) {
        size_t bytes = settings.sizes[at];
        check(bytes);
        struct times times = measure(batch, bytes, warm_up(batch, bytes));
        check(bytes);
        double messages = (double)window_count(bytes) * pairs / times.max;
        tell(&figure, bytes, (double[]){messages, messages * bytes / 1e6, pairs, on_one_node});
    }
    end();
    return 0;
}
