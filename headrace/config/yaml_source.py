"""Parse a YAML file into plain values and the line of every key.

Nothing is executed: tags other than YAML's own are errors. So are duplicate keys, which YAML
parsers usually accept silently, and keys that are not text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from headrace.errors import PipelineError

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A file's values, with the line of every place (path of keys) in it.

    ``unnamed`` are places in the values whose last two keys the file leaves out.
    """

    path: Path
    values: Any
    lines: Mapping[Place, int]
    unnamed: frozenset[Place] = frozenset()

    def line(self, place: Place) -> int:
        """Return the line of a place, or of the nearest enclosing place."""
        place = self._written(place)
        while place not in self.lines:
            place = place[:-1]
        return self.lines[place]

    def error(self, place: Place, sentence: str) -> PipelineError:
        """Return the error for a place; the first "{}" in the sentence becomes the place's name."""
        name = _name(self._written(place))
        return PipelineError(f"{self.path}:{self.line(place)}: {sentence.replace('{}', name, 1)}")

    def _written(self, place: Place) -> Place:
        """Return a place as the file has it."""
        enclosing = (place[:end] for end in range(2, len(place) + 1))
        left_out = next((each for each in enclosing if each in self.unnamed), None)
        return place if left_out is None else left_out[:-2] + place[len(left_out) :]


def read_source(path: Path) -> Source:
    """Read a YAML file; raises ``PipelineError``."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise PipelineError(f"{path} is not there; name an existing pipeline file") from error
    except IsADirectoryError as error:
        raise PipelineError(f"{path} is a folder; name the pipeline file in it") from error
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"{path} cannot be read: {error}") from error
    return parse_source(text, path)


def parse_source(text: str, path: Path) -> Source:
    """Return the values and lines of a YAML text; raises ``PipelineError``."""
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise PipelineError(
            f"{path}:{line}: YAML does not allow the character {text[error.position]!r}; remove it"
        ) from error
    try:
        root = loader.get_single_node()
        if root is None:
            raise PipelineError(f"{path} is empty; a pipeline file has name, slo, tasks, cluster")
        reading = _Reading(path, loader, {(): root.start_mark.line + 1}, [])
        return Source(path, reading.value(root, ()), reading.lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise PipelineError(f"{path}:{line}: this is no YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise PipelineError(f"{path}: this is no YAML: {error}") from error
    finally:
        loader.dispose()


@dataclass(frozen=True, slots=True)
class _Reading:
    path: Path
    loader: yaml.SafeLoader
    lines: dict[Place, int]
    open: list[yaml.Node]  # the collections that enclose the current node

    def value(self, node: yaml.Node, place: Place) -> Any:
        if any(node is around for around in self.open):
            raise self.error(node, f"{_name(place)} contains itself; remove the alias")
        if not node.tag.startswith("tag:yaml.org,2002:") or "python" in node.tag:
            raise self.error(node, f"the tag {node.tag!r} is not known here; write a plain value")
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        self.open.append(node)
        try:
            if isinstance(node, yaml.SequenceNode):
                return self.items(node, place)
            return self.mapping(node, place)
        finally:
            self.open.pop()

    def items(self, node: yaml.SequenceNode, place: Place) -> list[Any]:
        values = []
        for at, item in enumerate(node.value):
            self.lines[(*place, at)] = item.start_mark.line + 1
            values.append(self.value(item, (*place, at)))
        return values

    def mapping(self, node: yaml.Node, place: Place) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise self.error(
                    key_node, f"the key {key!r} in {_name(place)} is no text; quote it"
                )
            below = (*place, key)
            if key in values:
                first = self.lines[below]
                raise self.error(
                    key_node,
                    f"{_name(below)} is here a second time (first on line {first}); "
                    "remove or rename one",
                )
            self.lines[below] = key_node.start_mark.line + 1
            values[key] = self.value(value_node, below)
        return values

    def scalar(self, node: yaml.ScalarNode) -> Any:
        try:
            return self.loader.construct_object(node)
        except yaml.constructor.ConstructorError as error:  # such as the merge key <<
            raise self.error(
                node, f"{node.value!r} has no meaning here; write keys and values out, or quote it"
            ) from error
        except (ValueError, LookupError) as error:  # such as the date 2001-13-01
            raise self.error(node, f"{node.value!r} cannot be read: {error}; quote it") from error

    def error(self, node: yaml.Node, sentence: str) -> PipelineError:
        return PipelineError(f"{self.path}:{node.start_mark.line + 1}: {sentence}")


def _name(place: Place) -> str:
    return ".".join(str(part) for part in place) or "the file"


def suggestion(name: str, known: list[str]) -> str:
    """Suggest the known name nearest to ``name``, else list the known names."""
    close = get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known are {', '.join(known) or 'none'}"
