"""Import of modules beside a pipeline file, even if they share names with Headrace's packages.

``import_module`` searches the pipeline file's folder first, then the installed packages. A module
there that shares its name with a package of Headrace (``operators``, ``control``, ...) is stored in
``sys.modules`` under an alias of its folder, so that both coexist. Modules of such a folder import
by the same rule: their ``__builtins__`` hold an ``__import__`` that applies it.
"""

import builtins
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

OWN = ("schemas", "profiles", "control", "operators", "streams", "headrace")
_ROOT = Path(__file__).resolve().parents[2]


class _Folder:
    """A pipeline file's folder with modules that share names with Headrace's packages."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.alias = f"pipeline_{crc32(self.path.encode()):08x}"
        package = ModuleType(self.alias)
        package.__path__ = [self.path]
        sys.modules[self.alias] = package

    def has(self, name: str) -> bool:
        """Return whether the folder has this dotted module."""
        where, spec = [self.path], None
        for part in name.split("."):
            spec = PathFinder.find_spec(part, where)
            if spec is None:
                return False
            where = list(spec.submodule_search_locations or ())
        return spec is not None and spec.origin is not None  # a folder without code is no module

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of the folder, to be run with the folder's ``__import__``."""
        if path is None and name in OWN:
            return None  # Headrace's own package
        spec = PathFinder.find_spec(name, [self.path] if path is None else list(path), target)
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        if not str(spec.origin).startswith(f"{self.path}/"):
            return None
        spec.loader = _Loader(spec.loader.name, str(spec.origin), self)
        return spec

    def imported(
        self,
        name: str,
        globals_: Mapping[str, object] | None = None,
        locals_: Mapping[str, object] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        """Import a module on behalf of the folder's modules; replaces ``__import__``."""
        if level == 0 and name.partition(".")[0] in OWN and self.has(name):
            made = importlib.__import__(f"{self.alias}.{name}", globals_, locals_, fromlist, 0)
            return made if fromlist else sys.modules[f"{self.alias}.{name.partition('.')[0]}"]
        return builtins.__import__(name, globals_, locals_, fromlist, level)


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, folder: _Folder) -> None:
        super().__init__(name, path)
        self._folder = folder

    def exec_module(self, module: ModuleType) -> None:
        own: dict[str, Any] = {**vars(builtins), "__import__": self._folder.imported}
        module.__dict__["__builtins__"] = own
        super().exec_module(module)


_folders: dict[str, _Folder] = {}  # in order of registration
_paths: dict[str, None] = {}  # registered folders without colliding names


def make_known(folder: Path) -> None:
    """Register a pipeline file's folder to be searched first, even before Headrace's packages.

    A folder with colliding names is not added to ``sys.path``: spawned processes inherit that list
    and would import the user's module in place of Headrace's.
    """
    path = folder.resolve()
    collides = path != _ROOT and any(
        (path / f"{name}.py").is_file() or (path / name).is_dir() for name in OWN
    )
    if collides and str(path) not in _folders:
        known = _Folder(path)
        _folders[str(path)] = known
        sys.meta_path.insert(0, known)
    if not collides and str(path) not in sys.path:
        sys.path.insert(0, str(path))
    if not collides:
        _paths[str(path)] = None


def forget_code() -> None:
    """Forget the modules of the registered folders: the next import reads their files anew.

    Objects of the old modules live on. Installed packages and Headrace's own modules stay.
    """
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if spec is None or name == "__main__" or not _is_users(spec):
            continue
        del sys.modules[name]
        # Python reuses bytecode if the source has the same time (in seconds) and size.
        if spec.cached:
            Path(spec.cached).unlink(missing_ok=True)
    importlib.invalidate_caches()


def _is_users(spec: ModuleSpec) -> bool:
    if not isinstance(spec.loader, SourceFileLoader):
        return False
    place = Path(str(spec.origin))
    own = place.is_relative_to(_ROOT) and place.relative_to(_ROOT).parts[0] in OWN
    installed = "site-packages" in place.parts
    known = any(str(folder) in _folders or str(folder) in _paths for folder in place.parents)
    return known and not own and not installed


def import_module(name: str) -> ModuleType:
    """Import a module from the newest registered folder that has it, else as Python does."""
    if name.partition(".")[0] in OWN:
        for folder in reversed(_folders.values()):
            if folder.has(name):
                return importlib.import_module(f"{folder.alias}.{name}")
    return importlib.import_module(name)
