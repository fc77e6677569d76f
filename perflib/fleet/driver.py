"""One driver at a time: whether a 'perflib fleet run' is at work on a plan."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from perflib.fleet.plan import Plan
from perflib.model.errors import UserError

_LOCK = "driver.lock"


@contextlib.contextmanager
def driving(plan: Plan) -> Iterator[None]:
    """Be the driver of a plan; the kernel ends it however the process ends.

    Raises
    ------
    UserError
        Another is at work on it, or the plan cannot be written.
    """
    try:
        lock = os.open(plan.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        msg = f"{plan.folder} cannot be written: {error.strerror}"
        raise UserError(msg) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            msg = f"another 'perflib fleet run' is at work on {plan.folder}: 'fleet status' follows"
            raise UserError(msg) from None
        (plan.folder / "driver.txt").write_text(f"{time.time():.3f}\n")  # for the nodes' clocks
        yield
    finally:
        os.close(lock)


def is_driven(plan: Plan) -> bool:
    """Whether one is at work on a plan now."""
    try:
        lock = os.open(plan.folder / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(lock)
    return False
