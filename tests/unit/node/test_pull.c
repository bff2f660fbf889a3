/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank makes of a kernel that reads less than it was asked for, or nothing. */
#include "node/shm/shm.h"
#include "unit/node/world.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    COUNT = 3000
};

static struct {
    int calls, fails_at, error;
    size_t most; /* bytes read at once */
} kernel;

/* In the C library's stead. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *to, unsigned long nto,
                         const struct iovec *from, unsigned long nfrom, unsigned long flags)
{
    struct iovec part = *to;

    if (++kernel.calls == kernel.fails_at) {
        errno = kernel.error;
        return -1;
    }
    part.iov_len = TUTTI__MIN(part.iov_len, kernel.most);
    assert_int_equal(nto, 1);
    return syscall(SYS_process_vm_readv, pid, &part, 1ul, from, nfrom, flags);
}

/* Blocks with places of their own, or NULL. */
static const size_t *table, *begins;

/* Two ranks' allreduce up to its end, or rank 0's first error. */
static tutti_status_t allreduce(int fails_at, int error, size_t most)
{
    static float src[2][COUNT], dst[2][COUNT];
    tutti__node_call_t call[2];
    tutti__node_t *node[2];
    tutti__reducer_t reducer;
    tutti__stuck_t stuck;
    tutti_status_t status = TUTTI__AGAIN;
    world_t w;

    world_open(&w, 2, NULL);
    memset(&kernel, 0, sizeof(kernel));
    kernel.fails_at = fails_at;
    kernel.error = error;
    kernel.most = most;
    assert_true(tutti__reducer_find(TUTTI_FLOAT32, TUTTI_SUM, &reducer));
    for (uint32_t r = 0; r < 2; r++) {
        for (int i = 0; i < COUNT; i++)
            src[r][i] = (float)(i + (int)r);
        memset(dst[r], 0, sizeof(dst[r]));
        node[r] = world_node(&w, r);
        ((tutti__shm_t *)node[r])->pull_bytes = 0;
        call[r] = (tutti__node_call_t){ .kind = TUTTI__NODE_ALLREDUCE,
                                        .dtype = TUTTI_FLOAT32,
                                        .op = TUTTI_SUM,
                                        .reducer = &reducer,
                                        .src = src[r],
                                        .dst = dst[r],
                                        .map = { COUNT, 1, COUNT, table, begins },
                                        .whole = 1,
                                        .nblk = 1,
                                        .nparts = 1 };
        node[r]->ops->start(node[r], 0, &call[r]);
    }
    for (int i = 0; i < 100 && status == TUTTI__AGAIN; i++) {
        status = node[0]->ops->step(node[0], 0, &stuck);
        if (status == TUTTI__AGAIN)
            node[1]->ops->step(node[1], 0, &stuck);
    }
    for (int i = 0; i < COUNT && status == TUTTI_OK; i++)
        assert_true(dst[0][i] == (float)(2 * i + 1));
    for (uint32_t r = 0; r < 2; r++)
        node[r]->ops->close(node[r]);
    world_close(&w);
    return status;
}

static void test_all_at_once(void **state)
{
    (void)state;
    assert_int_equal(allreduce(0, 0, SIZE_MAX), TUTTI_OK);
    assert_true(kernel.calls > 2); /* so it was not copied, and in pieces */
}

/* Nobody knows where the others have them. */
static void test_own_places(void **state)
{
    static const size_t lengths[] = { 0, COUNT }, places[] = { 0 };

    (void)state;
    table = lengths;
    begins = places;
    assert_int_equal(allreduce(0, 0, SIZE_MAX), TUTTI_OK);
    assert_int_equal(kernel.calls, 0);
    table = begins = NULL;
}

static void test_short_reads(void **state)
{
    (void)state;
    assert_int_equal(allreduce(0, 0, 100), TUTTI_OK);
    assert_true(kernel.calls > COUNT * 4 / 100);
}

static void test_errors(void **state)
{
    (void)state;
    assert_int_equal(allreduce(2, ESRCH, SIZE_MAX), TUTTI_ERR_PEER_LOST);
    assert_non_null(strstr(tutti_last_error(), "rank 1"));
    assert_int_equal(allreduce(2, EFAULT, SIZE_MAX), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error(), "is not readable"));
    /* All ranks would have to find NO_MEMORY. */
    assert_int_equal(allreduce(2, ENOMEM, SIZE_MAX), TUTTI_ERR_SYSTEM);
    assert_int_equal(allreduce(1, EPERM, SIZE_MAX), TUTTI_ERR_SYSTEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_own_places),
        cmocka_unit_test(test_short_reads),
        cmocka_unit_test(test_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
