"""Collectives of numpy arrays by mpi4py: a distributed matrix product, checked against numpy's own."""

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
rows, inner, columns = 60 * size, 300, 200
generator = numpy.random.default_rng(7)
left = generator.random((rows, inner)) if rank == 0 else None
right = generator.random((inner, columns)) if rank == 0 else numpy.empty((inner, columns))

part = numpy.empty((rows // size, inner))
world.Scatter(left, part, root=0)
world.Bcast(right, root=0)
product = numpy.empty((rows, columns))
world.Allgather(part @ right, product)
if rank == 0:
    assert numpy.allclose(product, left @ right)

total = numpy.empty(1)
world.Allreduce(numpy.array([part.sum()]), total, op=MPI.SUM)
seen = world.allgather((rank, float(total[0])))
assert [number for number, _ in seen] == list(range(size)), seen
assert all(abs(value - total[0]) < 1e-9 for _, value in seen)
pieces = numpy.arange(size * 1000, dtype="i4") + 1000000 * rank
turned = numpy.empty_like(pieces)
world.Alltoall(pieces, turned)
expected = [numpy.arange(1000 * rank, 1000 * (rank + 1)) + 1000000 * other for other in range(size)]
assert (turned == numpy.concatenate(expected)).all()
world.Barrier()
if rank == 0:
    print("arrays: ok")
