"""Links between tiers on one machine: emulated by workers, changed by a file in the run directory.

``headrace session link`` writes the file, workers read it again when it has changed:

    {"cam-17": {"handheld>cloud": {"bytes_per_s": 25000.0, "delay_s": 0.04}}}
"""

import json
import threading
from collections.abc import Mapping
from pathlib import Path

from control.problem.session_space import SessionSpace
from control.problem.tiers import Link
from headrace.atomic_file import write_whole
from headrace.config.field_types import rate as rate_of
from headrace.config.pipeline_file import PipelineFile, search_space
from headrace.errors import PipelineError
from headrace.processes import run_directory
from operators.serving.transfers import Hop, SessionLinks
from schemas.durations import duration

LOOK_EVERY_S = 0.1

Changed = dict[tuple[str, Hop], Link]


def link_file(pipeline: str) -> Path:
    """Return the path of a pipeline's changed links."""
    return run_directory(pipeline) / "links.json"


def read_links(path: Path) -> Changed:
    """Return the changed links by session and hop; {} without a file or with a broken one."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        return {
            (session, (hop.partition(">")[0], hop.partition(">")[2])): Link(**link)
            for session, links in read.items()
            for hop, link in links.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write_links(path: Path, changed: Mapping[tuple[str, Hop], Link]) -> None:
    """Write the changed links."""
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for (session, hop), link in changed.items():
        row = {"bytes_per_s": link.bytes_per_s, "delay_s": link.delay_s}
        rows.setdefault(session, {})[">".join(hop)] = row
    write_whole(path, json.dumps(rows, indent=1))


def file_links(file: PipelineFile) -> SessionLinks | None:
    """Return the links of a pipeline file for workers and egress; None if it has no tiers.

    Links are emulated where a tier is.
    """
    emulated = any(tier.emulated for tier in file.cluster.tiers)
    return session_links(file.sessions, emulated=emulated)


def session_links(space: SessionSpace | None, *, emulated: bool) -> SessionLinks | None:
    """Return the links between a space's tiers; None if there is none."""
    if space is None:
        return None
    return SessionLinks(space.origin, space.links if emulated else {})


def follow_links(links: SessionLinks, path: Path) -> threading.Thread:
    """Take changes of the file from now on, in a thread of its own; return the thread."""
    pause = threading.Event()

    def follow() -> None:
        seen: object = None
        while not pause.wait(LOOK_EVERY_S):
            found = modified_ns(path)
            if found != seen:
                seen, links.changed = found, read_links(path)

    thread = threading.Thread(target=follow, name="links", daemon=True)
    thread.start()
    return thread


def follow_link_file(links: SessionLinks | None, pipeline: str) -> None:
    """Follow the pipeline's file of changed links where links are emulated."""
    if links is not None and links.emulated:
        follow_links(links, link_file(pipeline))


def modified_ns(path: Path) -> int | None:
    """Return the time of a file's last modification in ns; None without a readable file."""
    try:
        return path.stat().st_mtime_ns
    except OSError:  # another process may delete the file at any moment
        return None


def change_link(
    file: PipelineFile, session: str, hop: str, rate: str | None, delay: str | None
) -> str:
    """Change a session's link; return a sentence. Raises ``PipelineError`` for an unknown link."""
    if not any(tier.emulated for tier in file.cluster.tiers):
        raise PipelineError(
            f"{file.path}: no tier is emulated, so no link is; for an experiment give a tier "
            "`device: emulated`"
        )
    links = search_space(file).links
    from_, _, to = hop.partition(">")
    planned = links.get((from_, to))
    if planned is None:
        known = ", ".join(sorted(">".join(each) for each in links)) or "none"
        raise PipelineError(f"{file.path}: there is no link {hop!r}; its links are: {known}")
    try:
        link = Link(
            planned.bytes_per_s if rate is None else rate_of(rate),
            planned.delay_s if delay is None else duration(delay),
        )
    except ValueError as error:
        raise PipelineError(str(error).replace("{}", "the link", 1)) from error
    if link.bytes_per_s <= 0:
        raise PipelineError(
            "a link of 0 bytes/s carries nothing, so nothing says that it recovers; give a low "
            "rate such as 1kbps"
        )
    path = link_file(file.pipeline.name)
    changed = read_links(path)
    for each in ((from_, to), (to, from_)):
        changed[session, each] = link
        if link == planned:
            del changed[session, each]
    write_links(path, changed)
    return f"session {session!r}: {hop} has {link.bytes_per_s * 8 / 1e6:g} Mbps"
