"""What a command prints of each cause, without -v: the cause by name, its size in the interval.

The samples are simulated, with the noise of the experiments' own tests; two causes are held by
recorded runs as well (`test_recorded`). Only a real run on a quiet machine would show that a
companion, a control group or the job makes such samples: `test_opened` and `test_truth` hold what
is made. On a machine that others keep busy a quota is never used up, and nothing can name it.

A hog prints what a thief prints; that it also streams is seen by its memory (`ps`). That starts
differ because of a buffer is shown by the experiment's own program, whose addresses are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from perflib.cli.output import print_findings
from perflib.course.mystery.causes import CAUSES
from perflib.experiments import get
from perflib.model.finding import Finding
from perflib.model.run import Run
from tests.experiments.aliasing import test_environment as aliasing
from tests.experiments.event_profile import profiles, test_footprint
from tests.experiments.simulated import bracketed
from tests.experiments.threads.thread_samples import samples as of_threads

Found = list[Finding]


def found(name: str, table: pd.DataFrame) -> Found:
    experiment = get(name)
    params: dict[str, Any] = experiment.params({}).model_dump(mode="json")
    return experiment.analyse(experiment.current(Run("r", name, params, table)))


def middle(cause: str) -> float:
    """The size that such a mystery has in the middle, as a share of what it is about."""
    return sum(CAUSES[cause].sizes["medium"]) / 2000


def _kv(**trouble: dict[int, float]) -> Found:
    return found("kv_per_core", bracketed(2, **trouble))  # type: ignore[arg-type]


def _quota(share: float) -> Found:
    table = bracketed(5, stolen=dict.fromkeys((0, 1), share))
    stopped = table["time_ns"] - table["cpu_time_ns"] - table["run_delay_ns"]
    return found("kv_per_core", table.assign(throttled_ns=stopped))


def _lock(share: float) -> Found:
    table = of_threads(2, versions={"job": ("formula",)}, shares={"formula": share})
    table = table.map(
        lambda one: one.replace("formula_lock", "output_lock") if isinstance(one, str) else one
    )
    return found("threads", table)


def _buffer() -> Found:
    table = aliasing.samples(cost=middle("buffer"))
    return get("alias_environment").analyse(aliasing.run_of(table, aliasing.counts()))


# A cause, where it is examined, the sentence that names it, its size in percent (none: not there).
CASES: dict[str, tuple[Callable[[], Found], str, float | None]] = {
    "thief": (
        lambda: _kv(taken={1: middle("thief")}),
        r"found (\S+ % ± \S+) of the time of cpu1 is taken by other tasks of this system\.",
        100 * middle("thief"),
    ),
    "hog": (
        lambda: _kv(taken={1: middle("hog")}),
        r"found (\S+ % ± \S+) of the time of cpu1 is taken by other tasks of this system\.",
        100 * middle("hog"),
    ),
    "quota": (
        lambda: _quota(middle("quota")),
        r"found A quota of CPU time \(control group\) stops the job on cpu1 for (\S+ % ± \S+) of",
        100 * middle("quota"),
    ),
    "function": (
        lambda: found(
            "event_profile", profiles.samples(6, costlier={(1, "kv_runge_kutta"): middle("code")})
        ),
        r"ANOMALY Functions that stand out on cpu1: kv_runge_kutta\.",
        None,
    ),
    "function's size": (
        lambda: _kv(slow={1: middle("code")}),
        r"ANOMALY cpu1 is slower than the others: (\S+ % ± \S+)\.",
        100 * middle("code"),
    ),
    "code": (
        lambda: found("event_profile", test_footprint.profile(copies={1: 32}, noise=0.02)),
        r"found On cpu1 the event runs through \S+ % ± \S+ more code than on cpu0\.",
        None,
    ),
    "buffer": (
        _buffer,
        r"slower at sizes of its environment at which addresses agree .*?12 bits: (\S+ % ± \S+)\.",
        100 * middle("buffer"),
    ),
    "lock": (
        lambda: _lock(0.4),
        r"ANOMALY output_lock limits job: it costs the threads (\S+ % ± \S+) of their time\.",
        40.0,
    ),
    "nothing": (
        _kv,
        r"fine All 2 cores are equally fast \(widest interval ± \S+ points\)\.",
        None,
    ),
}


@pytest.mark.parametrize("cause", CASES)
def test_the_normal_output_names_the_cause_and_its_size(
    cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make, sentence, size = CASES[cause]
    print_findings(make())
    printed = " ".join(capsys.readouterr().out.split())
    (named,) = re.finditer(sentence, printed)
    if size is not None:
        effect, half = (float(one) for one in named[1].split(" % ± "))
        assert abs(effect - size) <= half, printed
    others = {name: words for name, words in _ONLY.items() if name not in cause}
    for name, words in others.items():
        assert not re.search(words, printed), (name, printed)


_ONLY = {  # what no other cause may be called
    "quota": r"found A quota",
    "function": r"ANOMALY Functions that stand out|ANOMALY cpu\d is slower",
    "code": r"found On cpu\d the event runs through",
    "lock": r"_lock limits",
    "buffer": r"ANOMALY .* low 12 bits",
}


def test_every_cause_has_a_case() -> None:
    assert {name.partition("'")[0] for name in CASES} == set(CAUSES)
