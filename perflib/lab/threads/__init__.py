"""Recordings of threads by hand, for a notebook: ``pl.threads``.

``recordings(run)`` has the last recording of each version of a run of ``threads``. One can be drawn
(`timeline_figure`, `concurrency_figure`) and explored (`thread_view`). ``backends()`` says what
this machine can record with, ``VERSIONS`` which synchronisation points each version of the event
loop has. ``off_cpu_samples(recording)`` has stacks for an off-CPU flame graph:
``pl.profiles.flame_graph(samples, weight="period")``.
"""

from __future__ import annotations

from perflib.experiments.threads.recordings import recordings
from perflib.instruments.threads.record import backends
from perflib.instruments.threads.samples import off_cpu_samples
from perflib.lab.threads.figures import concurrency_figure, timeline_figure
from perflib.lab.threads.views import thread_view
from perflib.measure.jobs.event_loop import VERSIONS

__all__ = [
    "VERSIONS",
    "backends",
    "concurrency_figure",
    "off_cpu_samples",
    "recordings",
    "thread_view",
    "timeline_figure",
]
