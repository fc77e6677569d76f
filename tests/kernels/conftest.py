"""What tests of several kernels need: the kernel that a file names, huge pages of the pool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perflib import kernels
from perflib.store import paths
from tests.kernels import emulated

TESTS_OWN = Path(__file__).parents[1] / "kernels_c"
POOL = Path("/proc/sys/vm/nr_hugepages")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with the mark ``arm64`` runs here, and with kernels for aarch64 under an emulator."""
    if metafunc.definition.get_closest_marker("arm64"):
        why = emulated.missing()
        other = pytest.param("aarch64", marks=pytest.mark.skipif(bool(why), reason=why))
        here = pytest.param("here", id=pytest.HIDDEN_PARAM)
        metafunc.parametrize("processor", [here, other], indirect=True, scope="module")


@pytest.fixture(scope="module")
def processor(request: pytest.FixtureRequest) -> Iterator[str]:
    """Whose kernels ``kernels.build`` and ``kernels.load`` make: "here", or "aarch64"."""
    name = getattr(request, "param", "here")
    with pytest.MonkeyPatch.context() as patched:
        if name == "aarch64":
            patched.setattr(kernels, "build", emulated.build)
            patched.setattr(kernels, "load", emulated.load)
        yield name


@pytest.fixture(autouse=True)
def _with_kernels_of(processor: str) -> None:
    """Every test's kernels are those of its processor."""


@pytest.fixture(scope="module")
def kernel(request: pytest.FixtureRequest, processor: str) -> kernels.Kernel:  # noqa: ARG001
    """The kernel that the file's ``KERNEL`` names, as it is shipped."""
    return kernels.load(request.module.KERNEL)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own; kernels are those of the tests."""
    monkeypatch.setenv("PERFLIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(paths, "kernels_dir", lambda: TESTS_OWN)
    return tmp_path / "cache"


@pytest.fixture
def pool() -> Iterator[None]:
    """Room for a few 2 MiB pages while a test runs, where this process may make it."""
    try:
        before = int(POOL.read_text())
        if before < 32:
            POOL.write_text("32")
    except OSError:
        yield
        return
    try:
        yield
    finally:
        POOL.write_text(str(before))
