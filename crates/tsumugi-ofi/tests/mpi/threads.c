// Several threads of each rank talk at once, each with one of the other rank. Usage: threads [THREADS]
#include "check.h"
#include <pthread.h>

static int threads = 4;

static void *talk(void *number) {
    int me = (int)(long)number, other = rank ^ 1;
    unsigned char *out = memory(200000), *in = memory(200000);
    for (int round = 0; round < 300; round++) {
        int bytes = round % 50 == 49 ? 200000 : round * 37 % 5000;
        MPI_Request requests[2];
        fill(out, bytes, rank * 1000 + me * 10 + round);
        MPI_Irecv(in, bytes, MPI_BYTE, other, me, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, bytes, MPI_BYTE, other, me, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        expect(in, bytes, other * 1000 + me * 10 + round, "a thread's message");
    }
    free(out);
    free(in);
    return NULL;
}

int main(int argc, char **argv) {
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(level == MPI_THREAD_MULTIPLE, "threads are offered at level %d only", level);
    if (argc > 1) threads = atoi(argv[1]);
    if ((rank ^ 1) < size) {
        pthread_t *started = memory(sizeof *started * threads);
        for (long at = 0; at < threads; at++) pthread_create(&started[at], NULL, talk, (void *)at);
        for (int at = 0; at < threads; at++) pthread_join(started[at], NULL);
        free(started);
    }
    end("threads");
    return 0;
}
