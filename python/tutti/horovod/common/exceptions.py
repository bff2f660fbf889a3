# SPDX-License-Identifier: BSD-3-Clause
"""The exceptions of Horovod's interface, and the choice of one by the library's status.

If this rank alone finds a call invalid, the call raises ValueError, and the other ranks do not
receive an error. A call that fails between the ranks raises HorovodInternalError.
"""

from typing import Optional, Tuple

from ... import _lib


class HorovodInternalError(RuntimeError):
    """A call between the ranks has failed. The text is the library's: which rank, which tensor,
    why. `status` is the library's status number (include/tutti/types.h), or None if a program
    raised the error."""

    def __init__(self, *args: object, status: Optional[int] = None) -> None:
        super().__init__(*args)
        self.status = status


class InitializationError(HorovodInternalError, ValueError):
    """init() has failed."""


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts has changed; elastic.run starts again.

    skip_sync  True: the state need not be sent to the other ranks
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the set of hosts has changed")
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """Never raised, because no module is built for one version of a framework. The class exists for
    `except` clauses."""


# After these statuses a retry cannot help: the program or the installation is wrong.
HOPELESS: Tuple[int, ...] = (_lib.INVALID_ARGUMENT, _lib.MISMATCH, _lib.UNSUPPORTED, _lib.ABI)


def last_error(status: int) -> str:
    """The error text of this thread's failed call."""
    text = _lib.lib.tutti_last_error() or _lib.lib.tutti_strerror(status)
    return text.decode("utf-8", "replace")


def refused(status: int) -> Exception:
    """The exception for a call that was refused at once."""
    if status in (_lib.INVALID_ARGUMENT, _lib.UNSUPPORTED):
        return ValueError(last_error(status))
    return HorovodInternalError(last_error(status), status=status)


def failed(status: int) -> HorovodInternalError:
    """The exception for a call that has failed between the ranks."""
    return HorovodInternalError(last_error(status), status=status)
