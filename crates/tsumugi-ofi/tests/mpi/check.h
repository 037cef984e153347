// What every program here shares: data whose every byte can be checked, and complaints that end the job.
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

#define CHECK(holds, ...)                                                   \
    do {                                                                    \
        if (!(holds)) {                                                     \
            fprintf(stderr, "rank %d, %s:%d: ", rank, __FILE__, __LINE__);  \
            fprintf(stderr, __VA_ARGS__);                                   \
            fprintf(stderr, "\n");                                          \
            MPI_Abort(MPI_COMM_WORLD, 1);                                   \
        }                                                                   \
    } while (0)

// Byte `at` of what `seed` stands for.
static inline unsigned char pattern(unsigned seed, size_t at) {
    return (unsigned char)((at * 31) ^ (seed * 0x9e3779b9u >> 3) ^ (at >> 8));
}

static inline void fill(void *place, size_t bytes, unsigned seed) {
    unsigned char *to = place;
    for (size_t at = 0; at < bytes; at++) to[at] = pattern(seed, at);
}

static inline void expect(const void *place, size_t bytes, unsigned seed, const char *what) {
    const unsigned char *from = place;
    for (size_t at = 0; at < bytes; at++)
        CHECK(from[at] == pattern(seed, at), "%s: byte %zu of %zu is %u and not %u", what, at, bytes, from[at],
              pattern(seed, at));
}

static inline void *memory(size_t bytes) {
    void *place = malloc(bytes ? bytes : 1);
    CHECK(place != NULL, "no memory for %zu bytes", bytes);
    return place;
}

static inline void begin(int *argc, char ***argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

// Says that all ranks have come to the end.
static inline void end(const char *what) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("%s: ok\n", what);
    MPI_Finalize();
}

#endif
