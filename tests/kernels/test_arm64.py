"""Every kernel for aarch64: what is compiled, by which flags, and what differs by processor."""

from __future__ import annotations

import re
import subprocess

import pytest

from perflib import kernels
from perflib.kernels.sources import request
from perflib.model.errors import MeasurementError
from perflib.store.paths import kernels_dir
from tests.kernels import emulated
from tests.reference import alias_offsets as reference
from tests.slow import mostly_slow

emulates = pytest.mark.skipif(bool(emulated.missing()), reason=emulated.missing())

# Where instructions of one processor stand: in files of their own, or where they are the subject.
ARCHITECTURES = {"common/arch.h", "common/code_units.h", "common/branch_ring.h", "tools/cpuid.c"}
X86 = re.compile(
    r"\b_mm\d*_\w+|__builtin_ia32_\w+|\b(?:imm|emm|x86)intrin\.h|%%?[re][abcd]x\b|%r1?\d\b|"
    r'"(?:mov|lea|lfence|mfence|rdtsc|clflush|pause|cpuid|imul)\b'
)
# An #if of x86-64 whose #elif is aarch64, to its #endif.
SECTION = re.compile(
    r"^#if defined\(__x86_64__\)\n(?:(?!#endif).*\n)*?#elif defined\(__aarch64__\)\n"
    r"(?:(?!#endif).*\n)*#endif",
    re.MULTILINE,
)
# These, or a variant of them, are linked with a library that may not be here for aarch64.
LINKED = {"erasure_isal", "erasure_jerasure", "code_segment"}
LIBRARY = "cannot find -l(isal|Jerasure|hugetlbfs)|fatal error: .*No such file or directory"


def test_instructions_of_x86_stand_next_to_those_of_aarch64() -> None:
    found = {
        str(path.relative_to(kernels_dir())): X86.findall(SECTION.sub("", path.read_text()))
        for path in kernels_dir().glob("**/*.*")
        if path.suffix in (".c", ".h", ".inc")
    }
    assert {name for name, words in found.items() if words} <= ARCHITECTURES
    for name in ARCHITECTURES - {"tools/cpuid.c"}:
        text = (kernels_dir() / name).read_text()
        assert "defined(__x86_64__)" in text
        assert "defined(__aarch64__)" in text


@emulates
@pytest.mark.parametrize(
    "name", mostly_slow(kernels.names(), ["contention", "heap_offset", "thread_waits", "what_if"])
)
def test_every_build_of_a_bundle_is_compiled(name: str) -> None:
    for variant, executable in kernels.source(name).bundled():
        try:
            made = emulated.compiled_kernel(request(name, variant, executable=executable))
        except MeasurementError as error:
            if name not in LINKED or not re.search(LIBRARY, str(error)):
                raise
            continue
        assert made.read_bytes()[18:20] == b"\xb7\0"  # EM_AARCH64


@emulates
@pytest.mark.parametrize(
    ("name", "variant", "level", "instruction"),
    [
        ("contention", None, "armv8-a+lse", r"\t(?:ldadd|cas|swp)\w*\t"),
        ("alias_offsets", "O3", "armv8-a+lse+sve", r"\bz\d+\.s\b"),
    ],
)
def test_a_level_is_what_the_compiler_uses(
    name: str, variant: str | None, level: str, instruction: str
) -> None:
    def used(level: str) -> bool:
        made = emulated.compiled_kernel(request(name, variant), level)
        words = [emulated.CC.replace("gcc", "objdump"), "-d", "--no-show-raw-insn", str(made)]
        text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        # At the baseline gcc calls helpers of its own, which look at the processor.
        own = re.sub(r"\n[0-9a-f]+ <__aarch64_\w+>:\n(?:.+\n)*", "\n", text)
        return re.search(instruction, own) is not None

    assert used(level)
    assert not used("baseline")


@emulates
def test_a_program_runs() -> None:
    program = emulated.build("alias_environment", executable=True).library
    argv = [str(program), "300", "2", "free", "-"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert said.endswith("sums=900,900,900\n")


@emulates
def test_dgemv_of_a_library_with_narrow_integers() -> None:
    """The interface declares integers of 64 bits; the library's have 32."""
    library = emulated.compiled(
        emulated.SERVER.with_name("threaded_blas.c"), "-shared", "-fPIC", "-lpthread"
    )
    kernel = emulated.load("alias_blas")
    said = kernel.ffi.new("char[512]")
    answer = kernel.lib.blas_open(bytes(library), b"cblas_dgemv", b"", said, 512)
    assert (answer, kernel.ffi.string(said)) == (0, b"")
    out = kernel.ffi.new("offset_sample[2]")
    assert kernel.lib.blas_sweep(1, 130, [0, 64], 2, 0, 0, 1, out) == 0
    assert {one.checksum for one in out} == {reference.dgemv_checksum(130)}
