# SPDX-License-Identifier: BSD-3-Clause
#
# The Python package: pip installs it, see docs/python.md. `make install` does not.

EXTRA_DIST += %reldir%/pyproject.toml %reldir%/tutti_build.py %reldir%/tutti

# EXTRA_DIST copies whole folders. This removes the files that Python and the tests have left there.
dist-hook: dist-python
dist-python:
	cd "$(distdir)" && find python tests/python \
	    \( -name __pycache__ -o -name '.?*' -o -name '*.log' -o -name '*.trs' \) \
	    -prune -exec chmod -R u+w {} + -exec rm -rf {} +
.PHONY: dist-python
