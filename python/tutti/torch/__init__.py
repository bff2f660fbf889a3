# SPDX-License-Identifier: BSD-3-Clause
"""The PyTorch backend "tutti": torch.distributed.init_process_group("tutti").

torch finds this module by the package's entry points, so a program imports nothing. The backend
is in C++ (csrc/, compiled at first use) or in Python (python_group.py), where there is no
compiler. TORCH_TUTTI=cpp or TORCH_TUTTI=python chooses one of them.
"""

import logging
import os
from datetime import timedelta
from typing import Any, List, Tuple

log = logging.getLogger("tutti.torch")

CHOICE = "TORCH_TUTTI"
_has_told = False  # whether the choice of the Python backend was logged


def _choice() -> str:
    """"cpp", "python", or "auto"."""
    choice = os.environ.get(CHOICE, "auto").lower()
    if choice not in ("cpp", "python", "auto"):
        raise ValueError("%s=%s: allowed are cpp, python and auto" % (CHOICE, choice))
    return choice


def create(options: Any, _backend_options: Any = None) -> Any:
    """Make the backend of one group; torch calls it on each of the group's ranks."""
    timeout: timedelta = options.timeout
    name = options.group_id
    arguments = (options.store, options.group_rank, options.group_size, timeout,
                 "" if name in ("", "0", "default_pg") else name)
    choice = _choice()
    if choice != "python":
        from . import build
        try:
            return build.load().create(*arguments)
        except build.BuildError as error:
            if choice == "cpp":
                raise
            global _has_told
            if not _has_told:
                log.warning("tutti: the Python backend is used, which is slower: %s", error)
            _has_told = True
    from . import python_group
    return python_group.PythonGroup(*arguments)


def _version() -> Tuple[int, int]:
    """The major and minor number of torch."""
    import torch
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def _register(devices: List[str]) -> None:
    """Make "tutti" known to torch. Nothing is loaded before the first group."""
    from torch.distributed import distributed_c10d as c10d

    if hasattr(c10d, "Backend") and not hasattr(c10d.Backend, "TUTTI"):
        c10d.Backend.register_backend("tutti", create, extended_api=True, devices=devices)


def register() -> None:
    """The entry point of torch >= 2.14, called when the name is first used."""
    import torch

    # With "cuda" in the list but without a GPU, a barrier would touch CUDA.
    _register(["cpu", "cuda"] if torch.cuda.device_count() > 0 else ["cpu"])


def autoload() -> None:
    """The hook that torch before 2.14 calls during its own import, when it is too early to look for
    GPUs. An error here would break `import torch`."""
    try:
        if _version() < (2, 14):
            _register(["cpu", "cuda"])
    except Exception as error:  # a torch without distributed
        log.debug("tutti: not registered: %s", error)
