# SPDX-License-Identifier: BSD-3-Clause

# Random calls of all kinds; STRESS_SECONDS and STRESS_SEED, see stress.c.
rank_tests += %reldir%/stress
tsan_tests += %reldir%/stress
%C%_stress_SOURCES = %reldir%/stress.c %reldir%/task.c %reldir%/task.h \
    tests/multi/direct/reference.c tests/multi/direct/reference.h tests/multi/direct/reference_user.c
%C%_stress_LDADD = $(LDADD) -lm
tsan_quick += %reldir%/stress
