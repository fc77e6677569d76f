"""What a seed means on a machine: which cause, where, how large. The same seed, the same trouble.

An open mystery keeps none of it: whoever needs the truth draws it again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from perflib.course.mystery import companion
from perflib.course.mystery.causes import CAUSES, FUNCTIONS, LEVELS, LOCKS, NOTHING, Level
from perflib.model.errors import UserError, choose

MOST_SEED = 2**53
_HARD_NOTHINGS = 2  # at the level hard: as often as two other causes
_DECOY = (2, 5)  # thousandths of a core's time, at the level hard: below what counts
_IN_JOB = ("function", "code", "buffer", "lock")


@dataclass(frozen=True)
class Machine:
    """What decides which troubles can be made here.

    Parameters
    ----------
    cpus
        One CPU of each core that this process may use.
    quota
        Whether a control group with a quota can be made.
    job
        Why the job cannot be had; empty: it can.
    """

    cpus: tuple[int, ...]
    quota: bool
    job: str


@dataclass(frozen=True)
class Trouble:
    """What is wrong: a cause, its place as an answer names it, and how large it is made.

    ``thousandths`` is the size as it is made (`causes.Cause.sizes`), ``cpu`` where it is made; the
    ``decoy``, which costs less than counts, takes so many thousandths of ``decoy_cpu``.
    """

    cause: str
    place: str
    cpu: int
    which: int
    thousandths: int
    decoy: int
    decoy_cpu: int


def this_machine() -> Machine:
    """What this machine allows, tried: a group with a quota is made, empty, and removed."""
    from perflib.kernels import unavailable
    from perflib.machine.hardware.topology import topology

    return Machine(tuple(topology().one_per_core()), companion.can_limit(), unavailable("tracking"))


def impossible(cause: str, machine: Machine) -> str:
    """Why a cause cannot be made on a machine; empty where it can."""
    if cause in _IN_JOB and machine.job:
        return machine.job
    if cause in ("function", "code", "lock", "hog") and len(machine.cpus) < 2:
        return "it takes two cores"
    if cause == "quota" and not machine.quota:
        return "it takes root, and control groups that can be written"
    return ""


def check_seed(seed: object) -> None:
    """Refuse what is no seed.

    Raises
    ------
    UserError
        It is no whole number from 0 to 2^53 - 1.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < MOST_SEED:
        msg = f"seed: {seed!r}: a whole number from 0 to {MOST_SEED - 1}"
        raise UserError(msg)


def draw(seed: int, level: Level, machine: Machine) -> Trouble:
    """The trouble of a seed at a level, of those that the machine allows.

    Raises
    ------
    UserError
        The seed is no whole number from 0 to 2^53 - 1, or there is no such level.
    """
    check_seed(seed)
    if level not in LEVELS:
        raise UserError(choose("level", str(level), LEVELS))
    chance = random.Random(f"mystery {level} {seed}")
    order = [cause for cause, described in CAUSES.items() if level in described.sizes]
    if level == "hard":
        order += [NOTHING] * (_HARD_NOTHINGS - 1)
    chance.shuffle(order)
    # Every number is drawn, whatever comes of it: what a machine lacks changes the cause alone.
    where, which, size = chance.random(), chance.randrange(256), chance.random()
    decoy, decoy_where = chance.randint(*_DECOY), chance.random()
    cause = next((one for one in order if not impossible(one, machine)), NOTHING)
    least, most = CAUSES[cause].sizes.get(level, (0, 0))
    cpu = machine.cpus[int(where * len(machine.cpus))]
    kind = CAUSES[cause].place
    which %= {"function": len(FUNCTIONS), "lock": len(LOCKS)}.get(cause, 1)
    place = {"core": f"cpu{cpu}", "function": FUNCTIONS[which % 4], "lock": LOCKS[which % 3]}
    return Trouble(
        cause,
        place.get(kind, ""),
        cpu,
        which,
        round(least + size * (most - least)),
        decoy if level == "hard" else 0,
        machine.cpus[int(decoy_where * len(machine.cpus))],
    )
