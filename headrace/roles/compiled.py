"""Detect compiled nodes (docs/decisions/0007) and reject those older than their source.

Python prefers a compiled module to the source beside it, whatever its age: without the check, an
edit after ``make compiled`` would have no effect.
"""

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("control", "operators", "streams")


def compiled() -> bool:
    """Return whether a worker that starts now is compiled."""
    spec = find_spec("operators.serving.worker")
    return bool(spec and spec.origin and spec.origin.endswith(tuple(EXTENSION_SUFFIXES)))


def outdated(root: Path) -> list[str]:
    """Return the sources below ``root`` that were changed or removed after their compilation.

    Return none unless ``root`` is a checkout compiled in place: an installer does not preserve
    modification times.
    """
    if not (root / "setup.py").is_file():
        return []
    found = []
    for package in PACKAGES:
        for twin in sorted((root / package).rglob("*" + EXTENSION_SUFFIXES[0])):
            source = twin.with_name(twin.name.partition(".")[0] + ".py")
            if not source.exists() or source.stat().st_mtime > twin.stat().st_mtime:
                found.append(source.relative_to(root).as_posix())
    return found


def check_compiled(root: Path) -> None:
    """Raise ``ImportError``, with the remedy, if a compiled module is older than its source."""
    if found := outdated(root):
        raise ImportError(
            f"{found[0]} is newer than its compiled twin; run `make compiled` to compile it "
            "again, or `make pure` to go back to Python"
        )
