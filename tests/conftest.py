import os
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import settings

from headrace.broker.local_broker import borrow

# Continuous integration tries the same examples every time; a developer's runs look further.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20_260_601)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of a real broker: HEADRACE_BOOTSTRAP, else one for this run only."""
    given = os.environ.get("HEADRACE_BOOTSTRAP")
    if given:
        yield given
        return
    with borrow(tmp_path_factory.mktemp("broker")) as running:
        yield running.bootstrap
