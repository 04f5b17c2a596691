"""A model that a registry has: its files, wherever they lie."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from headrace.errors import Unsuccessful


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
                return file.read().decode()
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise Unsuccessful(f"{self.source}/{name} cannot be read: {error}") from error
