"""Counting: events by name, groups of counters, multiplexing."""
