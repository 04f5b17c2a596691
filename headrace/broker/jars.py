"""The broker's jars on this machine: downloaded once with jgo, verified against the lock."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

from headrace.broker.jar_lock import locked_jars
from streams.kafka.kafka_errors import BrokerError

Progress = Callable[[str, int, int], None]
"""Called before each jar download with its coordinate, its number and the number of jars."""


def classpath(progress: Progress | None = None) -> str:
    """Return the broker's class path; every jar is present and has the locked SHA-256.

    The first call on a machine downloads 44 MB into the user's Maven repository (M2_REPO or
    ~/.m2/repository); later calls only verify it.
    Raises BrokerError if a jar cannot be downloaded or differs from the lock.
    """
    with _one_at_a_time():
        artifacts = _artifacts()
        missing = [name for name, (jar, _) in artifacts.items() if not jar.cached_path.exists()]
        for number, name in enumerate(missing, start=1):
            if progress is not None:
                progress(name, number, len(missing))
            _download(artifacts[name][0])
        return os.pathsep.join(str(_checked(*each)) for each in artifacts.values())


def _artifacts() -> dict[str, tuple[Any, str]]:
    from jgo.config import GlobalSettings  # the import takes a quarter of a second
    from jgo.maven import MavenContext, PythonResolver

    context = MavenContext(
        resolver=PythonResolver(), repo_cache=GlobalSettings.load().repo_cache, timeout=30
    )
    found = {}
    for coordinate, sha256 in locked_jars().items():
        group, artifact, version = coordinate.split(":")
        found[coordinate] = context.project(group, artifact).at_version(version).artifact(), sha256
    return found


def _checked(jar: Any, sha256: str) -> Path:
    path: Path = jar.cached_path
    if _sha256(path) != sha256:
        # An interrupted download leaves a partial jar; download it once more.
        path.unlink()
        _download(jar)
    if _sha256(path) == sha256:
        return path
    path.unlink()
    raise BrokerError(
        f"{jar} was downloaded, but its SHA-256 is not the locked one; something between this "
        "machine and the Maven repository changes files: try another network"
    )


def _download(jar: Any) -> None:
    try:
        jar.resolve()
    except (OSError, RuntimeError) as error:  # requests' errors are OSErrors
        story = (str(error).splitlines() or ["no details"])[0]
        raise BrokerError(
            f"the local broker needs {jar}, which could not be downloaded "
            f"({type(error).__name__}: {story[:200]}); connect to a network that reaches the "
            "Maven repository once, or name a broker of your own with --bootstrap"
        ) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def shared_folder() -> Path:
    """Return the user's folder for what brokers of all homes share."""
    from jgo.constants import default_jgo_cache

    folder: Path = default_jgo_cache()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Serialise first starts in different homes: they share one Maven repository."""
    with (shared_folder() / "headrace.lock").open("w") as file:
        flock(file, LOCK_EX)
        yield
