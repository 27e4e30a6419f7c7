"""One version apart: this package at the gateway of the last release, and the package of the last release at the gateway of today.

`check.sh` starts both gateways; LIMBER_LAST is the folder that `node test/support/last-release.ts` prints.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "between_versions.py"
PATIENCE_S = 240


@pytest.mark.parametrize(
    ("packages", "gateway"),
    [
        pytest.param(None, "LIMBER_LAST", id="this package, at the gateway of the last release"),
        pytest.param("LIMBER_LAST", "LIMBER", id="the package of the last release, at the gateway of today"),
    ],
)
def test_one_version_apart(packages: str | None, gateway: str) -> None:
    if "LIMBER_LAST_URL" not in os.environ or "LIMBER_URL" not in os.environ:
        pytest.skip("LIMBER_URL and LIMBER_LAST_URL name no gateways; check.sh starts both")
    env = {**os.environ, "LIMBER_URL": os.environ[f"{gateway}_URL"], "LIMBER_KEY": os.environ[f"{gateway}_KEY"]}
    if packages is not None:
        env["PYTHONPATH"] = str(Path(os.environ[packages]) / "python")
    # The folder of the program is not on the path.
    ran = subprocess.run([sys.executable, "-P", str(PROGRAM)], env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.returncode == 0, ran.stderr
    assert (os.environ["LIMBER_LAST"] in ran.stderr) == (packages is not None), ran.stderr
