/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice between UCX and MPI by figures. tests/hosts/cluster_auto.sh measures such figures. */
#include "xport/faster.h"

#include "base/constants.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void mpi_must_be_clearly_faster(void **state)
{
    (void)state;
    /* UCX is faster, or as fast. */
    assert_true(tutti__faster_takes_ucx(TUTTI__FASTER_TRIPS, 55000, 100000));
    assert_true(tutti__faster_takes_ucx(TUTTI__FASTER_TRIPS, 100000, 100000));
    /* UCX takes exactly 1.5 times as long as MPI; then 1 ns more. */
    assert_true(tutti__faster_takes_ucx(TUTTI__FASTER_TRIPS, 150000, 100000));
    assert_false(tutti__faster_takes_ucx(TUTTI__FASTER_TRIPS, 150001, 100000));
    /* An odd number of nanoseconds: 1.5 times 3 is 4.5. */
    assert_true(tutti__faster_takes_ucx(TUTTI__FASTER_TRIPS, 4, 3));
    assert_false(tutti__faster_takes_ucx(TUTTI__FASTER_TRIPS, 5, 3));
    /* Only MPI supports the fast network. */
    assert_false(tutti__faster_takes_ucx(TUTTI__FASTER_TRIPS, 30000, 2000));
}

/* If the measurement has ended early, its figures do not count. */
static void too_few_trips(void **state)
{
    (void)state;
    for (uint32_t trips = 0; trips < TUTTI__FASTER_TRIPS; trips++) {
        assert_true(tutti__faster_takes_ucx(trips, 150001, 100000));
        assert_true(tutti__faster_takes_ucx(trips, 30000000, 2000));
        assert_true(tutti__faster_takes_ucx(trips, 55000, 100000));
    }
    assert_true(tutti__faster_takes_ucx(0, 0, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mpi_must_be_clearly_faster),
        cmocka_unit_test(too_few_trips),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
