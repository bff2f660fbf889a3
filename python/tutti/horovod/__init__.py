# SPDX-License-Identifier: BSD-3-Clause
"""Horovod's interface over Tutti.

    import tutti.horovod.torch as hvd           one import changed
    python -m tutti.horovod train.py ...        an unchanged script
    tutti.horovod.install()                     the same for scripts that this process imports

Horovod itself need not be installed. docs/horovod.md has the details.
"""

from ._install import install

__all__ = ["install"]
