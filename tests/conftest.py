import asyncio
import gc
import inspect
import os
import sys
from collections.abc import Iterator

# Before NumPy is imported. OpenBLAS's threads wait for each other in loops, which takes five times
# the CPU where the tests' processes share the cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings

from headrace.broker.local_broker import Running, borrow
from headrace.roles.heap import NEW_OBJECTS

pytest_plugins = ["tests.failures"]

# Continuous integration uses fixed examples; a developer's runs use new ones, `make check` few of
# them. Examples have no deadline, so that a busy machine causes no failure. One that fails prints
# the line that repeats it on any machine.
ANY = settings(deadline=None, print_blob=True)
settings.register_profile("developer", ANY)
settings.register_profile("ci", ANY, derandomize=True)
settings.register_profile("check", ANY, max_examples=20)
settings.load_profile("ci" if os.environ.get("CI") else "developer")

# Brokers of tests live for seconds: without the optimising compiler a start takes 5 s of CPU,
# not 8.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


# As in a role (headrace/roles/heap.py): at the default thresholds the collector finds next to
# nothing and takes a tenth of the time.
gc.set_threshold(NEW_OBJECTS, 20, 100)


# 0.5 to 3 s of CPU each. After `import scipy`, scipy.stats is imported by its first use.
SLOW_TO_IMPORT = {"torch", "lightgbm", "sklearn", "scipy.stats", "jgo"}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave the thousands of collected tests, which live to the end, out of every collection.

    Raise ``UsageError`` if their modules have imported a slow library in a run without models:
    every process of the tests imports all modules, and torch takes three seconds of CPU.
    """
    gc.freeze()
    slow = sorted(SLOW_TO_IMPORT & sys.modules.keys())
    if "not models" in session.config.getoption("markexpr") and slow:
        raise pytest.UsageError(f"a test module imports {slow[0]}; import it in the test instead")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20_260_601)


@pytest.fixture(scope="session")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a temporary broker; all tests of this process share it, and none stops it."""
    with borrow(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> str:
    """Return the bootstrap address of a real broker: HEADRACE_BOOTSTRAP, else a temporary one."""
    given = os.environ.get("HEADRACE_BOOTSTRAP")
    return given or request.getfixturevalue("own_broker").bootstrap
