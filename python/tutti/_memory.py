# SPDX-License-Identifier: BSD-3-Clause
"""Memory that all ranks of a host can read and write, as numpy arrays."""

import operator
import weakref
from typing import Any, Dict, Optional, Tuple, Union

import numpy as np

from . import _lib, _world
from ._buffers import count_of
from ._lib import byref, check, lib
from ._world import Communicator, current

_arrays: Dict[int, Communicator] = {}  # by the address of the memory


def _allocate(call: str, shape: Union[int, Tuple[int, ...]], dtype: Any,
              comm: Communicator) -> Tuple["np.ndarray[Any, Any]", Optional[int], Any]:
    """The array, the address of its memory (None: it is empty), and the object behind it, which
    all its views keep."""
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError("%s: dtype %s holds Python objects" % (call, kind))
    numbers = (shape,) if isinstance(shape, (int, np.integer)) else shape
    extents = tuple(map(operator.index, numbers))
    if any(extent < 0 for extent in extents):
        raise ValueError("%s: shape is %s; no extent may be negative" % (call, shape))
    size = count_of(extents) * kind.itemsize
    place = _lib.out_pointer()
    check(getattr(lib, "tutti_" + call)(comm.handle, size, byref(place)))
    if place.value is None:
        return np.zeros(extents, kind), None, None
    memory = _lib.memory_at(place.value, size)
    made: "np.ndarray[Any, Any]" = np.frombuffer(memory, kind)
    return made.reshape(extents), place.value, memory.obj


def mem_alloc(shape: Union[int, Tuple[int, ...]], dtype: Any = "float32",
              comm: Optional[Communicator] = None) -> "np.ndarray[Any, Any]":
    """Make an array, filled with zero, in memory that collectives need not copy.

    shape, dtype  as in numpy.zeros; they may differ between ranks
    comm          the communicator; None: the world

    Collective: all ranks call it, in the same order among direct calls. The array and all views of
    it end with mem_free(), Communicator.free() and finalize(): an access after that is an error
    that ends the process, as in C. Copy data that must live longer.
    """
    comm = current(comm)
    made, address, _ = _allocate("mem_alloc", shape, dtype, comm)
    if address is not None:
        _arrays[address] = comm
    return made


def mem_alloc_local(shape: Union[int, Tuple[int, ...]], dtype: Any = "float32",
                    comm: Optional[Communicator] = None) -> "np.ndarray[Any, Any]":
    """Make an array as mem_alloc() does, but without the other ranks.

    shape, dtype, comm  as in mem_alloc()

    No other rank takes part. The memory is freed together with the array and all its views, also
    after finalize(). So mem_free() is not needed, and no access ends the process. The exception is
    a forked child: the memory does not exist there.
    """
    made, address, memory = _allocate("mem_alloc_local", shape, dtype, current(comm))
    if address is not None:
        weakref.finalize(memory, lib.tutti_mem_free_local, address).atexit = False
    return made


def mem_free(array: "np.ndarray[Any, Any]") -> None:
    """Free the memory of an array from mem_alloc(). No rank may use it in a pending collective,
    which a barrier() before this call ensures. Neither the array nor a view of it may be used
    afterwards. An array without elements has no memory to free."""
    if not array.size:
        return
    address = array.__array_interface__["data"][0]
    comm = _arrays.get(address)
    if comm is None:
        raise ValueError("mem_free: the array is not from mem_alloc(), or is a part of such an "
                         "array, or was freed before")
    check(lib.tutti_mem_free(comm.handle, address))
    del _arrays[address]


def _forget(ended: Optional[Communicator]) -> None:
    for address, comm in list(_arrays.items()):
        if ended is not None and ended.handle in (comm.handle, comm.root):
            del _arrays[address]


_world.on_end.append(_forget)
