"""What observes a program: perf, profiles, counters, simulators, logs, threads."""
