"""The images' definitions, as far as they can be checked where no image can be built.

What they copy and run is executed by ``test_bare.py``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.bare import system
from tests.bare.images import TOP, Copies, apptainer_sections, instructions, jsonc

RECIPE = TOP / "recipe"
SCRIPT = "sh /usr/src/perflib/recipe/bare.sh"


def containerfile() -> list[tuple[str, str]]:
    return instructions((RECIPE / "Containerfile").read_text())


def definition() -> dict[str, str]:
    return apptainer_sections((RECIPE / "perflib.def").read_text())


def devcontainer() -> dict[str, Any]:
    found = jsonc((TOP / ".devcontainer/devcontainer.json").read_text())
    assert isinstance(found, dict)
    return found


def container_copies() -> Copies:
    words = [rest.split() for name, rest in containerfile() if name == "COPY"]
    return [(source, target) for *sources, target in words for source in sources]


def container_runs() -> list[str]:
    return [rest for name, rest in containerfile() if name == "RUN"]


def container_arguments() -> dict[str, str]:
    pairs = (rest.partition("=") for name, rest in containerfile() if name == "ARG")
    return {name: value for name, _, value in pairs}


def test_the_containerfile_parses() -> None:
    reader = pytest.importorskip("dockerfile", reason="no dockerfile: pip install dockerfile")
    parsed = reader.parse_file(str(RECIPE / "Containerfile"))  # what docker itself reads it by
    assert [one.cmd.upper() for one in parsed] == [name for name, _ in containerfile()]
    assert {one.cmd.upper() for one in parsed} == {
        "FROM", "ARG", "COPY", "RUN", "ENTRYPOINT", "CMD"
    }  # fmt: skip
    assert all(one.json for one in parsed if one.cmd.upper() in ("ENTRYPOINT", "CMD"))


def test_the_definition_has_sections_that_apptainer_knows() -> None:
    sections = definition()
    assert set(sections) == {"", "arguments", "files", "post", "runscript", "test"}
    header = re.sub(r"^#.*\n", "", sections[""], flags=re.MULTILINE).split("\n")
    assert [line.partition(": ")[0] for line in header if line] == ["Bootstrap", "From"]


def test_all_images_run_the_one_script_over_the_same_files() -> None:
    sections = definition()
    assert container_runs() == [f'{SCRIPT} "/usr/src/perflib$EXTRAS"']
    assert sections["post"].strip() == f'{SCRIPT} "/usr/src/perflib{{{{ EXTRAS }}}}"'
    assert sections["arguments"].strip() == f"EXTRAS={container_arguments()['EXTRAS']}"
    assert dict(containerfile())["FROM"] in sections[""]
    # COPY takes a folder's content, %files the folder
    copied = [(source, target.removesuffix(source)) for source, target in container_copies()]
    assert [tuple(line.split()) for line in sections["files"].splitlines() if line] == copied
    built = devcontainer()["build"]
    folder = TOP / ".devcontainer"
    assert (folder / built["dockerfile"]).resolve() == RECIPE / "Containerfile"
    assert (folder / built["context"]).resolve() == TOP
    assert set(built["args"]) == set(container_arguments())


def test_what_is_copied_is_there_and_is_what_the_project_is_built_of() -> None:
    sources = {source for source, _ in container_copies()}
    assert all((TOP / source).exists() for source in sources)
    built = re.search(
        r"^\[tool\.hatch\.build\.targets\.wheel\]\nonly-include = (\[.*?\])",
        (TOP / "pyproject.toml").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert built is not None
    needed = {"README.md", "LICENSE", "pyproject.toml"}
    assert sources >= set(json.loads(built[1])) | needed


def test_the_script_installs_the_packages_that_people_are_asked_to() -> None:
    line = re.search(r"apt-get install (?:-\S+ )*(.+)", (RECIPE / "bare.sh").read_text())
    assert line is not None
    for name in ("README.md", "Makefile"):
        assert f"apt-get install {line[1]}" in (TOP / name).read_text(), name


def test_the_script_is_posix_shell() -> None:
    assert subprocess.run(["sh", "-n", RECIPE / "bare.sh"], check=False).returncode == 0


def test_the_devcontainer_opens_notebooks_that_are_there() -> None:
    opened = devcontainer()["customizations"]["codespaces"]["openFiles"]
    assert opened
    assert all((TOP / notebook).is_file() for notebook in opened)


# --- the machinery of the bare system ------------------------------------------------------------


def test_mirrors_are_read_from_apt_s_own_sources(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(
        "# deb http://old/debian bookworm main\n"
        "deb [signed-by=/x.gpg] http://one/debian bookworm main contrib\n"
        "deb http://one/debian-security bookworm-security main\n"
    )
    (tmp_path / "sources.list.d/debian.sources").write_text(
        "Types: deb\nURIs: http://two/debian/\nSuites: trixie\n\nTypes: deb\nURIs: http://one/debian\n"
    )
    (tmp_path / "sources.list.d/other.list.off").write_text("deb http://three/debian x main\n")
    assert system.mirrors(tmp_path) == ["http://one/debian", "http://two/debian/"]
    assert system.mirrors(tmp_path / "none") == []


def test_pip_has_the_same_settings_there_as_here(tmp_path: Path) -> None:
    wheels, certificate = tmp_path / "wheels", tmp_path / "own.pem"
    wheels.mkdir()
    certificate.touch()
    config = tmp_path / ".config/pip/pip.conf"
    config.parent.mkdir(parents=True)
    config.write_text(f"[global]\ncert = {certificate}\nretries = 3\n")
    given = {"PIP_FIND_LINKS": f"{wheels} /nowhere", "https_proxy": "p", "HOME": "/", "PIPE": "x"}
    passed, paths = system.pip_settings(given, tmp_path)
    assert passed == {"PIP_FIND_LINKS": f"{wheels} /nowhere", "https_proxy": "p"}
    assert set(paths) - {Path("/etc/pip.conf")} >= {wheels, config, certificate}
    assert Path("/nowhere") not in paths


def test_addresses_are_not_printed() -> None:
    assert system.quiet("at http://user:word@index/simple, 3") == "at (an address) 3"


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces of one's own take root")
def test_what_runs_in_it_ends_with_who_started_it(tmp_path: Path) -> None:
    """Killed, too: the bare system's processes and mounts are in namespaces that end with it."""
    if subprocess.run([*system._NAMESPACES, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this container allows no namespaces of one's own")
    (tmp_path / "proc").mkdir()
    script = f"mount -t proc proc {tmp_path}/proc && echo mounted && sleep 600"
    with subprocess.Popen(
        [*system._NAMESPACES, "sh", "-c", script], stdout=subprocess.PIPE, text=True
    ) as outside:
        assert outside.stdout is not None
        assert outside.stdout.readline() == "mounted\n"
        assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
        outside.kill()
        assert outside.stdout.read() == ""  # all who had it open are gone
    assert list((tmp_path / "proc").iterdir()) == []


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(system.MissingError, match="root only"):
        system.make(tmp_path)
