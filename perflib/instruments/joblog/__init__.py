"""A job's log: when an event begins and ends."""
