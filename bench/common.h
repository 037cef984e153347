/*
 * What the benchmarks share: options, tables and JSON, CPUs, batches of what is timed, and data that can be checked.
 *
 * A program calls begin(), then for each figure warm_up(), measure() and tell(), and at last end(). No clock of one rank is
 * compared with the clock of another.
 */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

enum { SIZES_MAX = 64, COLUMNS_MAX = 5 };

/* This process in MPI_COMM_WORLD, and how many there are. */
extern int rank, ranks;

/* What the options said. */
struct settings {
    size_t sizes[SIZES_MAX];
    int size_count;
    size_t longest; /* of the sizes */
    double seconds; /* that each figure is measured */
    bool json, pin;
};
extern struct settings settings;

/* An option of one program. Where its value goes says what it takes: `flag` takes none. */
struct option {
    const char *name;  /* with its dashes */
    const char *value; /* what stands for the value in --help */
    const char *help;
    bool *flag;
    int *number; /* at least 1 */
    const char **text;
};

struct program {
    const char *name;
    const char *about;            /* what --help says first: what is measured, and how it is run */
    const char *sizes;            /* without --size; NULL: it takes neither --size nor --time */
    const struct option *options; /* its own, up to one without a name; may be NULL */
};

/* Starts MPI, reads the options, and moves each rank to a CPU of its own. */
void begin(int *argc, char ***argv, const struct program *program);

/* Ends MPI. */
void end(void);

/* Ends all ranks with exit code 2: the program was called the wrong way. Every rank must come here; rank 0 says why. */
_Noreturn void misused(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the job: something is wrong. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A figure: its columns are the value and further numbers. */
struct figure {
    const char *name;    /* in JSON */
    const char *heading; /* above the table */
    const char *unit;    /* of the value, in JSON */
    struct {
        const char *name;  /* in JSON; the first one is always called "value" there */
        const char *title; /* in the table */
    } columns[COLUMNS_MAX];
};

/* Prints a row of the figure's table, or a line of JSON. Only rank 0 does anything. */
void tell(const struct figure *figure, size_t bytes, const double *values);

/* Does something `count` times and returns the seconds that this rank spent in it. */
typedef double batch_function(size_t bytes, int count);

/* Seconds for one of a batch: the least, mean and greatest of all ranks, of each the median over batches. */
struct times {
    double min, mean, max;
};

/* Runs batches of growing length; returns how many times a batch should do the thing. */
int warm_up(batch_function *batch, size_t bytes);

/* Runs batches for settings.seconds. */
struct times measure(batch_function *batch, size_t bytes, int count);

/* Sorts the values and returns the smallest that is not below this part (0 … 1) of them. */
double percentile(double *values, size_t count, double part);

/* Memory that exists: each of its pages has been written. */
void *memory(size_t bytes);

/* Data that depends on its place and a seed. */
void fill(void *place, size_t bytes, unsigned seed);
void expect(const void *place, size_t bytes, unsigned seed, const char *what);

#endif
