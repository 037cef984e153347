/*
 * How much of a message's time is hidden behind computation: rank 0 starts a message, computes, and waits for the end.
 *
 *   overlap = 1 - max(0, (together - computation) / communication)
 *
 * where computation takes as long as communication does alone. 1: the message moved while the rank computed; 0: it did not.
 * Rank 0 times all of it. When it sends, the other rank answers that the message has come. When it receives, the other rank waits
 * until it is asked to send.
 */
#include "common.h"

#include <string.h>

static const struct figure sender = {
    "overlap_sender",
    "Overlap of MPI_Isend with computation of the sender, from 0 to 1",
    "ratio",
    {{"value", "Overlap"},
     {"communication_us", "Communication (us)"},
     {"computation_us", "Computation (us)"},
     {"together_us", "Together (us)"}},
};
static const struct figure receiver = {
    "overlap_receiver",
    "Overlap of MPI_Irecv with computation of the receiver, from 0 to 1",
    "ratio",
    {{"value", "Overlap"},
     {"communication_us", "Communication (us)"},
     {"computation_us", "Computation (us)"},
     {"together_us", "Together (us)"}},
};

static char *data;
static bool rank_0_sends;
static int steps; /* of computation, while the message is under way */

/* Keeps the processor busy with what each time depends on the step before, and no memory. */
static void compute(int count)
{
    static volatile double result;
    double x = result;
    for (int at = 0; at < count; at++)
        x = x * 0.5 + 1;
    result = x;
}

static double only_compute(size_t bytes, int count)
{
    (void)bytes;
    double begun = MPI_Wtime();
    if (rank == 0)
        for (int at = 0; at < count; at++)
            compute(steps);
    return rank == 0 ? MPI_Wtime() - begun : 0;
}

/* Sends or receives a message, and computes meanwhile. */
static void exchange(size_t bytes)
{
    MPI_Request requests[2];
    int length = (int)bytes;
    if (rank == 0 && rank_0_sends) {
        MPI_Irecv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(data, length, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[0]);
    } else if (rank == 0) {
        MPI_Irecv(data, length, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[1]);
    } else if (rank_0_sends) {
        MPI_Recv(data, length, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    } else {
        MPI_Recv(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(data, length, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
    if (rank == 0) {
        compute(steps);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
}

static double batch(size_t bytes, int count)
{
    double begun = MPI_Wtime();
    for (int at = 0; at < count; at++)
        exchange(bytes);
    return rank == 0 ? MPI_Wtime() - begun : 0;
}

/* A message of which every byte is looked at. */
static void check(size_t bytes)
{
    bool sends = (rank == 0) == rank_0_sends;
    if (sends)
        fill(data, bytes, bytes);
    else
        memset(data, 0, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    exchange(bytes);
    if (!sends)
        expect(data, bytes, bytes, "a message");
}

/* How many steps rank 0 computes in this time, when no other process disturbs it; the same in all ranks. */
static int steps_in(double seconds)
{
    enum { TRIAL = 100000, TRIALS = 20 };
    double took[TRIALS];
    int found = 0;
    if (rank == 0) {
        for (int at = 0; at < TRIALS; at++) {
            double begun = MPI_Wtime();
            compute(TRIAL);
            took[at] = MPI_Wtime() - begun;
        }
        double wanted = seconds / percentile(took, TRIALS, 0) * TRIAL;
        found = wanted < 1 ? 1 : wanted > 1e9 ? 1000000000 : (int)wanted;
    }
    MPI_Bcast(&found, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return found;
}

static void run(size_t bytes)
{
    /* The ranks that do not compute tell 0 seconds: the greatest is rank 0's. */
    steps = 0;
    check(bytes);
    double communication = measure(batch, bytes, warm_up(batch, bytes)).max;
    steps = steps_in(communication);
    double computation = measure(only_compute, bytes, warm_up(only_compute, bytes)).max;
    double together = measure(batch, bytes, warm_up(batch, bytes)).max;
    check(bytes);
    double exposed = (together - computation) / communication;
    double overlap = exposed < 0 ? 1 : exposed > 1 ? 0 : 1 - exposed;
    tell(rank_0_sends ? &sender : &receiver, bytes,
         (double[]){overlap, communication * 1e6, computation * 1e6, together * 1e6});
}

int main(int argc, char **argv)
{
    const struct program program = {
        "overlap",
        "overlap: how much of a message's time is hidden behind computation, for a sender and for a receiver that\n"
        "compute meanwhile. 1: all of it, the message moves by itself. 0: nothing, it waits for the next MPI call.\n\n"
        "  mpiexec -n 2 overlap\n"
        "  mpiexec -n 2 overlap --size 1K,64K,1M --time 2",
        "1K..4M",
        NULL,
    };
    begin(&argc, &argv, &program);
    if (ranks != 2)
        misused("it takes 2 ranks and there are %d: write mpiexec -n 2", ranks);
    data = memory(settings.longest);
    for (int sends = 1; sends >= 0; sends--) {
        rank_0_sends = sends;
        for (int at = 0; at < settings.size_count; at++)
            run(settings.sizes[at]);
    }
    end();
    return 0;
}
