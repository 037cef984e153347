// Collectives that a PMPI library may take: barriers, broadcasts and reductions of every kind, on communicators of every kind, each
// checked, with and without waiting. Any argument: by one thread of each rank.
#include "check.h"
#include <pthread.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

// Seconds by a clock that all ranks on one machine have in common.
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

// Nobody leaves a barrier before the last has come: who comes late says so beforehand, by a message that has arrived then.
static void barriers(MPI_Comm comm) {
    int me, all;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &all);
    for (int late = 0; late < all; late++) {
        if (me == late) {
            usleep(3000);
            for (int to = 0; to < all; to++)
                if (to != me) MPI_Send(&late, 1, MPI_INT, to, 77, comm);
        }
        MPI_Barrier(comm);
        int there = 1, said = late;
        if (me != late) {
            // A message may be a moment behind the barrier, which goes another way; its sender has sent it before.
            for (int looks = 0; there = 0, looks < 1000000; looks++) {
                MPI_Iprobe(late, 77, comm, &there, MPI_STATUS_IGNORE);
                if (there) break;
            }
            CHECK(there, "the barrier was left before rank %d came", late);
            MPI_Recv(&said, 1, MPI_INT, late, 77, comm, MPI_STATUS_IGNORE);
        }
        CHECK(said == late, "a message of %d", said);
    }
    double before = now(), last, after;
    MPI_Barrier(comm);
    after = now();
    MPI_Allreduce(&before, &last, 1, MPI_DOUBLE, MPI_MAX, comm);
    CHECK(after >= last, "left %g s before the last came", last - after);
}

static void broadcasts(MPI_Comm comm) {
    static const int sizes[] = {0, 1, 7, 8, 100, 4096, 20000, 70001, 1 << 20, (1 << 20) + 3};
    int me, all;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &all);
    for (unsigned at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        int bytes = sizes[at], root = at % all;
        unsigned char *data = memory(bytes);
        memset(data, 0, bytes);
        if (me == root) fill(data, bytes, at);
        MPI_Bcast(data, bytes, MPI_BYTE, root, comm);
        expect(data, bytes, at, "broadcast");
        free(data);
    }
    // Every second column at the root, backwards; one behind the other at others.
    MPI_Datatype column, turned;
    int lengths[] = {1, 1, 1}, places[] = {8, 0, 4};
    MPI_Type_vector(50, 1, 2, MPI_INT, &column);
    MPI_Type_indexed(3, lengths, places, MPI_INT, &turned);
    MPI_Type_commit(&column);
    MPI_Type_commit(&turned);
    for (int root = 0; root < all; root++) {
        int data[100];
        for (int place = 0; place < 100; place++) data[place] = me == root ? place + root : -1;
        if (me == root || me % 2)
            MPI_Bcast(data, 1, column, root, comm);
        else
            MPI_Bcast(data, 50, MPI_INT, root, comm);
        for (int place = 0; place < 50; place++) {
            int found = data[me == root || me % 2 ? 2 * place : place];
            CHECK(found == 2 * place + root, "a column: %d at %d", found, place);
        }
        int some[9] = {0};
        for (int place = 0; place < 9; place++) some[place] = me == root ? place : -1;
        if (me == root)
            MPI_Bcast(some, 1, turned, root, comm);
        else
            MPI_Bcast(some, 3, MPI_INT, root, comm);
        CHECK(me == root || (some[0] == 8 && some[1] == 0 && some[2] == 4 && some[3] == -1), "turned: %d %d %d", some[0],
              some[1], some[2]);
    }
    MPI_Type_free(&column);
    MPI_Type_free(&turned);
}

static double combined(double a, double b, int which) {
    switch (which) {
    case 0: return a + b;
    case 1: return a * b;
    case 2: return a < b ? a : b;
    default: return a > b ? a : b;
    }
}

static int64_t combined_bits(int64_t a, int64_t b, int which) {
    switch (which) {
    case 0: return a & b;
    case 1: return a | b;
    case 2: return a ^ b;
    case 3: return a && b;
    default: return a || b;
    }
}

// Values stay small, so that products fit and floating-point numbers are exact.
#define NUMBERS(type, mpi, floats)                                                                                     \
    static void of_##type(MPI_Comm comm, int count) {                                                                  \
        static const int places[] = {0, 1};                                                                            \
        MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX};                                                          \
        MPI_Op bits[] = {MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR};                                              \
        int me, all;                                                                                                   \
        MPI_Comm_rank(comm, &me);                                                                                      \
        MPI_Comm_size(comm, &all);                                                                                     \
        type *from = memory(sizeof(type) * count), *to = memory(sizeof(type) * count);                                 \
        for (int in_place = 0; in_place < 2; in_place++)                                                               \
            for (int op = 0; op < (floats ? 4 : 9); op++) {                                                            \
                for (int at = 0; at < count; at++) from[at] = to[at] = (type)((me + at) % 3 + places[op == 4]);        \
                MPI_Allreduce(in_place ? MPI_IN_PLACE : (void *)from, to, count, mpi, op < 4 ? ops[op] : bits[op - 4], \
                              comm);                                                                                   \
                for (int at = 0; at < count; at++) {                                                                   \
                    double right = at % 3 + places[op == 4];                                                           \
                    for (int other = 1; other < all; other++) {                                                        \
                        double value = (other + at) % 3 + places[op == 4];                                             \
                        right = op < 4 ? combined(right, value, op)                                                    \
                                       : (double)combined_bits((int64_t)right, (int64_t)value, op - 4);                \
                    }                                                                                                  \
                    CHECK(to[at] == (type)right, #type ", operation %d, place %d: %g and not %g", op, at,              \
                          (double)to[at], right);                                                                      \
                }                                                                                                      \
            }                                                                                                          \
        free(from);                                                                                                    \
        free(to);                                                                                                      \
    }

typedef signed char schar;
typedef long long llong;
NUMBERS(schar, MPI_SIGNED_CHAR, 0)
NUMBERS(uint8_t, MPI_UINT8_T, 0)
NUMBERS(int16_t, MPI_INT16_T, 0)
NUMBERS(uint16_t, MPI_UINT16_T, 0)
NUMBERS(int, MPI_INT, 0)
NUMBERS(unsigned, MPI_UNSIGNED, 0)
NUMBERS(long, MPI_LONG, 0)
NUMBERS(llong, MPI_LONG_LONG, 0)
NUMBERS(uint64_t, MPI_UINT64_T, 0)
NUMBERS(float, MPI_FLOAT, 1)
NUMBERS(double, MPI_DOUBLE, 1)

static void greater(void *in, void *to, int *count, MPI_Datatype *type) {
    (void)type;
    for (int at = 0; at < *count; at++)
        if (((int *)in)[at] > ((int *)to)[at]) ((int *)to)[at] = ((int *)in)[at];
}

static void reductions(MPI_Comm comm) {
    static const int counts[] = {1, 8, 1000};
    for (int at = 0; at < 3; at++) {
        int count = counts[at];
        of_schar(comm, count);
        of_uint8_t(comm, count);
        of_int16_t(comm, count);
        of_uint16_t(comm, count);
        of_int(comm, count);
        of_unsigned(comm, count);
        of_long(comm, count);
        of_llong(comm, count);
        of_uint64_t(comm, count);
        of_float(comm, count);
        of_double(comm, count);
    }
    // What the library cannot: an operation of the program's, and a pair.
    int me, all, most;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &all);
    MPI_Op own;
    MPI_Op_create(greater, 1, &own);
    MPI_Allreduce(&me, &most, 1, MPI_INT, own, comm);
    CHECK(most == all - 1, "an own operation: %d", most);
    MPI_Op_free(&own);
    struct { double value; int where; } mine = {-me, me}, least;
    MPI_Allreduce(&mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, comm);
    CHECK(least.where == all - 1, "the least is at %d", least.where);
    // The same to the last bit everywhere.
    double tenth = 0.1 * (me + 1), sum, sums[64];
    MPI_Allreduce(&tenth, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Allgather(&sum, 1, MPI_DOUBLE, sums, 1, MPI_DOUBLE, comm);
    for (int at = 0; at < all; at++) CHECK(memcmp(&sums[at], &sum, sizeof sum) == 0, "sums differ");
}

static void started(MPI_Comm comm) {
    int me, all;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &all);
    int next = (me + 1) % all, former = (me + all - 1) % all;
    // Several at once, tested and waited for in every way, with others of the program's in between.
    for (int round = 0; round < 9; round++) {
        int one = me + round, sum = -1, data[40], sent = me, got = -1, done = 0, count = 0, indices[5];
        MPI_Datatype column;
        MPI_Type_vector(20, 1, 2, MPI_INT, &column);
        MPI_Type_commit(&column);
        for (int at = 0; at < 40; at++) data[at] = me == round % all ? at : -1;
        MPI_Request requests[5];
        MPI_Status statuses[5];
        MPI_Irecv(&got, 1, MPI_INT, former, 5, comm, &requests[0]);
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &requests[1]);
        MPI_Ibcast(data, 1, column, round % all, comm, &requests[2]);
        MPI_Type_free(&column);
        MPI_Ibarrier(comm, &requests[3]);
        MPI_Isend(&sent, 1, MPI_INT, next, 5, comm, &requests[4]);
        if (round == 3) MPI_Barrier(comm); // behind those that are pending
        switch (round % 9) {
        case 0:
            for (int at = 0; at < 5; at++) MPI_Wait(&requests[at], &statuses[at]);
            break;
        case 1:
            while (!done) MPI_Testall(5, requests, &done, MPI_STATUSES_IGNORE);
            break;
        case 2:
            for (int left = 5, index; left > 0; left--) MPI_Waitany(5, requests, &index, MPI_STATUS_IGNORE);
            break;
        case 4:
            for (int left = 5; left > 0; left -= count) MPI_Waitsome(5, requests, &count, indices, statuses);
            break;
        case 5:
            for (int left = 5; left > 0; left -= count) MPI_Testsome(5, requests, &count, indices, statuses);
            break;
        case 6:
            for (int left = 5, index; left > 0; left -= done) MPI_Testany(5, requests, &index, &done, MPI_STATUS_IGNORE);
            break;
        case 7:
            for (int at = 4; at >= 0; at--)
                for (done = 0; !done;) MPI_Test(&requests[at], &done, MPI_STATUS_IGNORE);
            break;
        case 8:
            while (!done) MPI_Request_get_status(requests[1], &done, MPI_STATUS_IGNORE);
            // fall through
        default: MPI_Waitall(5, requests, statuses);
        }
        CHECK(sum == all * (all - 1) / 2 + all * round, "a sum that was started: %d", sum);
        CHECK(got == former, "a message meanwhile: %d", got);
        for (int at = 0; at < 40; at += 2) CHECK(data[at] == at, "a broadcast that was started: %d", data[at]);
        CHECK(round % all == me || data[1] == -1, "it has written between");
        for (int at = 0; at < 5; at++) CHECK(requests[at] == MPI_REQUEST_NULL, "a request is left");
    }
    // The others' part must not need a call of who waits for a message by the MPI.
    if (all > 1) {
        int sum = 0, word = 0;
        MPI_Request request;
        MPI_Iallreduce(&me, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
        if (me == 0) MPI_Recv(&word, 1, MPI_INT, all - 1, 6, comm, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (me == all - 1) MPI_Send(&sum, 1, MPI_INT, 0, 6, comm);
        CHECK(sum == all * (all - 1) / 2, "a sum while one waits: %d", sum);
    }
}

// A message so long that its sender needs the receiver, which is in a barrier already.
static void long_message(MPI_Comm comm) {
    int me, all, bytes = 4 << 20;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &all);
    unsigned char *data = memory(bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    if (me == 0 && all > 1) MPI_Irecv(data, bytes, MPI_BYTE, all - 1, 8, comm, &request);
    if (me == all - 1 && all > 1) {
        fill(data, bytes, 3);
        usleep(2000);
        MPI_Send(data, bytes, MPI_BYTE, 0, 8, comm);
    }
    MPI_Barrier(comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (me == 0 && all > 1) expect(data, bytes, 3, "a long message");
    free(data);
}

#ifndef OPEN_MPI
// What was started is waited for by functions that are not taken, as those of Fortran's do; meanwhile the others need a long message.
static void waited_elsewhere(MPI_Comm comm) {
    int me, all, bytes = 1 << 20;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &all);
    unsigned char *data = memory(bytes);
    for (int round = 0; round < 6; round++) {
        int sum = 0, word = me == 0 ? round : -1, index, done = 0, indices[2];
        MPI_Request long_one = MPI_REQUEST_NULL, requests[2];
        fill(data, bytes, round);
        if (me == 0 && all > 1) MPI_Isend(data, bytes, MPI_BYTE, all - 1, 9, comm, &long_one);
        if (me == all - 1 && all > 1) MPI_Recv(data, bytes, MPI_BYTE, 0, 9, comm, MPI_STATUS_IGNORE);
        MPI_Iallreduce(&me, &sum, 1, MPI_INT, MPI_SUM, comm, &requests[0]);
        MPI_Ibcast(&word, 1, MPI_INT, 0, comm, &requests[1]);
        switch (round) {
        case 0: PMPI_Waitall(2, requests, MPI_STATUSES_IGNORE); break;
        case 1:
            for (int at = 0; at < 2; at++) PMPI_Wait(&requests[at], MPI_STATUS_IGNORE);
            break;
        case 2:
            for (int at = 0; at < 2; at++) PMPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
            break;
        case 3:
            for (int left = 2; left > 0; left -= done) PMPI_Waitsome(2, requests, &done, indices, MPI_STATUSES_IGNORE);
            break;
        case 4:
            while (!done) PMPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
            break;
        default:
            for (int at = 0; at < 2; at++)
                for (done = 0; !done;) PMPI_Test(&requests[at], &done, MPI_STATUS_IGNORE);
        }
        CHECK(sum == all * (all - 1) / 2 && word == round, "waited for elsewhere: %d, %d", sum, word);
        PMPI_Wait(&long_one, MPI_STATUS_IGNORE);
    }
    free(data);
}
#endif

// What a program has the MPI call when it ends may do collectives, too.
static int at_end(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    int sum;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == size * (size - 1) / 2, "a sum at the end: %d", sum);
    return MPI_SUCCESS;
}

struct worker {
    MPI_Comm comm;
    int number;
};

static void *work(void *argument) {
    struct worker *worker = argument;
    for (int at = 0; at < 100; at++) {
        int value = rank + worker->number, sum;
        MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, worker->comm);
        CHECK(sum == size * (size - 1) / 2 + size * worker->number, "a thread's sum: %d", sum);
        MPI_Barrier(worker->comm);
    }
    return NULL;
}

static void threads(void) {
    pthread_t started[2];
    struct worker workers[2];
    for (int at = 0; at < 2; at++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[at].comm);
        workers[at].number = at;
    }
    for (int at = 0; at < 2; at++) pthread_create(&started[at], NULL, work, &workers[at]);
    for (int at = 0; at < 2; at++) {
        pthread_join(started[at], NULL);
        MPI_Comm_free(&workers[at].comm);
    }
}

static void all_of(MPI_Comm comm) {
    barriers(comm);
    broadcasts(comm);
    reductions(comm);
    started(comm);
    long_message(comm);
#ifndef OPEN_MPI
    waited_elsewhere(comm);
#endif
}

int main(int argc, char **argv) {
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    all_of(MPI_COMM_WORLD);
    all_of(MPI_COMM_SELF);
    MPI_Comm copy, half, across;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    barriers(copy);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    barriers(half);
    reductions(half);
    if (size > 1) {
        int others_leader = (size - 1) % 2 == rank % 2 ? size - 2 : size - 1, mine = 1, theirs;
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, others_leader, 5, &across);
        MPI_Barrier(across);
        MPI_Allreduce(&mine, &theirs, 1, MPI_INT, MPI_SUM, across);
        CHECK(theirs == (rank % 2 ? (size + 1) / 2 : size / 2), "between halves: %d", theirs);
        MPI_Comm_free(&across);
    }
    MPI_Request pending;
    MPI_Ibarrier(copy, &pending);
#ifdef OPEN_MPI // 5.0.11 itself does not survive a communicator that is freed while something of it is pending.
    MPI_Wait(&pending, MPI_STATUS_IGNORE);
    MPI_Comm_free(&copy);
#else
    MPI_Comm_free(&copy);
    MPI_Wait(&pending, MPI_STATUS_IGNORE);
#endif
    MPI_Comm_free(&half);
    for (int at = 0; at < 10; at++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &copy);
        MPI_Barrier(copy);
        MPI_Comm_free(&copy);
    }
    if (level == MPI_THREAD_MULTIPLE && argc == 1) threads();
    int key;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_end, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    end("taken");
    return 0;
}
