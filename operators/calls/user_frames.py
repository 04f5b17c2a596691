"""An operator's failures: the error whose message is the reason, and tracebacks of the user's code.

Frames of Headrace, the standard library and installed packages are omitted: the author of an
operator can only change the rest. Frames and characters are bounded, to fit an answer's reason.
"""

import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from traceback import FrameSummary


class OperatorFailed(Exception):
    """A batch or a load failed; the message is the complete reason.

    ``trace`` holds the frames of the user's code, one per line, if known.
    """

    def __init__(self, reason: str, trace: str = "") -> None:
        super().__init__(reason)
        self.trace = trace


MAX_FRAMES = 3  # in a reason
MAX_LOGGED = 12  # in a log
MAX_LINE = 80  # characters of one source line
MAX_SENTENCE = 500  # characters of the exception's own words

_ROOT = Path(__file__).resolve().parents[2]
_OWN = tuple(
    f"{_ROOT / name}/"
    for name in ("schemas", "profiles", "control", "operators", "streams", "headrace")
)
_INSTALLED = tuple(
    f"{Path(sysconfig.get_path(name)).resolve()}/" for name in ("stdlib", "platstdlib", "purelib")
)


def error_sentence(error: BaseException) -> str:
    """Return the exception's type and message on one line of UTF-8, truncated."""
    words = " ".join(_words(error).split())[:MAX_SENTENCE]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def with_frames(text: str, error: BaseException) -> str:
    """Append the innermost frames of the user's code, if any, to the text."""
    shown = frames(error)[-MAX_FRAMES:]
    if not shown:
        return text
    places = " > ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in shown)
    line = _line(shown[-1])
    return f"{text} (at {places}: {line})" if line else f"{text} (at {places})"


def trace(error: BaseException) -> str:
    """Return the user's frames with their source lines, one per line, innermost last."""
    shown = frames(error)[-MAX_LOGGED:]
    return "\n".join(f"  {f.filename}:{f.lineno} in {f.name}: {_line(f)}" for f in shown)


def frames(error: BaseException) -> list[FrameSummary]:
    """Return the user's frames, innermost last; for a syntax error, also its location."""
    own = [f for f in traceback.extract_tb(error.__traceback__) if _is_users(f.filename)]
    if isinstance(error, SyntaxError) and error.filename:
        text = (error.text or "").strip()
        own.append(FrameSummary(error.filename, error.lineno, "<module>", line=text))
    return own


def _words(error: BaseException) -> str:
    # A user's __str__ may itself raise; that must not end the worker.
    try:
        return str(error).encode("utf-8", "replace").decode()
    except Exception as again:  # noqa: BLE001 - a user's class
        return f"its message cannot be shown ({type(again).__name__})"


def _line(frame: FrameSummary) -> str:
    line = (frame.line or "").strip()
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 3]}..."


def _is_users(filename: str) -> bool:
    if filename.startswith("<") or "site-packages" in filename:
        return False
    return not _under(filename, _OWN) and not _under(filename, _INSTALLED)


def _under(filename: str, folders: Iterable[str]) -> bool:
    return any(filename.startswith(folder) for folder in folders)
