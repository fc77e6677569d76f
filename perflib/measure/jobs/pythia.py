"""A real job: Pythia 8 makes 13 TeV top pairs among pile-up and logs each event as KV does.

    python -m perflib.measure.jobs.pythia --events 10 --first 0 --seed 1 --pileup 30

Event *k* depends on the seed and on *k* alone (the generators are reseeded for each event): it can
be run by itself, on any core, in any order. The last line has the number of particles and a
checksum that adds up: that of events 0 to 5 is the sum, modulo 2**64, of those of its parts.

Pythia 8 is the optional package ``pythia8mc``; see C. Bierlich et al., "A comprehensive guide to
the physics and usage of PYTHIA 8.3", doi:10.21468/SciPostPhysCodeb.8.
"""

from __future__ import annotations

import hashlib
import importlib
import statistics
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from perflib.model.errors import MeasurementError, PerflibError
from perflib.model.extras import installed

_SIGNAL = ("Top:gg2ttbar = on", "Top:qqbar2ttbar = on")
# All inelastic collisions would need 5 s to initialise diffraction, against 0.4 s.
_PILEUP = ("SoftQCD:nonDiffractive = on",)
_ATTEMPTS = 10
_SEEDS = 900_000_000  # Pythia takes seeds from 1 to this


@dataclass(frozen=True)
class EventSummary:
    """What an event came to: particles in the event records of its collisions, and a checksum.

    The checksum covers each collision's number of particles and the random number that would come
    next, which is another one as soon as any decision drew another number of them.
    """

    particles: int
    checksum: int


class Generators:
    """Pythia for top pairs, and a second one for the minimum-bias collisions piled up.

    Parameters
    ----------
    seed
        Together with an event's number it fixes the event.
    pileup
        How many minimum-bias (non-diffractive) collisions each event has on top.

    Raises
    ------
    UserError
        ``pythia8mc`` is not installed; the message has the line that installs it.
    MeasurementError
        Pythia does not initialise, mostly because its data files are not found.
    """

    def __init__(self, seed: int, pileup: int) -> None:
        with installed():
            pythia8 = importlib.import_module("pythia8mc")
        self._seed = seed
        self._pileup = pileup
        self._signal = _generator(pythia8, _SIGNAL)
        self._minimum_bias = _generator(pythia8, _PILEUP) if pileup else None

    def generate(self, event: int) -> EventSummary:
        """Make event number ``event``."""
        digest = hashlib.blake2b(digest_size=8)
        particles = self._collide(self._signal, event, 1, digest)
        if self._minimum_bias is not None:
            particles += self._collide(self._minimum_bias, event, self._pileup, digest)
        return EventSummary(particles, int.from_bytes(digest.digest(), "little"))

    def _collide(self, generator: Any, event: int, collisions: int, digest: Any) -> int:
        process = "pileup" if generator is self._minimum_bias else "signal"
        text = f"{process} {self._seed} {event}".encode()
        state = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
        generator.rndm.init(1 + state % _SEEDS)
        particles = 0
        for _ in range(collisions):
            if not any(generator.next() for _ in range(_ATTEMPTS)):
                msg = f"Pythia gave up on event {event} ({process}) after {_ATTEMPTS} attempts"
                raise MeasurementError(msg)
            size = generator.event.size()
            digest.update(struct.pack("<qd", size, generator.rndm.flat()))
            particles += size
        return particles


def _generator(pythia8: Any, settings: Sequence[str]) -> Any:
    generator = pythia8.Pythia("", False)  # its data where the package has them, no banner
    common = ("Print:quiet = on", "Beams:eCM = 13000")
    if all(generator.readString(line) for line in (*common, *settings)) and generator.init():
        return generator
    msg = (
        "Pythia 8 does not initialise; its own words are above. If its settings are not found, "
        "unset PYTHIA8DATA or set it to the package's share/Pythia8/xmldoc folder."
    )
    raise MeasurementError(msg)


_Command = Callable[..., None]


def _option(
    name: str, low: int, high: int, default: int, words: str
) -> Callable[[_Command], _Command]:
    between = click.IntRange(low, high)
    return click.option(name, type=between, default=default, show_default=True, help=words)


@click.command(help=(__doc__ or "").partition("\n")[0])
@_option("--events", 1, 1_000_000, 10, "How many events.")
@_option("--first", 0, 1_000_000_000, 0, "Number of the first event.")
@_option("--seed", 0, 2**63 - 1, 1, "With an event's number, fixes the event.")
@_option("--pileup", 0, 1000, 30, "Minimum-bias collisions in each event, some 2 ms each.")
def main(events: int, first: int, seed: int, pileup: int) -> None:
    """Run the job from the command line."""
    try:
        _run(first, events, Generators(seed, pileup))
    except PerflibError as error:
        print(f"perflib.measure.jobs.pythia: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _run(first: int, events: int, generators: Generators) -> None:
    times_s: list[float] = []
    particles = checksum = 0
    for done, event in enumerate(range(first, first + events)):
        _log("AthenaEventLoopMgr", f"===>>>  start {_progress(event, done)}  <<<===")
        begin = time.perf_counter()
        summary = generators.generate(event)
        times_s.append(time.perf_counter() - begin)
        average = "{:.6g} +- {:.4g}".format(*_average(times_s))
        took = f"Event nr. {event} took {times_s[-1]:.6g} s. New average {average}"
        _log("G4SimTimer", f"     {took}")
        _log("AthenaEventLoopMgr", f"===>>>  done {_progress(event, done + 1)}  <<<===")
        particles += summary.particles
        checksum = (checksum + summary.checksum) % 2**64
    _log("Pythia8", f"{events} events, {particles} particles, checksum {checksum:016x}")


def _progress(event: int, done: int) -> str:
    return f"processing event #{event}, run #1 {done} events processed so far"


def _average(times_s: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error, as G4SimTimer has them."""
    count = len(times_s)
    spread = statistics.stdev(times_s) if count > 1 else 0.0
    return statistics.fmean(times_s), spread / count**0.5


def _log(source: str, text: str) -> None:
    print(f"{source:<20} INFO   {text}", flush=True)


if __name__ == "__main__":
    main(prog_name="python -m perflib.measure.jobs.pythia")
