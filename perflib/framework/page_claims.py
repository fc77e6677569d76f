"""What is claimed of huge pages wherever page sizes are compared: are they huge for the TLB?"""

from __future__ import annotations

from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

HUGE_PAGES = _CLAIMS["huge_pages"]

# Of a claim that compares page sizes: the template of the reason that `PageControl` gives.
NOT_BACKED = {
    "not_backed": "Huge pages ({backing}) are not backed by the host here (see the control): what "
    "differs is the length of the page walk, not entries of the TLB.",
}
