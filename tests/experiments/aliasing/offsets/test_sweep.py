"""A user's own function, swept: what is refused, what runs where, and what may be claimed."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from perflib.experiments.aliasing.addresses import aliasing, default_offsets
from perflib.experiments.aliasing.offsets.analyse import offset_findings
from perflib.experiments.aliasing.offsets.arguments import check_offsets
from perflib.experiments.aliasing.offsets.called import call_of
from perflib.experiments.aliasing.offsets.functions import Swept
from perflib.experiments.aliasing.offsets.source import portable
from perflib.experiments.aliasing.offsets.sweep import sweep_offsets
from perflib.experiments.aliasing.offsets.table import OffsetTable
from perflib.model.errors import MeasurementError, UserError

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="the core's clock is written for x86-64"
)

OFFSETS = default_offsets(4)
QUICK: dict[str, Any] = {"budget_s": 0.2, "sample_ms": 0.05, "offsets": [0, 64, 1024, 1088, 2048]}
FACTOR = 3.0
F = Swept("f")
MANY_S = 60.0  # for what ends by itself, on a machine that is busy
C_SOURCE = Path(__file__).parents[3] / "kernels_c" / "swept.c"


def made(
    seed: int = 1,
    *,
    rounds: int = 24,
    slow: dict[int, float] | None = None,
    offsets: Iterable[int] = OFFSETS,
    noise: float = 0.01,
    hit: float = 0.05,
) -> pd.DataFrame:
    """Samples as a noisy machine gives them: drift, and some that were pushed aside."""
    generator = np.random.default_rng(seed)
    places = list(offsets)
    logs = generator.normal(0, noise, (rounds, len(places)))
    logs += (generator.random(logs.shape) < hit) * generator.exponential(0.3, logs.shape)
    logs += np.cumsum(generator.normal(0, 0.02, rounds))[:, None]
    for offset, cost in (slow or {}).items():
        logs[:, places.index(offset)] += math.log1p(cost)
    number = np.repeat(np.arange(rounds), len(places))
    return pd.DataFrame(
        {
            "round": number,
            "offset_bytes": np.tile(places, rounds),
            "time_ns": 1e5 * np.exp(logs.ravel()),
            "calls": 10,
            "start_ns": number * 2_000_000_000,
            "ok": True,
        }
    )


# --- which offsets are predicted -----------------------------------------------------------------


@given(offset=st.integers(0, 1 << 20), period=st.sampled_from([512, 1024, 2048, 4096]))
def test_no_offset_is_both_near_and_far(offset: int, period: int) -> None:
    near, far = aliasing([offset], period)
    assert not (near & far).any()
    assert (aliasing([offset + period], period)[0] == near).all()


@pytest.mark.parametrize("item", [1, 2, 4, 8, 16])
def test_default_offsets_fit_and_have_their_controls(item: int) -> None:
    offsets = np.array(default_offsets(item))
    assert (offsets % item == 0).all()
    for period in (2048, 4096):
        near, far = aliasing(offsets, period)
        assert set(offsets[near] % 64) <= set(offsets[far] % 64)


# --- what is claimed -----------------------------------------------------------------------------


def test_what_a_place_in_a_line_costs_is_no_alias() -> None:
    slow = {offset: 0.2 for offset in OFFSETS if offset % 64 == 4}
    table = OffsetTable(made(slow=slow))
    assert abs(table.predicted().effect) < 1
    predicted, slowest = offset_findings(F, table, 5)
    assert predicted.verdict == "refuted"
    assert (slowest.verdict, slowest.evidence["slowest_offset_bytes"] % 64) == ("supported", 4)


def test_one_slow_offset_and_one_fast_one_are_named() -> None:
    table = OffsetTable(made(slow={1028: 0.3, 3080: -0.2}))
    slowest, fastest = table.slowest, table.fastest
    assert (slowest.offset_bytes, fastest.offset_bytes) == (1028, 3080)
    assert slowest.difference.low < 30 < slowest.difference.high
    assert fastest.difference.low < -20 < fastest.difference.high
    assert slowest.p < 0.01
    assert table.difference(1028, 0).low < 30 < table.difference(1028, 0).high
    with pytest.raises(UserError, match="offset 1029; the nearest that was measured: 1028"):
        table.difference(1029, 0)
    curve = table.curve().set_index("offset_bytes")
    assert curve["percent"].idxmax() == 1028
    assert curve["time_ns"][1028] == pytest.approx(1.3 * curve["time_ns"][1024], rel=0.1)


def test_null_equal_offsets_are_not_claimed_to_differ() -> None:
    claims = misses = 0
    runs = 25
    for seed in range(runs):
        table = OffsetTable(made(seed, rounds=16))
        claims += sum(one.verdict == "supported" for one in offset_findings(F, table, 0.5))
        slowest = table.slowest.difference
        misses += not slowest.low <= 0 <= slowest.high
        effect = slowest.effect
        assert slowest.low <= effect <= slowest.high
    assert claims <= 1
    assert misses <= 4


def test_too_little_says_nothing() -> None:
    for rounds in (1, 3):
        for finding in offset_findings(F, OffsetTable(made(rounds=rounds)), 5)[1:]:
            assert finding.verdict == "inconclusive"
    alike = OffsetTable(made(offsets=[0, 8]))
    assert math.isnan(alike.predicted().effect)
    assert offset_findings(F, alike, 5)[0].verdict == "inconclusive"


# --- what is refused -----------------------------------------------------------------------------

GOOD = np.ones(16), np.zeros(16)
_whole = np.zeros(100)
_fixed = np.zeros(16)
_fixed.flags.writeable = False


@pytest.mark.parametrize(
    ("arguments", "move", "sentence"),
    [
        ((np.zeros(3), 5), None, "two numpy arrays or more"),
        ((np.zeros((4, 4))[:, 0], np.zeros(4)), None, "argument 0 .* is not contiguous .*strides"),
        ((_whole[:60], _whole[40:]), None, "arguments 0 and 1 overlap in memory"),
        ((np.zeros(16), _fixed), None, "argument 1 .* is read-only"),
        ((np.zeros(16), np.zeros(0)), None, "argument 1 .* is empty"),
        ((np.array([{}, {}]), np.zeros(2)), None, "argument 0 .* holds Python objects"),
        ((np.zeros(3), 5, np.zeros(3)), 1, "move=1 is no array .* arrays are at 0, 2"),
    ],
)
def test_arrays_that_cannot_be_swept(
    arguments: tuple[Any, ...], move: int | None, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        sweep_offsets(np.copyto, *arguments, move=move)


@pytest.mark.parametrize(
    ("offsets", "sentence"),
    [
        ([0, 6], "the offset 6 is no multiple of 8 bytes, the alignment of the array's float64"),
        ([0, -8], "from 0 to 1048576 bytes, not -8; -8 is as 4088"),
        ([0, 2**21], "from 0 to 1048576"),
        ([0, 1.5], "a whole number of bytes, not 1.5"),
        ([0, True], "a whole number of bytes, not True"),
        ([8, 8], "two offsets or more"),
    ],
)
def test_offsets_that_cannot_be(offsets: list[Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        check_offsets(offsets, np.zeros(3))


@pytest.mark.parametrize("name", ["budget_s", "sample_ms", "threshold_percent", "timeout_s"])
def test_numbers_that_cannot_be(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} must be more than 0"):
        sweep_offsets(np.copyto, *GOOD, **{**QUICK, name: 0})


# --- functions in another process ----------------------------------------------------------------


def scaled(a: NDArray[Any], out: NDArray[Any]) -> None:
    np.multiply(a, FACTOR, out=out)


def test_a_module_function_is_imported() -> None:
    described = portable("numpy:copyto", [])
    assert call_of(described) is np.copyto
    assert call_of(portable(np.add, [])) is np.add
    assert portable(scaled, [])["kind"] == "import"


def test_a_notebook_function_goes_as_source_with_what_it_uses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = 2

    def doubled(a: NDArray[Any], out: NDArray[Any]) -> None:
        np.multiply(a, inner * FACTOR, out=out)

    described = portable(doubled, [])
    assert described["kind"] == "source"
    assert "import numpy as np" in described["source"]
    assert "FACTOR = 3.0" in described["source"]
    out = np.zeros(2)
    call_of(described)(np.ones(2), out)
    assert out.tolist() == [6.0, 6.0]
    table = pd.DataFrame()

    def uses_a_table(a: NDArray[Any], out: NDArray[Any]) -> None:
        out[:] = a + len(table)

    with pytest.raises(UserError, match=r"uses_a_table\(\) uses 'table' \(DataFrame\)"):
        portable(uses_a_table, [])
    monkeypatch.setattr(scaled, "__module__", "__main__")
    assert portable(scaled, [])["kind"] == "source"


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("numpy.copyto", "names no function: write 'module:function'"),
        ("nowhere_at_all:f", "cannot be imported: No module named"),
        ("numpy:copyfrom", "cannot be imported: .*copyfrom"),
        ("numpy:pi", "is no function, but float"),
        (5, "5 is no function to sweep"),
        (("libnothing.so", "f", "void f(void)"), "there is no library 'libnothing.so'"),
        (("a", "b"), r"\(path of the library, symbol, declaration in C\)"),
    ],
)
def test_what_is_no_function(function: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        sweep_offsets(function, *GOOD)


def test_a_lambda_is_refused_wherever_it_is_written() -> None:
    for qualname in ("test_a_lambda.<locals>.<lambda>", "<lambda>"):
        given = lambda a, out: None  # noqa: ARG005, E731
        given.__qualname__ = qualname
        with pytest.raises(UserError, match="a lambda has no source"):
            sweep_offsets(given, *GOOD)


# --- for real ------------------------------------------------------------------------------------


def test_a_python_function_is_swept_with_copies() -> None:
    a, out = np.arange(512.0), np.zeros(512)
    swept = sweep_offsets("numpy:copyto", out, a, move=0, **QUICK)
    assert swept.name == "copyto"
    assert set(swept.samples["offset_bytes"]) == set(QUICK["offsets"])
    distance = swept.samples["first_address"] - swept.samples["second_address"]
    assert ((-distance - swept.samples["offset_bytes"]) % 4096 == 0).all()
    assert (swept.samples["time_ns"] > 0).all()
    assert (swept.samples["core_mhz"] > 0).all()
    assert not out.any()
    assert swept.stopped == "budget spent"
    assert len(swept.findings()) == 2
    assert "copyto" in repr(swept)
    assert swept.provenance["obtained"]["environment"]["OMP_NUM_THREADS"] == "1"
    assert swept.figure().axes


def raises(a: NDArray[Any], out: NDArray[Any]) -> None:
    out[:] = a[:3]


def writes_to_its_input(a: NDArray[Any], out: NDArray[Any]) -> None:
    a[0] = out[0]


def test_a_function_that_raises_says_where() -> None:
    with pytest.raises(UserError, match=r"raised ValueError: could not broadcast.* of raises\(\)"):
        sweep_offsets(raises, *GOOD, **QUICK)
    fixed = np.ones(16)
    fixed.flags.writeable = False
    with pytest.raises(UserError, match=r"raised ValueError: .*read-only"):
        sweep_offsets(writes_to_its_input, fixed, np.zeros(16), **QUICK)


def test_an_argument_of_another_kind_is_refused() -> None:
    with pytest.raises(UserError, match="argument 2 is dict, which cannot be handed"):
        sweep_offsets(np.copyto, *GOOD, {}, **QUICK)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: apt-get install gcc")
    path = tmp_path_factory.mktemp("swept") / "libswept.so"
    argv = ["gcc", "-O1", "-shared", "-fPIC", str(C_SOURCE), "-o", str(path)]
    subprocess.run(argv, check=True)
    return path


@pytest.mark.parametrize("item", ["float", "void", "unsigned char"])  # bytes hold anything
def test_a_c_function_is_swept(library: Path, item: str) -> None:
    declaration = f"void twice(int n, const {item} *in, {item} *out);"
    a, out = np.ones(300, np.float32), np.zeros(300, np.float32)
    swept = sweep_offsets((str(library), "twice", declaration), 300, a, out, **QUICK)
    assert swept.name == "twice"
    assert set(swept.samples["offset_bytes"]) == {0, 64, 1024, 1088, 2048}


def test_a_cffi_function_is_found_again_by_its_symbol(library: Path) -> None:
    ffi = cffi.FFI()
    ffi.cdef("double total(const double *in, double *out, long n);")
    opened: Any = ffi.dlopen(str(library))
    total = opened.total
    described = portable(total, [*GOOD, 16])
    assert (described["name"], described["types"]) == ("total", ["void *", "void *", "long"])
    assert Path(described["library"]) == library
    assert sweep_offsets(total, *GOOD, 16, **QUICK).name == "total"


def test_a_c_function_is_held_to_its_types(library: Path) -> None:
    twice = (str(library), "twice", "void twice(int n, const float *in, float *out)")
    single = np.ones(4, np.float32)
    for arguments, sentence in (
        ((4, single, np.ones(4)), r"argument 2 of twice\(\) is 'float \*'.* float64"),
        ((4, single, np.ones(4, np.int32)), r"argument 2 .* int32"),
        ((single, single.copy(), 4), "argument 0 .* is 'int', and an array is given"),
        ((single, single.copy()), r"twice\(\) takes 3 arguments, and 2 are given"),
    ):
        with pytest.raises(UserError, match=sentence):
            sweep_offsets(twice, *arguments, **QUICK)
    with pytest.raises(UserError, match=r"'thrice' of .* cannot be loaded"):
        sweep_offsets((str(library), "thrice", "void thrice(float *a, float *b)"), *GOOD)
    with pytest.raises(UserError, match="cannot be loaded"):
        sweep_offsets((str(library), "twice", "no declaration"), *GOOD)


def test_a_c_function_that_crashes_costs_an_error(library: Path) -> None:
    single = np.ones(4, np.float32)
    function = (str(library), "breaks_down", "void breaks_down(const float *in, float *out)")
    with pytest.raises(MeasurementError, match="worker ended by signal SIGABRT"):
        sweep_offsets(function, single, single.copy(), **QUICK)


@pytest.fixture
def crashing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module whose function crashes once the trial is over, as often as a file is to be long."""
    marks = tmp_path / "marks"
    marks.touch()
    (tmp_path / "crashes_later.py").write_text(
        "import os\n"
        "calls = 0\n"
        "def f(a, out, crashes):\n"
        "    global calls\n"
        "    calls += 1\n"
        f"    crashed = os.path.getsize({str(marks)!r})\n"
        "    if crashed < crashes and (crashed or calls > 6):\n"
        f"        open({str(marks)!r}, 'ab', buffering=0).write(b'x')\n"
        "        os.abort()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return marks


def test_a_crash_after_the_trial_costs_its_round(crashing: Path) -> None:
    wanted = {**QUICK, "budget_s": MANY_S, "precision_percent": 1e9}
    swept = sweep_offsets("crashes_later:f", *GOOD, 1, **wanted)
    assert swept.stopped == "precise enough"
    (problem,) = swept.problems
    assert "worker ended by signal SIGABRT" in problem
    rounds = swept.samples["round"].unique()
    assert len(rounds) >= 8
    assert rounds.tolist() == list(range(1, len(rounds) + 1))
    assert crashing.stat().st_size == 1


def test_three_crashes_in_a_row_end_it(crashing: Path) -> None:
    with pytest.raises(MeasurementError, match="worker ended by signal SIGABRT"):
        sweep_offsets("crashes_later:f", *GOOD, 10, **{**QUICK, "budget_s": MANY_S})
    assert crashing.stat().st_size == 3


def test_threads_of_a_function_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "threads_of_mine.py").write_text(
        "import threading, time\n"
        "def busy():\n"
        "    end = time.thread_time() + 0.002\n"
        "    while time.thread_time() < end: pass\n"
        "def f(a, out):\n"
        "    t = threading.Thread(target=busy); t.start(); t.join()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert str(tmp_path) in sys.path
    with pytest.raises(MeasurementError, match="100 % of the samples other threads"):
        sweep_offsets("threads_of_mine:f", *GOOD, **QUICK)
