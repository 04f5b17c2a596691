from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the file that imports torch, which takes seconds, unless one of its tests runs."""
    unwanted = "not models" in config.getoption("markexpr")
    return True if unwanted and collection_path.name == "test_postcode_weights.py" else None
