"""Repeated machine code: every copy computes the same, none shares a name with another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perflib import kernels
from perflib.kernels import copies
from perflib.model.errors import MeasurementError
from perflib.store import paths

HERE = Path(__file__).parents[1] / "kernels_c"
COPIES = 5

# As gcc writes for aarch64 (".global", ":lo12:" before a name, a ".set" for an anchor).
AARCH64 = (HERE / "step_aarch64.s").read_text()


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.getbasetemp() / "cache-of-copies"
    monkeypatch.setenv("PERFLIB_CACHE", str(folder))
    monkeypatch.setattr(paths, "kernels_dir", lambda: HERE)


def expected(which: int, value: float) -> float:
    """The C function of copied_part.inc, for a copy that is called for the first time."""
    table = (0.25, 0.5, 0.75, 1.25)
    if which == 4:
        return table[int(value) & 3]
    other = {0: value + 3.25, 1: 1.0, 2: abs(value) * 1.5, 3: value / 2, 5: value * value - 7.125}
    return other.get(which, -1.0)


@pytest.mark.arm64
def test_every_copy_computes_the_same_from_state_of_its_own() -> None:
    lib = kernels.load("copied", copies=COPIES).lib
    assert lib.copied_count_of_copies() == COPIES
    for copy in range(COPIES):
        got = [lib.copied_step_of(copy, which, 3.0) for which in (1, 0, 2, 3, 4, 5, 6)]
        assert got == [expected(which, 3.0) for which in (1, 0, 2, 3, 4, 5, 6)]


def test_changed_part_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("copied.c", "copied_part.inc"):
        (tmp_path / name).write_text((HERE / name).read_text())
    monkeypatch.setattr(paths, "kernels_dir", lambda: tmp_path)
    before = kernels.load("copied", copies=2)
    part = tmp_path / "copied_part.inc"
    part.write_text(part.read_text().replace("value + 3.25", "value + 4.25"))
    after = kernels.load("copied", copies=2)
    assert before.lib.copied_step_of(1, 0, 0.0) == 3.25
    assert after.lib.copied_step_of(1, 0, 0.0) == 4.25


def test_compile_error_in_the_part_names_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copied.c").write_text((HERE / "copied.c").read_text())
    (tmp_path / "copied_part.inc").write_text("double copied_step(void) {\n  return mistaken;\n}\n")
    monkeypatch.setattr(paths, "kernels_dir", lambda: tmp_path)
    with pytest.raises(MeasurementError, match=r"copied_part\.inc:2:.*mistaken"):
        kernels.build("copied", copies=2)


def repeated(tmp_path: Path, assembly: str, count: int) -> str:
    single, out = tmp_path / "single.s", tmp_path / "copies.s"
    single.write_text(assembly)
    copies.repeat(single, out, count)
    return out.read_text()


def test_assembly_of_another_architecture(tmp_path: Path) -> None:
    text = repeated(tmp_path, AARCH64, 2)
    for copy in ("_0000", "_0001"):
        assert f"\nstep{copy}:\n" in text
        assert f"adrp\tx0, .LANCHOR0{copy}\n" in text
        assert f":lo12:.LC0{copy}]" in text
        assert f"cbz\tw1, .L2{copy}\n" in text
        assert f"\t.set\t.LANCHOR0{copy},. + 0\n" in text
        assert f'\t.section\t.text.step{copy},"ax",@progbits\n' in text
        assert f"\t.size\tstep{copy}, .-step{copy}\n" in text
    assert text.count('"step .L2"') == text.count('"step.inc"') == 2
    assert "\t.quad step_0000\n\t.quad step_0001\n" in text


@pytest.mark.parametrize("functions", [[], ["first", "second"]])
def test_part_must_have_one_global_function(tmp_path: Path, functions: list[str]) -> None:
    text = "".join(f"\t.globl\t{name}\n{name}:\n\tret\n" for name in functions)
    with pytest.raises(MeasurementError, match=re.escape(f"found {functions}")):
        repeated(tmp_path, text, 2)
