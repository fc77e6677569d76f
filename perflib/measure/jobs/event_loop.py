"""The event loop: a multithreaded job whose threads wait for each other at known points.

``kernels_c/event_loop.c`` is the job. Its versions are those of C. Jones, "Threading Performance
Measurements with VTune" (2015): each has fewer of the points at which events queue up. The work is
the same in all. As its last line the job reports how long its threads waited for each
lock: the truth with which a profile of it is compared.

>>> run = subprocess.run(argv(threads=2, points=VERSIONS["Final"]), ...)  # doctest: +SKIP
>>> Account.parse(run.stdout).waiting_s()["output_module"]  # doctest: +SKIP
0.0061
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from perflib import kernels
from perflib.model.errors import MeasurementError, UserError, choose

POINTS: dict[str, tuple[str, ...]] = {
    "formula": ("formula_lock",),
    "interface": ("interface_lock",),
    "output": ("output_module", "monitor_module"),
    "checksum": ("class_lock",),
    "queue": ("task_queue",),
}
"""The points where events wait for each other, and the symbols of the locks that stand there."""

VERSIONS: dict[str, tuple[str, ...]] = {
    "Initial": tuple(POINTS),
    "ROOT": ("formula", "interface", "output", "queue"),
    "CMSSW I": ("output", "queue"),
    "Final": ("output",),
}
"""The versions of the job, as Jones 2015 names them, and the points that are left in each."""

LOCK_KINDS = ("mutex", "adaptive", "recursive", "robust")

SIZES = ("jets", "formula", "interface", "queue", "output", "checksum", "merge")
"""What can be sized: the jets of an event, and the work at each point and at the end."""


def argv(
    threads: int,
    events: int | None = None,
    points: Collection[str] = VERSIONS["Initial"],
    *,
    first: int = 0,
    seed: int = 1,
    spin: int = 0,
    lock: str = "mutex",
    sizes: dict[str, int] | None = None,
) -> list[str]:
    """The command that runs the job; it is compiled where it is not yet.

    Parameters
    ----------
    threads
        How many threads take events.
    events, first, seed
        Events ``first`` to ``first + events - 1`` of a seed (None: as many as the job does when it
        is not reported, some half a second's with two threads).
    points
        Where events wait for each other, of `POINTS`. What the others do is done without a lock.
    spin
        How often a thread tries to take a lock before it waits for it.
    lock
        The kind of the locks, of `LOCK_KINDS`.
    sizes
        Sizes, of `SIZES`, other than those of the job.

    Raises
    ------
    UserError
        No such point, kind of lock or size, or no compiler. (Numbers out of range the job refuses
        itself, with exit status 2.)
    MeasurementError
        The job does not compile.
    """
    for kind, words, known in (
        ("point of the event loop", points, POINTS),
        ("kind of lock", [lock], LOCK_KINDS),
        ("size of the event loop", sizes or {}, SIZES),
    ):
        for word in words:
            if word not in known:
                raise UserError(choose(kind, word, known))
    words_ = [str(kernels.build("event_loop", executable=True).library)]
    options: dict[str, object] = {"threads": threads, "first": first, "seed": seed, "spin": spin}
    if events is not None:
        options["events"] = events
    options["points"] = ",".join(name for name in POINTS if name in points) or "none"
    options["lock"] = lock
    for name, value in (sizes or {}).items():
        options[name if name == "jets" else f"{name}-work"] = value
    for name, value_ in options.items():
        words_ += [f"--{name}", str(value_)]
    return words_


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class LockAccount(_Record):
    """One lock, over all threads, as the job itself counted.

    ``waits`` is how often a thread had to wait, ``waiting_ns`` how long in all: from the try that
    failed until the thread ran with the lock (or, of the queue, with its task done). What it spun
    before, and what it did not wait for, is ``spinning_ns``. ``held_ns`` is how long somebody had
    the lock (of the queue: ran a task).
    """

    name: str
    point: str
    address: int
    taken: int
    waits: int
    waiting_ns: int
    longest_ns: int
    held_ns: int
    spinning_ns: int


class ThreadAccount(_Record):
    """One thread: the events it took, its CPU time among them, and how long it waited in all."""

    tid: int
    name: str
    events: int
    cpu_ns: int
    waiting_ns: int


class Account(_Record):
    """The job's account of itself.

    Times are of CLOCK_MONOTONIC; the event loop lasts from ``begin_ns``, its first event's begin,
    to ``end_ns``, its last one's end. ``checksum`` has 16 hexadecimal digits.
    """

    threads: int
    events: int
    points: tuple[str, ...]
    pid: int
    begin_ns: int
    end_ns: int
    checksum: str
    locks: tuple[LockAccount, ...]
    per_thread: tuple[ThreadAccount, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """The account at the end of what the job printed.

        Raises
        ------
        MeasurementError
            There is none, as when the job was killed, or it is not whole.
        """
        line = (text.strip().splitlines() or [""])[-1]
        if not line.startswith("{"):
            msg = f"the event loop printed no account: it did not come to its end ({line[:80]!r})"
            raise MeasurementError(msg)
        try:
            return cls.model_validate_json(line)
        except ValidationError as error:
            wrong = error.errors(include_url=False)[0]
            place = ".".join(map(str, ("account", *wrong["loc"])))
            msg = f"the event loop's account is not whole: {place}: {wrong['msg']}"
            raise MeasurementError(msg) from None

    @property
    def duration_s(self) -> float:
        """How long the event loop took, without the job's serial begin and end."""
        return 1e-9 * (self.end_ns - self.begin_ns)

    def waiting_s(self) -> dict[str, float]:
        """Seconds that threads waited for each lock, the longest first."""
        waited = sorted(self.locks, key=lambda lock: lock.waiting_ns, reverse=True)
        return {lock.name: 1e-9 * lock.waiting_ns for lock in waited}
