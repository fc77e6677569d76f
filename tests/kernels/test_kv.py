"""kv.c: the physics against tables, every event against itself and against plain Python."""

from __future__ import annotations

import math
import re
import statistics
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perflib import kernels
from perflib.kernels import Kernel
from perflib.machine.libraries.elf import read_elf
from tests.kernels.calls import values
from tests.reference import kv as reference
from tests.reference import kv_transport
from tests.reference.kv_detector import Volume, media

KERNEL = "kv"
SEED = 1
MUON, ELECTRON, PHOTON = range(3)


def run(kernel: Kernel, events: list[int], seed: int = SEED) -> list[SimpleNamespace]:
    out = kernel.ffi.new("kv_event[]", len(events))
    numbers = kernel.ffi.new("int64_t[]", events)
    assert kernel.lib.kv_run(seed, numbers, len(events), out) == 0
    return [values(kernel.ffi, event) for event in out]


def materials(kernel: Kernel) -> dict[str, int]:
    found: dict[str, int] = {}
    while (name := kernel.lib.kv_material_name(len(found))) != kernel.ffi.NULL:
        found[kernel.ffi.string(name).decode()] = len(found)
    return found


# --- events ------------------------------------------------------------------------------------


def test_energy_is_balanced_and_nothing_truncated(kernel: Kernel) -> None:
    for event in run(kernel, list(range(200))):
        out = event.energy_deposited_gev + event.energy_escaped_gev
        assert out == pytest.approx(event.energy_in_gev, rel=1e-9)
        assert event.energy_deposited_gev > 0
        assert event.truncated == 0


def test_an_event_depends_on_its_seed_and_number_alone(kernel: Kernel) -> None:
    events = list(range(40))
    together = [event.checksum for event in run(kernel, events)]
    backwards = [event.checksum for event in run(kernel, events[::-1])]
    alone = [run(kernel, [number])[0].checksum for number in events]
    assert together == backwards[::-1] == alone
    assert len(set(together)) == len(events)
    assert not set(together) & {event.checksum for event in run(kernel, events, seed=2)}


def test_a_few_events_are_much_costlier(kernel: Kernel) -> None:
    steps = [event.steps for event in run(kernel, list(range(100)))]
    assert max(steps) >= 10 * statistics.median(steps)
    assert sum(count >= 4 * statistics.median(steps) for count in steps) <= 10


# --- the reference -----------------------------------------------------------------------------


@pytest.mark.arm64
def test_reference_gives_the_same_events_bit_for_bit(kernel: Kernel) -> None:
    events = run(kernel, list(range(50)))
    by_steps = sorted(range(50), key=lambda number: events[number].steps)
    for number in (0, 1, 2, 3, 4, by_steps[-8]):
        found, expected = events[number], reference.simulate(SEED, number)
        assert (found.steps, found.particles) == (expected.steps, expected.particles)
        assert found.energy_escaped_gev == 1e-3 * expected.escaped
        assert found.checksum == expected.checksum


@pytest.mark.arm64
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, 2**64 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            0x299F31D0A4093822,
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_random_numbers_are_philox(
    kernel: Kernel, counter: list[int], key: int, expected: str
) -> None:
    """The known answers that Random123, its authors' library, is tested with."""
    out = kernel.ffi.new("uint32_t[4]")
    kernel.lib.kv_random(counter, key, out)
    assert " ".join(f"{word:08x}" for word in out) == expected


# --- copies ------------------------------------------------------------------------------------


@pytest.mark.arm64
def test_copies_change_the_code_and_no_result(kernel: Kernel, processor: str) -> None:
    copies, padding = 40, 0.02 if processor == "here" else 0.04  # of functions, to whole lines
    many = kernels.load("kv", copies=copies)
    assert (kernel.lib.kv_copies(), many.lib.kv_copies()) == (1, copies)
    expected = [event.checksum for event in run(kernel, list(range(60)))]
    assert [event.checksum for event in run(many, list(range(60)))] == expected
    assert 4096 <= kernel.lib.kv_code_bytes() <= 16384
    for one in (kernel, many):
        code_bytes, count = one.lib.kv_code_bytes(), one.lib.kv_copies()
        assert code_bytes == pytest.approx(count * kernel.lib.kv_code_bytes(), rel=padding)
        code = read_elf(one.build.library).code
        functions = [function for function in code if re.search(r"_\d{4}$", function[2])]
        extent = max(end for _, end, _ in functions) - min(start for start, _, _ in functions)
        assert extent == pytest.approx(code_bytes, rel=0.01)
        assert sum(end - start for start, end, _ in functions) > 0.9 * code_bytes
        assert f"kv_bethe_bloch_{count - 1:04d}" in {name for _, _, name in functions}


# --- motion in the field -----------------------------------------------------------------------


@pytest.mark.arm64
@pytest.mark.parametrize("slope", [0.0, 0.5, 2.0])
@pytest.mark.parametrize(("momentum", "field"), [(500.0, 2.0), (20e3, 2.0), (5e3, -0.2)])
def test_track_is_a_helix_of_radius_p_over_03_b(
    kernel: Kernel, momentum: float, field: float, slope: float
) -> None:
    """p_T [GeV] = 0.299792458 B [T] R [m]; after a turn the track is back on its line."""
    transverse = 1.0 / math.hypot(1.0, slope)
    radius_cm = 100.0 * transverse * momentum * 1e-3 / (0.299792458 * abs(field))
    half_turn = math.pi * radius_cm / transverse
    start = [3.0, -2.0, 1.0, transverse, 0.0, slope * transverse]
    state = kernel.ffi.new("double[6]", start)
    kernel.lib.kv_track(state, momentum, field, half_turn, half_turn / 100)
    across = math.hypot(state[0] - start[0], state[1] - start[1])
    assert across == pytest.approx(2.0 * radius_cm, rel=1e-5)
    assert state[2] - start[2] == pytest.approx(slope * transverse * half_turn, rel=1e-6)
    # a positive particle turns clockwise when the field points to it: q v x B
    assert math.copysign(1.0, state[1] - start[1]) == -math.copysign(1.0, field)
    kernel.lib.kv_track(state, momentum, field, half_turn, half_turn / 100)
    assert math.dist(state[0:2], start[0:2]) < 1e-5 * radius_cm
    assert math.dist(state[3:6], start[3:6]) < 1e-5
    assert math.hypot(*state[3:6]) == pytest.approx(1.0, rel=1e-12)


unit = st.floats(-1.0, 1.0)


@settings(deadline=None)
@given(x=unit, y=unit, z=unit, angle=st.floats(0.0, 6.28), cosine=unit)
def test_distances_end_on_the_cylinder(
    x: float, y: float, z: float, angle: float, cosine: float
) -> None:
    """The reference's, which are the C's: see the test of the reference."""
    position = [30.0 * x, 30.0 * y, 50.0 * z]
    sine = math.sqrt(1.0 - cosine * cosine)
    direction = [sine * math.cos(angle), sine * math.sin(angle), cosine]
    cylinder = Volume(10.0, 20.0, media()["iron"])
    inside = cylinder.inside(position)

    def after(distance: float) -> list[float]:
        return [position[i] + distance * direction[i] for i in range(3)]

    distance = (kv_transport.distance_out if inside else kv_transport.distance_in)(
        cylinder, position, direction
    )
    if distance < 1e29:
        assert cylinder.inside(after(max(distance - 1e-6, 0.0))) == inside or distance < 1e-6
        where = after(distance)
        on_wall = abs(math.hypot(where[0], where[1]) - 10.0) < 1e-6
        on_end = abs(abs(where[2]) - 20.0) < 1e-6
        assert on_wall or on_end
    else:
        assume(not inside)
        assert not any(cylinder.inside(after(0.1 * step)) for step in range(1500))


# --- energy loss -------------------------------------------------------------------------------

# MeV cm^2/g at minimum ionisation, and radiation length in g/cm^2: PDG, Atomic and Nuclear
# Properties of Materials
TABULATED = {
    "beryllium": (1.595, 65.19),
    "air": (1.815, 36.62),
    "silicon": (1.664, 21.82),
    "aluminium": (1.615, 24.01),
    "iron": (1.451, 13.84),
    "lead": (1.122, 6.37),
    "polystyrene": (1.936, 43.79),
    "liquid argon": (1.508, 19.55),
}


@pytest.mark.arm64
@pytest.mark.parametrize("material", TABULATED)
def test_minimum_ionising_loss_of_muons_and_radiation_length(kernel: Kernel, material: str) -> None:
    index, (loss, length) = materials(kernel)[material], TABULATED[material]
    energies = [100.0 * 1.03**step for step in range(120)]
    least = min(kernel.lib.kv_ionisation(index, MUON, energy) for energy in energies)
    assert least == pytest.approx(loss, rel=0.005)
    assert 1e6 / kernel.lib.kv_radiation(index, ELECTRON, 1e6) == pytest.approx(length, rel=0.03)


# Ionisation, and bremsstrahlung with pair production, of muons in MeV cm^2/g: tables of Groom,
# Mokhov and Striganov (2001), as in the materials of PUMAS (Niess et al. 2018)
MUON_LOSS = {
    "iron": {10e3: (1.942, 0.02891), 100e3: (2.207, 0.5376), 1e6: (2.428, 7.037)},
    "lead": {10e3: (1.614, 0.07216), 100e3: (1.860, 1.3271), 1e6: (2.051, 17.011)},
    "silicon": {100e3: (2.451, 0.3276)},
    "liquid argon": {100e3: (2.258, 0.3711)},
}


@pytest.mark.parametrize(("material", "energy"), [(m, e) for m in MUON_LOSS for e in MUON_LOSS[m]])
def test_loss_of_fast_muons(kernel: Kernel, material: str, energy: float) -> None:
    ionisation, radiation = MUON_LOSS[material][energy]
    index = materials(kernel)[material]
    assert kernel.lib.kv_ionisation(index, MUON, energy) == pytest.approx(ionisation, rel=0.005)
    assert kernel.lib.kv_radiation(index, MUON, energy) == pytest.approx(radiation, rel=0.03)


# cm^2/g without coherent scattering: NIST XCOM
ATTENUATION = {
    "silicon": {1.0: 0.0636, 10.0: 0.0246},
    "iron": {0.5: 0.0841, 1.0: 0.0599, 3.0: 0.0362, 10.0: 0.0299},
    "lead": {0.2: 0.94, 1.0: 0.0695, 5.0: 0.0427, 10.0: 0.0497},
}


@pytest.mark.parametrize(
    ("material", "energy"), [(m, e) for m in ATTENUATION for e in ATTENUATION[m]]
)
def test_attenuation_of_photons(kernel: Kernel, material: str, energy: float) -> None:
    index, out = materials(kernel)[material], kernel.ffi.new("double[4]")
    kernel.lib.kv_interpolated(index, PHOTON, energy, out)
    found = sum(out) / kernel.lib.kv_density(index)
    within = 0.15 if material == "lead" else 0.03
    assert found == pytest.approx(ATTENUATION[material][energy], rel=within)


def test_tables_agree_with_the_formulas(kernel: Kernel) -> None:
    """Halfway between nodes, to 2 %; thresholds and the kinks of two formulas are left out."""
    node = 10 ** (1 / 16)
    tabled, direct, below = (kernel.ffi.new("double[4]") for _ in range(3))
    compared = 0
    for index in materials(kernel).values():
        for particle in (MUON, ELECTRON, PHOTON):
            # a muon's pairs are in its table (loss and cross section), and not in kv_formulas
            columns = (1, 2) if particle == MUON else range(4)
            for energy in (0.2 * node ** (step + 0.5) for step in range(8, 120)):
                if particle == PHOTON and any(k / node < energy < k * node for k in (0.5, 50.0)):
                    continue
                kernel.lib.kv_interpolated(index, particle, energy, tabled)
                kernel.lib.kv_formulas(index, particle, energy, direct)
                kernel.lib.kv_formulas(index, particle, energy / node**2, below)
                for column in columns:
                    if below[column] > 0:
                        assert tabled[column] == pytest.approx(direct[column], rel=0.02)
                        compared += 1
    assert compared > 9 * 100 * 5


# --- multiple scattering -----------------------------------------------------------------------


@pytest.mark.parametrize("thickness", [0.01, 1.0, 10.0])
@pytest.mark.parametrize("steps", [1, 7, 60])
def test_scattering_width_is_highlands_however_it_is_cut(
    kernel: Kernel, thickness: float, steps: int
) -> None:
    """PDG 2022, eq. 34.16."""
    momentum = 10e3
    beta = momentum / math.hypot(momentum, 105.6583755)
    logarithm = math.log(thickness / beta**2)
    highland = 13.6 / (beta * momentum) * math.sqrt(thickness) * (1 + 0.038 * logarithm)
    found = kernel.lib.kv_scattering_width(momentum, thickness, steps, 20_000)
    assert found == pytest.approx(highland, rel=0.03)


# --- the program -------------------------------------------------------------------------------


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = kernels.build("kv", executable=True).library
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=False)


def test_program_writes_athenas_lines(kernel: Kernel) -> None:
    answer = program("--events", "3", "--first", "72", "--seed", "1")
    assert (answer.returncode, answer.stderr) == (0, "")
    *lines, last = answer.stdout.splitlines()
    number = r"\d+(?:\.\d+)?(?:e-\d+)?"
    line = "AthenaEventLoopMgr   INFO   ===>>>  {} processing event #{}, run #1 {} events processed"
    line += " so far  <<<==="
    for done in range(3):
        start, timer, end = lines[3 * done : 3 * done + 3]
        assert start == line.format("start", 72 + done, done)
        assert re.fullmatch(
            rf"G4SimTimer           INFO        Event nr. {72 + done} took {number} s. "
            rf"New average {number} \+- {number}",
            timer,
        )
        assert end == line.format("done", 72 + done, done + 1)
    total = sum(event.checksum for event in run(kernel, [72, 73, 74])) % 2**64
    assert last.endswith(f"checksum {total:016x} of 3 events, 0 truncated")


def test_program_repeats_one_event_within_its_lines() -> None:
    once = program("--events", "2", "--first", "72").stdout.splitlines()
    often = program("--events", "2", "--first", "72", "--repeat", "73:100").stdout.splitlines()
    assert len(often) == len(once)
    assert often[-1] == once[-1]
    took = [float(re.findall(r"took (\S+) s", line)[0]) for line in (once[4], often[4])]
    assert took[1] > 5 * took[0]


def test_program_writes_the_slices_of_the_repeated_event(tmp_path: Path) -> None:
    file = tmp_path / "slices"
    repeated = ["--events", "2", "--first", "72", "--repeat", "73:3"]
    plain = program(*repeated).stdout.splitlines()
    cut = program(*repeated, "--slices", f"100:{file}").stdout.splitlines()
    assert cut[-1] == plain[-1]
    slices = np.fromfile(file, dtype=kernels.record(kernels.build("kv"), "kv_slice"))
    assert set(slices["event"]) == {73}
    numbers = slices["slice"]
    assert (np.diff(numbers)[np.diff(numbers) != 1] == -numbers.max()).all()
    assert (numbers == 0).sum() == 3
    assert (np.diff(slices["sample"]["start_ns"]) > 0).all()
    assert (slices["sample"]["probe_after_ns"] > 0).all()


def test_the_costlier_build_differs_in_one_number_only() -> None:
    """So that a profile of it differs by that function, not by where things lie."""
    first, second = (
        kernels.build("kv", variant=variant).library.read_bytes()
        for variant in ("framed", "costlier")
    )
    assert len(first) == len(second)
    changed = [at for at, (a, b) in enumerate(zip(first, second, strict=True)) if a != b]
    in_code = [at for at in changed if first[at : at + 4] == b"\x01\0\0\0"]
    assert in_code  # the rest is the linker's build id
    assert len(changed) <= len(in_code) + 20


def test_variants_compute_the_same(kernel: Kernel) -> None:
    events = list(range(20))
    expected = [event.checksum for event in run(kernel, events)]
    for variant in ("framed", "costlier"):
        other = kernels.load("kv", variant=variant)
        assert [event.checksum for event in run(other, events)] == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--events", "0"], ["--events", "from 1 to 1000000000", "'0'"]),
        (["--events", "12x"], ["--events", "'12x'"]),
        (["--first", "-1"], ["--first", "from 0 to", "'-1'"]),
        (["--seed"], ["--seed", "whole number"]),
        (["--repeat", "73"], ["--repeat", "EVENT:TIMES", "'73'"]),
        (["--repeat", "73:0"], ["--repeat", "'0'"]),
        (["--repeat"], ["--repeat", "EVENT:TIMES", "''"]),
        (["--slices", "500"], ["--slices", "STEPS:FILE", "'500'"]),
        (["--slices", "0:/tmp/x"], ["--slices", "'0'"]),
        (["--slices", "500:/no/such/folder/x"], ["/no/such/folder/x: No such file"]),
        (["--evnets", "3"], ["unknown option '--evnets'", "--events N"]),
    ],
)
def test_program_refuses_bad_arguments(arguments: list[str], words: list[str]) -> None:
    answer = program(*arguments)
    assert (answer.returncode, answer.stdout) == (2, "")
    for word in words:
        assert word in answer.stderr
