"""Damaged files for every parser in Python: a sentence of perflib's, or an answer, and no more.

``python -m tests.fuzz.mutations --number 1000000`` gives each parser its share of so many files. A
finding is any other error (a traceback), one input that takes more than ``--slowest`` seconds, or
memory out of proportion: the process may take ``--memory`` MiB more than it has when it begins.
An input follows from the seed, the parser's name and its number: ``--parser NAME --first N
--number 1`` makes it again.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

from perflib.model.errors import PerflibError
from tests.fuzz.parsers import PARSERS, Parser

_KEPT = 5  # findings shown of each parser


def _bound_memory(mib: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (mib << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def tried(name: str, parser: Parser, seed: int, numbers: range, slowest_s: float) -> list[str]:
    """Feed inputs; the different findings, each with its number."""
    found: dict[str, str] = {}
    for number in numbers:
        rng = random.Random(f"{seed} {name} {number}")
        data = parser.mutate(rng, rng.choice(parser.seeds), parser.seeds)
        signal.setitimer(signal.ITIMER_REAL, slowest_s)
        try:
            parser.parse(data)
        except PerflibError as error:
            if not str(error):
                found.setdefault(
                    "no sentence", f"{name} {number}: a {type(error).__name__} without words"
                )
        except Exception as error:  # noqa: BLE001 (any other one is a finding)
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{name} {number}: {''.join(traceback.format_exception(error, limit=-6))}"
            found.setdefault(f"{type(error)} {where.filename} {where.lineno}", text)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if len(found) >= _KEPT:
            break
    return list(found.values())


def main() -> None:
    """Try the parsers; exit status 1 if there is a finding."""
    arguments = argparse.ArgumentParser(prog="python -m tests.fuzz.mutations")
    arguments.add_argument(
        "--parser", action="append", choices=PARSERS, help="all, if none is named"
    )
    arguments.add_argument("--number", type=int, default=1_000_000, help="of inputs in all")
    arguments.add_argument("--first", type=int, default=0, help="the number of the first one")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--slowest", type=float, default=20.0, help="seconds for one input")
    arguments.add_argument("--memory", type=int, default=1024, help="MiB that parsers may take")
    chosen = arguments.parse_args()
    warnings.simplefilter("ignore")  # numpy's, of numbers that are none
    # Also where Python does not get to run: the stack is printed, and the signal ends the process.
    faulthandler.register(signal.SIGALRM, chain=True)
    findings = 0
    with tempfile.TemporaryDirectory(prefix="perflib-fuzz-") as folder:
        parsers = {}
        for name in chosen.parser or PARSERS:
            (own := Path(folder, name)).mkdir()
            parsers[name] = PARSERS[name](own)
        shares = sum(parser.share for parser in parsers.values())
        for parser in parsers.values():
            parser.parse(parser.seeds[0])  # loads what it needs
        _bound_memory(chosen.memory)
        for name, parser in parsers.items():
            number = max(1, round(chosen.number * parser.share / shares))
            began = time.monotonic()
            numbers = range(chosen.first, chosen.first + number)
            found = tried(name, parser, chosen.seed, numbers, chosen.slowest)
            findings += len(found)
            took_s = time.monotonic() - began
            print(f"{name}: {number} inputs in {took_s:.1f} s, {len(found)} findings", flush=True)
            for text in found:
                print(text, flush=True)
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
