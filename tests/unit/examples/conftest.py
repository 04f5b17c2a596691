from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the file that imports torch, which takes seconds, where no test of it runs."""
    unwanted = "not models" in config.getoption("markexpr")
    return True if unwanted and collection_path.name == "test_postcode_weights.py" else None
