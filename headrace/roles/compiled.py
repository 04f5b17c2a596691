"""Are the nodes compiled (docs/decisions/0007), and are they still what their source says?

Python prefers a compiled module to the source beside it, however old: without the check, whoever
edits source after ``make compiled`` would run what was there before.
"""

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("control", "operators", "streams")


def compiled() -> bool:
    """Whether a worker that starts now is compiled."""
    spec = find_spec("operators.worker")
    return bool(spec and spec.origin and spec.origin.endswith(tuple(EXTENSION_SUFFIXES)))


def outdated(root: Path) -> list[str]:
    """The sources below ``root`` that were changed after they were compiled, or are gone.

    Only where they are compiled in place: an installer's times of files mean nothing.
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


def check(root: Path) -> None:
    """Raises ``ImportError`` with the mend where a compiled module is older than its source."""
    if found := outdated(root):
        raise ImportError(
            f"{found[0]} is newer than its compiled twin; run `make compiled` to compile it "
            "again, or `make pure` to go back to Python"
        )
