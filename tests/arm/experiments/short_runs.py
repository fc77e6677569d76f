"""Every experiment once, short: it ends, and its rows fit its schema and can be analysed.

Times mean nothing here, and anomalies of times are made up by nothing: none is to be claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perflib import experiments
from tests.arm.inside.conftest import Ended
from tests.experiments.small import SMALL


def word(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", experiments.NAMES)
def test_it_ends(name: str, perflib: Callable[..., Ended]) -> None:
    given = [f"{parameter}={word(value)}" for parameter, value in SMALL[name].items()]
    words = [each for one in given for each in ("-p", one)]
    ended = perflib("run", name, "--preset", "quick", *words)
    print(ended.said[-2000:])
    assert "Traceback" not in ended.said
    if ended.run is None:  # it takes a second core, or what this machine lacks, and says so
        assert ended.status in (1, 2)
        assert ended.said.startswith("perflib: ")
        return
    assert ended.status == 0
    experiment = experiments.get(name)
    claimed = [one for one in experiment.analyse(ended.run) if one.verdict == "supported"]
    assert not [one.plain for one in claimed if one.of.kind == "anomaly"]
