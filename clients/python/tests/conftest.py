"""Shared fixtures: the fake gateway, and the real one that `check.sh` starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from limber import Limber
from limber.testing import FakeGateway

#: Upper limit for every wait, in seconds.
PATIENCE_S = 20.0


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with FakeGateway() as fake:
        yield fake


@pytest.fixture
def client(gateway: FakeGateway) -> Iterator[Limber]:
    with Limber(gateway.url, gateway.key) as made:
        yield made


@pytest.fixture(scope="session")
def real() -> Iterator[Limber]:
    """The gateway that `npm start` runs, with the reference provider."""
    if "LIMBER_URL" not in os.environ or "LIMBER_KEY" not in os.environ:
        pytest.skip("LIMBER_URL and LIMBER_KEY name no gateway; check.sh starts one")
    with Limber() as made:
        yield made


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Waits until a condition is met. Fails after the time limit."""
    import threading
    import time

    def wait(holds: Callable[[], object]) -> None:
        pause = threading.Event()
        over = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < over, "it never came about"
            pause.wait(0.005)

    return wait
