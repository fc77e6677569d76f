"""The measurement itself, in a process of its own: ``python -m perflib.fleet.measured``.

It reads one JSON object from standard input (``experiment``, ``params``, ``tag``), measures as
every interface does, and writes one to standard output: ``run``, ``file`` and ``stopped``, or
``error``.
"""

from __future__ import annotations

import json
import signal
import sys
import threading

__all__: list[str] = []


def _main() -> None:
    from perflib.experiments import get
    from perflib.model.errors import PerflibError
    from perflib.model.extras import installed
    from perflib.store.run_files import saved_path

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    wanted = json.load(sys.stdin)
    try:
        with installed():
            experiment = get(wanted["experiment"])
            params = experiment.Params.make(wanted["params"])
            run = experiment.measure(params, None, stop, tag=wanted["tag"])
        reported = {
            "run": run.id,
            "file": str(saved_path(run.id)),
            "stopped": run.provenance["stopped"],
        }
    except PerflibError as error:
        reported = {"error": str(error)}
    json.dump(reported, sys.stdout)


if __name__ == "__main__":
    _main()
