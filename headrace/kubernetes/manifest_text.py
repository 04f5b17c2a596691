"""Objects as YAML that people read: texts of several lines as blocks, nothing by reference."""

from collections.abc import Iterable
from typing import Any

import yaml


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Plain.add_representer(str, _text)


def manifest_text(objects: Iterable[dict[str, Any]]) -> str:
    """Return objects as YAML documents, keys in their order."""
    return yaml.dump_all(objects, Dumper=_Plain, sort_keys=False)
