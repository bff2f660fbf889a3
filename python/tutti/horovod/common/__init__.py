# SPDX-License-Identifier: BSD-3-Clause
"""What the Horovod front ends of all frameworks share: the job, process sets, errors, elastic."""
