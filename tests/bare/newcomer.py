"""What a newcomer sees: the README's two commands in a bare Debian, as a user who is not root.

python3 -m tests.bare.newcomer [trixie|bookworm ...]    (needs no package, only Python)

ARGS in the environment: more arguments for pytest; SKIPPED: a file for the tests that were skipped.

Exits with 0 where both commands succeed, with 1 where one fails, and with 77 where no bare system
can be made here; it then says why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bare.system import SUITES, TOP, USER, MissingError, make

INSTALL = "apt-get update -qq && apt-get install -qq -y --no-install-recommends"
PACKAGES = "gcc libc6-dev make python3-venv"  # the README's line
COMMANDS = ("make investigate", "make test")
LIMIT_S = 3600.0
CANNOT = 77


def checkout(target: Path) -> None:
    """The files of this checkout that git has, as a clone has them; they belong to the user."""
    listed = subprocess.run(
        ["git", "-C", str(TOP), "ls-files", "-z"], capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, place = TOP / name, target / name
        if source.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place)
    for folder, _, files in os.walk(target):
        for path in (folder, *(os.path.join(folder, one) for one in files)):  # noqa: PTH118
            os.chown(path, USER, USER)


def main(suites: list[str]) -> int:
    """Make the system, install the README's packages, run both commands; say what each took."""
    with tempfile.TemporaryDirectory(prefix="newcomer-") as folder:
        try:
            bare = make(Path(folder), suites or SUITES)
        except MissingError as error:
            print(f"no bare system can be made here: {error}", file=sys.stderr)
            return CANNOT
        print(f"a bare Debian ({bare.suite})", flush=True)
        if bare.run(f"{INSTALL} {PACKAGES} > /dev/null", shown=True).returncode:
            return 1
        bare.run("true", USER)  # makes the home folder
        checkout(bare.root / "home" / str(USER) / "perflib")
        failed = 0
        for command in COMMANDS:
            print(f"--- {command} (nothing else is installed)", flush=True)
            start = time.monotonic()
            arguments = f"--write-skipped=skipped.txt {os.environ.get('ARGS', '')}"
            variables = {"PERFLIB_PROGRESS": "none", "ARGS": arguments}
            done = bare.run(
                f"cd perflib && {command}", USER, variables, shown=True, limit_s=LIMIT_S
            )
            took = time.monotonic() - start
            print(f"--- {command}: exit status {done.returncode}, {took:.0f} s", flush=True)
            failed |= done.returncode != 0
        skipped = bare.root / "home" / str(USER) / "perflib" / "skipped.txt"
        if "SKIPPED" in os.environ and skipped.is_file():
            shutil.copyfile(skipped, os.environ["SKIPPED"])
        return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
