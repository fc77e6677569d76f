"""What the threads of a job do over time: run, wait for a core, wait for a lock, sleep, spin."""
