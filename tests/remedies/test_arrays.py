"""Arrays that are placed apart: any shapes, dtypes and numbers of them, and what is refused."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.model.errors import UserError
from perflib.remedies import alias_free, alias_free_copies
from tests.remedies.places import PAGE, nearest

shapes = st.lists(st.integers(0, 40), min_size=0, max_size=3).map(tuple)
dtypes = st.sampled_from(["u1", "<i2", "f4", ">f8", "c16", "M8[ns]", "S5", "g", "i4,f8,?"])


@given(
    specs=st.lists(st.tuples(shapes, dtypes), min_size=2, max_size=40),
    alignment=st.sampled_from([1, 8, 16, 64]),
)
def test_no_two_of_any_shape_and_dtype_begin_at_nearly_the_same_place(
    specs: list[tuple[tuple[int, ...], str]], alignment: int
) -> None:
    arrays = alias_free(*specs, alignment=alignment)
    align = max([alignment, *(array.dtype.alignment for array in arrays)])
    assert nearest(arrays) >= PAGE // len(arrays) // align * align
    if len(arrays) <= 32:
        assert nearest(arrays) >= 128
    for array, (shape, dtype) in zip(arrays, specs, strict=True):
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        assert array.ctypes.data % align == 0
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.flags.aligned
        assert not array.tobytes().strip(b"\0")
        assert array.base is not None
        assert array.base.nbytes - array.nbytes < PAGE  # what it costs


def test_each_has_memory_of_its_own_and_keeps_it() -> None:
    a, b = alias_free(((300, 7), float), ((0, 4), "i4"))
    assert b.size == 0
    assert not np.may_share_memory(a, b)
    del b
    a[:] = 3
    gc.collect()
    assert alias_free((2100, float))[0].sum() == 0
    assert (a == 3).all()


def test_templates_give_shape_and_dtype_and_copies_the_values() -> None:
    grid = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    part = np.arange(100, dtype="i2")[::3]
    part.flags.writeable = False
    like = alias_free(grid, part)
    assert [(one.shape, one.dtype) for one in like] == [((3, 4), grid.dtype), ((34,), part.dtype)]
    assert not like[0].any()
    copies = alias_free_copies(grid, part, [1, 2, 3])
    assert [one.tolist() for one in copies] == [grid.tolist(), part.tolist(), [1, 2, 3]]
    assert all(one.flags.c_contiguous and one.flags.writeable for one in copies)
    assert nearest(copies) == 1344
    assert alias_free() == ()


@pytest.mark.parametrize(
    ("specs", "alignment", "sentence"),
    [
        ([(3, object)], 64, "array 0: object holds Python objects"),
        ([(3, "f4"), 5], 64, "array 1: 5 is neither"),
        ([(3, "no such dtype")], 64, "array 0: .* is neither"),
        ([(3, 4, "f4")], 64, "array 0: .* is neither"),
        ([((3, 2.5), "f4")], 64, "array 0: .* is neither"),
        ([((3, -1), "f4")], 64, r"array 0: a length of \(3, -1\) is negative"),
        ([(3, "f4")], 48, "a power of two from 1 to 4096 bytes, not 48"),
        ([(3, "f4")], 8192, "a power of two from 1 to 4096 bytes, not 8192"),
        ([(3, "f4")] * 65, 64, "65 arrays cannot all begin .* has 64 that are aligned to 64"),
        ([(3, "f4")] * 2, 4096, "2 arrays cannot all begin .* has 1 that are aligned"),
    ],
)
def test_what_cannot_be_placed(specs: list[Any], alignment: int, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        alias_free(*specs, alignment=alignment)
