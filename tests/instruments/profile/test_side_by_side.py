"""Instructions side by side: alignment of builds, verdicts by simulation, files that are gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.annotation import compared, function, right, samples
from perflib.instruments.profile.alignment import align
from perflib.instruments.profile.annotate import annotate
from perflib.instruments.profile.findings import instruction_findings
from perflib.instruments.profile.lines import beside_lines, beside_record
from perflib.instruments.profile.modules import modules
from perflib.instruments.profile.objects import build_id
from perflib.instruments.profile.side_by_side import side_by_side
from perflib.model.errors import UserError
from tests.instruments.profile.tables import TYPES, samples_of
from tests.instruments.profile.test_annotate import compiled, hits

# --- alignment -----------------------------------------------------------------------------------

CODE = ["push %rbp", "movsd 0x10(%rip),%xmm0 # 2010", "mulsd %xmm1,%xmm0", "jne 10 <f+0x4>", "ret"]


@pytest.mark.parametrize("at", range(len(CODE) + 1))
def test_an_inserted_instruction_shifts_nothing(at: int) -> None:
    pairs = align(CODE, [*CODE[:at], "nopw 0x0", *CODE[at:]])
    assert [pair for pair in pairs if None in pair] == [(None, at)]
    assert [pair[0] for pair in pairs if pair[0] is not None] == list(range(len(CODE)))


@given(
    st.lists(st.sampled_from("abcd"), max_size=12), st.lists(st.sampled_from("abcd"), max_size=12)
)
def test_each_instruction_occurs_once_and_in_order(first: list[str], second: list[str]) -> None:
    pairs = align(first, second)
    assert sorted(i for i, _ in pairs if i is not None) == list(range(len(first)))
    assert [j for _, j in pairs if j is not None] == list(range(len(second)))


# --- verdicts, by simulation with skid and overdispersion -----------------------------------------


@pytest.mark.parametrize("skid", ["precise", "counter", "clock"])
def test_a_costlier_instruction_is_named(skid: str) -> None:
    generator = np.random.default_rng(5)
    of = function(generator)
    found = compared(samples(generator, of, 0.6, skid=skid, rounds=10))
    named_right, named_wrong = right(found, of, skid)
    assert named_right
    assert not named_wrong
    over_all, *each = instruction_findings(found)
    assert over_all.verdict == "supported"
    assert each[0].effect > 0
    assert found.skid == skid


@pytest.mark.slow
@pytest.mark.parametrize("skid", ["counter", "clock"])
def test_the_rates_of_names_right_and_wrong(skid: str) -> None:
    generator = np.random.default_rng(7)
    hits_ = nulls = 0
    for _ in range(40):
        of = function(generator)
        made = samples(generator, of, 0.2, skid=skid, count=8000)
        hits_ += right(compared(made), of, skid)[0]
        nulls += not compared(samples(generator, of, 0.0, skid=skid, count=2000)).named().empty
    assert hits_ >= 32  # nine in ten, less what 40 trials scatter by
    assert nulls <= 5  # one in twenty, with the same


def test_where_nothing_differs_none_is_named_and_that_is_a_finding() -> None:
    generator = np.random.default_rng(11)
    found = compared(samples(generator, function(generator), 0.0, rounds=20))
    assert found.named().empty
    (over_all,) = instruction_findings(found)
    assert over_all.verdict == "refuted"
    assert found.open_points <= 5
    inside = found.table.dropna(subset=["difference"])
    assert (inside["difference_low"] <= 0).all()
    assert (inside["difference_high"] >= 0).all()


def test_shares_and_samples_add_up_and_texts_show_them() -> None:
    generator = np.random.default_rng(5)
    found = compared(samples(generator, function(generator), 0.6, rounds=5))
    for side in ("first", "second"):
        assert found.table[f"percent_{side}"].sum() == pytest.approx(100)
    assert any(" * " in line for line in beside_lines(found)[1:])
    record = beside_record(found)
    assert len(record["instructions"]) == len(found.table)
    assert record["findings"][0]["verdict"] == "supported"


def test_mistakes() -> None:
    made = samples(np.random.default_rng(1), function(np.random.default_rng(1)), 0.0, rounds=2)
    with pytest.raises(UserError, match="unknown function 'wrok'"):
        side_by_side(made, "old", "new", "wrok")
    one = made[made["configuration"] == "old"]
    with pytest.raises(UserError, match="only one of old and new has samples"):
        side_by_side(one, "old", "new", "work")


# --- files ---------------------------------------------------------------------------------------

needs_compiler = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("objdump")), reason="needs gcc and binutils"
)


@needs_compiler
def test_two_builds_are_aligned_and_a_build_that_is_gone_is_said(tmp_path: Path) -> None:
    old = compiled(tmp_path, "-no-pie", name="old")
    new = compiled(tmp_path, "-no-pie", "-fpatchable-function-entry=1", name="new")
    trials = [
        hits(path, [0] * 20).assign(configuration=path.name, round=round_)
        for round_ in range(3)
        for path in (old, new)
    ]
    made = pd.concat(trials, ignore_index=True).astype(TYPES)
    known = ({str(old): build_id(old)}, {str(new): build_id(new)})
    found = side_by_side(made, "old", "new", "work", builds=known)
    assert found.comparable
    both = found.table.dropna(subset=["instruction_first", "instruction_second"])
    assert len(both) >= 5
    assert "divsd" in " ".join(both["instruction_first"])
    assert found.table["instruction_first"].isna().any()  # a nop at the entry is new
    old.unlink()
    gone = side_by_side(made, "old", "new", "work", builds=known)
    assert not gone.comparable
    assert gone.named().empty
    assert any("is not here" in remark for remark in gone.remarks)
    (over_all,) = instruction_findings(gone)
    assert over_all.verdict == "inconclusive"
    assert gone.table["samples_first"].sum() == 60


@needs_compiler
def test_a_file_of_another_build_is_not_shown(tmp_path: Path) -> None:
    job = compiled(tmp_path, "-no-pie", "-Wl,--build-id")
    right_id = build_id(job)
    assert len(right_id) == 40
    shown = annotate(hits(job, [0]), "work", builds={str(job): right_id})
    assert shown.table["instruction"].notna().any()
    other = annotate(hits(job, [0]), "work", builds={str(job): "ab" * 20})
    assert other.table["instruction"].isna().all()
    assert any("is not the file that was profiled" in remark for remark in other.remarks)


def test_what_is_no_object_has_no_build_id(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "cut").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(60))
    for name in ("text", "cut", "absent", "."):
        assert build_id(tmp_path / name) == ""


# --- modules -------------------------------------------------------------------------------------


def test_modules_add_up_and_trials_widen_their_intervals() -> None:
    made = samples_of({"main;f": 30, "main": 10}, object="a")
    other = samples_of({"g": 60}, object="b")
    made = pd.concat([made, other], ignore_index=True).astype(TYPES)
    table = modules(made)
    assert table["object"].tolist() == ["b", "a", "a"]
    assert table["module_percent"].tolist() == [60.0, 40.0, 40.0]
    assert table["percent"].sum() == pytest.approx(100)
    rounds = modules(made.assign(round=np.arange(len(made)) // 25))  # each round has its own code
    wider = rounds["module_percent_high"] - rounds["module_percent_low"]
    assert (wider > table["module_percent_high"] - table["module_percent_low"]).all()
