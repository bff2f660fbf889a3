/* SPDX-License-Identifier: BSD-3-Clause */
/* tutti__info: the library's report about itself. It changes no state. */
#include "api/info.h"

#include "base/status.h"
#include "boot/module.h"
#include "coll/coll.h"
#include "coll/cost.h"
#include "coll/override.h"
#include "conf/tuned.h"
#include "config.h"
#include "mem/avail.h"
#include "reduce/reduce.h"
#include "topo/topo.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RANKS (1u << 20)

/* The caller's callback and its argument. */
typedef struct {
    tutti__info_put_t put;
    void *arg;
} listener_t;

static void put(const listener_t *to, const char *name, const char *value, const char *from,
                const char *note)
{
    const tutti__info_item_t item = { name, value, from, note != NULL ? note : "", 0, SIZE_MAX };

    to->put(to->arg, &item);
}

/* ---- build, place ---- */

static tutti_status_t tell_build(const listener_t *to)
{
    Dl_info file = { .dli_fname = NULL };

    if (dladdr((void *)(uintptr_t)tutti__info, &file) == 0 || file.dli_fname == NULL)
        file.dli_fname = "unknown";
    put(to, "library", file.dli_fname, "", NULL);
    put(to, "compiler", TUTTI__COMPILER, "", NULL);
    put(to, "flags", TUTTI__CFLAGS, "", NULL);
    put(to, "configured_with", TUTTI__CONFIGURED, "", NULL);
    put(to, "sanitizer", TUTTI__SANITIZER, "", NULL);
    put(to, "kernels", TUTTI__KERNEL_NAMES, "", NULL);
    put(to, "kernels_in_use", tutti__reduce_isa(), "", NULL);
    return TUTTI_OK;
}

static tutti_status_t tell_place(const listener_t *to)
{
    tutti__topo_facts_t facts;
    const char *who = "";
    tutti_status_t status;
    char bytes[32];

    status = tutti__topo_detect("", &facts);
    if (status != TUTTI_OK)
        return status;
    put(to, "processors", facts.cpus, "", NULL);
    snprintf(bytes, sizeof(bytes), "%" PRIu64, tutti__mem_available("", &who));
    put(to, "memory", bytes, "", who);
    return TUTTI_OK;
}

/* ---- settings ---- */

static void put_setting(void *arg, const tutti__conf_shown_t *shown)
{
    put(arg, shown->name, shown->value, shown->from, shown->wrong);
}

static void put_unknown(void *arg, const char *name, const char *guess)
{
    put(arg, name, "", "unknown", guess);
}

static void ignore_setting(void *arg, const tutti__conf_shown_t *shown)
{
    (void)arg, (void)shown;
}

static void ignore_unknown(void *arg, const char *name, const char *guess)
{
    (void)arg, (void)name, (void)guess;
}

static tutti_status_t tell_settings(listener_t *to, const char *local_ranks)
{
    char tuned[TUTTI__LOG_BYTES], path[TUTTI__TUNED_PATH];
    tutti__conf_t conf;

    tutti__conf_show(put_setting, put_unknown, to, &conf, tuned, sizeof(tuned));
    put(to, "use", tuned, "tuned", NULL);
    if (tutti__tuned_path(strtoull(local_ranks, NULL, 10), path))
        put(to, "place", path, "tuned", NULL);
    return TUTTI_OK;
}

static void read_settings(tutti__conf_t *ret_conf)
{
    char tuned[TUTTI__LOG_BYTES];

    tutti__conf_show(ignore_setting, ignore_unknown, NULL, ret_conf, tuned, sizeof(tuned));
}

/* ---- modules ---- */

static void tell_modules(const listener_t *to)
{
    tutti__conf_t conf;
    char dir[4096];

    read_settings(&conf);
    tutti__module_dir(&conf, dir);
    put(to, "folder", dir, "", NULL);
    put(to, "mpi_openmpi.so", TUTTI__OPENMPI, "", NULL);
    put(to, "mpi_mpich.so", TUTTI__MPICH, "", NULL);
    put(to, "ucx.so", TUTTI__UCX, "", NULL);
    put(to, "cuda.so", TUTTI__CUDA, "", NULL);
}

static void put_module(void *arg, const char *name, const char *value, const char *note)
{
    put(arg, name, value, "", note);
}

static tutti_status_t tell_probe(listener_t *to, const char *file)
{
    tutti__conf_t conf;

    read_settings(&conf);
    tutti__module_describe(&conf, file, put_module, to);
    return TUTTI_OK;
}

/* ---- algorithms ---- */

typedef struct {
    const listener_t *to;
    tutti__shape_t shape;
    const char *override;
    tutti__association_t association;
    tutti__override_t forced;
} chooser_t;

typedef struct {
    tutti__choice_t choice;
    const char *why;
    tutti_status_t status;
} answer_t;

static answer_t ask(const chooser_t *chooser, tutti__collective_t collective, size_t bytes)
{
    const tutti__want_t want = { collective, bytes, TUTTI__ANY_ROOT, 0 };
    answer_t answer = { { .algorithm = NULL }, "", TUTTI_OK };

    answer.status = tutti__algorithm_choose(&want, &chooser->shape, chooser->override,
                                            chooser->association, &answer.choice, &answer.why);
    return answer;
}

static int is_same(const answer_t *a, const answer_t *b)
{
    return a->status == b->status && a->choice.algorithm == b->choice.algorithm &&
           a->choice.sub == b->choice.sub && a->choice.radix == b->choice.radix;
}

/* The next edge: the first size after `bytes` at which TUTTI_ALGORITHM may change the choice. */
static size_t next_edge(const tutti__override_t *forced, size_t bytes)
{
    size_t edge = SIZE_MAX;

    for (uint32_t i = 0; i < forced->n; i++) {
        const tutti__override_item_t *item = &forced->items[i];

        if (item->from > bytes && item->from < edge)
            edge = item->from;
        if (item->to > bytes && item->to < edge)
            edge = item->to;
    }
    return edge;
}

/* The last size with the same algorithm as `from`. Bisection is valid between two edges: a row of
   coll/select.c applies up to one size, and costs are linear in the size. So above size 0, if this
   algorithm is not chosen for one size, it is not chosen for larger sizes before the next edge. */
static size_t last_size(const chooser_t *chooser, tutti__collective_t collective, size_t from,
                        const answer_t *answer)
{
    size_t good = from, bad, edge = next_edge(&chooser->forced, from), step = 1;
    answer_t other;

    for (;;) {
        bad = step < edge - good ? good + step : edge;
        if (bad == SIZE_MAX)
            return SIZE_MAX;
        other = ask(chooser, collective, bad);
        if (!is_same(&other, answer))
            break;
        good = bad;
        if (good == edge)
            edge = next_edge(&chooser->forced, good);
        step = good < SIZE_MAX / 4 ? good + 1 : SIZE_MAX;
    }
    while (bad - good > 1) {
        size_t middle = good + (bad - good) / 2;

        other = ask(chooser, collective, middle);
        *(is_same(&other, answer) ? &good : &bad) = middle;
    }
    return good;
}

static void put_answer(const chooser_t *chooser, tutti__collective_t collective,
                       const answer_t *answer, size_t from, size_t to)
{
    const tutti__choice_t *choice = &answer->choice;
    tutti__info_item_t item = { tutti__collective_name(collective), "", "", answer->why, from, to };
    char name[128], radix[16] = "";

    if (answer->status == TUTTI_OK) {
        if (choice->radix > 0)
            snprintf(radix, sizeof(radix), "(%u)", choice->radix);
        snprintf(name, sizeof(name), "%s%s%s%s", choice->algorithm->name,
                 choice->sub != NULL ? "/" : "", choice->sub != NULL ? choice->sub : "", radix);
        item.value = name;
    } else {
        ask(chooser, collective, from);
        item.note = tutti_last_error();
    }
    chooser->to->put(chooser->to->arg, &item);
}

static void tell_collective(const chooser_t *chooser, tutti__collective_t collective)
{
    size_t from = 0, to;

    do {
        answer_t answer = ask(chooser, collective, from);

        to = last_size(chooser, collective, from, &answer);
        put_answer(chooser, collective, &answer, from, to);
        from = to + 1;
    } while (to != SIZE_MAX);
}

/* Parse a list of ranks per host, such as "4,4". Returns the number of ranks; 0 if the list is
   invalid. If `first` is not NULL, it gets the first rank of each host. */
static uint32_t read_hosts(const char *text, uint32_t *first, uint32_t *ret_hosts)
{
    uint32_t ranks = 0, hosts = 0;

    do {
        char *end;
        unsigned long n = strtoul(text, &end, 10);

        if (end == text || n == 0 || n > MOST_RANKS - ranks || (*end != ',' && *end != '\0'))
            return 0;
        if (first != NULL)
            first[hosts] = ranks;
        ranks += (uint32_t)n;
        hosts++;
        text = *end == ',' ? end + 1 : end;
    } while (*text != '\0');
    if (first != NULL)
        first[hosts] = ranks;
    *ret_hosts = hosts;
    return ranks;
}

/* Make a shape whose hosts have consecutive ranks. The caller frees host_first, the block with all
   arrays. */
static tutti_status_t make_shape(const char *what, tutti__shape_t *ret_shape)
{
    uint32_t hosts, ranks = read_hosts(what, NULL, &hosts), min_local = ranks;
    uint32_t *first, *host_of, *local_of, *by_host;

    if (ranks == 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "\"%.60s\" is no list of ranks per host",
                           what);
    first = calloc(hosts + 1 + 3 * (size_t)ranks, sizeof(*first));
    if (first == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "%u ranks", ranks);
    host_of = first + hosts + 1;
    local_of = host_of + ranks;
    by_host = local_of + ranks;
    read_hosts(what, first, &hosts);
    for (uint32_t host = 0; host < hosts; host++) {
        for (uint32_t rank = first[host]; rank < first[host + 1]; rank++) {
            host_of[rank] = host;
            local_of[rank] = rank - first[host];
            by_host[rank] = rank;
        }
        if (first[host + 1] - first[host] < min_local)
            min_local = first[host + 1] - first[host];
    }
    *ret_shape = (tutti__shape_t){ .size = ranks,
                                   .nhosts = hosts,
                                   .host_of = host_of,
                                   .local_of = local_of,
                                   .host_first = first,
                                   .by_host = by_host,
                                   .min_local = min_local };
    return TUTTI_OK;
}

/* The link of this machine. The report assumes the same link for all hosts. */
static tutti__cost_link_t find_link(const tutti__conf_t *conf)
{
    tutti__topo_facts_t facts;
    tutti__cost_link_t link;

    tutti__topo_find_link("/sys", conf->interface, &facts);
    link = tutti__cost_link(conf->shared.link_mbps != 0 ? conf->shared.link_mbps : facts.link_mbps,
                            conf->shared.link_ns, (int)facts.link_is_rdma);
    link.slot_bytes = conf->shared.chunk_bytes != TUTTI__CONF_AUTO
                          ? conf->shared.chunk_bytes
                          : tutti__cost_chunk_bytes(&link, 0);
    return link;
}

static tutti_status_t tell_algorithms(const listener_t *to, const char *what)
{
    chooser_t chooser = { .to = to };
    tutti_status_t status;
    tutti__conf_t conf;

    status = make_shape(what, &chooser.shape);
    if (status != TUTTI_OK)
        return status;
    read_settings(&conf);
    chooser.shape.group_size = (uint32_t)conf.shared.group_size;
    chooser.shape.link = find_link(&conf);
    chooser.override = conf.shared.algorithm;
    chooser.association = conf.shared.strict ? TUTTI__STRICT_ASSOCIATION : TUTTI__ANY_ASSOCIATION;
    if (tutti__override_parse(chooser.override, &chooser.forced) != TUTTI_OK)
        chooser.forced.n = 0;
    for (int c = 0; c < TUTTI__COLLECTIVES; c++)
        tell_collective(&chooser, (tutti__collective_t)c);
    free((void *)(uintptr_t)chooser.shape.host_first);
    return TUTTI_OK;
}

tutti_status_t tutti__info(tutti__info_topic_t topic, const char *what, tutti__info_put_t put_item,
                           void *arg)
{
    listener_t to = { put_item, arg };

    switch (topic) {
    case TUTTI__INFO_BUILD:
        return tell_build(&to);
    case TUTTI__INFO_SETTINGS:
        return tell_settings(&to, what);
    case TUTTI__INFO_MODULES:
        tell_modules(&to);
        return TUTTI_OK;
    case TUTTI__INFO_PROBE:
        return tell_probe(&to, what);
    case TUTTI__INFO_PLACE:
        return tell_place(&to);
    case TUTTI__INFO_ALGORITHMS:
        return tell_algorithms(&to, what);
    }
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "there is no topic %d", (int)topic);
}
