// Sessions, without MPI_Init or, with any argument, beside it and longer than that: communicators that are made from their groups, and
// collectives on them.
#include "check.h"

struct part {
    MPI_Session session;
    MPI_Comm comm;
};

static struct part begin_part(const char *name) {
    struct part part;
    MPI_Group world;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &part.session);
    MPI_Group_from_session_pset(part.session, "mpi://WORLD", &world);
    MPI_Comm_create_from_group(world, name, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &part.comm);
    MPI_Group_free(&world);
    MPI_Comm_rank(part.comm, &rank);
    MPI_Comm_size(part.comm, &size);
    return part;
}

static void collectives(MPI_Comm comm) {
    int one = 1, ones = 0, data[10];
    for (int at = 0; at < 50; at++) {
        int sum, word = rank == at % size ? at : -1;
        MPI_Barrier(comm);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
        CHECK(sum == size * (size - 1) / 2, "a sum: %d", sum);
        MPI_Bcast(&word, 1, MPI_INT, at % size, comm);
        CHECK(word == at, "a broadcast: %d", word);
    }
    // Every second number, while those between stay.
    MPI_Datatype every_second;
    MPI_Type_vector(5, 1, 2, MPI_INT, &every_second);
    MPI_Type_commit(&every_second);
    for (int at = 0; at < 10; at++) data[at] = rank == 0 ? at : -1;
    MPI_Bcast(data, 1, every_second, 0, comm);
    for (int at = 0; at < 10; at++) CHECK(data[at] == (rank == 0 || at % 2 == 0 ? at : -1), "a vector: %d", data[at]);
    MPI_Request requests[2];
    data[8] = rank;
    MPI_Ibcast(data, 1, every_second, size - 1, comm, &requests[0]);
    MPI_Iallreduce(&one, &ones, 1, MPI_INT, MPI_SUM, comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(data[8] == size - 1 && ones == size, "what was started: %d, %d", data[8], ones);
    MPI_Type_free(&every_second);
}

static void end_part(struct part *part) {
    MPI_Comm_free(&part->comm);
    MPI_Session_finalize(&part->session);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        begin(&argc, &argv);
        collectives(MPI_COMM_WORLD);
    }
    struct part first = begin_part("first"), second = begin_part("second");
    collectives(first.comm);
    collectives(second.comm);
    if (argc > 1) MPI_Finalize();
    collectives(first.comm);
    end_part(&first);
    collectives(second.comm);
    end_part(&second);
#ifndef OPEN_MPI // 5.0.11 itself does not survive a session after the last one.
    first = begin_part("again");
    collectives(first.comm);
    end_part(&first);
#endif
    if (rank == 0) printf("sessions: ok\n");
    return 0;
}
