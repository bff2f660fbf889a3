/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a process finds its MPI module and chooses the way to meet. The modules are fake ones; the
 * real modules are tested under mpirun.
 *
 * Each case is a separate process, because an opened module stays, and because a process reads its
 * settings from its environment.
 */
#include "boot/module.h"

#include "crowd.h"

#include <dlfcn.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* Where libtool builds the fake modules, below the folder in which tests run. */
#define BUILT "tests/unit/boot/.libs/"

static char dir[] = "/tmp/tutti-test-module-XXXXXX";

static void link_file(const char *target, const char *name)
{
    char from[PATH_MAX], to[PATH_MAX];

    CHECK(realpath(target, from) != NULL);
    snprintf(to, sizeof(to), "%s/%s", dir, name);
    unlink(to);
    CHECK_EQUAL(symlink(from, to), 0);
}

static void unlink_file(const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    unlink(path);
}

static void write_file(const char *name)
{
    char path[PATH_MAX];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "w");
    CHECK(file != NULL);
    fputs("these are not the bytes of a library", file);
    fclose(file);
}

/* Set the environment of a process that mpirun of Open MPI has started as one of `size` ranks. */
static void pretend_mpirun(const char *size)
{
    setenv("OMPI_COMM_WORLD_SIZE", size, 1);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
}

static tutti_status_t meet(const char *boot, tutti__meet_t *ret_meet,
                           const tutti__mpi_module_t **ret_module)
{
    tutti__conf_t conf;

    tutti__conf_defaults(&conf);
    snprintf(conf.module_dir, sizeof(conf.module_dir), "%s", dir);
    snprintf(conf.boot, sizeof(conf.boot), "%s", boot);
    return tutti__boot_meet(&conf, NULL, ret_meet, ret_module);
}

static void expect_failure(const char *boot, tutti_status_t status, const char *text)
{
    const tutti__mpi_module_t *module;
    tutti__meet_t got;

    CHECK_EQUAL(meet(boot, &got, &module), status);
    CHECK_ERROR(text);
}

static void finish(tutti__meet_t *meet)
{
    meet->close(meet->ctx);
    tutti__marks_close(meet->marks);
}

static void expect_fake(const char *boot, uint32_t size)
{
    const tutti__mpi_module_t *module;
    tutti__meet_t got;

    CHECK_EQUAL(meet(boot, &got, &module), TUTTI_OK);
    CHECK_EQUAL(got.size, size);
    CHECK_EQUAL(strcmp(got.name, "fake"), 0);
    CHECK_EQUAL(strcmp(module->name, "fake"), 0);
    finish(&got);
    /* The module has stayed open. */
    CHECK_EQUAL(meet("mpi", &got, &module), TUTTI_OK);
    finish(&got);
}

static void no_module(const crowd_rank_t *me)
{
    (void)me;
    pretend_mpirun("3");
    expect_failure("", TUTTI_ERR_UNSUPPORTED, "mpirun started 3 ranks, but: no MPI module fits");
    CHECK_ERROR(dir);
    CHECK_ERROR("mpi_openmpi.so: ");
    CHECK_ERROR("No such file");
}

static void no_module_at_all(const crowd_rank_t *me)
{
    (void)me;
    expect_failure("mpi", TUTTI_ERR_UNSUPPORTED, "mpi_*.so: there is none");
}

static void old_module(const crowd_rank_t *me)
{
    char text[80];

    (void)me;
    pretend_mpirun("3");
    link_file(BUILT "mpi_old.so", "mpi_openmpi.so");
    snprintf(text, sizeof(text), "module interface 999, the library has %u", TUTTI__MODULE_ABI);
    expect_failure("", TUTTI_ERR_UNSUPPORTED, text);
}

static void no_library(const crowd_rank_t *me)
{
    (void)me;
    pretend_mpirun("3");
    write_file("mpi_openmpi.so");
    expect_failure("", TUTTI_ERR_UNSUPPORTED, "mpi_openmpi.so: ");
    unlink_file("mpi_openmpi.so");
}

static void other_library(const crowd_rank_t *me)
{
    Dl_info info;

    (void)me;
    pretend_mpirun("3");
    CHECK(dladdr(dlsym(RTLD_DEFAULT, "cmocka_set_message_output"), &info) != 0);
    link_file(info.dli_fname, "mpi_openmpi.so");
    expect_failure("", TUTTI_ERR_UNSUPPORTED, "mpi_openmpi.so: is no module of Tutti");
}

static void right_module(const crowd_rank_t *me)
{
    (void)me;
    pretend_mpirun("3");
    setenv("FAKE_SIZE", "3", 1);
    link_file(BUILT "mpi_fake.so", "mpi_openmpi.so");
    expect_fake("", 3);
}

/* If no setting and no variable names a module, the process takes the first module that can be
   opened. */
static void any_module(const crowd_rank_t *me)
{
    (void)me;
    setenv("FAKE_SIZE", "2", 1);
    unlink_file("mpi_openmpi.so");
    write_file("mpi_a.so");
    link_file(BUILT "mpi_old.so", "mpi_b.so");
    link_file(BUILT "mpi_fake.so", "mpi_c.so");
    link_file(BUILT "mpi_fake.so", "nompi_a.so");
    expect_fake("mpi", 2);
}

static void alone(const crowd_rank_t *me)
{
    (void)me;
    pretend_mpirun("3");
    setenv("FAKE_SIZE", "1", 1);
    link_file(BUILT "mpi_fake.so", "mpi_openmpi.so");
    expect_failure("", TUTTI_ERR_UNSUPPORTED,
                   "mpirun started 3 ranks, but MPI in this process has one rank");
    CHECK(getenv("FAKE_CLOSED") != NULL);
}

static void module_fails(const crowd_rank_t *me)
{
    (void)me;
    pretend_mpirun("3");
    setenv("FAKE_SIZE", "0", 1);
    link_file(BUILT "mpi_fake.so", "mpi_openmpi.so");
    expect_failure("", TUTTI_ERR_TRANSPORT,
                   "mpirun started 3 ranks, but: the fake network is down");
}

/* Without a launcher, or with one for a single rank, there is a world of one, and no module is
   searched. */
static void nobody(const crowd_rank_t *me)
{
    const tutti__mpi_module_t *module = (const void *)me;
    tutti__meet_t got;

    CHECK_EQUAL(meet("", &got, &module), TUTTI_OK);
    CHECK_EQUAL(got.size, 1);
    CHECK(module == NULL);
    finish(&got);
    pretend_mpirun("1");
    CHECK_EQUAL(meet("", &got, &module), TUTTI_OK);
    CHECK_EQUAL(got.size, 1);
    finish(&got);
    pretend_mpirun("3");
    CHECK_EQUAL(meet("self", &got, &module), TUTTI_OK);
    CHECK_EQUAL(got.size, 1);
    finish(&got);
}

static void told(const crowd_rank_t *me)
{
    const tutti__mpi_module_t *module;
    tutti__conf_t conf;
    tutti__meet_t got;

    expect_failure("local:somewhere", TUTTI_ERR_INVALID_ARGUMENT,
                   "needs TUTTI_RANK and TUTTI_SIZE");
    expect_failure("locale", TUTTI_ERR_INVALID_ARGUMENT, "TUTTI_BOOT=locale is not one of");
    tutti__conf_defaults(&conf);
    snprintf(conf.boot, sizeof(conf.boot), "local:%s", me->name);
    conf.rank = 0;
    conf.size = 1;
    CHECK_EQUAL(tutti__boot_meet(&conf, NULL, &got, &module), TUTTI_OK);
    CHECK_EQUAL(got.size, 1);
    CHECK_EQUAL(strcmp(got.name, "local"), 0);
    finish(&got);
}

/* ---- devices ---- */

static tutti_status_t find_device(const char *name, const char *where,
                                  const tutti__device_ops_t **ret_ops)
{
    const char *versions;
    tutti__conf_t conf;

    tutti__conf_defaults(&conf);
    snprintf(conf.module_dir, sizeof(conf.module_dir), "%s", where);
    if (name != NULL)
        snprintf(conf.device, sizeof(conf.device), "%s", name);
    return tutti__module_device(&conf, ret_ops, &versions);
}

/* Without a device, no module is used. */
static void no_device(const crowd_rank_t *me)
{
    const tutti__device_ops_t *ops = (const void *)me;

    write_file("cuda.so");
    CHECK_EQUAL(find_device(NULL, dir, &ops), TUTTI_OK);
    CHECK(ops == NULL);
    CHECK_EQUAL(find_device("none", dir, &ops), TUTTI_OK);
    CHECK(ops == NULL);
    CHECK_EQUAL(find_device("cuda", dir, &ops), TUTTI_ERR_UNSUPPORTED);
    CHECK_ERROR("there is no device cuda, in ");
    CHECK_ERROR("cuda.so: ");
    CHECK_EQUAL(find_device("../cuda", dir, &ops), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_EQUAL(find_device("ucx", "tutti/.libs", &ops), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_EQUAL(find_device("mpi_openmpi", "tutti/.libs", &ops), TUTTI_ERR_INVALID_ARGUMENT);
}

/* cuda.so is a module, but not one of a device. It is an error if the device was named, or if the
   program has loaded CUDA. */
static void false_device(const crowd_rank_t *me)
{
    const tutti__device_ops_t *ops;
    char path[PATH_MAX];

    (void)me;
    unlink_file("cuda.so");
    link_file(BUILT "mpi_fake.so", "cuda.so");
    CHECK_EQUAL(find_device("cuda", dir, &ops), TUTTI_ERR_UNSUPPORTED);
    CHECK_ERROR("is no device");
    CHECK_EQUAL(find_device(NULL, dir, &ops), TUTTI_OK);
    link_file(BUILT "mpi_old.so", "libcudart.so.12");
    snprintf(path, sizeof(path), "%s/libcudart.so.12", dir);
    CHECK(dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL);
    CHECK_EQUAL(find_device(NULL, dir, &ops), TUTTI_ERR_UNSUPPORTED);
    CHECK_ERROR("is no device");
}

static void right_device(const crowd_rank_t *me)
{
    const tutti__device_ops_t *ops, *again;

    (void)me;
    CHECK_EQUAL(find_device("pretend", "tutti/.libs", &ops), TUTTI_OK);
    CHECK_EQUAL(strcmp(ops->name, "pretend"), 0);
    CHECK_EQUAL(ops->use(1000), TUTTI_ERR_SYSTEM);
    CHECK_ERROR("there is no device 1000");
    CHECK_EQUAL(find_device("pretend", "tutti/.libs", &again), TUTTI_OK);
    CHECK(again == ops);
}

static void test_all(void **state)
{
    static crowd_main_t *const plain[] = { no_module,     no_module_at_all, no_library,
                                           other_library, nobody,           told,
                                           no_device };
    static crowd_main_t *const with_fake[] = { old_module,   right_module, any_module,  alone,
                                               module_fails, false_device, right_device };

    (void)state;
    assert_non_null(mkdtemp(dir));
    /* Remove the variables of a launcher that may have started this test. */
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("MV2_COMM_WORLD_SIZE");
    unsetenv("PMI_SIZE");
    unsetenv("SLURM_STEP_NUM_TASKS");
    for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++)
        crowd_fork(1, 0, plain[i], NULL);
    if (access(BUILT "mpi_fake.so", R_OK) != 0)
        print_message("no " BUILT "mpi_fake.so: only half the cases\n");
    else
        for (size_t i = 0; i < sizeof(with_fake) / sizeof(*with_fake); i++)
            crowd_fork(1, 0, with_fake[i], NULL);
    unlink_file("mpi_openmpi.so");
    unlink_file("mpi_a.so");
    unlink_file("mpi_b.so");
    unlink_file("mpi_c.so");
    unlink_file("nompi_a.so");
    unlink_file("cuda.so");
    unlink_file("libcudart.so.12");
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
    };

    return cmocka_run_group_tests_name("boot/module", tests, NULL, NULL);
}
