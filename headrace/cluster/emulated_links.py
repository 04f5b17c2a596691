"""Change the links that workers on this machine emulate."""

from control.problem.tiers import Link
from headrace.config.field_types import rate as rate_of
from headrace.config.pipeline_file import PipelineFile, search_space
from headrace.errors import PipelineError
from headrace.roles.link_file import link_file, read_links, write_links
from schemas.durations import duration


def change_link(
    file: PipelineFile, session: str, hop: str, rate: str | None, delay: str | None
) -> str:
    """Change a session's link; return a sentence. Raises ``PipelineError`` for an unknown link."""
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
