# SPDX-License-Identifier: BSD-3-Clause
"""The same as tutti.horovod.tensorflow.keras.callbacks."""

from ..tensorflow.keras.callbacks import *  # noqa: F401,F403
