# The whole public interface: each name and its module, imported when the name is first used.
# Checkers and editors read this file in place of __init__.py.

from typing import Any

from perflib.course.fix import fix as fix  # code to mend
from perflib.course.mystery import mystery as mystery  # one thing is wrong with this machine
from perflib.course.quota import cpu_quota as cpu_quota
from perflib.course.sliders import slider as slider  # a number that teaches by moving
from perflib.course.worksheet import lesson as lesson
from perflib.experiments.aliasing.addresses import aliasing as aliasing
from perflib.experiments.aliasing.erasure_coding import blocks as erasure  # noqa: F401
from perflib.experiments.aliasing.erasure_coding.layouts import layout_offsets as layout_offsets
from perflib.experiments.aliasing.offsets.sweep import sweep_offsets as sweep_offsets
from perflib.fleet.acceptance import accept as accept
from perflib.framework.published import published as published
from perflib.lab import counters as counters  # a module of its own
from perflib.lab import profiles as profiles  # a module of its own
from perflib.lab import threads as threads  # a module of its own
from perflib.lab.bench import bench as bench
from perflib.lab.bench import sample as sample
from perflib.lab.code import built as built
from perflib.lab.code import disassembly as disassembly
from perflib.lab.farm import farm as farm
from perflib.lab.farm import farm_question as farm_question
from perflib.lab.farm import simulated_farm as simulated_farm
from perflib.lab.farm_report import write_farm_report as write_farm_report
from perflib.lab.home import home as home
from perflib.lab.interface import compare as compare
from perflib.lab.interface import experiment as experiment
from perflib.lab.interface import ledger as ledger
from perflib.lab.interface import load as load
from perflib.lab.interface import recorded as recorded
from perflib.lab.interface import report as report
from perflib.lab.interface import runs as runs
from perflib.lab.investigation import investigate as investigate
from perflib.lab.investigation import (
    question as question,  # what is asked, from a notebook's parameters
)
from perflib.lab.machine import describe as describe
from perflib.lab.machine import doctor as doctor
from perflib.lab.memory import walks as walks
from perflib.lab.neighbour import busy_neighbour as busy_neighbour
from perflib.lab.pairs import pair as pair
from perflib.lab.pairs import pair_question as pair_question  # from a notebook's parameters
from perflib.lab.tables import table as table
from perflib.lab.theme import show as show
from perflib.lab.theme import themed as themed
from perflib.lab.trend import trend as trend
from perflib.machine.activity.noise import GAP_CAUSES as GAP_CAUSES
from perflib.machine.libraries.allocators import allocators as allocators
from perflib.machine.libraries.blas import blas_libraries as blas_libraries
from perflib.measure.pages.placement import pages_by_node as pages_by_node
from perflib.model.errors import MeasurementError as MeasurementError
from perflib.model.errors import PerflibError as PerflibError
from perflib.model.errors import UserError as UserError
from perflib.remedies import alias_free as alias_free
from perflib.remedies import alias_free_allocator as alias_free_allocator
from perflib.remedies import alias_free_copies as alias_free_copies
from perflib.remedies import best_offset as best_offset
from perflib.remedies import show_remedies as show_remedies
from perflib.stats.compare import compare_cores as compare_cores
from perflib.stats.interval import percent as percent
from perflib.stats.naive import naive_interval as naive_interval
from perflib.store.query import query as query

__version__: str

def __getattr__(name: str) -> Any: ...
