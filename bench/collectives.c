/*
 * How long collective operations take. Each is timed by itself after a barrier, by every rank with its own clock: the value is the
 * mean of all ranks. Beside it are the ranks that take least and most.
 */
#include "common.h"

#include <stdio.h>
#include <string.h>

static unsigned char *out, *in;

/* What a rank sends to another, or to all of them: then it is what it sends to rank 0. */
static unsigned seed(int from, int to)
{
    return (unsigned)(from * ranks + to);
}

/* Sums are of 4-byte integers: place `at` of a rank holds rank + at. */
static void fill_numbers(size_t bytes)
{
    for (unsigned at = 0; at < bytes / sizeof at; at++) {
        unsigned number = rank + at;
        memcpy(out + at * sizeof number, &number, sizeof number);
    }
}

static void expect_sums(size_t bytes)
{
    unsigned all = (unsigned)ranks;
    for (unsigned at = 0; at < bytes / sizeof at; at++) {
        unsigned sum, right = all * (all - 1) / 2 + all * at;
        memcpy(&sum, in + at * sizeof sum, sizeof sum);
        if (sum != right)
            fail("sum %u is %u and not %u", at, sum, right);
    }
}

static void expect_of_all(size_t bytes, int to, const char *what)
{
    for (int from = 0; from < ranks; from++)
        expect(in + from * bytes, bytes, seed(from, to), what);
}

static void barrier(int bytes)
{
    (void)bytes;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void check_nothing(size_t bytes)
{
    (void)bytes;
}

static void bcast(int bytes)
{
    MPI_Bcast(rank == 0 ? out : in, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void check_bcast(size_t bytes)
{
    if (rank != 0)
        expect(in, bytes, seed(0, 0), "what was broadcast");
}

static void reduce(int bytes)
{
    MPI_Reduce(out, in, bytes / 4, MPI_UNSIGNED, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void check_reduce(size_t bytes)
{
    if (rank == 0)
        expect_sums(bytes);
}

static void allreduce(int bytes)
{
    MPI_Allreduce(out, in, bytes / 4, MPI_UNSIGNED, MPI_SUM, MPI_COMM_WORLD);
}

static void gather(int bytes)
{
    MPI_Gather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void check_gather(size_t bytes)
{
    if (rank == 0)
        expect_of_all(bytes, 0, "what was gathered");
}

static void allgather(int bytes)
{
    MPI_Allgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void check_allgather(size_t bytes)
{
    expect_of_all(bytes, 0, "what all gathered");
}

static void scatter(int bytes)
{
    MPI_Scatter(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void check_scatter(size_t bytes)
{
    expect(in, bytes, seed(0, rank), "what was scattered");
}

static void alltoall(int bytes)
{
    MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void check_alltoall(size_t bytes)
{
    expect_of_all(bytes, rank, "what all sent to all");
}

/* SUMS: of 4-byte integers. */
enum kind { NO_DATA, SUMS, BLOCKS };

static const struct operation {
    const char *name, *heading;
    void (*run)(int bytes);
    void (*check)(size_t bytes);
    enum kind kind;
} operations[] = {
    {"barrier", "MPI_Barrier", barrier, check_nothing, NO_DATA},
    {"bcast", "MPI_Bcast", bcast, check_bcast, BLOCKS},
    {"reduce", "MPI_Reduce of 4-byte integers", reduce, check_reduce, SUMS},
    {"allreduce", "MPI_Allreduce of 4-byte integers", allreduce, expect_sums, SUMS},
    {"gather", "MPI_Gather, bytes of each rank", gather, check_gather, BLOCKS},
    {"allgather", "MPI_Allgather, bytes of each rank", allgather, check_allgather, BLOCKS},
    {"scatter", "MPI_Scatter, bytes to each rank", scatter, check_scatter, BLOCKS},
    {"alltoall", "MPI_Alltoall, bytes from each rank to each", alltoall, check_alltoall, BLOCKS},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static const struct operation *operation;

static double batch(size_t bytes, int count)
{
    double spent = 0;
    for (int at = 0; at < count; at++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = MPI_Wtime();
        operation->run((int)bytes);
        spent += MPI_Wtime() - begun;
    }
    return spent;
}

/* Does it once and looks at every byte. */
static void check(size_t bytes)
{
    if (operation->kind == SUMS)
        fill_numbers(bytes);
    else
        for (int to = 0; to < ranks; to++)
            fill(out + to * bytes, bytes, seed(rank, to));
    memset(in, 0, bytes * ranks);
    operation->run((int)bytes);
    operation->check(bytes);
}

static void run(const struct figure *figure, size_t bytes)
{
    check(bytes);
    struct times times = measure(batch, bytes, warm_up(batch, bytes));
    check(bytes);
    tell(figure, bytes, (double[]){times.mean * 1e6, times.min * 1e6, times.max * 1e6});
}

/* Which operations a list of names means. */
static void choose(const char *only, bool chosen[OPERATIONS])
{
    for (const char *name = only; name;) {
        size_t length = strcspn(name, ",");
        bool known = false;
        for (int at = 0; at < OPERATIONS; at++)
            if (strlen(operations[at].name) == length && strncmp(operations[at].name, name, length) == 0)
                known = chosen[at] = true;
        if (!known)
            misused("--only %s: there is no operation \"%.*s\"; write some of barrier, bcast, reduce, allreduce, gather, "
                    "allgather, scatter, alltoall, with commas between them",
                    only, (int)length, name);
        name = name[length] ? name + length + 1 : NULL;
    }
}

int main(int argc, char **argv)
{
    const char *only = NULL;
    const struct option options[] = {
        {"--only", "NAMES", "some of barrier,bcast,reduce,allreduce,gather,allgather,scatter,alltoall", .text = &only},
        {0},
    };
    const struct program program = {
        "collectives",
        "collectives: how long collective operations take, the mean of all ranks and the first and last of them.\n\n"
        "  mpiexec -n 4 collectives\n"
        "  mpiexec -n 4 collectives --only bcast,allreduce --size 8..64K",
        "4..256K",
        options,
    };
    begin(&argc, &argv, &program);
    bool chosen[OPERATIONS] = {0};
    for (int at = 0; at < OPERATIONS && !only; at++)
        chosen[at] = true;
    choose(only, chosen);
    for (int at = 0; at < settings.size_count; at++) {
        size_t bytes = settings.sizes[at];
        for (int which = 0; which < OPERATIONS; which++)
            if (chosen[which] && operations[which].kind == SUMS && bytes % 4)
                misused("--size %zu: %s sums integers of 4 bytes; write multiples of 4, or choose others by --only", bytes,
                        operations[which].name);
    }
    out = memory(settings.longest * ranks);
    in = memory(settings.longest * ranks);
    for (int which = 0; which < OPERATIONS; which++) {
        if (!chosen[which])
            continue;
        operation = &operations[which];
        struct figure figure = {
            operation->name,
            operation->heading,
            "us",
            {{"value", "Mean latency (us)"}, {"min", "First rank (us)"}, {"max", "Last rank (us)"}},
        };
        if (operation->kind == NO_DATA)
            run(&figure, 0);
        for (int at = 0; at < settings.size_count && operation->kind != NO_DATA; at++)
            run(&figure, settings.sizes[at]);
    }
    end();
    return 0;
}
