# SPDX-License-Identifier: BSD-3-Clause
"""Draws a part of a trace as an SVG picture, such as trace.svg of tracing.md.

    python3 docs/draw_trace.py trace.json FROM TO > trace.svg

FROM and TO are milliseconds since the first event. Instants are not drawn, except `submit`.
"""

import json
import sys
from html import escape
from typing import Any, Dict, List, Tuple

Event = Dict[str, Any]

COLOURS = {"wait": "#d0d0d0", "bucket": "#9ecae1", "pack": "#fdae6b", "unpack": "#fdd0a2",
           "send": "#74c476", "recv": "#bcbddc", "submit": "#636363"}
LEFT, RIGHT, ROW, GAP = 170, 1160, 18, 6  # pixels
# Top edge in the row and height, in pixels. pack and unpack are inside their bucket; send and recv
# overlap in time, so each has half of the row.
SHAPES = {"pack": (3, ROW - 8), "unpack": (3, ROW - 8),
          "send": (0, ROW // 2 - 1), "recv": (ROW // 2 - 1, ROW // 2 - 1)}


def tracks(events: List[Event]) -> List[Tuple[str, str, List[Event]]]:
    """Returns for each track the rank, the name and the events, in the order of their begin. A
    longer event precedes the events inside it, which are drawn over it."""
    names, found = {}, {}
    for e in events:
        if e["ph"] == "M" and e["name"] == "process_name":
            names[e["pid"], None] = e["args"]["name"]
        elif e["ph"] == "M" and e["name"] == "thread_name":
            names[e["pid"], e["tid"]] = e["args"]["name"]
        elif e["ph"] == "X" or e["name"] == "submit":
            found.setdefault((e["pid"], e["tid"]), []).append(e)
    return [(names.get((pid, None), "rank %d" % pid), names.get((pid, tid), str(tid)),
             sorted(found[pid, tid], key=lambda e: (e["ts"], -e.get("dur", 0))))
            for pid, tid in sorted(found)]


def draw(events: List[Event], begin: float, end: float) -> List[str]:
    """The lines of the SVG file. begin, end: in microseconds, as the events' times."""
    scale = (RIGHT - LEFT) / (end - begin)
    y, last, body = GAP, "", []
    for rank, name, of_track in tracks(events):
        if not any(e["ts"] < end and e["ts"] + e.get("dur", 0) > begin for e in of_track):
            continue
        if rank != last:
            y += GAP
            body.append('<text x="%d" y="%d" font-weight="bold">%s</text>' % (GAP, y + ROW - 5,
                                                                             escape(rank)))
            last, y = rank, y + ROW
        body.append('<text x="%d" y="%d">%s</text>' % (3 * GAP, y + ROW - 5, escape(name)))
        body.append('<rect x="%d" y="%d" width="%d" height="%d" fill="#f7f7f7"/>'
                    % (LEFT, y, RIGHT - LEFT, ROW - 2))
        for e in of_track:
            x = LEFT + (max(e["ts"], begin) - begin) * scale
            to = LEFT + (min(e["ts"] + e.get("dur", 0), end) - begin) * scale
            top, height = SHAPES.get(e["name"], (0, ROW - 2))
            if e["ts"] < end and e["ts"] + e.get("dur", 0) >= begin:
                body.append('<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s'
                            '</title></rect>'
                            % (x, y + top, max(to - x, 0.8), height,
                               COLOURS.get(e["name"], "#c0c0c0"),
                               escape("%s %s" % (e["name"], e.get("args", {})))))
        y += ROW
    for i in range(11):
        x = LEFT + (RIGHT - LEFT) * i / 10
        body.append('<text x="%.1f" y="%d" text-anchor="middle">%.1f ms</text>'
                    % (x, y + ROW, (end - begin) / 1e3 * i / 10))
    for i, (name, colour) in enumerate(COLOURS.items()):
        body.append('<rect x="%d" y="%d" width="12" height="12" fill="%s"/><text x="%d" y="%d">%s'
                    '</text>' % (LEFT + 100 * i, y + 2 * ROW - 2, colour, LEFT + 100 * i + 16,
                                 y + 2 * ROW + 9, name))
    head = ('<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="%d" '
            'font-family="sans-serif" font-size="11"><rect width="100%%" height="100%%" '
            'fill="white"/>' % (y + 3 * ROW))
    return [head] + body + ["</svg>"]


def main() -> None:
    """Read the trace, and print the picture of its part."""
    with open(sys.argv[1]) as file:
        events = json.load(file)["traceEvents"]
    first = min(e["ts"] for e in events if "ts" in e)
    begin, end = (first + float(ms) * 1e3 for ms in sys.argv[2:4])
    print("\n".join(draw(events, begin, end)))


if __name__ == "__main__":
    main()
