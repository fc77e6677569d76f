"""numpy's allocations kept apart: within the context, afterwards, and where there is no hook."""

from __future__ import annotations

import contextvars
import ctypes
import gc
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib import kernels
from perflib.model.errors import UserError
from perflib.remedies import alias_free_allocator, allocator
from tests.remedies.places import PAGE, Array, apart, nearest, place

multiarray = (np._core if hasattr(np, "_core") else np.core).multiarray
handler_of: Callable[[Array], str | None] = multiarray.get_handler_name
OURS, DEFAULT = "perflib_alias_free", "default_allocator"


def alive() -> list[int]:
    """How many arrays of ours begin at each of the 64 places."""
    kernel = kernels.load("alias_allocator")
    counts = kernel.ffi.new("uint32_t[64]")
    kernel.lib.alias_alive(counts)
    return list(counts)


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    before = sum(alive())
    yield
    assert sum(alive()) == before


def test_the_entries_of_the_table_are_those_of_numpys_header() -> None:
    text = (Path(np.get_include()) / "numpy" / "__multiarray_api.h").read_text()
    for name, number in (
        ("PyArray_GetNDArrayCVersion", allocator._ABI),
        ("PyArray_GetNDArrayCFeatureVersion", allocator._FEATURES),
        ("PyDataMem_SetHandler", allocator._SET_HANDLER),
        ("PyDataMem_GetHandler", allocator._GET_HANDLER),
    ):
        found = re.search(rf"#define {name} .*?PyArray_API\[(\d+)\]", text, re.DOTALL)
        assert found is not None
        assert int(found[1]) == number


def test_numpy_lays_arrays_apart_by_itself() -> None:
    with alias_free_allocator():
        first = [np.ones(1 << 16) for _ in range(16)]
        assert nearest(first) >= 128
        later = [np.zeros((100, n), "f4") for n in range(11, 59)]
    assert len({place(one) // 64 for one in (*first, *later)}) == 64
    assert all(place(one) % 64 == 0 for one in (*first, *later))
    assert all((one == 1).all() for one in first)
    assert not any(one.any() for one in later)


@given(seed=st.integers(0, 1 << 30))
def test_a_new_array_is_far_from_all_that_are_alive(seed: int) -> None:
    draw = random.Random(seed)
    kept: list[Array] = []
    with alias_free_allocator():
        for _ in range(60):
            if kept and draw.random() < 0.4:
                del kept[draw.randrange(len(kept))]
            kept.append(np.empty(draw.randrange(PAGE, 5 * PAGE), "u1"))
            alone = len(kept) - 1
            far = PAGE // (2 * alone) // 64 * 64 if alone else 0
            assert all(apart(kept[-1], kept[other]) >= far for other in range(alone))
    assert sum(alive()) == len(kept)


def test_temporary_arrays_do_not_use_up_places() -> None:
    with alias_free_allocator():
        a = np.ones(2000)
        for _ in range(200):
            np.sin(a)
        b = np.ones(2000)
    assert apart(a, b) == 2048


def test_small_arrays_are_left_where_they_lie() -> None:
    with alias_free_allocator():
        small = [np.ones(n) for n in (0, 1, 511)]
        assert sum(alive()) == 0
        least = np.ones(512)
        assert sum(alive()) == 1
    assert [one.sum() for one in (*small, least)] == [0, 1, 511, 512]


def test_arrays_stay_valid_after_the_context() -> None:
    with alias_free_allocator():
        kept = [np.arange(n, dtype=float) for n in (3, 1000, 100_000, 1 << 19)]
        view = np.arange(5000)[10:]
    gc.collect()
    [np.full(100_000, 7.0) for _ in range(50)]
    for one in kept:
        assert handler_of(one) == OURS
        assert (one == np.arange(one.size)).all()
        before = one.copy()
        assert handler_of(before) == DEFAULT
        one.resize(2 * one.size, refcheck=False)
        assert (one[: before.size] == before).all()
        assert not one[before.size :].any()
        one.resize(2, refcheck=False)
        assert one.tolist() == [0, 1]
    assert (view == np.arange(10, 5000)).all()
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()


def test_the_old_handler_is_back_whatever_happens() -> None:
    assert handler_of(np.ones(3)) == DEFAULT
    with alias_free_allocator():
        with alias_free_allocator():
            inner = np.ones(9999)
        assert handler_of(np.ones(3)) == OURS
        with pytest.raises(ZeroDivisionError), alias_free_allocator():
            _ = 1 // 0
        outer = np.ones(9999)
    assert handler_of(np.ones(3)) == DEFAULT
    assert [handler_of(inner), handler_of(outer)] == [OURS, OURS]
    assert apart(inner, outer) == 2048
    with pytest.raises(MemoryError), alias_free_allocator():
        np.empty(2**62, "u1")
    with pytest.raises(MemoryError), alias_free_allocator():
        np.zeros((2**31 - 1, 2**31 - 1), "u1")
    assert handler_of(np.ones(3)) == DEFAULT


def test_other_threads_have_it_where_they_are_given_it() -> None:
    found: dict[str, str | None] = {}

    def look(name: str) -> None:
        found[name] = handler_of(np.ones(3))

    with alias_free_allocator():
        given_it = contextvars.copy_context()
        threads = [
            threading.Thread(target=look, args=("without",), **fresh_context()),
            threading.Thread(target=given_it.run, args=(look, "with"), **fresh_context()),
        ]
        for thread in threads:
            thread.start()
            thread.join()
    assert found == {"without": DEFAULT, "with": OURS}


def fresh_context() -> dict[str, Any]:
    """From Python 3.14 on a thread may be given its context."""
    return {"context": contextvars.Context()} if sys.version_info >= (3, 14) else {}


def test_threads_that_allocate_together_keep_their_arrays() -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        draw = random.Random(seed)
        kept: dict[int, Array] = {}
        for step in range(300):
            with alias_free_allocator():
                kept[step] = np.full(draw.randrange(1, 20_000), step)
            if len(kept) > 20:
                number = draw.choice(list(kept))
                if not (kept.pop(number) == number).all():
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sum(alive()) == 0


def test_arrays_that_live_until_python_ends() -> None:
    program = (
        "import builtins, sys, numpy as np\n"
        "from perflib.remedies import alias_free_allocator\n"
        "with alias_free_allocator():\n"
        "    builtins.kept = sys.kept = [np.ones(5000), np.ones(5)]\n"
        "class Last:\n"
        "    def __init__(self): self.array = sys.kept[0]\n"
        "    def __del__(self): self.array.resize(9000, refcheck=False)\n"
        "sys.last = Last()\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")


POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t
MALLOC = ctypes.CFUNCTYPE(POINTER, POINTER, SIZE)
CALLOC = ctypes.CFUNCTYPE(POINTER, POINTER, SIZE, SIZE)
REALLOC = ctypes.CFUNCTYPE(POINTER, POINTER, POINTER, SIZE)
FREE = ctypes.CFUNCTYPE(None, POINTER, POINTER, SIZE)


class Allocator(ctypes.Structure):
    _fields_ = (
        ("context", POINTER),
        ("malloc", MALLOC),
        ("calloc", CALLOC),
        ("realloc", REALLOC),
        ("free", FREE),
    )


class Handler(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("allocator", Allocator),
    )


class Inner:
    """A handler that ours stands before: it notes what it is asked, and aligns by ``align``."""

    def __init__(self, align: int) -> None:
        self._align = align
        self._memory: dict[int, Any] = {}
        self.given: list[tuple[int, int]] = []  # addresses and sizes
        self.freed: list[tuple[int, int]] = []
        self.handler = Handler(b"inner", 1)
        self.handler.allocator = Allocator(
            None,
            MALLOC(lambda _, size: self._make(size)),
            CALLOC(lambda _, count, each: self._make(count * each)),
            REALLOC(),
            FREE(lambda _, block, size: self._forget(block, size)),
        )
        kernel = kernels.load("alias_allocator")
        made = kernel.lib.alias_handler(kernel.ffi.cast("void *", ctypes.addressof(self.handler)))
        handler = Handler.from_address(int(kernel.ffi.cast("uintptr_t", made)))
        self._ours: Any = handler.allocator

    def malloc(self, size: int) -> Any:
        return self._ours.malloc(self._ours.context, size)

    def calloc(self, count: int, each: int) -> Any:
        return self._ours.calloc(self._ours.context, count, each)

    def realloc(self, array: int | None, size: int) -> Any:
        return self._ours.realloc(self._ours.context, array, size)

    def free(self, array: int | None) -> None:
        self._ours.free(self._ours.context, array, 1)  # numpy may be wrong about the size

    def _make(self, size: int) -> int:
        room = ctypes.create_string_buffer(size + 3 * self._align)
        begin = -(-ctypes.addressof(room) // (2 * self._align)) * 2 * self._align + self._align
        self._memory[begin] = room
        self.given.append((begin, size))
        return begin

    def _forget(self, block: int, size: int) -> None:
        del self._memory[block]
        self.freed.append((block, size))


@pytest.mark.parametrize("align", [8, 16, 32, 2048])
@pytest.mark.parametrize("size", [0, 1, 100, 4095, 4096, 4097, 50_000])
def test_the_handler_behind_gets_back_what_it_gave(align: int, size: int) -> None:
    inner = Inner(align)
    arrays = [inner.malloc(size) for _ in range(64)]
    arrays += [inner.calloc(size, 1), inner.realloc(None, size)]
    for array in arrays:
        ctypes.memset(array, 255, size)
    for (block, given_bytes), array in zip(inner.given, arrays, strict=True):
        assert array - block >= 16
        assert array + size <= block + given_bytes
        assert given_bytes - size <= PAGE
        assert size < PAGE or array % 64 == 0
    for array in arrays:
        inner.free(array)
    inner.free(None)
    assert inner.freed == inner.given


def test_zeroed_memory_is_zero_and_resizing_keeps_what_fits() -> None:
    inner = Inner(16)
    array = inner.calloc(3, 2000)
    assert not ctypes.string_at(array, 6000).strip(b"\0")
    ctypes.memset(array, 7, 6000)
    for size in (9000, 100, 5000):
        array = inner.realloc(array, size)
        assert ctypes.string_at(array, 100) == b"\7" * 100
    inner.free(array)
    assert inner.calloc(2**40, 2**40) is None
    assert inner.malloc(2**64 - 100) is None
    assert len(inner.given) == 4
    assert sorted(inner.freed) == sorted(inner.given)


def test_a_handler_of_somebody_else_is_asked_for_the_memory() -> None:
    inner = Inner(16)
    pointer_of, new_capsule = allocator._capsule_functions()
    set_handler, get_handler = allocator._hook()
    name = ctypes.create_string_buffer(b"mem_handler")
    other = new_capsule(ctypes.addressof(inner.handler), ctypes.addressof(name), None)
    before = get_handler()
    set_handler(other)
    try:
        with alias_free_allocator():
            assert get_handler() is not other
            made = [np.ones(1000), np.zeros(1000), np.ones(3)]
        assert pointer_of(get_handler(), b"mem_handler") == ctypes.addressof(inner.handler)
    finally:
        set_handler(before)
    assert apart(*made[:2]) == 2048
    assert {handler_of(one) for one in made} == {OURS}
    assert len(inner.given) - len(inner.freed) == 3
    made.clear()
    assert sorted(inner.freed) == sorted(inner.given)
    KEPT.append((inner, name, other))


KEPT: list[Any] = []  # numpy wants a handler to live as long as the process


class Numbers:
    """A table of numpy's whose first entries are given."""

    def __init__(self, abi: int, features: int) -> None:
        kind = ctypes.CFUNCTYPE(ctypes.c_uint)
        self._kept = {0: kind(lambda: abi), 211: kind(lambda: features)}

    def __getitem__(self, entry: int) -> int | None:
        return ctypes.cast(self._kept[entry], ctypes.c_void_p).value


@pytest.fixture
def _hook_found_anew() -> Iterator[None]:
    allocator._hook.cache_clear()
    yield
    allocator._hook.cache_clear()


@pytest.mark.usefixtures("_hook_found_anew")
@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (Numbers(0x03000000, 30), r"binary interface 0x3000000 is not known .*alias_free\(\)"),
        (Numbers(0x01000009, 14), r"numpy 1\.22 or newer"),
        (None, "C interface cannot be reached"),
    ],
)
def test_a_numpy_without_the_hook(
    table: Numbers | None, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if table is None:
        monkeypatch.setattr(allocator, "_TABLE", "_NO_SUCH_TABLE")
    else:
        monkeypatch.setattr(allocator, "_numpy_table", lambda: table)
    with pytest.raises(UserError, match=sentence), alias_free_allocator():
        pass


def test_without_a_compiler_numpy_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_OURS", {})
    monkeypatch.setenv("PERFLIB_CC", "no-such-compiler")
    with pytest.raises(UserError, match="no C compiler"), alias_free_allocator():
        pass
    assert handler_of(np.ones(3)) == DEFAULT
