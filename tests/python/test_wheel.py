# SPDX-License-Identifier: BSD-3-Clause
"""A wheel that contains the library: ranks run with its files only. The test compiles the
library."""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import ranks

TREE = Path(__file__).resolve().parents[2]


def skip(reason: str) -> None:
    print(reason)
    sys.exit(77)


def main() -> None:
    if not (TREE / "configure.ac").is_file() or not os.access(TREE, os.W_OK):
        skip("no source tree that can be written")
    with tempfile.TemporaryDirectory() as folder:
        program = ("import sys, tutti_build\n"
                   "print(tutti_build.build_wheel(sys.argv[1], {'build-library': '1', "
                   "'configure': 'CFLAGS=-O0'}))")
        made = subprocess.run([sys.executable, "-c", program, folder], cwd=TREE / "python",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert made.returncode == 0, made.stdout[-10000:]
        name = made.stdout.splitlines()[-1]
        assert "-py3-none-linux_" in name, name
        site = Path(folder, "site")
        with zipfile.ZipFile(Path(folder, name)) as wheel:
            wheel.extractall(site)
            names = wheel.namelist()
        assert "tutti/lib/libtutti.so.0" in names, names
        modules = [path for path in names if path.startswith("tutti/lib/tutti/")]
        print("modules: %s" % ", ".join(Path(path).stem for path in modules))
        script = Path(folder, "sum.py")
        script.write_text("import tutti\nfrom tutti import _lib\nworld = tutti.init()\n"
                          "print(int(tutti.allreduce(world.rank + 1)), _lib.lib.path)\n")
        variables = {"PYTHONPATH": str(site), "LD_LIBRARY_PATH": ""}
        for status, output in ranks.finish(ranks.start([sys.executable, str(script)], 2,
                                                       variables)):
            assert status == 0, output
            assert output.split() == ["3", str(site / "tutti/lib/libtutti.so.0")], output


if __name__ == "__main__":
    main()
