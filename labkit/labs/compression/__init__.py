"""Lab 10: sparsity, pruning that lasts, the bytes of sparse files, low rank, and small networks."""
