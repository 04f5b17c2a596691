"""Java with the broker's class path, and the archive of the classes that it loads.

The archive (class data sharing, JEP 350) saves a third of the CPU of a start. Java writes it when
the tool that formats a data directory ends, once per user, Java and class path, and ignores an
archive that does not match. Java cannot write one without an archive of its own classes, which
runtimes made by jlink lack.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.broker.jars import Progress, classpath, shared_folder
from headrace.broker.java import check_java, find_java, shares_classes


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java, the broker's class path, and the place of its class archive; ``archives``: whether
    this Java can write one."""

    java: Path
    classpath: str
    archive: Path
    archives: bool = True

    @property
    def draft(self) -> Path:
        """The path of the archive while this process writes it."""
        return self.archive.with_suffix(f".{os.getpid()}")

    def command(self, *options: str) -> list[str]:
        """Return the beginning of a command line, with the archive if it exists."""
        shared = [f"-XX:SharedArchiveFile={self.archive}"] if self.archive.exists() else []
        return [str(self.java), *shared, *options, "-cp", self.classpath]

    def recording(self) -> list[str]:
        """Return the options that write the archive; [] if it exists or cannot be written."""
        if self.archive.exists() or not self.archives:
            return []
        # Java warns of each class that it cannot archive.
        return [f"-XX:ArchiveClassesAtExit={self.draft}", "-Xlog:cds*=off"]

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Put the archive in its place if the block ran a command that wrote it."""
        try:
            yield
            with contextlib.suppress(FileNotFoundError):
                self.draft.replace(self.archive)
        finally:
            self.draft.unlink(missing_ok=True)


def java_runtime(java: Path | None, progress: Progress | None = None) -> JavaRuntime:
    """Return ``java``, or else the Java of this machine, with the broker's jars.

    Raises ``BrokerError`` as ``find_java``, ``check_java`` and ``classpath`` do.
    """
    found = find_java() if java is None else check_java(java)
    jars = classpath(progress)
    at = found.resolve()
    facts = f"{at} {at.stat().st_mtime_ns} {jars}"
    name = f"broker-classes-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.jsa"
    archive = shared_folder() / name
    return JavaRuntime(found, jars, archive, archive.exists() or shares_classes(found))
