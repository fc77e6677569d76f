"""Jobs that run as programs of their own, to be timed and profiled."""
