"""The system call futex, as far as it waits: numbers of its operations."""

from __future__ import annotations

WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2 = 0, 6, 9, 11, 13
WAITS = (WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2)
COMMAND, PRIVATE, CLOCK_REALTIME = 0x7F, 0x80, 0x100  # bits of an operation
