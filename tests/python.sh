#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Tests the Python package: makes a virtual environment below build/, installs numpy and torch from
# PyPI and the package from python/, and runs tests/python/test_*.py, torch_*.py and horovod_*.py.
#
# usage: tests/python.sh [--torch VERSION|none] [--tensorflow VERSION|none] [--python PROGRAM]
#                        [TEST...]
#
#     --torch       the version of torch; by default 2.15.0. Without a GPU it is installed without
#                   its CUDA libraries, for which standins.sh makes stand-ins
#     --tensorflow  the version of tensorflow-cpu; by default 2.21.0. Tests with tensorflow or keras
#                   in their names have it in a virtual environment of their own
#     --python      an interpreter whose packages are used as they are: nothing is installed, and
#                   the package is taken from python/
#     TEST          files, by default all
#
# Prints PASS, FAIL or SKIP for each test, and the reason; logs are below build/python. Ends with 0,
# with 1 after a failure, or with 77 if there is no numpy. If a package cannot be installed, the
# tests that need it are skipped. TUTTI_PACKAGES=as-is installs no Debian packages.
set -u

top=$(cd "$(dirname "$0")/.." && pwd) && cd "$top" || exit 1
. lib/build/setup.sh

torch=2.15.0
tensorflow=2.21.0
python=
tensorflow_python=
while [ $# -gt 0 ]; do
    case $1 in
    --torch) torch=${2:?} && shift 2 ;;
    --torch=*) torch=${1#*=} && shift ;;
    --tensorflow) tensorflow=${2:?} && shift 2 ;;
    --tensorflow=*) tensorflow=${1#*=} && shift ;;
    --python) python=$(command -v "${2:?}") && shift 2 || exit 2 ;;
    -*)
        sed -n '4,/^set/s/^#$\|^# //p' "$0"
        exit 2
        ;;
    *) break ;;
    esac
done

work=$top/build/python
mkdir -p "$work"
alone python.sh

# end RESULT STATUS REASON: ends the script before any test has run.
end() {
    mkdir -p "$work/tests"
    echo "$3" >"$work/tests/python.log"
    echo "$3"
    echo "$1: tests/python"
    exit "$2"
}

skip() {
    end SKIP 77 "$1"
}

build_library() {
    need_packages $BUILD_PACKAGES && generate && configure_in build/python --disable-static &&
        logged build/python/make-library.log \
            env -u TUTTI_PACKAGES make -C build/python -j "$jobs" libtutti.la modules
}

# from_pypi WHAT ARGUMENT...: installs packages; if this fails, prints the reason.
from_pypi() {
    what=$1
    shift
    "$python" -m pip install --disable-pip-version-check --quiet "$@" >"$work/pip.log" 2>&1 </dev/null &&
        return
    echo "no $what: $(grep -E '^(ERROR|error)' "$work/pip.log" | tail -n 1)"
    return 1
}

install_torch() {
    from_pypi "torch $torch" --no-deps "torch==$torch" || return
    # numpy is not in this list: make_torch_environment has installed a version that fits this
    # torch. torch's own tests need expecttest.
    from_pypi "packages for torch" typing-extensions filelock sympy networkx jinja2 fsspec ninja \
        setuptools expecttest
    [ -z "${TUTTI_HOROVOD_TESTS:-}" ] ||
        from_pypi "packages for Horovod's tests" pytest mock parameterized cloudpickle packaging
}

# make_environment NAME: makes a virtual environment, and sets $python to its interpreter.
make_environment() {
    environment=$work/venv-$1
    if [ ! -x "$environment/bin/pip" ]; then
        rm -rf "$environment"
        python3 -m venv "$environment" >"$work/venv.log" 2>&1 || return
    fi
    python=$environment/bin/python
}

install_package() {
    from_pypi "package tutti" --force-reinstall --no-deps ./python
}

make_torch_environment() {
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null ||
        skip "no Python 3.9 or later"
    make_environment "$torch" || skip "no virtual environment: $(tail -n 1 "$work/venv.log")"
    case $torch in
    2.[0-2].*) numpy='numpy<2' ;;
    *) numpy=numpy ;;
    esac
    from_pypi numpy "$numpy" || skip "no numpy: $(tail -n 1 "$work/pip.log")"
    from_pypi ml_dtypes ml_dtypes || :
    from_pypi mypy mypy || :
    from_pypi mpi4py --only-binary mpi4py mpi4py || :
    [ "$torch" = none ] || install_torch || :
}

# Sets $tensorflow_python to an interpreter with TensorFlow. If TensorFlow cannot be installed, sets
# it to the other tests' interpreter, so that the tests for TensorFlow skip themselves.
find_tensorflow() {
    [ -z "$tensorflow_python" ] || return
    others=$python
    if [ "$tensorflow" != none ] && make_environment "tensorflow-$tensorflow" &&
        from_pypi "tensorflow $tensorflow" "tensorflow-cpu==$tensorflow" && install_package; then
        tensorflow_python=$python
    fi
    python=$others
    : "${tensorflow_python:=$python}"
}

# Sets LD_LIBRARY_PATH, so that torch finds its CUDA libraries or their stand-ins.
find_torch() {
    "$python" -c 'import torch' 2>/dev/null && return
    folder=$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' \
        2>/dev/null) || return
    standins=$work/standins-$(sed -n "s/^__version__ = '\([^'+]*\).*/\1/p" "$folder/version.py")
    [ -d "$standins" ] || {
        tests/python/standins.sh "$folder/lib" "$standins-t" && mv "$standins-t" "$standins"
    }
    LD_LIBRARY_PATH=$standins:$LD_LIBRARY_PATH
    export TUTTI_DEVICE=none # the stand-in for libcuda is no device
    "$python" -c 'import torch' 2>"$work/torch.log" ||
        echo "torch cannot be imported: $(tail -n 1 "$work/torch.log")"
}

run_test() {
    case $1 in
    *.sh) set -- "$1" sh "$top/$1" "$python" ;;
    *tensorflow* | *keras*)
        find_tensorflow
        set -- "$1" "$tensorflow_python" "$top/$1"
        ;;
    *) set -- "$1" "$python" "$top/$1" ;;
    esac
    log=$work/${1%.*}.log
    mkdir -p "${log%/*}"
    # limit.sh makes its locks below the current folder.
    (cd "$work" && mkdir -p tests && TEST_SECONDS=${TEST_SECONDS:-1800} \
        sh "$top/tests/limit.sh" "$2" "$3" ${4:+"$4"}) >"$log" 2>&1
    case $? in
    0) passed=$((passed + 1)) && echo "PASS: ${1%.*}" ;;
    77) skipped=$((skipped + 1)) && echo "SKIP: ${1%.*}" ;;
    *)
        failed=$((failed + 1))
        echo "FAIL: ${1%.*}"
        [ -n "${TUTTI_TEST_COUNTED:-}" ] || cat "$log"
        ;;
    esac
}

build_library || end FAIL 1 "the library cannot be built"
if [ -n "$python" ]; then
    "$python" -c 'import numpy' 2>/dev/null || skip "$python has no numpy"
    export PYTHONPATH="$top/python"
    tensorflow_python=$python
else
    unset PYTHONPATH
    make_torch_environment
    install_package || {
        cat "$work/pip.log"
        end FAIL 1 "pip install ./python has failed"
    }
fi

export TUTTI_TUNED=none PYTHONDONTWRITEBYTECODE=1
export CPATH="$top/include${CPATH:+:$CPATH}" # for the backend of torch, which is compiled
export LD_LIBRARY_PATH="$work/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
unset TUTTI_PACKAGES PYTHONHOME
find_torch

passed=0
failed=0
skipped=0
[ $# -gt 0 ] || set -- tests/python/test_*.py tests/python/torch_*.py tests/python/horovod_*.py \
    tests/python/horovod_upstream.sh
for test; do # some files with such names are not tests, but are shared by tests
    [ -e "$test" ] || continue
    case $test in
    *.sh) run_test "$test" ;;
    *) ! grep -q '^if __name__ ==' "$test" || run_test "$test" ;;
    esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
