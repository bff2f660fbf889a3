/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The circumstances of a measurement: host, processor, commit, environment.
 */
#include "harness/bench.h"
#include "commit.h"

#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

void bench_fact_host(char *text, size_t bytes)
{
    text[0] = '\0';
    gethostname(text, bytes - 1);
    text[bytes - 1] = '\0';
}

void bench_fact_cpu(char *text, size_t bytes)
{
    FILE *from = fopen("/proc/cpuinfo", "r");
    char line[256];

    snprintf(text, bytes, "unknown");
    if (from == NULL)
        return;
    while (fgets(line, sizeof(line), from) != NULL) {
        const char *value = strchr(line, ':');

        if (strncmp(line, "model name", 10) != 0 || value == NULL)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(text, bytes, "%s", value + 1 + strspn(value + 1, " "));
        break;
    }
    fclose(from);
}

void bench_fact_kernel(char *text, size_t bytes)
{
    struct utsname name;

    snprintf(text, bytes, "unknown");
    if (uname(&name) == 0)
        snprintf(text, bytes, "%s %s %s", name.sysname, name.release, name.machine);
}

const char *bench_fact_commit(void)
{
    return BENCH_COMMIT;
}

static int begins_with(const char *text, const char *const *starts)
{
    for (; *starts != NULL; starts++) {
        if (strncmp(text, *starts, strlen(*starts)) == 0)
            return 1;
    }
    return 0;
}

/* Variables that affect speed, without the OMPI_MCA_* of Open MPI's launcher, and without the job's
   secret. */
const char *bench_fact_variable(size_t index)
{
    static const char *const wanted[] = { "TUTTI_", "OMPI_MCA_", "UCX_", "MALLOC_", NULL };
    static const char *const omitted[] = { "TUTTI_JOB_SECRET=",
                                           "OMPI_MCA_orte_",
                                           "OMPI_MCA_ess",
                                           "OMPI_MCA_pmix",
                                           "OMPI_MCA_plm",
                                           "OMPI_MCA_initial_wdir",
                                           NULL };

    for (char **variable = environ; *variable != NULL; variable++) {
        if (begins_with(*variable, wanted) && !begins_with(*variable, omitted) && index-- == 0)
            return *variable;
    }
    return NULL;
}
