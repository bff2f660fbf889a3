# SPDX-License-Identifier: BSD-3-Clause
"""Compile the C++ backend for the torch that is installed, once, and keep it in a cache.

torch has no stable C++ interface, so the module is built on the user's machine, for each version
of torch, Python and compiler. The name of its folder contains a hash of everything that the result
depends on. When several ranks start at once, one compiles and the others wait for its file lock,
which the kernel drops if that rank dies.
"""

import fcntl
import hashlib
import importlib.machinery
import importlib.util
import logging
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from types import ModuleType
from typing import List, Optional

import torch

from .. import _lib
from . import origin

MODULE = "_tutti_c10d"
SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "csrc")

log = logging.getLogger("tutti.torch")


class BuildError(RuntimeError):
    """The C++ backend cannot be built here. The text names the missing part."""


def cache_folder() -> str:
    """The folder of all built modules. XDG_CACHE_HOME moves it."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "tutti")


def _include_folder() -> str:
    """The folder that contains tutti/tutti.h. These places are searched, in this order: the folders
    in CPLUS_INCLUDE_PATH and CPATH, the package, the folder beside the library's, the folder that
    pkg-config returns, and the folders of the system."""
    package = os.path.dirname(SOURCES)
    _lib.lib.load()
    places = [folder for name in ("CPLUS_INCLUDE_PATH", "CPATH")
              for folder in os.environ.get(name, "").split(os.pathsep)]
    places.append(os.path.join(os.path.dirname(package), "include"))
    if os.path.isabs(_lib.lib.path):
        places.append(os.path.join(os.path.dirname(os.path.dirname(_lib.lib.path)), "include"))
    try:
        done = subprocess.run(["pkg-config", "--variable=includedir", "tutti"], timeout=30,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        places.append(done.stdout.decode().strip())
    except (OSError, subprocess.SubprocessError):
        pass
    places += ["/usr/local/include", "/usr/include"]
    for place in places:
        if place and os.path.exists(os.path.join(place, "tutti", "tutti.h")):
            return place
    raise BuildError("the header tutti/tutti.h was not found; install Tutti with its headers")


def _compiler() -> str:
    """The C++ compiler: the first of $CXX, c++, g++ and clang++ that exists."""
    for name in [os.environ.get("CXX", ""), "c++", "g++", "clang++"]:
        path = shutil.which(name) if name else None
        if path:
            return path
    raise BuildError("there is no C++ compiler (looked for $CXX, c++, g++, clang++)")


def _version() -> List[int]:
    """The major and minor number of torch."""
    return [int(part) for part in torch.__version__.split("+")[0].split(".")[:2]]


def _cxx_library() -> List[str]:
    """The path of the C++ library that this process has loaded; the module is linked with it. A
    compiler that finds no shared C++ library links a static one, and a process with two C++
    libraries crashes."""
    try:
        with open("/proc/self/maps") as maps:
            paths = [line.split(None, 5)[5].strip() for line in maps if "/libstdc++.so" in line]
    except OSError:
        return []
    return [path for path in paths[:1] if os.path.exists(path)]


def command(output: str) -> List[str]:
    """The compiler's command line for the module."""
    home = os.path.dirname(os.path.abspath(torch.__file__))
    python = sysconfig.get_paths()["include"]
    if not os.path.exists(os.path.join(python, "Python.h")):
        raise BuildError("Python.h was not found in %s; install Python's headers" % python)
    include = [os.path.join(home, "include"),
               os.path.join(home, "include", "torch", "csrc", "api", "include"), python]
    flags = ["-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w", "-g0",
             "-std=c++20" if _version() >= [2, 14] else "-std=c++17",
             "-DTORCH_EXTENSION_NAME=" + MODULE, "-DTORCH_API_INCLUDE_EXTENSION_H",
             "-D_GLIBCXX_USE_CXX11_ABI=%d" % bool(torch.compiled_with_cxx11_abi())]
    # With torch's values the module and torch share pybind11's types.
    for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
        value = getattr(torch._C, "_PYBIND11_" + name, None)
        if value is not None:
            flags.append('-DPYBIND11_%s="%s"' % (name, value))
    libraries = os.path.join(home, "lib")
    return ([_compiler()] + flags + ["-I" + _include_folder()]
            + [part for folder in include for part in ("-isystem", folder)]
            + [os.path.join(SOURCES, "backend.cpp"), "-o", output, *_cxx_library(),
               "-L" + libraries,
               "-Wl,-rpath," + libraries, "-ltorch_python", "-ltorch_cpu", "-lc10", "-ldl",
               "-pthread"])


def _key() -> str:
    """A hash of all that the module depends on: sources, headers, torch, Python, compiler,
    flags."""
    line = command("")
    version = subprocess.run([line[0], "--version"], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT).stdout
    digest = hashlib.sha256(version)
    for text in line + [torch.__version__, sys.version, platform.machine()]:
        digest.update(text.encode() + b"\0")
    headers = os.path.join(_include_folder(), "tutti")
    for folder in (SOURCES, headers):
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as file:
                digest.update(name.encode() + b"\0" + file.read() + b"\0")
    return digest.hexdigest()[:16]


def module_path() -> str:
    """Where the module for this torch, Python and compiler is, or will be."""
    return os.path.join(cache_folder(), "torch-%s-cp%d%d-%s" % (
        torch.__version__.split("+")[0], sys.version_info[0], sys.version_info[1], _key()),
        MODULE + ".so")


def _compile(path: str) -> None:
    """Compile into a temporary file, which is then renamed in one atomic step."""
    handle, part = tempfile.mkstemp(".so.part", dir=os.path.dirname(path))
    os.close(handle)
    try:
        started = time.monotonic()
        log.info("tutti: compiling the C++ backend for torch %s (once)", torch.__version__)
        done = subprocess.run(command(part), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            words = done.stdout.decode("utf-8", "replace").strip().splitlines()
            errors = [line for line in words if "error" in line] or words
            raise BuildError("the compiler failed: %s" % (errors[0] if errors else "no output"))
        os.chmod(part, 0o755)
        os.replace(part, path)
        log.info("tutti: compiled in %.0f s: %s", time.monotonic() - started, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)


def build(force: bool = False) -> str:
    """Build the module unless it is there. Returns its path."""
    path = module_path()
    if os.path.exists(path) and not force:
        return path
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if force or not os.path.exists(path):
            _compile(path)
    return path


_module: Optional[ModuleType] = None


def load() -> ModuleType:
    """The module, built if necessary, with the library open. BuildError: it cannot be built."""
    global _module
    if _module is None:
        try:
            path = build()
            loader = importlib.machinery.ExtensionFileLoader(MODULE, path)
            spec = importlib.util.spec_from_file_location(MODULE, path, loader=loader)
            if spec is None:
                raise BuildError("%s is no module" % path)
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
        except (OSError, ImportError) as error:
            raise BuildError(str(error)) from error
        module.open(_lib.lib.path)
        origin.install(module)
        _module = module
    return _module
