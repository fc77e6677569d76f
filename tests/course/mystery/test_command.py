"""perflib course mystery: a shell with a trouble, an answer, and all as it was."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from perflib.cli import course_mystery
from perflib.course.mystery.causes import NOTHING
from perflib.model.errors import UserError
from tests.course.mystery.cases import opened, seed_of, trouble_of

# One at a time: an opened one clears up after those that were killed.
pytestmark = pytest.mark.xdist_group("mystery")


def call(*words: str) -> Result:
    return CliRunner().invoke(course_mystery.mystery, words)


def test_a_command_runs_while_it_is_open_and_the_answer_is_judged(tmp_path: Path) -> None:
    seed, trouble = str(seed_of("quota")), trouble_of("quota")
    size = trouble.thousandths / 10
    out = tmp_path / "groups"
    answer = ["--cause", "quota", "--low", str(size - 1), "--high", str(size + 1)]
    script = f"cat /proc/self/cgroup > {out}; echo $PERFLIB_TAG >> {out}"
    done = call(seed, "--level", "medium", *answer, "--", "sh", "-c", script)
    assert done.exit_code == 0, done.output
    assert f"perflib-{os.getpid()}" in out.read_text()
    assert out.read_text().endswith("exercise\n")
    assert "100 of 100 points. It was quota" in done.stdout
    assert "all is as it was" in done.stderr
    assert "perflib run kv_per_core -p job=command" in done.stderr
    assert "thief: another process" in done.stderr
    assert f"perflib-{os.getpid()}" not in Path("/proc/self/cgroup").read_text()


def test_perflib_is_a_command_there_wherever_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "version"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    call(str(seed_of(NOTHING)), "--level", "medium", "--", "sh", "-c", f"perflib --version > {out}")
    assert "version" in out.read_text()


def test_where_nobody_can_be_asked_it_says_so() -> None:
    done = call(str(seed_of(NOTHING)), "--level", "medium", "--", "true")
    assert done.exit_code == 0
    assert done.stdout == ""
    assert "--cause, --place, --low and --high give one" in done.stderr
    opened(NOTHING).close()


def test_who_is_asked_may_mistype(monkeypatch: pytest.MonkeyPatch) -> None:
    words = iter(["theif", "cpu1", 1.0, 2.0, NOTHING, "", 0.0, 2.0])
    monkeypatch.setattr(click, "prompt", lambda *_given, **_named: next(words))
    said: list[str] = []
    monkeypatch.setattr(course_mystery, "say", said.append)
    with opened(NOTHING) as machine:
        verdict = course_mystery._asked(machine)
    assert verdict.right
    assert any("did you mean 'thief'" in line for line in said)
    assert list(words) == []


def test_without_a_command_it_is_the_users_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/false")
    answer = ["--cause", NOTHING, "--low", "0", "--high", "2"]
    done = call(str(seed_of(NOTHING)), "--level", "medium", *answer)
    assert done.exit_code == 0
    assert "100 of 100" in done.stdout


@pytest.mark.parametrize("words", [("-1",), ("x",), ("1", "--level", "esay")])
def test_wrong_words_open_nothing(words: tuple[str, ...]) -> None:
    done = call(*words)
    assert done.exit_code == 2 or isinstance(done.exception, UserError)
    opened(NOTHING).close()
