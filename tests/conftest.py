import os
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import settings

from headrace.broker.local_broker import borrow

# Continuous integration tries the same examples every time; a developer's runs look further. No
# example has a deadline: a busy machine is no failure.
settings.register_profile("developer", deadline=None)
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "developer")


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
