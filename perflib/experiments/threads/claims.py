"""What ``threads`` can claim: of each version of a job, and of all together."""

from __future__ import annotations

from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

OVERHEAD = _CLAIMS["overhead"]
PREDICTS = _CLAIMS["predicts"]
USES_CORES = _CLAIMS["uses_cores"]
LIMITING = _CLAIMS["limiting_lock"]
WAITS_AGREE = _CLAIMS["waits_agree"]
RUN_QUEUE = _CLAIMS["run_queue_delay"]
SPINNING = _CLAIMS["spinning"]
SERIAL = _CLAIMS["serial_part"]
GAIN = _CLAIMS["gain"]
GAINS_BOUNDED = _CLAIMS["gains_bounded"]
ORDER = _CLAIMS["order"]

CLAIMS = (
    OVERHEAD,
    PREDICTS,
    USES_CORES,
    LIMITING,
    WAITS_AGREE,
    RUN_QUEUE,
    SPINNING,
    SERIAL,
    GAIN,
    GAINS_BOUNDED,
    ORDER,
)
