# SPDX-License-Identifier: BSD-3-Clause
"""HOROVOD_* variables that have a counterpart among Tutti's settings.

init() translates them before the library reads its settings. A TUTTI_* variable that is set takes
precedence. Variables without a counterpart are ignored. HOROVOD_AUTOTUNE is ignored with a warning,
because its users expect an effect.
"""

import os
import warnings
from typing import Dict, Optional

_LEVELS: Dict[str, str] = {"trace": "trace", "debug": "debug", "info": "info", "warning": "warn",
                           "error": "error", "fatal": "error", "off": "none"}


def is_true(text: Optional[str]) -> bool:
    """A boolean variable as Horovod reads it: true for a number above 0, "true", "yes" and "on"."""
    text = (text or "").strip().lower()
    if text in ("true", "yes", "on"):
        return True
    try:
        return int(text) > 0
    except ValueError:
        return False


def _seconds(text: str, zero: Optional[str]) -> Optional[str]:
    return text if float(text) > 0 else zero


def _counterparts(env: Dict[str, str]) -> Dict[str, Optional[str]]:
    """The settings that `env` asks for. ValueError: a value is no number."""
    found: Dict[str, Optional[str]] = {}
    text = env.get("HOROVOD_STALL_CHECK_TIME_SECONDS")
    if is_true(env.get("HOROVOD_STALL_CHECK_DISABLE")):
        found["TUTTI_STALL_WARNING"] = "0"
    elif text:
        found["TUTTI_STALL_WARNING"] = _seconds(text, "0")
    text = env.get("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS")
    if text:
        found["TUTTI_TIMEOUT"] = _seconds(text, None)
    text = env.get("HOROVOD_FUSION_THRESHOLD")
    if text:
        found["TUTTI_FUSION_BYTES"] = str(max(0, int(text)))
    text = env.get("HOROVOD_LOG_LEVEL")
    if text:
        found["TUTTI_LOG"] = _LEVELS.get(text.strip().lower())
    # DYNAMIC: the program itself calls start_timeline().
    if env.get("HOROVOD_TIMELINE", "").upper() not in ("", "DYNAMIC"):
        found["TUTTI_TRACE"] = env["HOROVOD_TIMELINE"]
    return found


def translate() -> Dict[str, str]:
    """Set the TUTTI_* variables that HOROVOD_* variables request. Returns the variables that were
    set."""
    env = {name: value.strip() for name, value in os.environ.items()
           if name.startswith("HOROVOD_")}
    try:
        found = _counterparts(env)
    except ValueError as error:
        raise ValueError("a HOROVOD_* variable is invalid: %s" % error) from None
    changed = {}
    for name, value in found.items():
        if value is not None and not os.environ.get(name):
            os.environ[name] = changed[name] = value
    if is_true(env.get("HOROVOD_AUTOTUNE")):
        warnings.warn("HOROVOD_AUTOTUNE has no effect: run tutti_tune once for each machine",
                      RuntimeWarning, stacklevel=3)
    return changed
