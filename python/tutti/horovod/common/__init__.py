# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the Horovod front ends of all frameworks: the job, process sets, errors, elastic."""
