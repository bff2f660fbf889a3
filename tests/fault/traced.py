# SPDX-License-Identifier: BSD-3-Clause
"""Reads a trace, for traced.c: traced.py FILE RANKS STEPS TENSORS HOSTS PLANNED. Exits with an error
if an event is missing, or out of order."""

import json
import sys
from typing import Any, Dict, List

Event = Dict[str, Any]

path, ranks, steps, tensors, hosts, planned = sys.argv[1], *map(int, sys.argv[2:])
with open(path) as file:
    events: List[Event] = json.load(file)["traceEvents"]


def fail(text: str) -> None:
    sys.exit("%s: %s" % (path, text))


def of(rank: int, name: str, **args: Any) -> List[Event]:
    """The events of a rank, in the order of their times."""
    found = [e for e in events if e["pid"] == rank and e["name"] == name and e["ph"] in "iX" and
             all(e["args"].get(key) == value for key, value in args.items())]
    return sorted(found, key=lambda e: e["ts"])


def end_of(event: Event) -> float:
    return float(event["ts"]) + float(event.get("dur", 0))


def check_tensor(rank: int, tensor: str) -> None:
    submits, agrees = of(rank, "submit", tensor=tensor), of(rank, "agree", tensor=tensor)
    waits = of(rank, "wait", tensor=tensor)
    lives = [e for e in events if e["pid"] == rank and e["name"] == tensor and e["ph"] in "be"]
    if not len(submits) == len(agrees) == len(waits) == steps:
        fail("rank %d, %s: %d submit, %d agree, %d wait" % (rank, tensor, len(submits),
                                                            len(agrees), len(waits)))
    lives.sort(key=lambda e: (e["ts"], e["ph"]))
    if [e["ph"] for e in lives] != ["b", "e"] * steps:
        fail("rank %d, %s: %s" % (rank, tensor, lives))
    for i in range(steps):
        # Buckets are numbered over all tensors of the communicator.
        bucket = agrees[i]["args"]["bucket"]
        packs, unpacks = of(rank, "pack", bucket=bucket), of(rank, "unpack", bucket=bucket)
        runs = of(rank, "bucket", bucket=bucket)
        if not len(packs) == len(unpacks) == len(runs) == 1:
            fail("rank %d, bucket %d: %d pack, %d unpack" % (rank, bucket, len(packs),
                                                             len(unpacks)))
        order = [submits[i]["ts"], agrees[i]["ts"], packs[0]["ts"], end_of(packs[0]),
                 unpacks[0]["ts"], end_of(unpacks[0]), lives[2 * i + 1]["ts"], end_of(waits[i])]
        if order != sorted(order):
            fail("rank %d, %s: out of order: %s" % (rank, tensor, order))
        if not lives[2 * i]["ts"] == submits[i]["ts"] <= waits[i]["ts"]:
            fail("rank %d, %s: the wait began before the submission" % (rank, tensor))


def check_clocks(tensor: str) -> None:
    """Between hosts, clocks may differ by half a round trip. A planned tensor is agreed on by this
    rank alone, when its bucket is complete here; so no tensor of the step may be submitted later."""
    slack = 0.0 if hosts == 1 else 20000.0
    for i in range(steps):
        last = max(of(rank, "submit", tensor=tensor)[i]["ts"] for rank in range(ranks))
        for rank in range(ranks):
            if planned:
                slack = 0.0
                last = max(of(rank, "submit", tensor="layer%d.weight" % number)[i]["ts"]
                           for number in range(tensors))
            if of(rank, "agree", tensor=tensor)[i]["ts"] + slack < last:
                fail("%s was agreed on before the last submission" % tensor)


for rank in range(ranks):
    names = [e for e in events if e["ph"] == "M" and e["name"] == "process_name" and
             e["pid"] == rank]
    if len(names) != 1 or not names[0]["args"]["name"].startswith("rank %d (" % rank):
        fail("rank %d has no name" % rank)
    for number in range(tensors):
        check_tensor(rank, "layer%d.weight" % number)
    chunks = of(rank, "send") + of(rank, "recv")
    if hosts == 1 and chunks:
        fail("chunks on one host: %s" % chunks[0])
for number in range(tensors):
    check_clocks("layer%d.weight" % number)
sent = sum(len(of(rank, "send")) for rank in range(ranks))
received = sum(len(of(rank, "recv")) for rank in range(ranks))
if sent != received or (hosts > 1 and sent == 0):
    fail("%d chunks were sent, and %d received" % (sent, received))
