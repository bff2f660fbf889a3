# SPDX-License-Identifier: BSD-3-Clause
"""The names of calls, as the library takes them."""

import hashlib
from typing import Dict, List, Optional

from .process_sets import ProcessSet

LONGEST_NAME = 240  # bytes; the library takes 255
_NAMES_KEPT = 65536


def encode_name(name: str) -> bytes:
    """A tensor's name as the library takes it: short, without a zero byte."""
    data = name.encode("utf-8", "surrogateescape")
    if len(data) <= LONGEST_NAME and b"\0" not in data:
        return data
    digest = hashlib.sha256(data).hexdigest()[:32].encode()
    return data.replace(b"\0", b"?")[:LONGEST_NAME - 33] + b"~" + digest


def group_names(base: str, count: int) -> List[bytes]:
    """The names of a group's tensors."""
    return [encode_name("%s.%d" % (base, index)) for index in range(count)]


class Names:
    """The names of one kind of call, as the library takes them. Two kinds may use one name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.known: Dict[str, bytes] = {}
        self.get = self.known.get

    def add(self, name: Optional[str], process_set: ProcessSet) -> bytes:
        """The bytes of a name that is not in `known`."""
        if name is None:
            return process_set.next_name(self.kind).encode()
        if not isinstance(name, str):
            raise ValueError("name is a string, not %r" % (name,))
        data = encode_name("%s.%s" % (self.kind, name))
        if len(self.known) >= _NAMES_KEPT:
            self.known.clear()
        self.known[name] = data
        return data

    def text(self, name: Optional[str], process_set: ProcessSet) -> str:
        """The name as a string, not encoded, for calls that make several names of it."""
        return (process_set.next_name(self.kind) if name is None
                else "%s.%s" % (self.kind, name))


ALLREDUCE, BROADCAST = Names("allreduce"), Names("broadcast")
ALLGATHER, ALLTOALL, REDUCESCATTER = Names("allgather"), Names("alltoall"), Names("reducescatter")
BARRIER = Names("barrier")
