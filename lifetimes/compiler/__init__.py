"""The array JIT: a graph of array operations, traced from Python, fused into kernels, compiled on demand."""
