# SPDX-License-Identifier: BSD-3-Clause
"""Python objects as bytes."""

import io
import pickle
from typing import Any

try:
    import cloudpickle as _pickler  # also takes lambdas and classes of the main script
except ImportError:
    _pickler = pickle


def dump(obj: Any) -> bytes:
    """An object as bytes."""
    buffer = io.BytesIO()
    _pickler.dump(obj, buffer)
    return buffer.getvalue()


def load(data: bytes) -> Any:
    """The object of dump()."""
    return _pickler.loads(data)
