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

/* Messages between hosts, of 64 ranks at most, are longer, but not above 1 MiB. */
static void longer_messages(void **state)
{
    (void)state;
    assert_int_equal(tutti__xport_long(65536, 64, TUTTI__XPORT_LONGER_MPI), 128 << 10);
    assert_int_equal(tutti__xport_long(65536, 64, TUTTI__XPORT_LONGER_UCX), 256 << 10);
    assert_int_equal(tutti__xport_long(65536, 65, TUTTI__XPORT_LONGER_UCX), 64 << 10);
    assert_int_equal(tutti__xport_long(1 << 19, 2, TUTTI__XPORT_LONGER_UCX), 1 << 20);
    assert_int_equal(tutti__xport_long(1 << 21, 2, TUTTI__XPORT_LONGER_MPI), 1 << 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mpi_must_be_clearly_faster),
        cmocka_unit_test(too_few_trips),
        cmocka_unit_test(longer_messages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
