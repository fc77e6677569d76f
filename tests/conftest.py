"""What holds for every test: folders of its own, no screen, no deadlines."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import hypothesis
import pytest

hypothesis.settings.register_profile("perflib", deadline=None)
hypothesis.settings.load_profile("perflib")


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs, caches and Jupyter's files go to a temporary folder, never to the user's."""
    home = tmp_path_factory.mktemp("perflib")
    home.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFLIB_HOME", str(home / "data"))
        patch.setenv("PERFLIB_CACHE", str(home / "cache"))
        for name in ("CONFIG", "DATA", "RUNTIME"):
            patch.setenv(f"JUPYTER_{name}_DIR", str(home / f"jupyter-{name.lower()}"))
        patch.setenv("IPYTHONDIR", str(home / "ipython"))
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        patch.setenv("MPLBACKEND", "agg")
        for name in ("PERFLIB_CC", "PERFLIB_PROGRESS", "PERFLIB_TAG"):
            patch.delenv(name, raising=False)
        yield


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
