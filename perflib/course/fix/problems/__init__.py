"""The pieces of code, one module each with a ``PROBLEM``."""

from __future__ import annotations

import importlib

from perflib.course.fix.problem import Problem
from perflib.model.errors import UserError, choose

__all__ = ["NAMES", "get"]

# In the order in which a newcomer takes them.
NAMES = ("event_loop_lock", "false_sharing", "aliased_buffers", "page_chase", "large_switch")


def get(name: str) -> Problem:
    """The problem of a name.

    Raises
    ------
    UserError
        There is none; the nearest is given.
    """
    if name not in NAMES:
        raise UserError(choose("problem", str(name), NAMES))
    found: Problem = importlib.import_module(f"{__name__}.{name}").PROBLEM
    return found
