/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --peer and --alone: which contestants run beside Tutti.
 */
#include "gradients/gradients.h"

#include <string.h>

static void add(gradients_options_t *options, bench_options_t *common, const char *name,
                size_t length)
{
    if (length == 3 && strncmp(name, "all", length) == 0) {
        options->all_peers = 1;
        return;
    }
    for (int i = 1; gradients_contestants[i].name != NULL; i++) {
        const char *its = gradients_contestants[i].name;

        if (strncmp(its, name, length) == 0 && its[length] == '\0') {
            options->peers |= 1u << i;
            return;
        }
    }
    bench_complain(common, "--peer %.*s: not known; see --help", (int)length, name);
}

void gradients_take_peers(bench_options_t *common, gradients_options_t *options, const char *list)
{
    size_t length;

    for (const char *name = list;; name += length + 1) {
        length = strcspn(name, ",");
        add(options, common, name, length);
        if (name[length] == '\0')
            break;
    }
}

/* NULL, or the reason why the contestant cannot run. */
static const char *obstacle(const bench_options_t *common, int contestant)
{
    const bench_contestant_t *its = &gradients_contestants[contestant];
    int on_device = common->device != NULL;

    if (gradients_step(its, on_device) == NULL && gradients_step(its, !on_device) == NULL)
        return "built without MPI";
    if (gradients_step(its, on_device) == NULL)
        return on_device ? "not with -d" : "only with -d";
    if (!on_device && !gradients_way(its)->is_tutti && common->type->mpi_name == NULL)
        return "MPI does not have this type";
    return NULL;
}

int gradients_chosen(const gradients_options_t *options, const bench_options_t *common,
                     int contestant)
{
    int named = (options->peers >> contestant & 1) != 0;
    int usual = gradients_way(&gradients_contestants[contestant])->is_usual &&
                options->peers == 0 && !options->alone;

    return contestant == 0 ||
           ((named || usual || options->all_peers) && obstacle(common, contestant) == NULL);
}

void gradients_judge_peers(const gradients_options_t *options, bench_options_t *common)
{
    if (options->alone && (options->peers != 0 || options->all_peers))
        bench_complain(common, "--alone: not with --peer");
    for (int i = 1; gradients_contestants[i].name != NULL; i++) {
        if ((options->peers >> i & 1) != 0 && obstacle(common, i) != NULL)
            bench_complain(common, "--peer %s: %s", gradients_contestants[i].name,
                           obstacle(common, i));
    }
}
