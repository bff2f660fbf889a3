# SPDX-License-Identifier: BSD-3-Clause
"""The C++ backend is compiled once by ranks that start together; without a compiler the Python
backend runs, and one line of the log gives the reason."""

import os
import subprocess
import sys
import tempfile

import torch_ranks

BUILD = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
from tutti.torch import build
build.load()
"""
GROUP = """
import logging, sys
logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="LOG %(message)s")
import torch, torch.distributed as dist
sys.path.insert(0, sys.argv[1])
import torch_ranks
torch_ranks.use_tutti()
dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=1)
t = torch.ones(2)
dist.all_reduce(t)
group = dist.new_group([0])
print("GROUP", type(dist.distributed_c10d._get_default_group()).__name__)
dist.destroy_process_group()
"""


def python(code: str, environment: dict) -> "subprocess.Popen[str]":
    """A Python process."""
    here = os.path.dirname(os.path.abspath(__file__))
    return subprocess.Popen([sys.executable, "-c", code, here], text=True, env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


WORDS = """
#include <sstream>
std::string words(int number) { std::ostringstream out; out << number; return out.str(); }
"""


def test_one_cxx_library(folder: str) -> None:
    """A compiler without a shared C++ library would link its static one. It must link the library
    that torch has loaded, because a process with two of them crashes."""
    from tutti.torch import build
    source, module = os.path.join(folder, "words.cpp"), os.path.join(folder, "words.so")
    with open(source, "w") as file:
        file.write(WORDS)
    line = [source if word.endswith("backend.cpp") else word for word in build.command(module)]
    subprocess.run(line + ["-static-libstdc++"], check=True)
    with open(module, "rb") as file:
        assert b"\0libstdc++.so.6\0" in file.read(), line


def main() -> int:
    """Returns the exit status."""
    if torch_ranks.MISSING:
        print("skipped: %s" % torch_ranks.MISSING)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        test_one_cxx_library(folder)
    with tempfile.TemporaryDirectory() as cache:
        environment = dict(os.environ, XDG_CACHE_HOME=cache)
        ranks = [python(BUILD, environment) for _ in range(3)]
        outputs = [rank.communicate(timeout=550)[0] for rank in ranks]
        assert all(rank.returncode == 0 for rank in ranks), outputs
        assert sum(output.count("tutti: compiled in") for output in outputs) == 1, outputs
    with tempfile.TemporaryDirectory() as cache:
        environment = dict(os.environ, XDG_CACHE_HOME=cache, PATH="/nowhere", CXX="")
        environment.pop("TORCH_TUTTI", None)
        rank = python(GROUP, environment)
        output = rank.communicate(timeout=200)[0]
        assert rank.returncode == 0, output
        lines = [line for line in output.splitlines() if line.startswith("LOG tutti")]
        assert len(lines) == 1 and "C++ compiler" in lines[0], output
        assert "GROUP PythonGroup" in output, output
        environment["TORCH_TUTTI"] = "cpp"
        rank = python(GROUP, environment)
        output = rank.communicate(timeout=200)[0]
        assert rank.returncode != 0 and "no C++ compiler" in output, output
    print("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
