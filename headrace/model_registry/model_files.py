"""A model that a registry has: its files, wherever they lie."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from headrace.errors import Unsuccessful

MOST_TEXT_BYTES = 10 * 1024 * 1024  # of a text that is read into memory


def read_text(file: BinaryIO) -> str:
    """Return a file's text; raise ``OSError`` for one above ``MOST_TEXT_BYTES``."""
    text = file.read(MOST_TEXT_BYTES + 1)
    if len(text) > MOST_TEXT_BYTES:
        raise OSError(f"it has more than {MOST_TEXT_BYTES} bytes")
    return text.decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model in a registry.

    ``opened`` opens a file by its name below the model and raises ``Unsuccessful`` or ``OSError``.
    """

    version: str
    source: str
    opened: Callable[[str], BinaryIO]

    def text(self, name: str) -> str:
        """Return a file's text; "" if the model has no such file. Raises ``Unsuccessful``."""
        try:
            with self.opened(name) as file:
                return read_text(file)
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise Unsuccessful(f"{self.source}/{name} cannot be read: {error}") from error
