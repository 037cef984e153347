// One-sided: fence, lock, post-start-complete-wait, atomics, memory that comes and goes.
#include "check.h"
#include <stdint.h>

enum { WORDS = 20000 };

static void fences(void) {
    int64_t *words;
    MPI_Win window;
    MPI_Win_allocate(sizeof(int64_t) * WORDS, sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &words, &window);
    int64_t *mine = memory(sizeof(int64_t) * WORDS), *theirs = memory(sizeof(int64_t) * WORDS);
    int next = (rank + 1) % size;
    for (int round = 0; round < 10; round++) {
        int count = round % 2 ? WORDS : 1 + round;
        for (int at = 0; at < count; at++) mine[at] = rank * 1000000 + round * 1000 + at % 1000;
        MPI_Win_fence(0, window);
        MPI_Put(mine, count, MPI_INT64_T, next, 0, count, MPI_INT64_T, window);
        MPI_Win_fence(0, window);
        MPI_Get(theirs, count, MPI_INT64_T, next, 0, count, MPI_INT64_T, window);
        MPI_Win_fence(0, window);
        int before = (rank + size - 1) % size;
        for (int at = 0; at < count; at++) {
            CHECK(theirs[at] == mine[at], "read back %ld", (long)theirs[at]);
            CHECK(words[at] == before * 1000000 + round * 1000 + at % 1000, "written %ld", (long)words[at]);
        }
    }
    for (int at = 0; at < WORDS; at++) words[at] = 0;
    MPI_Win_fence(0, window);
    for (int at = 0; at < WORDS; at++) mine[at] = at + rank;
    for (int to = 0; to < size; to++) MPI_Accumulate(mine, WORDS, MPI_INT64_T, to, 0, WORDS, MPI_INT64_T, MPI_SUM, window);
    MPI_Win_fence(0, window);
    for (int at = 0; at < WORDS; at++)
        CHECK(words[at] == (int64_t)size * at + size * (size - 1) / 2, "sum %ld at %d", (long)words[at], at);
    MPI_Win_free(&window);
    free(mine);
    free(theirs);
}

static void locks(void) {
    int64_t *words;
    MPI_Win window;
    MPI_Win_allocate(rank == 0 ? 64 * sizeof(int64_t) : 0, sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &words, &window);
    if (rank == 0) memset(words, 0, 64 * sizeof(int64_t));
    MPI_Barrier(MPI_COMM_WORLD);
    enum { ROUNDS = 100 };
    int64_t one = 1, was = 0, seen = -1;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Get(&was, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window);
        MPI_Win_flush(0, window);
        int64_t becomes = was + 1;
        MPI_Put(&becomes, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Win_lock_all(0, window);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Fetch_and_op(&one, &was, MPI_INT64_T, 0, 1, MPI_SUM, window);
        MPI_Win_flush(0, window);
        CHECK(was > seen, "a counter went from %ld to %ld", (long)seen, (long)was);
        seen = was;
        int64_t expected = was, changed;
        do {
            int64_t becomes = expected + 2;
            MPI_Compare_and_swap(&becomes, &expected, &changed, MPI_INT64_T, 0, 2, window);
            MPI_Win_flush(0, window);
            if (changed == expected) break;
            expected = changed;
        } while (1);
    }
    double x = 0.5, before;
    MPI_Get_accumulate(&x, 1, MPI_DOUBLE, &before, 1, MPI_DOUBLE, 0, 3, 1, MPI_DOUBLE, MPI_SUM, window);
    MPI_Win_flush_all(window);
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        double sum;
        memcpy(&sum, &words[3], sizeof sum);
        CHECK(words[0] == (int64_t)ROUNDS * size, "under a lock: %ld", (long)words[0]);
        CHECK(words[1] == (int64_t)ROUNDS * size, "fetch and add: %ld", (long)words[1]);
        CHECK(words[2] == (int64_t)2 * ROUNDS * size, "compare and swap: %ld", (long)words[2]);
        CHECK(sum == 0.5 * size, "doubles: %g", sum);
        MPI_Win_unlock(0, window);
    }
    MPI_Win_free(&window);
}

static void posts(void) {
    int data[1000], place[1000];
    MPI_Win window;
    MPI_Win_create(place, sizeof place, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Group world, to, from;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Group_incl(world, 1, &next, &to);
    MPI_Group_incl(world, 1, &before, &from);
    for (int round = 0; round < 20; round++) {
        for (int at = 0; at < 1000; at++) data[at] = rank + round + at;
        MPI_Win_post(from, 0, window);
        MPI_Win_start(to, 0, window);
        MPI_Put(data, 1000, MPI_INT, next, 0, 1000, MPI_INT, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        for (int at = 0; at < 1000; at++) CHECK(place[at] == before + round + at, "round %d: %d", round, place[at]);
    }
    MPI_Group_free(&world);
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    MPI_Win_free(&window);
}

static void dynamic(void) {
    MPI_Win window;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    for (int round = 0; round < 5; round++) {
        int count = 1000 << round;
        int *place = memory(sizeof(int) * count), *data = memory(sizeof(int) * count);
        MPI_Win_attach(window, place, sizeof(int) * count);
        MPI_Aint own, *all = memory(sizeof(MPI_Aint) * size);
        MPI_Get_address(place, &own);
        MPI_Allgather(&own, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD);
        int next = (rank + 1) % size, before = (rank + size - 1) % size;
        for (int at = 0; at < count; at++) data[at] = rank * 3 + at;
        MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window);
        MPI_Put(data, count, MPI_INT, next, all[next], count, MPI_INT, window);
        MPI_Win_unlock(next, window);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int at = 0; at < count; at++) CHECK(place[at] == before * 3 + at, "attached memory: %d", place[at]);
        MPI_Win_detach(window, place);
        MPI_Barrier(MPI_COMM_WORLD);
        free(place);
        free(data);
        free(all);
    }
    MPI_Win_free(&window);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    fences();
    locks();
    posts();
    dynamic();
    end("windows");
    return 0;
}
