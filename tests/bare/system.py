"""A bare Debian in a folder, made by debootstrap, in which the container images' lines are run.

It is mounted and run in namespaces of its own: nothing of it is mounted on the machine, and all
that runs in it ends with the process that started it, also when that is killed.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[2]
SUITES = ("trixie", "bookworm")
USER = 1000  # one who is not root
# What this process starts ends with it, and what unshare starts ends with unshare.
_NAMESPACES = (
    "setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"
)  # fmt: skip
_CONFIGURED = re.compile(r"(?i:PIP_\w+|\w+_proxy|SSL_CERT_\w+|REQUESTS_CA_BUNDLE)")
_CERTIFICATES = Path("/etc/ssl/certs")
_MAKE_S, _RUN_S = 300.0, 600.0  # four times and more what a machine of two busy cores takes


class MissingError(Exception):
    """A bare system cannot be made here; the text says why."""


@dataclass(frozen=True)
class Bare:
    """A bare system below ``root``, and settings by which its pip finds packages as ours does."""

    root: Path
    suite: str
    environment: Mapping[str, str]

    def run(
        self,
        script: str,
        user: int = 0,
        variables: Mapping[str, str] | None = None,
        *,
        shown: bool = False,
        limit_s: float = _RUN_S,
    ) -> subprocess.CompletedProcess[str]:
        """Run lines of shell in it, with its own /proc and /sys; ``shown``: output goes through."""
        folder = "/root" if user == 0 else f"/home/{user}"
        home = self.root / folder[1:]
        if not home.is_dir():
            home.mkdir(parents=True)
            os.chown(home, user, user)
        inside = shlex.join(
            ["chroot", f"--userspec={user}:{user}", str(self.root), "sh", "-c", f"cd; {script}"]
        )
        dev = f"{self.root}/dev"
        mounts = " && ".join([
            f"mount -t proc proc {self.root}/proc", f"mount -t sysfs -o ro sysfs {self.root}/sys",
            f"mkdir -p {dev}/shm {dev}/pts", f"mount -t tmpfs -o mode=1777 tmpfs {dev}/shm",
            f"mount -t devpts -o newinstance,ptmxmode=0666 devpts {dev}/pts",
            f"ln -sf pts/ptmx {dev}/ptmx", f"ln -sfT /proc/self/fd {dev}/fd",
        ])  # fmt: skip
        return subprocess.run(
            [*_NAMESPACES, "sh", "-c", f"{mounts} && exec {inside}"],
            env={
                **self.environment, **(variables or {}),
                "HOME": folder, "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            },
            stdin=subprocess.DEVNULL, capture_output=not shown, text=True, errors="replace",
            timeout=limit_s, check=False,
        )  # fmt: skip


def make(folder: Path, suites: Sequence[str] = SUITES) -> Bare:
    """Make a bare Debian below a folder: 13, or 12 where that is not available.

    Raises
    ------
    MissingError
        It takes root, debootstrap, a mount and a network, and something of that is missing.
    """
    if os.geteuid() != 0:
        msg = "a bare system is made by root only"
        raise MissingError(msg)
    for program in ("debootstrap", "setpriv", "unshare"):
        if shutil.which(program) is None:
            msg = f"no {program}: apt-get install {program}"
            raise MissingError(msg)
    found = mirrors()
    if not found:
        msg = "apt's sources name no mirror of Debian that debootstrap could use"
        raise MissingError(msg)
    if subprocess.run([*_NAMESPACES, "true"], capture_output=True, check=False).returncode:
        msg = "no namespaces of our own: this container allows no mounts"
        raise MissingError(msg)
    last = ""
    for suite in suites:
        for mirror in found:
            root = Path(tempfile.mkdtemp(prefix=f"{suite}-", dir=folder))
            root.chmod(0o755)
            answer = subprocess.run(
                [*_NAMESPACES, "debootstrap", "--variant=minbase", suite, str(root), mirror],
                capture_output=True, text=True, check=False, timeout=_MAKE_S,
            )  # fmt: skip
            if answer.returncode == 0:
                return Bare(root, suite, _passed_on(root))
            last = quiet((answer.stdout + answer.stderr).strip().rpartition("\n")[2])
            shutil.rmtree(root)
    msg = f"debootstrap made none of {', '.join(suites)}: {last}"
    raise MissingError(msg)


def mirrors(sources: Path = Path("/etc/apt")) -> list[str]:
    """The mirrors of Debian itself that apt is configured with, first things first."""
    found = []
    for path in [sources / "sources.list", *sorted((sources / "sources.list.d").glob("*"))]:
        if path.suffix == ".list" and path.is_file():
            for line in path.read_text().splitlines():
                match = re.match(r"deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+\S+\s+.*\bmain\b", line)
                found += [match[1]] if match else []
        elif path.suffix == ".sources" and path.is_file():
            found += re.findall(r"^URIs:\s*(\S+)", path.read_text(), re.MULTILINE)
    return list(dict.fromkeys(uri for uri in found if uri.rstrip("/").endswith("/debian")))


def quiet(text: str) -> str:
    """Without addresses: a mirror's or an index's may hold a password."""
    return re.sub(r"\w+://\S+", "(an address)", text)


# --- the bare system's apt and pip get the machine's settings ------------------------------------


def pip_settings(
    environment: Mapping[str, str] = os.environ, home: Path | None = None
) -> tuple[dict[str, str], list[Path]]:
    """The variables that configure pip, and the files and folders that they or its files name."""
    home = home or Path.home()
    passed = {name: value for name, value in environment.items() if _CONFIGURED.fullmatch(name)}
    files = [Path("/etc/pip.conf"), home / ".config/pip/pip.conf", home / ".pip/pip.conf"]
    files += [Path(passed["PIP_CONFIG_FILE"])] if "PIP_CONFIG_FILE" in passed else []
    values = list(passed.values())
    for file in files:
        parser = configparser.RawConfigParser()
        if file.is_file():
            parser.read(file)
        values += [value for section in parser.sections() for _, value in parser.items(section)]
    named = [Path(word) for value in values for word in value.split() if word.startswith("/")]
    return passed, [path for path in dict.fromkeys([*files, *named]) if path.exists()]


def _passed_on(root: Path) -> dict[str, str]:
    environment, paths = pip_settings()
    for path in [Path("/etc/resolv.conf"), Path("/etc/hosts"), *paths]:
        inside = root / str(path)[1:]
        if path.is_relative_to(_CERTIFICATES):  # the bare system makes this folder itself, of ...
            inside = root / "usr/local/share/ca-certificates" / f"{path.stem}-of-the-machine.crt"
        inside.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and path != _CERTIFICATES:
            shutil.copytree(path, inside, dirs_exist_ok=True)
        elif path.is_file():
            shutil.copyfile(path, inside)
    dumped = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False)
    (root / "etc/apt/apt.conf.d/99machine").write_text(
        "".join(_network(dumped.stdout.splitlines()))
    )
    return environment


def _network(lines: Iterable[str]) -> Sequence[str]:
    return [f"{line}\n" for line in lines if re.match(r"Acquire::https?::", line)]
