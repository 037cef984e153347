// One rank kills itself in the middle of things, or, by an argument, before a barrier. The others say what they are told of it, or are ended by the launcher.
#include "check.h"
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv) {
    begin(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int data = rank, sum;
    MPI_Allreduce(&data, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == size - 1) raise(SIGKILL);
    int error = argc > 1 ? MPI_Barrier(MPI_COMM_WORLD)
                         : MPI_Recv(&data, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(error, text, &length);
    printf("rank %d is told: %s\n", rank, text);
    fflush(stdout);
    CHECK(error != MPI_SUCCESS, "a message of the dead");
    _exit(0);
}
