"""What a futex is: the lock that it belongs to, by its address and by who waits for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from perflib.instruments.threads.formats import Lock
from perflib.instruments.threads.symbols import Symbols

__all__ = ["kind_of", "name_locks"]

_KINDS = (  # of the innermost function that is one of these
    (re.compile(r"pthread_(\w*_)?mutex|futex_lock_pi"), "mutex"),
    (re.compile(r"pthread_(\w*_)?cond|cnd_(timed)?wait"), "condition"),
    (re.compile(r"pthread_(\w*_)?rwlock"), "rwlock"),
    (re.compile(r"pthread_(\w*_)?barrier"), "barrier"),
    (re.compile(r"pthread_\w*join|thrd_join"), "join"),
    (re.compile(r"^(__)?(new_)?sem_\w*wait"), "semaphore"),
    (re.compile(r"pthread_once"), "other"),
)
_LOW_LEVEL = re.compile(r"lll_(\w*_)?lock")
_NOT_A_CALLER = re.compile(
    r"pthread_|lll_|futex|^(__)?(new_)?sem_|^std::|__gthread|^cnd_|^mtx_|^thrd_|^\[unknown\]$|"
    r"^(syscall|\[.*\])$"
)
_NEAR_BYTES = 16  # between two words of one condition variable or read-write lock
_MANY_WORDS = ("condition", "rwlock", "barrier")


def kind_of(stack: str) -> str:
    """What kind of lock a thread with this stack waits for; ``other`` where it does not say."""
    frames = stack.split(";")[::-1]
    for frame in frames:
        for function, kind in _KINDS:
            if function.search(frame):
                return kind
    return "mutex" if any(_LOW_LEVEL.search(frame) for frame in frames) else "other"


def _caller(stack: str) -> str:
    frames = (frame for frame in stack.split(";")[::-1] if not _NOT_A_CALLER.search(frame))
    return next(frames, "")


def name_locks(
    keys: npt.NDArray[Any],
    stacks: Sequence[str],
    hints: Mapping[tuple[int, int], str],
    symbols: Callable[[int], Symbols],
) -> tuple[list[Lock], list[int]]:
    """The locks that futexes belong to.

    A lock in a static variable has the variable's name; all words of one kind in it are one lock.
    Another is named by its caller. All joins of a process are one lock.

    Parameters
    ----------
    keys
        The futexes (`perflib.instruments.threads.states.KEY`).
    stacks
        The texts of their stacks.
    hints
        Kinds of futexes (process, address) whose stacks do not tell.
    symbols
        The names of a process's addresses.

    Returns
    -------
    tuple
        The locks, and of each futex the number of its lock.
    """
    locks: dict[tuple[Any, ...], Lock] = {}
    index: dict[tuple[Any, ...], int] = {}
    known: dict[int, Symbols] = {}
    numbers = [0] * len(keys)
    last: dict[tuple[int, str, str], tuple[int, int]] = {}  # the word before: its address and lock
    for at in sorted(range(len(keys)), key=lambda i: int(keys["address"][i])):
        pid, address, number = (int(keys[name][at]) for name in ("pid", "address", "stack"))
        stack = stacks[number] if number >= 0 else ""
        kind = kind_of(stack)
        kind = hints.get((pid, address), kind) if kind == "other" else kind
        if pid not in known:
            known[pid] = symbols(pid)
        found = known[pid].object_at(address)
        place: Any = address
        if kind == "join":
            name = place = "pthread_join"
        elif found is not None:
            name = place = found[0]
        else:
            caller = _caller(stack)
            name = f"lock in {caller}" if caller else f"{address:#x}"
            before = last.get((pid, kind, caller))
            if kind in _MANY_WORDS and before and address - before[0] <= _NEAR_BYTES:
                place = before[1]
            last[pid, kind, caller] = (address, place)
        key = (pid, kind, place)
        locks.setdefault(key, Lock(name, kind, address, pid))
        numbers[at] = index.setdefault(key, len(index))
    return list(locks.values()), numbers
