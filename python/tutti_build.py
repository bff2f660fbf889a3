# SPDX-License-Identifier: BSD-3-Clause
"""The build backend (PEP 517, PEP 660) of the package: called by pip, needs no other package.

`pip install ./python` makes a wheel of the Python files only; the package then uses a libtutti that
is installed. `pip install ./python --config-settings build-library=1` also builds the library of
the source tree that python/ is in, and puts it into the wheel: tutti/lib/libtutti.so.0, and its
modules in tutti/lib/tutti/.

Rejected: setuptools. A machine without network cannot fetch it, and nothing here is compiled by
Python.
"""

import base64
import hashlib
import io
import os
import re
import shutil
import subprocess
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

HERE = Path(__file__).resolve().parent
PACKAGE = "tutti"
LIBRARY = "libtutti.so.0"
SETTINGS = ("build-library", "configure")

Settings = Optional[Dict[str, Any]]


# ---- metadata ----

def _project() -> Dict[str, Any]:
    """The [project] table of pyproject.toml."""
    try:
        import tomllib as toml  # type: ignore[import-not-found, unused-ignore]
    except ImportError:  # before Python 3.11
        import tomli as toml  # type: ignore[import-not-found, no-redef, unused-ignore]
    with open(HERE / "pyproject.toml", "rb") as file:
        project: Dict[str, Any] = toml.load(file)["project"]
    return project


def _stem(project: Dict[str, Any]) -> str:
    """NAME-VERSION, with which the names of the package's archives begin."""
    return "%s-%s" % (re.sub(r"[-_.]+", "_", project["name"]).lower(), project["version"])


def _with_marker(requirement: str, extra: str) -> str:
    base, _, marker = (part.strip() for part in requirement.partition(";"))
    return "%s; %sextra == '%s'" % (base, "(%s) and " % marker if marker else "", extra)


def _metadata(project: Dict[str, Any]) -> str:
    lines = ["Metadata-Version: 2.1", "Name: " + project["name"],
             "Version: " + project["version"], "Summary: " + project["description"],
             "License: " + project["license"]["text"],
             "Requires-Python: " + project["requires-python"]]
    lines += ["Classifier: " + text for text in project.get("classifiers", [])]
    lines += ["Requires-Dist: " + text for text in project.get("dependencies", [])]
    for extra, requirements in project.get("optional-dependencies", {}).items():
        lines.append("Provides-Extra: " + extra)
        lines += ["Requires-Dist: " + _with_marker(text, extra) for text in requirements]
    return "\n".join(lines) + "\n"


def _entry_points(project: Dict[str, Any]) -> str:
    groups = dict(project.get("entry-points", {}))
    if "scripts" in project:
        groups["console_scripts"] = project["scripts"]
    lines = []
    for group, entries in groups.items():
        lines += ["[%s]" % group] + ["%s = %s" % pair for pair in entries.items()] + [""]
    return "\n".join(lines)


def _license() -> Optional[Path]:
    """The license file: above python/ in the source tree, beside this file in a source archive."""
    for folder in (HERE, HERE.parent):
        if (folder / "LICENSE").is_file():
            return folder / "LICENSE"
    return None


def _sources() -> Iterator[Tuple[str, Path]]:
    """The files of the package: the name in the archive, and the path."""
    for folder, folders, files in os.walk(HERE / PACKAGE):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__")))
        for name in sorted(files):
            if not name.startswith(".") and not name.endswith((".pyc", "~")):
                path = Path(folder) / name
                yield path.relative_to(HERE).as_posix(), path


# ---- the library ----

def _settings(given: Settings) -> Tuple[bool, List[str]]:
    """Whether to build the library, and the arguments of configure."""
    given = given or {}
    unknown = sorted(set(given) - set(SETTINGS))
    if unknown:
        raise ValueError("unknown --config-settings %s; there are %s"
                         % (", ".join(unknown), ", ".join(SETTINGS)))
    wanted = str(given.get("build-library", "0"))
    if wanted not in ("0", "1"):
        raise ValueError("build-library=%s; it must be 0 or 1" % wanted)
    arguments = given.get("configure", [])
    return wanted == "1", [arguments] if isinstance(arguments, str) else list(arguments)


def _run(command: List[str], folder: Path) -> None:
    print("tutti_build: %s" % " ".join(command), flush=True)
    try:
        subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise RuntimeError("the library cannot be built: %s; docs/installing.md lists the packages "
                           "that this needs" % error) from None
    except subprocess.CalledProcessError as error:
        raise RuntimeError("the library cannot be built: `%s` has failed with status %d, see its "
                           "output above" % (" ".join(command), error.returncode)) from None


def _build_library(arguments: List[str]) -> List[Tuple[str, Path]]:
    """Build the library below build/python-wheel of the tree. Returns names in the wheel, and
    paths."""
    tree = HERE.parent
    if not (tree / "configure.ac").is_file():
        raise RuntimeError("build-library=1 builds the library of the source tree that python/ is "
                           "in, but %s has no configure.ac" % tree)
    if not (tree / "configure").is_file():
        _run(["sh", "./autogen.sh"], tree)
    build = tree / "build" / "python-wheel"
    command = [str(tree / "configure"), "--disable-static", "--disable-tools"] + arguments
    stamp = build / "configured"
    if not stamp.is_file() or stamp.read_text() != "\n".join(command):
        if build.exists():  # it may have modules that this configuration does not build
            shutil.rmtree(build)
        build.mkdir(parents=True)
        _run(command, build)
        stamp.write_text("\n".join(command))
    jobs = len(os.sched_getaffinity(0))
    _run(["make", "-j", str(jobs), "libtutti.la", "modules"], build)
    modules = sorted((build / PACKAGE / ".libs").glob("*.so"))
    return [("%s/lib/%s" % (PACKAGE, LIBRARY), (build / ".libs" / LIBRARY).resolve())] + [
        ("%s/lib/%s/%s" % (PACKAGE, PACKAGE, path.name), path) for path in modules]


# ---- archives ----

class _Wheel:
    """A wheel that is being written."""

    def __init__(self, folder: str, project: Dict[str, Any], tag: str) -> None:
        self.name = "%s-%s.whl" % (_stem(project), tag)
        self._info = _stem(project) + ".dist-info"
        self._records: List[str] = []
        self._file = zipfile.ZipFile(os.path.join(folder, self.name), "w", zipfile.ZIP_DEFLATED)
        self._project, self._tag = project, tag

    def add(self, name: str, data: bytes, mode: int = 0o644) -> None:
        """Add a file. All files have SOURCE_DATE_EPOCH's default time, so that equal files give
        equal wheels."""
        entry = zipfile.ZipInfo(name)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self._file.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._records.append("%s,sha256=%s,%d" % (name, digest, len(data)))

    def close(self) -> str:
        """Add the description of the wheel, and return its name."""
        pure = "true" if self._tag.endswith("any") else "false"
        self.add(self._info + "/METADATA", _metadata(self._project).encode())
        self.add(self._info + "/WHEEL", ("Wheel-Version: 1.0\nGenerator: tutti_build\n"
                                         "Root-Is-Purelib: %s\nTag: %s\n"
                                         % (pure, self._tag)).encode())
        entries = _entry_points(self._project)
        if entries:
            self.add(self._info + "/entry_points.txt", entries.encode())
        text = _license()
        if text is not None:
            self.add(self._info + "/LICENSE", text.read_bytes())
        self._records.append(self._info + "/RECORD,,")
        self._file.writestr(zipfile.ZipInfo(self._info + "/RECORD"),
                            "\n".join(self._records) + "\n")
        self._file.close()
        return self.name


def build_wheel(wheel_directory: str, config_settings: Settings = None,
                metadata_directory: Optional[str] = None) -> str:
    """PEP 517: make a wheel in a folder, and return its name."""
    with_library, arguments = _settings(config_settings)
    built = _build_library(arguments) if with_library else []
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform()) if with_library else "any"
    wheel = _Wheel(wheel_directory, _project(), "py3-none-" + platform)
    for name, path in _sources():
        wheel.add(name, path.read_bytes())
    for name, path in built:
        wheel.add(name, path.read_bytes(), 0o755)
    return wheel.close()


def build_editable(wheel_directory: str, config_settings: Settings = None,
                   metadata_directory: Optional[str] = None) -> str:
    """PEP 660: make a wheel that leads to these files."""
    with_library, _ = _settings(config_settings)
    if with_library:
        raise RuntimeError("build-library=1 is for wheels; an editable package finds a library "
                           "that is installed, or named in TUTTI_LIBRARY")
    wheel = _Wheel(wheel_directory, _project(), "py3-none-any")
    wheel.add("__editable__.tutti.pth", (str(HERE) + "\n").encode())
    return wheel.close()


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """PEP 517: make an archive of the package's sources, without the library's."""
    _settings(config_settings)
    project = _project()
    stem = _stem(project)
    files = [(name, path.read_bytes()) for name, path in _sources()]
    for name in ("pyproject.toml", Path(__file__).name):
        files.append((name, (HERE / name).read_bytes()))
    text = _license()
    if text is not None:
        files.append(("LICENSE", text.read_bytes()))
    files.append(("PKG-INFO", _metadata(project).encode()))
    path = os.path.join(sdist_directory, stem + ".tar.gz")
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files:
            entry = tarfile.TarInfo("%s/%s" % (stem, name))
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return os.path.basename(path)
