"""Threads as perf sees them: events of the scheduler and of futexes."""
