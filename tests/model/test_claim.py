"""Claims as they are declared."""

from __future__ import annotations

from pathlib import Path

import pytest

from perflib.model.claim import read_claims


def test_claims_are_read_with_the_reasons_that_they_share(tmp_path: Path) -> None:
    declared = tmp_path / "claims.toml"
    text = 'subject = "cpu{cpu}"\nquantity = "x"\nexact = "x is large"\n'
    declared.write_text(
        f'[reasons]\nfew = "Too few."\n[a]\n{text}plain.refuted = "no"\n'
        f'[b]\n{text}plain.refuted = "no"\nreasons.few = "My own."\n'
    )
    found = read_claims(str(tmp_path / "claims.py"), {"far": "Far.", "few": "Of all."})
    assert [one.name for one in found.values()] == ["a", "b"]
    assert found["a"].reasons == {"far": "Far.", "few": "Too few."}
    assert found["b"].reasons == {"far": "Far.", "few": "My own."}
    declared.write_text(f'[a]\n{text}plain.refuted = "no"\nsubjekt = "x"\n')
    with pytest.raises(TypeError, match="subjekt"):
        read_claims(str(tmp_path / "claims.py"))
