# SPDX-License-Identifier: BSD-3-Clause
"""Tutti: collective communication for numpy arrays and device arrays."""

from ._lib import (ABIError, InternalError, InvalidArgumentError, LibraryError, MismatchError,
                   NoMemoryError, PeerLostError, ShutdownError, SystemCallError, TimeoutError,
                   TransportError, TuttiError, UnsupportedError)
