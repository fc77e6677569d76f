"""Which libraries there are: allocators, BLAS."""
