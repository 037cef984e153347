/*
 * Integer sort: ranks keys of a small range, ten times, by buckets that are dealt out to the ranks.
 *
 * What is computed is the benchmark IS of the NAS Parallel Benchmarks (NPB): the keys, the sizes and the values that the result
 * is verified against are from D. Bailey, E. Barszcz, J. Barton et al., "The NAS Parallel Benchmarks", report RNR-94-007, NASA
 * Ames, 1994, and D. Bailey, T. Harris, W. Saphir et al., "The NAS Parallel Benchmarks 2.0", report NAS-95-020, 1995. The program
 * is our own, and so are its times: they are no NPB results.
 */
#include "common.h"
#include "is_classes.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITERATIONS = 10, BUCKETS_LOG = 10, BUCKETS = 1 << BUCKETS_LOG };

static const struct class *class;

/* This rank's part of the keys: `count` from key `first` on. */
static int first, count;
static int *keys;

/* The same keys by buckets, and what this rank got of all ranks: keys from `low` up to `high`, and `before` are less than them. */
static int *bucketed, *received;
static size_t received_room;
static int received_count, low, high, before;

/* How many keys each bucket has here, and in all ranks. Behind them are the values of the keys that are tested. */
static int own[BUCKETS + TESTS], all[BUCKETS + TESTS];

/* How many of what was received are less than low + at. */
static int *ranks_of;
static size_t ranks_of_room;

static int passed;
static double communication; /* seconds in MPI calls */

/* The random numbers x' = a x mod 2^46, as integers. */
static const uint64_t MASK = ((uint64_t)1 << 46) - 1, SEED = 314159265, A = 1220703125; /* 5^13 */

static uint64_t power(uint64_t base, uint64_t exponent)
{
    uint64_t result = 1;
    for (; exponent; exponent >>= 1, base = base * base & MASK)
        if (exponent & 1)
            result = result * base & MASK;
    return result;
}

/* Each key is the mean of four random numbers. */
static void make_keys(void)
{
    uint64_t x = SEED * power(A, 4 * (uint64_t)first) & MASK;
    for (int at = 0; at < count; at++) {
        uint64_t sum = 0;
        for (int number = 0; number < 4; number++) {
            x = x * A & MASK;
            sum += x;
        }
        keys[at] = (int)(sum >> (48 - class->limit_log));
    }
}

/* Where the part of a rank begins. */
static int part(int of)
{
    return (int)(((int64_t)of << class->keys_log) / ranks);
}

static bool is_mine(int index)
{
    return index >= first && index < first + count;
}

static int bucket_of(int key)
{
    return key >> (class->limit_log - BUCKETS_LOG);
}

static int *at_least(int *place, size_t *room, size_t wanted)
{
    if (wanted <= *room)
        return place;
    free(place);
    *room = wanted + wanted / 16;
    return memory(sizeof *place * *room);
}

static void count_buckets(void)
{
    memset(own, 0, sizeof own);
    for (int at = 0; at < count; at++)
        own[bucket_of(keys[at])]++;
    for (int test = 0; test < TESTS; test++)
        if (is_mine(class->index[test]))
            own[BUCKETS + test] = keys[class->index[test] - first];
    double begun = MPI_Wtime();
    MPI_Allreduce(own, all, BUCKETS + TESTS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    communication += MPI_Wtime() - begun;
}

/* Deals out the buckets: a rank takes neighbours until all ranks up to it have their share. */
static void deal_out(int *sends)
{
    int width = 1 << (class->limit_log - BUCKETS_LOG), bucket = 0, dealt = 0;
    for (int to = 0; to < ranks; to++) {
        int begins = bucket, dealt_before = dealt;
        sends[to] = 0;
        for (; bucket < BUCKETS && (dealt < part(to + 1) || to == ranks - 1); bucket++) {
            dealt += all[bucket];
            sends[to] += own[bucket];
        }
        if (to == rank) {
            low = begins * width;
            high = bucket * width;
            before = dealt_before;
        }
    }
}

static void sort_into_buckets(void)
{
    int next[BUCKETS], place = 0;
    for (int bucket = 0; bucket < BUCKETS; bucket++) {
        next[bucket] = place;
        place += own[bucket];
    }
    for (int at = 0; at < count; at++)
        bucketed[next[bucket_of(keys[at])]++] = keys[at];
}

/* Sends each rank the keys of its buckets. */
static void exchange_keys(const int *sends)
{
    int *counts = memory(sizeof *counts * ranks), *from = memory(sizeof *from * ranks), *to = memory(sizeof *to * ranks);
    double begun = MPI_Wtime();
    MPI_Alltoall(sends, 1, MPI_INT, counts, 1, MPI_INT, MPI_COMM_WORLD);
    communication += MPI_Wtime() - begun;
    received_count = 0;
    for (int other = 0, sent = 0; other < ranks; other++) {
        from[other] = sent;
        to[other] = received_count;
        sent += sends[other];
        received_count += counts[other];
    }
    received = at_least(received, &received_room, received_count);
    begun = MPI_Wtime();
    MPI_Alltoallv(bucketed, sends, from, MPI_INT, received, counts, to, MPI_INT, MPI_COMM_WORLD);
    communication += MPI_Wtime() - begun;
    free(counts);
    free(from);
    free(to);
}

/* The rank of a key is how many keys are less. */
static void rank_keys(void)
{
    ranks_of = at_least(ranks_of, &ranks_of_room, high - low + 1);
    memset(ranks_of, 0, sizeof *ranks_of * (high - low + 1));
    for (int at = 0; at < received_count; at++) {
        if (received[at] < low || received[at] >= high)
            fail("got key %d, which does not belong between %d and %d", received[at], low, high);
        ranks_of[received[at] - low + 1]++;
    }
    for (int at = 1; at <= high - low; at++)
        ranks_of[at] += ranks_of[at - 1];
}

/* Compares the ranks of some keys with what was published. */
static void verify_some(int iteration)
{
    for (int test = 0; test < TESTS; test++) {
        int key = all[BUCKETS + test];
        if (key < low || key >= high)
            continue;
        int got = before + ranks_of[key - low];
        int right = class->rank[test] + class->moves[test] * (iteration - class->late[test]);
        if (got == right)
            passed++;
        else
            fprintf(stderr, "is: iteration %d: key %d has rank %d and not %d\n", iteration, key, got, right);
    }
}

static void iterate(int iteration)
{
    int *sends = memory(sizeof *sends * ranks);
    if (is_mine(iteration))
        keys[iteration - first] = iteration;
    if (is_mine(iteration + ITERATIONS))
        keys[iteration + ITERATIONS - first] = (1 << class->limit_log) - iteration;
    count_buckets();
    deal_out(sends);
    sort_into_buckets();
    exchange_keys(sends);
    rank_keys();
    verify_some(iteration);
    free(sends);
}

/* Puts every key where its rank says, and looks whether they ascend over all ranks and are those that there were. */
static bool verify_all(void)
{
    int *sorted = memory(sizeof *sorted * received_count), largest_below = -1;
    for (int at = 0; at < received_count; at++)
        sorted[ranks_of[received[at] - low]++] = received[at];
    int wrong = 0, largest = received_count ? sorted[received_count - 1] : -1;
    for (int at = 1; at < received_count; at++)
        wrong += sorted[at - 1] > sorted[at];
    MPI_Exscan(&largest, &largest_below, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    wrong += rank > 0 && received_count && largest_below > sorted[0];
    int64_t sums[3] = {wrong, received_count - count, 0}, totals[3];
    for (int at = 0; at < count; at++)
        sums[2] -= keys[at];
    for (int at = 0; at < received_count; at++)
        sums[2] += sorted[at];
    MPI_Allreduce(sums, totals, 3, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    free(sorted);
    return !totals[0] && !totals[1] && !totals[2];
}

static void summarize(double seconds, double mean, double most, bool verified)
{
    double total = (double)(1 << class->keys_log) * ITERATIONS / seconds / 1e6;
    if (settings.json) {
        char name[] = {'i', 's', '_', class->name, 0};
        struct figure figure = {
            name,
            NULL,
            "Mop/s",
            {{"value", NULL}, {"seconds", NULL}, {"communication_mean_s", NULL}, {"communication_max_s", NULL},
             {"verified", NULL}},
        };
        tell(&figure, sizeof *keys << class->keys_log, (double[]){total, seconds, mean, most, verified});
        return;
    }
    if (rank != 0)
        return;
    printf("Integer sort as in NPB IS\n");
    printf(" Class                        = %12c\n", class->name);
    printf(" Size                         = %12d\n", 1 << class->keys_log);
    printf(" Iterations                   = %12d\n", ITERATIONS);
    printf(" Ranks                        = %12d\n", ranks);
    printf(" Time in seconds              = %12.3f\n", seconds);
    printf(" Communication, mean of ranks = %12.3f\n", mean);
    printf(" Communication, most of ranks = %12.3f\n", most);
    printf(" Mop/s total                  = %12.2f\n", total);
    printf(" Mop/s of each rank           = %12.2f\n", total / ranks);
    printf(" Operation type               = %12s\n", "keys ranked");
    printf(" Verification                 = %12s\n", verified ? "SUCCESSFUL" : "UNSUCCESSFUL");
}

int main(int argc, char **argv)
{
    const char *name = "S";
    const struct option options[] = {
        {"--class", "CLASS", "how many keys: S 2^16, W 2^20, A 2^23, B 2^25, C 2^27 (S)", .text = &name},
        {0},
    };
    const struct program program = {
        "is",
        "is: sorts integers as the benchmark IS of the NAS Parallel Benchmarks does, and verifies the result.\n"
        "The exit code is 0 where it is right.\n\n"
        "  mpiexec -n 2 is --class A",
        NULL,
        options,
    };
    begin(&argc, &argv, &program);
    for (size_t at = 0; at < sizeof classes / sizeof *classes; at++)
        if (classes[at].name == name[0] && !name[1])
            class = &classes[at];
    if (!class)
        misused("--class %s: write S, W, A, B or C", name);
    if (ranks > BUCKETS)
        misused("it takes at most %d ranks and there are %d: write mpiexec -n %d", BUCKETS, ranks, BUCKETS);
    first = part(rank);
    count = part(rank + 1) - first;
    keys = memory(sizeof *keys * count);
    bucketed = memory(sizeof *bucketed * count);
    make_keys();
    /* Once untimed: connections are made, and memory is found. */
    iterate(1);
    passed = 0;
    communication = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    for (int iteration = 1; iteration <= ITERATIONS; iteration++)
        iterate(iteration);
    double spent[2] = {MPI_Wtime() - begun, communication}, most[2], sum;
    int all_passed;
    MPI_Allreduce(spent, most, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&communication, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&passed, &all_passed, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    bool verified = verify_all() && all_passed == TESTS * ITERATIONS;
    summarize(most[0], sum / ranks, most[1], verified);
    end();
    return verified ? 0 : 1;
}
