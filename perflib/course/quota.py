"""For exercises: a quota of a core's time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from perflib.course.mystery import companion
from perflib.model.errors import UserError


@contextmanager
def cpu_quota(share: float | None, root: str = companion.GROUPS) -> Iterator[None]:
    """Allow this process, and what it starts meanwhile, a share of one core's time, by a quota.

    ``share=None`` sets none.

    That is what a container with ``--cpus`` has. It takes root, and a hierarchy of control groups
    that can be written. A killed process leaves an empty group behind, which limits nobody.

    Raises
    ------
    UserError
        The share is not between 0 and 1, or the groups cannot be made here.
    """
    if share is None:
        yield
        return
    if not 0 < share < 1:
        msg = f"share: {share!r}: a part of a core's time, between 0 and 1"
        raise UserError(msg)
    process, home = os.getpid(), companion.home_of(os.getpid(), root)
    try:
        companion.limit(process, round(1000 * share), root)
    except OSError as error:
        msg = f"no control group with a quota can be made in {root}: {error}. Run as root, or give "
        raise UserError(msg + "the job a quota from outside (docker --cpus, CPUQuota=)") from None
    try:
        yield
    finally:
        companion.lift(process, home, root)
