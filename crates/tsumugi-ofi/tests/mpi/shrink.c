// One rank kills itself; the others agree on that, shrink the communicator and go on (ULFM).
#include "check.h"
#include <mpi-ext.h>
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv) {
    begin(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int one = 1, sum, from[64], to[64] = {0};
    // All connect before one dies: Open MPI would wait for ever for the address of a rank that died before.
    CHECK(size <= 64, "%d ranks", size);
    MPI_Alltoall(to, 1, MPI_INT, from, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == size - 1) {
        usleep(300000); // the others have all of the above
        raise(SIGKILL);
    }
    int error = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (error == MPI_SUCCESS) error = MPI_Barrier(MPI_COMM_WORLD);
    MPIX_Comm_revoke(MPI_COMM_WORLD);
    MPI_Comm left;
    MPIX_Comm_shrink(MPI_COMM_WORLD, &left);
    int all;
    MPI_Comm_size(left, &all);
    error = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, left);
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(error, text, &length);
    CHECK(error == MPI_SUCCESS && all == size - 1 && sum == all, "%d of %d are left, and %d count: %s", all, size, sum, text);
    if (rank == 0) printf("shrink: ok, %d are left\n", all);
    fflush(stdout);
    // In MPI_Finalize, Open MPI's launcher would wait for the dead.
    usleep(300000);
    _exit(0);
}
