# SPDX-License-Identifier: BSD-3-Clause
"""Horovod's interface for Keras: the same as tutti.horovod.tensorflow.keras."""

from ..tensorflow.keras import *  # noqa: F401,F403
from ..tensorflow.keras import __all__  # noqa: F401
