// Point-to-point: every length, every mode, wildcards, probes, cancelling, derived datatypes, and a storm of messages that
// nobody expects. Usage: messages [LONGEST]
#include "check.h"
#include <stddef.h>

static void lengths(size_t longest) {
    unsigned char *out = memory(longest + 1), *in = memory(longest + 1);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (size_t bytes = 0; bytes <= longest; bytes = bytes < 8 ? bytes + 1 : bytes * 4 - 5) {
        fill(out, bytes, rank + (unsigned)bytes);
        in[bytes] = 0xa5;
        MPI_Status status;
        MPI_Sendrecv(out, (int)bytes, MPI_BYTE, to, 3, in, (int)bytes, MPI_BYTE, from, 3, MPI_COMM_WORLD, &status);
        int count;
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK((size_t)count == bytes && status.MPI_SOURCE == from && status.MPI_TAG == 3, "%d of %zu bytes", count, bytes);
        expect(in, bytes, from + (unsigned)bytes, "a message");
        CHECK(in[bytes] == 0xa5, "a byte behind a message of %zu was written", bytes);
    }
    free(out);
    free(in);
}

static void modes(void) {
    if (size < 2 || rank > 1) return;
    enum { COUNT = 5 };
    static const int lengths[COUNT] = {0, 1, 1000, 20000, 3000000};
    unsigned char *buffer = memory(4000000), *space = memory(4000000 + MPI_BSEND_OVERHEAD);
    for (int at = 0; at < COUNT; at++) {
        int bytes = lengths[at];
        if (rank == 0) {
            fill(buffer, bytes, at);
            MPI_Send(buffer, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Ssend(buffer, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
            MPI_Buffer_attach(space, 4000000 + MPI_BSEND_OVERHEAD);
            MPI_Bsend(buffer, bytes, MPI_BYTE, 1, 3, MPI_COMM_WORLD);
            void *gone;
            int gone_bytes;
            MPI_Buffer_detach(&gone, &gone_bytes);
            MPI_Recv(NULL, 0, MPI_BYTE, 1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Rsend(buffer, bytes, MPI_BYTE, 1, 5, MPI_COMM_WORLD);
        } else {
            MPI_Request ready;
            for (int tag = 1; tag <= 3; tag++) {
                MPI_Recv(buffer, bytes, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                expect(buffer, bytes, at, "a mode");
            }
            MPI_Irecv(buffer, bytes, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &ready);
            MPI_Send(NULL, 0, MPI_BYTE, 0, 4, MPI_COMM_WORLD);
            MPI_Wait(&ready, MPI_STATUS_IGNORE);
            expect(buffer, bytes, at, "ready mode");
        }
    }
    free(buffer);
    free(space);
}

static void probes(void) {
    if (size < 2) return;
    if (rank == 0) {
        for (int from = 1; from < size; from++) {
            MPI_Status status;
            int bytes;
            MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_BYTE, &bytes);
            unsigned char *in = memory(bytes);
            MPI_Message message;
            MPI_Mprobe(status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &message, &status);
            MPI_Mrecv(in, bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
            CHECK(bytes == 100 * status.MPI_SOURCE * status.MPI_SOURCE, "%d bytes", bytes);
            expect(in, bytes, status.MPI_SOURCE, "a message that was probed");
            free(in);
        }
        int there;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        CHECK(!there, "a message is left");
        MPI_Request request;
        int cancelled;
        MPI_Status status;
        MPI_Irecv(&there, 1, MPI_INT, MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &cancelled);
        CHECK(cancelled, "a receive that no message matches cannot be cancelled");
    } else {
        int bytes = 100 * rank * rank;
        unsigned char *out = memory(bytes);
        fill(out, bytes, rank);
        MPI_Send(out, bytes, MPI_BYTE, 0, rank, MPI_COMM_WORLD);
        free(out);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void datatypes(void) {
    if (size < 2 || rank > 1) return;
    enum { ROWS = 300, COLUMNS = 200 };
    static int matrix[ROWS][COLUMNS];
    MPI_Datatype column, some, parts;
    MPI_Type_vector(ROWS, 3, COLUMNS, MPI_INT, &column);
    int blocks[] = {5, 1, 9}, places[] = {100, 40000, 55};
    MPI_Type_indexed(3, blocks, places, MPI_INT, &some);
    struct part {
        double x;
        char c;
        int n[3];
    };
    int lengths[] = {1, 1, 3};
    MPI_Aint offsets[] = {offsetof(struct part, x), offsetof(struct part, c), offsetof(struct part, n)};
    MPI_Datatype kinds[] = {MPI_DOUBLE, MPI_CHAR, MPI_INT}, bare;
    MPI_Type_create_struct(3, lengths, offsets, kinds, &bare);
    MPI_Type_create_resized(bare, 0, sizeof(struct part), &parts);
    MPI_Type_commit(&column);
    MPI_Type_commit(&some);
    MPI_Type_commit(&parts);
    static struct part list[5000];
    if (rank == 0) {
        for (int row = 0; row < ROWS; row++)
            for (int at = 0; at < COLUMNS; at++) matrix[row][at] = row * COLUMNS + at;
        for (int at = 0; at < 5000; at++) list[at] = (struct part){at / 3.0, (char)at, {at, -at, at * at}};
        MPI_Send(&matrix[0][7], 1, column, 1, 0, MPI_COMM_WORLD);
        MPI_Send(matrix, 1, some, 1, 1, MPI_COMM_WORLD);
        MPI_Send(list, 5000, parts, 1, 2, MPI_COMM_WORLD);
    } else {
        MPI_Recv(&matrix[0][7], 1, column, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int row = 0; row < ROWS; row++)
            for (int at = 0; at < COLUMNS; at++)
                CHECK(matrix[row][at] == (at >= 7 && at < 10 ? row * COLUMNS + at : 0), "row %d, %d", row, at);
        MPI_Recv(matrix, 1, some, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(((int *)matrix)[40000] == 40000 && ((int *)matrix)[63] == 63, "indexed parts");
        MPI_Recv(list, 5000, parts, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int at = 0; at < 5000; at++)
            CHECK(list[at].x == at / 3.0 && list[at].c == (char)at && list[at].n[2] == at * at, "struct %d", at);
    }
    MPI_Type_free(&column);
    MPI_Type_free(&some);
    MPI_Type_free(&parts);
    MPI_Type_free(&bare);
}

// Everyone sends rank 0 more than it expects; it receives them from anybody, each sender's in order.
static void storm(int count) {
    if (size < 2) return;
    if (rank == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
        int *next = calloc(size, sizeof *next), got[256];
        for (int left = count * (size - 1); left > 0; left--) {
            MPI_Status status;
            MPI_Recv(got, 256, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            CHECK(got[0] == next[status.MPI_SOURCE]++, "message %d of %d overtook another", got[0], status.MPI_SOURCE);
            CHECK(status.MPI_TAG == got[0] % 1000, "tag %d", status.MPI_TAG);
        }
        free(next);
    } else {
        int data[256] = {0};
        MPI_Request *requests = memory(sizeof *requests * count);
        int(*copies)[256] = memory(sizeof *copies * 100);
        for (int at = 0; at < count; at++) {
            // Lengths from 4 B to 1 KiB.
            int *from = copies[at % 100];
            if (at >= 100) MPI_Wait(&requests[at - 100], MPI_STATUS_IGNORE);
            memcpy(from, data, sizeof data);
            from[0] = at;
            MPI_Isend(from, 1 + at % 256, MPI_INT, 0, at % 1000, MPI_COMM_WORLD, &requests[at]);
            if (at == count / 2) MPI_Barrier(MPI_COMM_WORLD);
        }
        MPI_Waitall(count < 100 ? count : 100, requests + (count < 100 ? 0 : count - 100), MPI_STATUSES_IGNORE);
        free(requests);
        free(copies);
    }
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    size_t longest = argc > 1 ? strtoull(argv[1], NULL, 10) : 4 << 20;
    lengths(longest);
    modes();
    probes();
    datatypes();
    storm(10000);
    end("messages");
    return 0;
}
