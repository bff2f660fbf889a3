# SPDX-License-Identifier: BSD-3-Clause
"""Statistics of a communicator, as a dictionary."""

from typing import Any, Dict, List, Optional

from . import _lib
from ._lib import byref, check, lib
from ._world import Communicator, current

_NAMES = {number: name for name, number in _lib.CALL_KINDS.items()}


def _calls(counts: Any) -> Dict[str, Dict[str, int]]:
    return {name: {"operations": counts[number].operations, "bytes": counts[number].bytes}
            for number, name in _NAMES.items() if counts[number].operations > 0}


def _histogram(histogram: Any) -> Dict[str, Any]:
    return {"count": histogram.count, "sum": histogram.sum, "buckets": list(histogram.buckets)}


def _parts(comm: Communicator, count: int) -> List[Dict[str, Any]]:
    parts = []
    for index in range(count):
        part = _lib.StatsPart()
        check(lib.tutti_comm_get_stats_part(comm.handle, index, byref(part)))
        parts.append({"call": _NAMES.get(part.call, str(part.call)),
                      "mode": "async" if part.is_async else "direct",
                      "algorithm": part.algorithm.decode("utf-8", "replace"),
                      "transport": part.transport.decode(), "operations": part.operations,
                      "bytes": part.bytes, "ns": part.ns})
    return parts


def stats(comm: Optional[Communicator] = None) -> Dict[str, Any]:
    """What a communicator has done on this rank since it was made.

    comm  the communicator; None: the world

    The keys are the fields of tutti_stats_t (tutti/stats.h), and "parts": operations by call,
    algorithm and transport. "direct" and "async" hold operations and bytes by the name of the call.
    Times are nanoseconds, and 0 unless TUTTI_STATS, TUTTI_STATS_FILE or TUTTI_STATS_PORT is set
    (key "times"). Local; does not wait for calls in progress.
    """
    comm = current(comm)
    read = _lib.Stats()
    check(lib.tutti_comm_get_stats(comm.handle, byref(read)))
    result: Dict[str, Any] = {}
    for field in _lib.Stats._fields_:
        name, kind = field[0], field[1]
        value = getattr(read, name)
        if kind is _lib.StatsHistogram:
            result[name] = _histogram(value)
        elif name in ("direct", "async"):
            result[name] = _calls(value)
        elif name not in ("size", "nparts"):
            result[name] = value
    result["times"] = bool(read.times)
    result["parts"] = _parts(comm, read.nparts)
    return result
