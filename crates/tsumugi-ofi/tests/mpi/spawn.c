// Processes that are made while others run: two children are spawned, talk with their parents, and disconnect; then an
// ordinary program is forked and runs.
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    begin(&argc, &argv);
    MPI_Comm parents;
    MPI_Comm_get_parent(&parents);
    int token = 40 + rank, heard = 0;
    if (parents == MPI_COMM_NULL) {
        MPI_Comm children;
        int errors[2];
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, errors);
        CHECK(errors[0] == MPI_SUCCESS && errors[1] == MPI_SUCCESS, "children were not spawned");
        if (rank == 0) {
            MPI_Send(&token, 1, MPI_INT, 1, 9, children);
            MPI_Recv(&heard, 1, MPI_INT, 1, 9, children, MPI_STATUS_IGNORE);
            CHECK(heard == token + 1, "a child says %d", heard);
        }
        MPI_Comm merged;
        MPI_Intercomm_merge(children, 0, &merged);
        int all, one = 1, sum;
        MPI_Comm_size(merged, &all);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, merged);
        CHECK(all == size + 2 && sum == all, "%d and %d of %d", all, sum, size + 2);
        MPI_Comm_free(&merged);
        MPI_Comm_disconnect(&children);
        pid_t child = fork();
        CHECK(child >= 0, "no fork");
        if (child == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(1);
        }
        int status;
        waitpid(child, &status, 0);
        CHECK(status == 0, "a forked program ended with %d", status);
        end("spawn");
    } else {
        if (rank == 1) {
            MPI_Recv(&heard, 1, MPI_INT, 0, 9, parents, MPI_STATUS_IGNORE);
            heard++;
            MPI_Send(&heard, 1, MPI_INT, 0, 9, parents);
        }
        MPI_Comm merged;
        MPI_Intercomm_merge(parents, 1, &merged);
        int one = 1, sum;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, merged);
        MPI_Comm_free(&merged);
        MPI_Comm_disconnect(&parents);
        MPI_Finalize();
    }
    return 0;
}
