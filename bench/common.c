#include "common.h"

#include "options.h"

#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES_MAX = 4096, BATCHES_WANTED = 50, BATCH_MAX = 1 << 20 };

int rank, ranks;
struct settings settings = {.seconds = 0.5};

static const char *name; /* of the program */

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: rank %d: ", name, rank);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* Which kernel this is. Containers and network namespaces of one host have the same, and share its CPUs. */
static uint64_t kernel_id(void)
{
    char text[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file) {
        if (!fgets(text, sizeof text, file))
            text[0] = 0;
        fclose(file);
    }
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *at = text; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    return hash;
}

/* Moves this process to a CPU of its own, if there are as many as ranks under this kernel. */
static void pin(void)
{
    uint64_t own = kernel_id(), *all = memory(sizeof *all * ranks);
    int here = 0, nth = 0;
    MPI_Allgather(&own, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, MPI_COMM_WORLD);
    for (int other = 0; other < ranks; other++) {
        here += all[other] == own;
        nth += all[other] == own && other < rank;
    }
    free(all);
    cpu_set_t allowed, one;
    /* A launcher that has given each rank a CPU of its own is left alone. */
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < here)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && nth-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
        }
}

void begin(int *argc, char ***argv, const struct program *program)
{
    name = program->name;
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    read_options(program, *argv + 1);
    if (settings.pin)
        pin();
}

void end(void)
{
    MPI_Finalize();
}

void tell(const struct figure *figure, size_t bytes, const double *values)
{
    static const char *last;
    if (rank != 0)
        return;
    if (settings.json) {
        printf("{\"figure\": \"%s\", \"size_bytes\": %zu, \"ranks\": %d, \"value\": %.9g, \"unit\": \"%s\"", figure->name,
               bytes, ranks, values[0], figure->unit);
        for (int at = 1; at < COLUMNS_MAX && figure->columns[at].name; at++)
            printf(", \"%s\": %.9g", figure->columns[at].name, values[at]);
        printf("}\n");
    } else {
        if (!last || strcmp(figure->name, last) != 0) {
            printf("%s# %s, %d ranks\n# %-10s", last ? "\n" : "", figure->heading, ranks, "Size");
            for (int at = 0; at < COLUMNS_MAX && figure->columns[at].title; at++)
                printf("%20s", figure->columns[at].title);
            printf("\n");
        }
        printf("%-12zu", bytes);
        for (int at = 0; at < COLUMNS_MAX && figure->columns[at].title; at++)
            printf("%20.2f", values[at]);
        printf("\n");
    }
    last = figure->name;
    fflush(stdout);
}

int warm_up(batch_function *batch, size_t bytes)
{
    for (int count = 1;; count *= 2) {
        double seconds = batch(bytes, count), longest;
        MPI_Allreduce(&seconds, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (longest >= settings.seconds / BATCHES_WANTED || count >= BATCH_MAX)
            return count;
    }
}

struct times measure(batch_function *batch, size_t bytes, int count)
{
    static double min[BATCHES_MAX], mean[BATCHES_MAX], max[BATCHES_MAX];
    int batches = 0;
    bool enough = false;
    double begun = MPI_Wtime();
    while (!enough) {
        double seconds = batch(bytes, count) / count, sum;
        /* The ranks end together: when the first of them finds that it is enough. */
        double local[3] = {seconds, -seconds, MPI_Wtime() - begun}, all[3];
        MPI_Allreduce(local, all, 3, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        MPI_Allreduce(&seconds, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        max[batches] = all[0];
        min[batches] = -all[1];
        mean[batches++] = sum / ranks;
        enough = all[2] >= settings.seconds || batches == BATCHES_MAX;
    }
    return (struct times){percentile(min, batches, 0.5), percentile(mean, batches, 0.5), percentile(max, batches, 0.5)};
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double percentile(double *values, size_t count, double part)
{
    qsort(values, count, sizeof *values, ascending);
    size_t at = (size_t)(part * (double)count);
    return values[at < count ? at : count - 1];
}

void *memory(size_t bytes)
{
    void *place = malloc(bytes ? bytes : 1);
    if (!place)
        fail("there is no memory for %zu bytes", bytes);
    memset(place, 0, bytes);
    return place;
}

static unsigned char pattern(unsigned seed, size_t at)
{
    return (unsigned char)((at * 31) ^ (at >> 8) ^ (seed * 0x9e3779b9u >> 3));
}

void fill(void *place, size_t bytes, unsigned seed)
{
    unsigned char *to = place;
    for (size_t at = 0; at < bytes; at++)
        to[at] = pattern(seed, at);
}

void expect(const void *place, size_t bytes, unsigned seed, const char *what)
{
    const unsigned char *from = place;
    for (size_t at = 0; at < bytes; at++)
        if (from[at] != pattern(seed, at))
            fail("%s: byte %zu of %zu is %u and not %u", what, at, bytes, from[at], pattern(seed, at));
}
