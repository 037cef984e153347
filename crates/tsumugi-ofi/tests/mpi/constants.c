// Compares what the PMPI library takes for the constants of this MPI with what its header says.
#include "check.h"
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

static uintptr_t (*constant)(const char *name);

static void same(const char *name, uintptr_t here) {
    uintptr_t there = constant(name);
    CHECK(there == here, "%s is %#lx, and taken for %#lx", name, (unsigned long)here, (unsigned long)there);
}

// Handles and addresses; MPICH's handles are unsigned numbers of 32 bits.
#define VALUE(name) (sizeof(name) == 4 ? (uint32_t)(uintptr_t)(name) : (uintptr_t)(name))
#define HANDLE(name) same(#name, VALUE(name))
// Fortran's are there only where the MPI has Fortran; PyPI's wheels have none and say so.
#define FORTRAN(name) \
    if (constant(#name) != (uintptr_t)-77) same(#name, VALUE(name))
#define NUMBER(name) same(#name, (uintptr_t)(intptr_t)(name))

int main(int argc, char **argv) {
    begin(&argc, &argv);
    constant = (uintptr_t(*)(const char *))dlsym(RTLD_DEFAULT, "tsumugi_collectives_constant");
    CHECK(constant, "the library is not loaded");
    same("MPI_Comm", sizeof(MPI_Comm));
    same("MPI_SOURCE", offsetof(MPI_Status, MPI_SOURCE));
    same("MPI_TAG", offsetof(MPI_Status, MPI_TAG));
    HANDLE(MPI_COMM_SELF);
    HANDLE(MPI_INFO_NULL);
    HANDLE(MPI_IN_PLACE);
    HANDLE(MPI_STATUS_IGNORE);
    NUMBER(MPI_ANY_SOURCE);
    NUMBER(MPI_ANY_TAG);
    NUMBER(MPI_ERR_OTHER);
    NUMBER(MPI_COMM_TYPE_SHARED);
    HANDLE(MPI_BYTE);
    HANDLE(MPI_PACKED);
    HANDLE(MPI_CHAR);
    HANDLE(MPI_SIGNED_CHAR);
    HANDLE(MPI_UNSIGNED_CHAR);
    HANDLE(MPI_SHORT);
    HANDLE(MPI_UNSIGNED_SHORT);
    HANDLE(MPI_INT);
    HANDLE(MPI_UNSIGNED);
    HANDLE(MPI_LONG);
    HANDLE(MPI_UNSIGNED_LONG);
    HANDLE(MPI_LONG_LONG_INT);
    HANDLE(MPI_UNSIGNED_LONG_LONG);
    HANDLE(MPI_FLOAT);
    HANDLE(MPI_DOUBLE);
    HANDLE(MPI_INT8_T);
    HANDLE(MPI_UINT8_T);
    HANDLE(MPI_INT16_T);
    HANDLE(MPI_UINT16_T);
    HANDLE(MPI_INT32_T);
    HANDLE(MPI_UINT32_T);
    HANDLE(MPI_INT64_T);
    HANDLE(MPI_UINT64_T);
    HANDLE(MPI_AINT);
    HANDLE(MPI_OFFSET);
    HANDLE(MPI_COUNT);
    HANDLE(MPI_SUM);
    HANDLE(MPI_PROD);
    HANDLE(MPI_MIN);
    HANDLE(MPI_MAX);
    HANDLE(MPI_BAND);
    HANDLE(MPI_BOR);
    HANDLE(MPI_BXOR);
    HANDLE(MPI_LAND);
    HANDLE(MPI_LOR);
    FORTRAN(MPI_INTEGER);
    FORTRAN(MPI_REAL);
    FORTRAN(MPI_DOUBLE_PRECISION);
    FORTRAN(MPI_INTEGER4);
    FORTRAN(MPI_INTEGER8);
    FORTRAN(MPI_REAL4);
    FORTRAN(MPI_REAL8);
    end("constants");
    return 0;
}
