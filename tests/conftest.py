"""What holds for every test: folders of its own, no screen, no deadlines, and an end."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from perflib.experiments import NAMES
from perflib.framework.experiment import Experiment
from perflib.model.recorded import unlisted
from tests.skips import install_lines
from tests.slow import SLOW, mark_listed

if TYPE_CHECKING:
    from perflib.model.run import Run
    from tests.notebooks.forked import ForkServer

# Each Python that a test starts would compile perflib anew, for seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

with pytest.MonkeyPatch.context() as for_now:
    # The tests' processes share the cores; what they start has the threads that it wants.
    for_now.setenv("OPENBLAS_NUM_THREADS", "1")
    import numpy as np  # reads it once
    import scipy.linalg  # has an OpenBLAS of its own

    for_now.setenv("ARROW_DEFAULT_MEMORY_POOL", "system")  # its own gives nothing back
    import pyarrow as pa

    pa.default_memory_pool()  # is chosen now

del np, pa, scipy

_STARTED_S = time.monotonic()
END_S = 60.0  # how long a run whose tests are over may take to end
_GROWN_PAGES = (32 << 20) // os.sysconf("SC_PAGESIZE")  # collecting takes a tenth of a second
_pages = {"kept": 0}
_FEW_SKIPS = 10  # the table of skips is short enough to be read

# The same examples in every run: a change is judged, not chance. New ones, to look for errors:
# make test ARGS=--hypothesis-profile=explore
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.register_profile("perflib", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("perflib")


# --- what one run skipped, another one runs: .ci/run tests bare first, then with all tools --------


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of continuous integration."""
    parser.addoption("--write-skipped", metavar="FILE", help="write what was skipped to a file")
    parser.addoption("--files-shuffled", metavar="SEED", help="run files in an order of this seed")
    parser.addoption("--end-after", metavar="SECONDS", type=float, help="begin no test later")
    parser.addoption("--only-from", metavar="FILE", help="run only the tests that a file lists")


@pytest.hookimpl(tryfirst=True)  # before those are left out that -m does not want
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what ``slow.txt`` lists; keep the tests, and take the order, that an option wants."""
    mark_listed(items, SLOW.read_text(encoding="utf-8").splitlines())
    if path := config.getoption("--only-from"):
        # A file that it lists has all of its tests run.
        names = Path(path).read_text(encoding="utf-8").splitlines()
        # Where xdist distributes, a test of a group has the group's name behind an @.
        listed = {*names, *(name.rpartition("@")[0] for name in names if "@" in name)}
        kept = [one for one in items if {one.nodeid, one.nodeid.partition("::")[0]} & listed]
        config.hook.pytest_deselected(items=[one for one in items if one not in set(kept)])
        items[:] = kept
    if seed := config.getoption("--files-shuffled"):
        # Of the same seed in each process of xdist. A file's tests stay together, and in order.
        files = sorted({one.path for one in items})
        random.Random(seed).shuffle(files)
        place = {path: number for number, path in enumerate(files)}
        items.sort(key=lambda one: place[one.path])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Where the time of ``--end-after`` is over, a test is not run; one that runs goes to its end.

    A signal would reach what a running test has started, too, and the test would fail by it.
    """
    end_s = item.config.getoption("--end-after")
    return True if end_s is not None and time.monotonic() - _STARTED_S >= end_s else None


# --- several processes (make test: -n auto --dist loadgroup) --------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """At least two processes, because many tests wait; at most four, because each takes memory."""
    return min(4, max(2, len(os.sched_getaffinity(0))))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests stay in one process, as they share fixtures; ``xdist_group`` overrides it."""
    from xdist.scheduler import LoadGroupScheduling  # it is there: it asks

    if config.getoption("dist") != "loadgroup":
        return None
    scheduler = LoadGroupScheduling(config, log)
    group_of = scheduler._split_scope  # a test that is in no group is one by itself
    scheduler._split_scope = lambda test: group_of(test).partition("::")[0]
    return scheduler


# --- around all tests -----------------------------------------------------------------------------


@pytest.fixture(scope="session", autouse=True)
def _own_folders(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[None]:
    """Runs, caches and Jupyter's files go to a temporary folder, never to the user's.

    Compiled kernels are shared by the processes of one run.
    """
    home = tmp_path_factory.mktemp("perflib")
    home.chmod(0o700)
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if hasattr(pytestconfig, "workerinput") else base) / "cache"
    cache.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFLIB_HOME", str(home / "data"))
        patch.setenv("PERFLIB_CACHE", str(cache))
        patch.setenv("PERFLIB_CONFIG", "none")  # nothing of the user's, nothing above the checkout
        for name in ("CONFIG", "DATA", "RUNTIME"):
            patch.setenv(f"JUPYTER_{name}_DIR", str(home / f"jupyter-{name.lower()}"))
        patch.setenv("IPYTHONDIR", str(home / "ipython"))
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        patch.setenv("MPLBACKEND", "agg")
        for name in ("PERFLIB_CC", "PERFLIB_KERNELS", "PERFLIB_PROGRESS", "PERFLIB_TAG"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _all_that_is_recorded_is_listed() -> Iterator[None]:
    """Whatever a test measures: docs/recorded.md has each key that the run records."""
    made = Experiment._run

    def checked(self: Experiment, *given: Any) -> Run:
        run = made(self, *given)
        missing = set(unlisted(run.provenance)) if self.name in NAMES else set()
        assert not missing, f"perflib/model/recorded.py lacks {', '.join(sorted(missing))}"
        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Experiment, "_run", checked)
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    """What executes notebooks; started by the first test that needs it."""
    from tests.notebooks.forked import ForkServer

    with ForkServer() as made:
        yield made


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """What ``nohup`` and a shell's ``&`` ignore, every process that a test starts would, too."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _no_figure_left() -> Iterator[None]:
    """A figure that one test drew is not seen by the next; matplotlib is not imported for it."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was collected stays to the end: no search for garbage goes through it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What functions keep for a file's tests ends with it, and its memory is given back."""
    module = getattr(item, "module", None)
    if module is not None and getattr(nextitem, "module", None) is not module:
        _forget(module)
    if _resident_pages() > _pages["kept"] + _GROWN_PAGES:
        gc.collect()  # figures hold buffers of up to 100 MB in cycles
        with contextlib.suppress(AttributeError):  # another C library than glibc
            ctypes.CDLL(None).malloc_trim(0)
        _pages["kept"] = _resident_pages()


def _forget(module: Any) -> None:
    for one in vars(module).values():
        if hasattr(one, "cache_clear") and one.__module__.startswith("tests."):
            one.cache_clear()
    if "perflib.machine.libraries.elf" in sys.modules:  # the symbols of up to 64 libraries
        sys.modules["perflib.machine.libraries.elf"].read_elf.cache_clear()


def _resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])


# --- the end --------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """After a long table of skips, one line: which package would bring which tests."""
    yield
    plugins = terminalreporter.config.pluginmanager
    reached = {report.nodeid for kind in terminalreporter.stats.values() for report in kind
               if hasattr(report, "nodeid")}  # fmt: skip
    workers = getattr(plugins.getplugin("dsession"), "sched", None)
    wanted = getattr(workers, "collection", None) or []  # what xdist would have run
    unreached = Counter(one.partition("::")[0] for one in wanted if one not in reached)
    for file, tests in unreached.items():
        terminalreporter.write_line(f"NOT REACHED {file}: {tests} tests")
    skipped = terminalreporter.stats.get("skipped", [])
    if path := terminalreporter.config.getoption("--write-skipped"):
        names = sorted({report.nodeid for report in skipped})
        Path(path).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    line = install_lines(report.longrepr[2] for report in skipped)
    if line and len(skipped) > _FEW_SKIPS:
        terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Python waits for a thread that a failed test left behind: show it, and end all the same."""
    if hasattr(config, "workerinput") or sys.__stderr__ is None:
        return  # xdist ends its processes itself, when the last one has no more to do
    faulthandler.dump_traceback_later(END_S, exit=True, file=sys.__stderr__)
