"""Progress: a bar where somebody looks, lines in a log where nobody does, nothing on request."""

from __future__ import annotations

import io
import re
import sys
import time
from types import ModuleType, SimpleNamespace

import pandas as pd
import pytest

from perflib.measure import progress as progress_module
from perflib.measure.progress import Reporter, Working
from perflib.measure.schedule import Status
from perflib.model.errors import UserError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """No terminal, no Jupyter, no wish: whatever these tests run in."""
    monkeypatch.delenv("PERFLIB_PROGRESS", raising=False)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)


def status(elapsed_s: float, left_s: float, half_width: float | None = None) -> Status:
    return Status(elapsed_s, left_s, 4, half_width, pd.DataFrame)


def test_log_lines_in_batch_one_in_ten_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [5.0]
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    with Reporter("kv_per_core") as report:
        for _ in range(21):
            report(status(now_s[0], 30.4, 0.731))
            now_s[0] += 1.0
    out, err = capsys.readouterr()
    assert out == "", "standard output is for results"
    assert err.splitlines() == ["kv_per_core: round 5, 30 s left at most, ±0.73"] * 3


@pytest.mark.parametrize(
    ("left_s", "half_width", "said"),
    [(99_999_999, 0.5, "x: round 5, ±0.50\n"), (29, None, "x: round 5, 29 s left at most\n")],
)
def test_an_end_and_a_width_are_shown_only_where_there_are_any(
    capsys: pytest.CaptureFixture[str], left_s: float, half_width: float | None, said: str
) -> None:
    with Reporter("x") as report:
        report(status(1, left_s, half_width))
    assert capsys.readouterr().err == said


def test_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Reporter("kv_per_core") as report:
        report(status(10, 30))
        report(status(20, 20, 0.5))
        report(status(21, 80, 0.5))  # the estimate of what is left grew: the bar does not go back
    shown = re.findall(r"kv_per_core:\s+(\d+)%\|[^|]*\| ([^\r\n]*)", terminal.getvalue())
    assert [share for share, _ in shown if share != "0"] == ["25", "50", "50"]
    assert "round 5, 20 s left at most, ±0.50" in terminal.getvalue()


def test_bar_in_jupyter_although_nothing_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    page = io.StringIO()
    monkeypatch.setattr(sys, "stderr", page)
    with Reporter("kv_per_core") as report:
        report(status(10, 30))
    assert " 25%|" in page.getvalue()


@pytest.mark.parametrize(
    ("wish", "said"), [("none", ""), ("log", "x: round 5, 3 s left at most\n")]
)
def test_wish_overrides_the_terminal(monkeypatch: pytest.MonkeyPatch, wish: str, said: str) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("PERFLIB_PROGRESS", wish)
    with Reporter("x") as report:
        report(status(1, 3))
    assert terminal.getvalue() == said


def test_bar_is_closed_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    report = Reporter("x")
    with pytest.raises(ZeroDivisionError), report:
        raise ZeroDivisionError
    assert report._bar.disable  # what tqdm calls a bar that is closed


def test_silent_work_says_now_and_then_that_it_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "_LOG_EVERY_S", 0.02)
    with Working("analysis of kv_per_core"):
        while not (said := capsys.readouterr().err):
            time.sleep(0.01)
    assert said.startswith("analysis of kv_per_core: at work for 0 s\n")
    assert not said.replace("analysis of kv_per_core: at work for 0 s\n", "")


@pytest.mark.parametrize("mode", ["bar", "none"])
def test_no_line_where_none_is_wanted(
    mode: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "_LOG_EVERY_S", 0.001)
    with Working("x", mode):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_an_unknown_word_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLIB_PROGRESS", "lgo")
    with pytest.raises(UserError, match="PERFLIB_PROGRESS: unknown word 'lgo': did you mean 'log'"):
        Reporter("x")
