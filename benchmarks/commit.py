"""The commit of the code that a results page was made with."""

import subprocess


def commit() -> str:
    """Return the short name of the commit that is checked out, with "+" if files differ from it;
    "" outside of a repository."""
    try:
        name = _git("rev-parse", "--short", "HEAD")
        return f"{name}+" if _git("status", "--porcelain", "--untracked-files=no") else name
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*arguments: str) -> str:
    return subprocess.run(
        ("git", *arguments), check=True, capture_output=True, text=True
    ).stdout.strip()
