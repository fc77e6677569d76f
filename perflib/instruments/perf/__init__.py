"""perf under control, and what it writes, read."""
