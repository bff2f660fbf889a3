# SPDX-License-Identifier: BSD-3-Clause
"""Puts this package in the place of Horovod, for scripts with `import horovod.torch`.

A finder at the head of sys.meta_path finds `horovod` and everything below it, so a Horovod that is
installed is not used. Modules are made when they are first imported: each name of Horovod maps to a
module here, and both names are names of the same object.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
from typing import Any, Dict, Optional, Sequence

VERSION = "0.28.1"  # of the interface

_HERE = __package__

# Horovod's module: ours.
_MODULES: Dict[str, str] = {
    "horovod.keras": "keras",
    "horovod.keras.callbacks": "keras.callbacks",
    "horovod.tensorflow": "tensorflow",
    "horovod.tensorflow.compression": "tensorflow.compression",
    "horovod.tensorflow.functions": "tensorflow.functions",
    "horovod.tensorflow.keras": "tensorflow.keras",
    "horovod.tensorflow.keras.callbacks": "tensorflow.keras.callbacks",
    "horovod.tensorflow.mpi_ops": "tensorflow.mpi_ops",
    "horovod.torch": "torch",
    "horovod.torch.compression": "torch.compression",
    "horovod.torch.elastic": "torch.elastic",
    "horovod.torch.elastic.sampler": "torch.elastic.sampler",
    "horovod.torch.elastic.state": "torch.elastic.state",
    "horovod.torch.functions": "torch.functions",
    "horovod.torch.mpi_ops": "torch.mpi_ops",
    "horovod.torch.optimizer": "torch.optimizer",
    "horovod.torch.sync_batch_norm": "torch.sync_batch_norm",
    "horovod.common": "common",
    "horovod.common.elastic": "common.elastic",
    "horovod.common.exceptions": "common.exceptions",
    "horovod.common.process_sets": "common.process_sets",
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and makes the modules."""

    def find_spec(self, name: str, path: Optional[Sequence[str]] = None,
                  target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        """Called for each import of a module that is not in sys.modules."""
        if name != "horovod" and not name.startswith("horovod."):
            return None
        if name != "horovod" and name not in _MODULES:
            raise ModuleNotFoundError(
                "%s: Tutti takes the place of Horovod and has no such module. It has %s"
                % (name, ", ".join(sorted(_MODULES))), name=name)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """The module for one of Horovod's names."""
        if spec.name == "horovod":
            module = types.ModuleType("horovod", "Tutti in the place of Horovod.")
            module.__version__ = VERSION  # type: ignore[attr-defined]
            return module
        module = importlib.import_module("%s.%s" % (_HERE, _MODULES[spec.name]))
        self._own[spec.name] = (module.__spec__, module.__loader__)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """The module was executed before, under its own name: give it back the spec and the loader
        of this name."""
        name = module.__spec__.name if module.__spec__ is not None else ""
        if name in self._own:
            module.__spec__, module.__loader__ = self._own.pop(name)
            module.__package__ = module.__spec__.parent

    def __init__(self) -> None:
        self._own: Dict[str, Any] = {}


_finder = _Finder()

# A folder with a package `horovod` that calls install().
STAND_IN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stand_in")


def install() -> None:
    """From now on `import horovod.torch` gives tutti.horovod.torch. May be called again.

    RuntimeError: Horovod itself was imported before.
    """
    if _finder in sys.meta_path:
        return
    real = sys.modules.get("horovod")
    if real is not None:
        raise RuntimeError("horovod was imported before, from %s"
                           % getattr(real, "__file__", "somewhere"))
    sys.meta_path.insert(0, _finder)


def install_in_children() -> None:
    """Let processes that this process starts also find `horovod` here. For example, the spawned
    workers of a DataLoader import the script again."""
    if STAND_IN not in sys.path:
        sys.path.insert(0, STAND_IN)  # multiprocessing passes it to its children
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    more = [STAND_IN] if _is_installed(home) else [STAND_IN, home]
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [path for path in more if path not in given] + given)


def _is_installed(home: str) -> bool:
    return os.path.basename(home) in ("site-packages", "dist-packages")


def uninstall() -> None:
    """Undo install(). Code that has already imported a module keeps this module."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    for name in [n for n in sys.modules if n == "horovod" or n.startswith("horovod.")]:
        del sys.modules[name]
