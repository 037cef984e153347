// Every collective, blocking and not, over the world, halves of it, and a communicator between the halves.
#include "check.h"
#include <math.h>

static void over(MPI_Comm comm, int count) {
    int me, all;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &all);
    int *in = memory(sizeof(int) * count * all), *out = memory(sizeof(int) * count * all);
    for (int root = 0; root < all; root += all > 3 ? 3 : 1) {
        for (int at = 0; at < count; at++) out[at] = me == root ? root * 7 + at : -1;
        MPI_Bcast(out, count, MPI_INT, root, comm);
        for (int at = 0; at < count; at++) CHECK(out[at] == root * 7 + at, "broadcast: %d", out[at]);
        for (int at = 0; at < count; at++) out[at] = me + at;
        memset(in, 0, sizeof(int) * count * all);
        MPI_Reduce(out, in, count, MPI_INT, MPI_SUM, root, comm);
        if (me == root)
            for (int at = 0; at < count; at++)
                CHECK(in[at] == all * (all - 1) / 2 + at * all, "reduction: %d", in[at]);
        MPI_Gather(out, count, MPI_INT, in, count, MPI_INT, root, comm);
        if (me == root)
            for (int from = 0; from < all; from++)
                for (int at = 0; at < count; at++) CHECK(in[from * count + at] == from + at, "gather");
        MPI_Scatter(in, count, MPI_INT, out, count, MPI_INT, root, comm);
        for (int at = 0; at < count; at++) CHECK(out[at] == me + at, "scatter: %d", out[at]);
    }
    double x[3] = {me + 0.5, -me, 1.0}, y[3];
    MPI_Allreduce(x, y, 3, MPI_DOUBLE, MPI_MAX, comm);
    CHECK(y[0] == all - 0.5 && y[1] == 0 && y[2] == 1, "maximum: %g %g", y[0], y[1]);
    for (int at = 0; at < count; at++) out[at] = me * 1000 + at % 1000;
    MPI_Allgather(out, count, MPI_INT, in, count, MPI_INT, comm);
    for (int from = 0; from < all; from++)
        for (int at = 0; at < count; at++) CHECK(in[from * count + at] == from * 1000 + at % 1000, "all-gather");
    for (int to = 0; to < all; to++)
        for (int at = 0; at < count; at++) out[to * count + at] = me * 100 + to + at;
    MPI_Alltoall(out, count, MPI_INT, in, count, MPI_INT, comm);
    for (int from = 0; from < all; from++)
        for (int at = 0; at < count; at++)
            CHECK(in[from * count + at] == from * 100 + me + at, "all-to-all: %d", in[from * count + at]);
    int *counts = memory(sizeof(int) * all), *places = memory(sizeof(int) * all);
    int place = 0;
    for (int from = 0; from < all; from++) {
        counts[from] = from % 2 ? count : count / 2;
        places[from] = place;
        place += counts[from];
    }
    for (int at = 0; at < counts[me]; at++) out[at] = me - at;
    MPI_Allgatherv(out, counts[me], MPI_INT, in, counts, places, MPI_INT, comm);
    for (int from = 0; from < all; from++)
        for (int at = 0; at < counts[from]; at++) CHECK(in[places[from] + at] == from - at, "all-gather of lengths");
    for (int at = 0; at < place; at++) out[at] = me + at;
    MPI_Reduce_scatter(out, in, counts, MPI_INT, MPI_SUM, comm);
    for (int at = 0; at < counts[me]; at++)
        CHECK(in[at] == all * (all - 1) / 2 + all * (places[me] + at), "reduce and scatter: %d", in[at]);
    int sum;
    MPI_Scan(&me, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == me * (me + 1) / 2, "scan: %d", sum);
    sum = -1;
    MPI_Exscan(&me, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(me == 0 || sum == me * (me - 1) / 2, "exclusive scan: %d", sum);
    // Several at once.
    MPI_Request requests[4];
    int one = 1, ones, barred = me;
    for (int at = 0; at < count; at++) out[at] = me == 0 ? at : 0;
    MPI_Iallreduce(&one, &ones, 1, MPI_INT, MPI_SUM, comm, &requests[0]);
    MPI_Ibcast(out, count, MPI_INT, 0, comm, &requests[1]);
    MPI_Iallgather(&barred, 1, MPI_INT, in, 1, MPI_INT, comm, &requests[2]);
    MPI_Ibarrier(comm, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    CHECK(ones == all && in[all - 1] == all - 1 && out[count - 1] == count - 1, "several at once");
    free(in);
    free(out);
    free(counts);
    free(places);
}

static void between(MPI_Comm half) {
    if (size < 2) return;
    MPI_Comm across;
    // Halves are numbered backwards: each is led by its highest rank.
    int others_leader = (size - 1) % 2 == rank % 2 ? size - 2 : size - 1;
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, others_leader, 5, &across);
    int mine = rank % 2 ? 3 : 5, theirs = 0, others;
    MPI_Comm_remote_size(across, &others);
    MPI_Allreduce(&mine, &theirs, 1, MPI_INT, MPI_SUM, across);
    CHECK(theirs == others * (rank % 2 ? 5 : 3), "between the halves: %d", theirs);
    MPI_Comm_free(&across);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    static const int counts[] = {1, 2, 100, 3000, 70000};
    MPI_Comm half, copy;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    for (int at = 0; at < 5; at++) {
        over(MPI_COMM_WORLD, counts[at]);
        over(half, counts[at]);
    }
    over(copy, 10);
    between(half);
    MPI_Comm_free(&half);
    MPI_Comm_free(&copy);
    for (int at = 0; at < 1000; at++) MPI_Barrier(MPI_COMM_WORLD);
    end("collectives");
    return 0;
}
