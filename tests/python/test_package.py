# SPDX-License-Identifier: BSD-3-Clause
"""Tests the package itself: its description of the C interface, which must match the headers, its
archives, how it finds the library, and its help."""

import base64
import hashlib
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

import tutti
from tutti import _lib

TREE = Path(__file__).resolve().parents[2]


def header(name: str) -> str:
    """A public header without comments."""
    text = (TREE / "include" / "tutti" / name).read_text()
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def all_headers() -> str:
    return " ".join(header(path.name) for path in sorted((TREE / "include/tutti").glob("*.h")))


def tutti_build():
    """The build backend as a module."""
    if not any(importlib.util.find_spec(name) for name in ("tomllib", "tomli")):
        raise unittest.SkipTest("no tomli, which pip would install")
    spec = importlib.util.spec_from_file_location("tutti_build", TREE / "python/tutti_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Interface(unittest.TestCase):
    CODES = {"size_t": "z", "int": "i", "double": "d", "tutti_dtype_t": "i", "tutti_op_t": "i",
             "tutti_status_t": "i", "unsigned": "u"}

    def code(self, parameter: str) -> str:
        """The letter by which _lib describes a C parameter or result."""
        words = parameter.replace("*", " * ").split()
        if "*" in words or "callback" in parameter or "function" in parameter:
            return "s" if "char" in words and "ret_text" not in words else "p"
        return self.CODES[[word for word in words if word != "const"][0]]

    def test_functions(self) -> None:
        """Each exported function has a prototype with the header's parameters."""
        names = (TREE / "lib/libtutti.map").read_text()
        exported = set(re.findall(r"^    (tutti_[a-z]\w+);", names, re.M))
        self.assertEqual(exported - set(_lib._PROTOTYPES), set())
        found = re.findall(r"TUTTI_API\s+((?:const\s+)?\w+\s*\**)\s*(tutti_\w+)\s*\(([^;]*)\)\s*;",
                           all_headers())
        self.assertEqual({name for _, name, _ in found}, exported)
        for result, name, parameters in found:
            wanted = "".join(self.code(part) for part in parameters.split(",")
                             if part.strip() != "void")
            with self.subTest(name):
                self.assertEqual(_lib._PROTOTYPES[name], (self.code(result), wanted))

    def test_structures(self) -> None:
        """The fields are those of the headers, in their order; the headers may lack new ones."""
        for name, kind in (("store", _lib.Store), ("options", _lib.Options), ("call", _lib.Call),
                           ("async_options", _lib.AsyncOptions),
                           ("callback_info", _lib.CallbackInfo)):
            body = re.search(r"typedef struct \{([^}]*)\} tutti_%s_t;" % name, all_headers())
            fields = []
            for line in body.group(1).split(";"):
                match = re.search(r"\(\*(\w+)\)", line)
                fields += [match.group(1)] if match else re.findall(r"(\w+)\s*(?:,|$)",
                                                                    line.strip())
            have = [field[0] for field in kind._fields_]
            if name == "async_options" and "timeout_ms" not in fields:
                have[have.index("timeout_ms")] = "reserved"  # its name before
            self.assertEqual(have[:len(fields)], fields)
            self.assertLessEqual(set(have[len(fields):]), {"timeout_ms", "reserved_end"})

    def test_structures_by_compiler(self) -> None:
        compiler = (os.environ.get("CC") or "cc").split()
        if shutil.which(compiler[0]) is None:
            self.skipTest("no C compiler")
        lines = []
        for name, kind in (("store", _lib.Store), ("options", _lib.Options), ("call", _lib.Call),
                           ("async_options", _lib.AsyncOptions),
                           ("callback_info", _lib.CallbackInfo), ("stats", _lib.Stats),
                           ("stats_part", _lib.StatsPart), ("stats_count", _lib.StatsCount),
                           ("stats_histogram", _lib.StatsHistogram)):
            body = re.search(r"typedef struct \{([^}]*)\} tutti_%s_t;" % name, all_headers())
            if name.startswith("stats"):
                lines.append('_Static_assert(sizeof(tutti_%s_t) == %d, "size");'
                             % (name, _lib.ctypes.sizeof(kind)))
            for field, *_ in kind._fields_:
                if re.search(r"\b%s\b" % field, body.group(1)):
                    lines.append('_Static_assert(offsetof(tutti_%s_t, %s) == %d, "%s");'
                                 % (name, field, getattr(kind, field).offset, field))
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "layout.c")
            source.write_text("#include <tutti/tutti.h>\n%s\n" % "\n".join(lines))
            subprocess.run(compiler + ["-fsyntax-only", "-I", str(TREE / "include"), str(source)],
                           check=True)

    def test_numbers(self) -> None:
        names = dict(re.findall(r"\bTUTTI_(\w+) = (\d+),", all_headers()))
        names.update(re.findall(r"X\(TUTTI_(?:ERR_)?(\w+), (\d+),", all_headers()))
        for name in ("OK", "MISMATCH", "INTERNAL", "BOOL", "INT64_INT64", "MAXLOC", "AVG"):
            self.assertIn(name, names)
        for name, number in names.items():
            if name.startswith("CALL_"):
                self.assertEqual(_lib.CALL_KINDS[name[5:].lower()], int(number))
            elif not name.startswith("LOG_"):
                self.assertEqual(getattr(_lib, name), int(number))
        for status, error in _lib._ERRORS.items():
            self.assertEqual(error.status, status)

    def test_sizes(self) -> None:
        for names in (_lib.INT8, _lib.BFLOAT16, _lib.BOOL, _lib.FLOAT64_INT64):
            self.assertGreater(_lib.lib.tutti_dtype_bytes(names), 0)
        for name, kind in tutti._types._BY_NAME.items():
            size = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}.get(name)
            if size is None:
                size = tutti._types.numpy_type(name).itemsize
            self.assertEqual(_lib.lib.tutti_dtype_bytes(kind), size)

    def test_version(self) -> None:
        parts = [re.search(r"TUTTI_VERSION_%s (\d+)" % part, header("version.h")).group(1)
                 for part in ("MAJOR", "MINOR", "PATCH")]
        version = ".".join(parts)
        self.assertEqual(tutti.__version__, version)
        self.assertEqual(tutti_build()._project()["version"], version)
        number = int(parts[0]) << 16 | int(parts[1]) << 8 | int(parts[2])
        self.assertEqual(_lib.API_VERSION, number)
        self.assertEqual(_lib.lib.tutti_version(), number)

    def test_new_functions_are_optional(self) -> None:
        known = dict(_lib._PROTOTYPES)
        _lib._PROTOTYPES["tutti_from_the_future"] = ("i", "p")
        try:
            self.assertFalse(_lib.has("tutti_from_the_future"))
            with self.assertRaisesRegex(tutti.UnsupportedError, "has no tutti_from_the_future"):
                _lib.lib.tutti_from_the_future(None)
        finally:
            _lib._PROTOTYPES.clear()
            _lib._PROTOTYPES.update(known)
        with self.assertRaises(AttributeError):
            _lib.lib.tutti_unknown


class Loading(unittest.TestCase):
    """Which library is loaded, and the message if there is none."""

    def load(self, folder: Path = TREE / "python", **more: str):
        """Load the library in a separate process. Returns its status and output."""
        variables = {key: value for key, value in os.environ.items()
                     if key not in ("LD_LIBRARY_PATH", "TUTTI_LIBRARY", "PKG_CONFIG_PATH")}
        variables.update(PYTHONPATH=str(folder), PYTHONDONTWRITEBYTECODE="1", **more)
        done = subprocess.run([sys.executable, "-c", "import tutti\n"
                               "from tutti import _lib\n_lib.lib.load()\nprint(_lib.lib.path)"],
                              env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
        return done.returncode, done.stdout

    def path(self) -> str:
        """The file of the library that this process has."""
        _lib.lib.load()
        with open("/proc/self/maps") as maps:
            return next(line.split()[-1] for line in maps if "libtutti.so" in line)

    def test_variable(self) -> None:
        status, output = self.load(TUTTI_LIBRARY=self.path())
        self.assertEqual((status, output.strip()), (0, self.path()))
        status, output = self.load(TUTTI_LIBRARY="/nowhere/libtutti.so.0")
        self.assertNotEqual(status, 0)
        self.assertIn("TUTTI_LIBRARY: /nowhere/libtutti.so.0: cannot open", output)
        self.assertIn("LibraryError", output)

    def test_linker(self) -> None:
        status, output = self.load(LD_LIBRARY_PATH=os.path.dirname(self.path()))
        self.assertEqual((status, output.strip()), (0, "libtutti.so.0"))

    def test_beside(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(TREE / "python/tutti", Path(folder, "tutti"))
            Path(folder, "tutti/lib").mkdir()
            os.symlink(self.path(), Path(folder, "tutti/lib/libtutti.so.0"))
            status, output = self.load(Path(folder))
            self.assertEqual((status, output.strip()),
                             (0, str(Path(folder, "tutti/lib/libtutti.so.0"))))

    def test_pkg_config(self) -> None:
        if shutil.which("pkg-config") is None:
            self.skipTest("no pkg-config")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "tutti.pc").write_text(
                "libdir=%s/lib\nName: tutti\nDescription: -\nVersion: 0\n" % folder)
            Path(folder, "lib").mkdir()
            os.symlink(self.path(), Path(folder, "lib/libtutti.so.0"))
            status, output = self.load(PKG_CONFIG_PATH=folder)
            if output.strip() == "libtutti.so.0":
                self.skipTest("the linker finds an installed library")
            self.assertEqual((status, output.strip()),
                             (0, str(Path(folder, "lib/libtutti.so.0"))))

    def test_nowhere(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            status, output = self.load(PATH=folder)
            if output.strip() == "libtutti.so.0":
                self.skipTest("the linker finds an installed library")
            self.assertNotEqual(status, 0)
            for words in ("in this package: %s" % (TREE / "python/tutti/lib/libtutti.so.0"),
                          "by the dynamic linker: libtutti.so.0: cannot open",
                          "by pkg-config tutti: pkg-config cannot be run",
                          "or name the file in TUTTI_LIBRARY"):
                self.assertIn(words, output)


class Archives(unittest.TestCase):
    def test_wheel(self) -> None:
        build = tutti_build()
        with tempfile.TemporaryDirectory() as folder:
            name = build.build_wheel(folder)
            self.assertRegex(name, r"^tutti-[0-9.]+-py3-none-any\.whl$")
            with zipfile.ZipFile(Path(folder, name)) as wheel:
                names = wheel.namelist()
                info = name.split("-py3")[0] + ".dist-info/"
                records = wheel.read(info + "RECORD").decode().splitlines()
                self.assertEqual([line.split(",")[0] for line in records], names)
                for line in records[:-1]:
                    path, digest, size = line.split(",")
                    data = wheel.read(path)
                    wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
                    self.assertEqual((digest, int(size)),
                                     ("sha256=" + wanted.decode().rstrip("="), len(data)))
                metadata = wheel.read(info + "METADATA").decode()
            for path in ("tutti/__init__.py", "tutti/py.typed", "tutti/_lib.py",
                         info + "LICENSE", info + "WHEEL"):
                self.assertIn(path, names)
            self.assertFalse([path for path in names if "pycache" in path])
            self.assertIn("\nRequires-Dist: numpy", metadata)
            again = Path(folder, "again")
            again.mkdir()
            build.build_wheel(str(again))
            self.assertEqual(Path(folder, name).read_bytes(), (again / name).read_bytes())

    def test_metadata(self) -> None:
        build = tutti_build()
        text = build._metadata({
            "name": "n", "version": "1", "description": "d", "license": {"text": "l"},
            "requires-python": ">=3", "dependencies": ["a", "b; python_version < '4'"],
            "optional-dependencies": {"more": ["c >= 1", "d; os_name == 'x'"]}})
        for line in ("Requires-Dist: b; python_version < '4'", "Provides-Extra: more",
                     "Requires-Dist: c >= 1; extra == 'more'",
                     "Requires-Dist: d; (os_name == 'x') and extra == 'more'"):
            self.assertIn(line, text.splitlines())
        entries = build._entry_points({"scripts": {"s": "m:f"},
                                       "entry-points": {"g.h": {"e": "m:g"}}})
        self.assertEqual(entries, "[g.h]\ne = m:g\n\n[console_scripts]\ns = m:f\n")

    def test_source_archive(self) -> None:
        """A wheel built from the source archive is equal to the wheel built from the tree."""
        with tempfile.TemporaryDirectory() as folder:
            name = tutti_build().build_sdist(folder)
            with tarfile.open(Path(folder, name)) as archive:
                if hasattr(tarfile, "data_filter"):
                    archive.extractall(folder, filter="data")
                else:
                    archive.extractall(folder)
            inside = Path(folder, name[:-len(".tar.gz")])
            made = subprocess.run([sys.executable, "-c", "import tutti_build, sys\n"
                                   "print(tutti_build.build_wheel(sys.argv[1]))", folder],
                                  cwd=inside, stdout=subprocess.PIPE, text=True, check=True)
            wheel = tutti_build().build_wheel(str(inside))
            self.assertEqual(made.stdout.strip(), wheel)
            self.assertEqual((inside / wheel).read_bytes(), Path(folder, wheel).read_bytes())
            failed = subprocess.run([sys.executable, "-c", "import tutti_build\n"
                                     "tutti_build.build_wheel('.', {'build-library': '1'})"],
                                    cwd=inside, stderr=subprocess.PIPE, text=True)
            self.assertIn("has no configure.ac", failed.stderr)

    def test_editable(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            name = tutti_build().build_editable(folder)
            with zipfile.ZipFile(Path(folder, name)) as wheel:
                self.assertEqual(wheel.read("__editable__.tutti.pth").decode().strip(),
                                 str(TREE / "python"))
            with self.assertRaisesRegex(RuntimeError, "editable"):
                tutti_build().build_editable(folder, {"build-library": "1"})

    def test_configurations(self) -> None:
        """A build contains no module of an earlier configuration."""
        build = tutti_build()
        made = []

        def run(command, folder):
            for path in made if command[0] == "make" else []:
                path = folder / "tutti/.libs" / path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()

        build._run = run
        with tempfile.TemporaryDirectory() as folder:
            build.HERE = Path(folder, "python")
            for name in ("configure.ac", "configure"):
                Path(folder, name).touch()
            for arguments, modules, wanted in (
                    ([], ["cuda.so", "mpi_openmpi.so"], ["cuda.so", "mpi_openmpi.so"]),
                    (["--with-mpi=no"], ["cuda.so"], ["cuda.so"]),
                    (["--with-mpi=no"], [], ["cuda.so"])):
                made[:] = modules
                built = build._build_library(arguments)
                self.assertEqual([path.name for _, path in built[1:]], wanted)

    def test_settings(self) -> None:
        build = tutti_build()
        self.assertEqual(build._settings(None), (False, []))
        self.assertEqual(build._settings({"build-library": "1", "configure": "a"}), (True, ["a"]))
        self.assertEqual(build._settings({"configure": ["a", "b"]}), (False, ["a", "b"]))
        for wrong in ({"build-libary": "1"}, {"build-library": "yes"}):
            with self.assertRaises(ValueError):
                build._settings(wrong)


class Help(unittest.TestCase):
    def test_every_parameter(self) -> None:
        """help() explains each public name, and names each parameter."""
        self.assertEqual(sorted(tutti.__all__), tutti.__all__)
        for name in tutti.__all__:
            item = getattr(tutti, name)
            with self.subTest(name):
                self.assertTrue(inspect.getdoc(item))
                if not inspect.isfunction(item) or name.endswith("_async"):
                    continue
                for parameter in inspect.signature(item).parameters:
                    self.assertRegex(item.__doc__, r"\b%s\b" % parameter)
        for operation in tutti.Op:
            self.assertIn('"%s"' % operation.name.lower(), tutti.allreduce.__doc__)

    def test_forms_agree(self) -> None:
        """The asynchronous form has the parameters of the direct form, and some more."""
        for kind in _lib.CALL_KINDS:
            direct = list(inspect.signature(getattr(tutti, kind)).parameters.values())
            started = inspect.signature(getattr(tutti, kind + "_async")).parameters
            self.assertEqual(list(started)[0], "name")
            for parameter in direct:
                self.assertEqual(str(started[parameter.name]), str(parameter))

    def test_no_ctypes_elsewhere(self) -> None:
        """Only two modules of the package need ctypes."""
        for path in (TREE / "python/tutti").glob("*.py"):
            if path.name not in ("_lib.py", "_dlpack.py"):
                self.assertNotIn("import ctypes", path.read_text(), path.name)

    def test_types(self) -> None:
        try:
            import mypy  # noqa: F401
        except ImportError:
            self.skipTest("no mypy")
        done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull]
                              + [str(path) for path in (TREE / "python/tutti").glob("*.py")],
                              stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
