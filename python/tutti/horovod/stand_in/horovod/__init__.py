# SPDX-License-Identifier: BSD-3-Clause
"""This package is found by processes that a script of `python -m tutti.horovod` starts, such as
spawned workers: its folder is in their PYTHONPATH. It gives way to tutti.horovod.install()."""

import importlib
import sys

del sys.modules["horovod"]
importlib.import_module("tutti.horovod").install()
importlib.import_module("horovod")
