"""The images' own lines, run in a bare Debian: installed, and measured with as nobody's root."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bare.images import copy
from tests.bare.system import USER, Bare, MissingError, make, quiet
from tests.bare.test_images import container_arguments, container_copies, container_runs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    """A bare system after the Containerfile's COPY and RUN."""
    folder = tmp_path_factory.mktemp("bare")
    try:
        bare = make(folder)
    except MissingError as error:
        pytest.skip(str(error))
    try:
        copy(container_copies(), bare.root)
        for line in container_runs():
            answer = bare.run(line, variables=container_arguments())
            said = quiet("\n".join((answer.stdout + answer.stderr).splitlines()[-20:]))
            assert answer.returncode == 0, f"in {bare.suite}, {line!r} failed:\n{said}"
        yield bare
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("user", [0, USER])
def test_a_bare_system_measures(installed: Bare, user: int) -> None:
    answer = installed.run("perflib run kv_per_core -p budget_s=2 --json", user)
    assert answer.returncode == 0, quiet(answer.stderr)
    result = json.loads(answer.stdout)
    assert result["experiment"] == "kv_per_core"
    assert result["findings"]
    assert (installed.root / result["samples"].strip("/")).stat().st_uid == user


def test_the_doctor_says_what_a_bare_system_lacks(installed: Bare) -> None:
    answer = installed.run("perflib doctor --json", USER)
    assert answer.returncode == 0, quiet(answer.stderr)
    checks = {check["name"]: check for check in json.loads(answer.stdout)["checks"]}
    assert checks["tools"]["command"].startswith("apt-get install linux-perf")


def test_nothing_of_it_is_mounted_on_the_machine(installed: Bare) -> None:
    assert str(installed.root) not in Path("/proc/self/mountinfo").read_text()
