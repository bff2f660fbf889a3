/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * First contact: compare versions, exchange metadata, connect the side channel's tree.
 *
 * The first exchange is one block of HELLO_BYTES from every rank. Its size never changes, so
 * different versions of the library can report the difference to each other. After the exchange all
 * ranks have the same data, apply the same rules and return the same error text. If a rank has
 * failed before the exchange (for example, it cannot open a socket), its block contains the error.
 * Then the ranks connect the tree, and agree: if one rank has failed, all ranks fail.
 *
 * This file runs on the thread that makes the communicator.
 */
#include "base/constants.h"
#include "base/log.h"
#include "boot/boot_inside.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x6f6c6c6568747475u /* "utthello"; also detects a different byte order */
#define HELLO_BYTES 4096
/* Descriptors that a rank opens besides its connections to other ranks; see files_needed. */
#define FILES 12u
/* The settings in a hello: all but the paths. */
#define CONF_BYTES offsetof(tutti__conf_shared_t, dump)

/* Lengths of the paths in the settings. Rank 0 sends its paths after the exchange of hellos. */
typedef struct {
    uint32_t dump, trace;
} path_bytes_t;

typedef struct {
    /* These fields have the same offsets in all versions. */
    uint64_t magic;
    uint32_t layout, version;
    int32_t status; /* an earlier error of this rank, with its text */
    uint32_t unused;
    char text[256];
    /* The offsets of these fields depend on `layout`. */
    uint64_t pid_namespace;
    tutti__gate_token_t token; /* all ranks use rank 0's */
    unsigned char door[16];
    uint64_t id; /* of the communicator; all ranks use rank 0's */
    tutti__topo_facts_t facts;
    path_bytes_t path_bytes;
    char conf[CONF_BYTES]; /* the first fields of tutti__conf_shared_t; all ranks use rank 0's */
} hello_t;

typedef union {
    hello_t it;
    char bytes[HELLO_BYTES];
} hello_block_t;

_Static_assert(sizeof(hello_block_t) == HELLO_BYTES, "a hello has outgrown its block");

/* A rank's status in tutti__boot_agree. All ranks return the status of the lowest failed rank. */
typedef struct {
    int32_t status;
    char text[TUTTI__ERROR_BYTES - 4];
} agree_t;

static uint64_t pid_namespace(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* Fill in this rank's hello and open its Unix socket. */
static tutti_status_t prepare(tutti__boot_t *boot, const tutti__conf_t *conf, hello_t *hello)
{
    tutti_status_t status;

    hello->pid_namespace = pid_namespace();
    memcpy(hello->conf, &conf->shared, CONF_BYTES);
    hello->path_bytes =
        (path_bytes_t){ (uint32_t)strlen(conf->shared.dump), (uint32_t)strlen(conf->shared.trace) };
    status = tutti__topo_detect(conf->host_id, &hello->facts);
    if (status != TUTTI_OK)
        return status;
    tutti__topo_find_link("/sys", conf->interface, &hello->facts);
    status = tutti__net_random(&hello->token, sizeof(hello->token));
    if (status != TUTTI_OK)
        return status;
    status = tutti__net_random(&hello->id, sizeof(hello->id));
    if (status != TUTTI_OK)
        return status;
    status = tutti__net_random(hello->door, sizeof(hello->door));
    if (status != TUTTI_OK || boot->meet.size == 1)
        return status;
    return tutti__net_unix_listen(hello->door, sizeof(hello->door), &boot->door);
}

static void version_text(uint32_t version, uint32_t layout, char *ret_text, size_t text_bytes)
{
    snprintf(ret_text, text_bytes, "%u.%u.%u (layout %u)", version >> 16, version >> 8 & 255,
             version & 255, layout);
}

/* Check that rank r has rank 0's version, and has reported no error. All ranks get the same
   result. */
static tutti_status_t judge(const hello_t *first, const hello_t *hello, uint32_t r)
{
    char theirs[48], ours[48];

    if (hello->magic != MAGIC)
        return tutti__fail(TUTTI_ERR_ABI,
                           "rank %u runs something that is no Tutti, or has another byte order", r);
    if (hello->layout != first->layout || hello->version != first->version) {
        version_text(hello->version, hello->layout, theirs, sizeof(theirs));
        version_text(first->version, first->layout, ours, sizeof(ours));
        return tutti__fail(TUTTI_ERR_ABI, "rank %u runs Tutti %s, rank 0 runs %s", r, theirs, ours);
    }
    if (hello->status != TUTTI_OK)
        return tutti__fail((tutti_status_t)hello->status, "rank %u: %.*s", r,
                           (int)sizeof(hello->text), hello->text);
    return TUTTI_OK;
}

static uint64_t wait_ms(uint64_t timeout_ms)
{
    return timeout_ms == 0 ? TUTTI__BOOT_CONNECT_MS : timeout_ms;
}

/* Replace this rank's timeout by rank 0's, counted from the time at which this rank's own timeout
   began. */
static void take_timeout(tutti__boot_t *boot, uint64_t timeout_ms)
{
    uint64_t begun = boot->deadline - tutti__net_span(boot->timeout_ms);

    boot->timeout_ms = wait_ms(timeout_ms);
    boot->deadline = begun + tutti__net_span(boot->timeout_ms);
}

/* Check the hellos, and store their contents. */
static tutti_status_t learn(tutti__boot_t *boot, tutti__conf_t *conf, const hello_block_t *hellos)
{
    uint32_t size = boot->meet.size, rank = boot->meet.rank;
    tutti__topo_facts_t *facts;
    tutti_status_t status;

    for (uint32_t r = 0; r < size; r++) {
        status = judge(&hellos[0].it, &hellos[r].it, r);
        if (status != TUTTI_OK)
            return status;
    }
    if (TUTTI__MAX(hellos[0].it.path_bytes.dump, hellos[0].it.path_bytes.trace) >= TUTTI__CONF_PATH)
        return tutti__fail(TUTTI_ERR_INTERNAL, "rank 0's hello is damaged: a path is too long");
    facts = calloc(size, sizeof(*facts));
    boot->peers = calloc(size, sizeof(*boot->peers));
    if (facts == NULL || boot->peers == NULL) {
        free(facts);
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "metadata of %u ranks", size);
    }
    for (uint32_t r = 0; r < size; r++) {
        int same = hellos[r].it.pid_namespace == hellos[rank].it.pid_namespace;

        facts[r] = hellos[r].it.facts;
        boot->peers[r].pid = same && hellos[r].it.pid_namespace != 0 ? facts[r].pid : -1;
        memcpy(boot->peers[r].door, hellos[r].it.door, sizeof(boot->peers[r].door));
    }
    boot->peers[rank].pid = (int)boot->owner;
    boot->token = hellos[0].it.token;
    boot->id = hellos[0].it.id;
    memcpy(&conf->shared, hellos[0].it.conf, CONF_BYTES);
    take_timeout(boot, conf->shared.timeout_ms);
    status = tutti__topo_make(facts, size, rank, &boot->topo);
    free(facts);
    return status;
}

/* Exchange the hellos. ret_path_bytes: rank 0's lengths; set on success. */
static tutti_status_t say_hello(tutti__boot_t *boot, tutti__conf_t *conf,
                                path_bytes_t *ret_path_bytes)
{
    uint32_t size = boot->meet.size;
    hello_block_t mine, *all = calloc(size, sizeof(*all));
    tutti_status_t status;

    if (all == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "hellos of %u ranks", size);
    memset(&mine, 0, sizeof(mine));
    mine.it.magic = MAGIC;
    mine.it.layout = TUTTI__BOOT_LAYOUT;
    mine.it.version = TUTTI_API_VERSION;
    mine.it.status = (int32_t)prepare(boot, conf, &mine.it);
    if (mine.it.status != TUTTI_OK) {
        snprintf(mine.it.text, sizeof(mine.it.text), "%s", tutti_last_error());
        tutti__net_failed((tutti_status_t)mine.it.status);
    }
    status = tutti__boot_allgather(boot, &mine, sizeof(mine), all);
    if (status == TUTTI_OK)
        status = learn(boot, conf, all);
    if (status == TUTTI_OK)
        *ret_path_bytes = all[0].it.path_bytes;
    free(all);
    return status;
}

/* Replace a path in this rank's settings by rank 0's path, which has `bytes` bytes. */
static tutti_status_t share_path(tutti__boot_t *boot, size_t bytes, char *path)
{
    if (boot->meet.rank != 0)
        memset(path, 0, TUTTI__CONF_PATH);
    return bytes == 0 ? TUTTI_OK : tutti__boot_send_text(boot, path, bytes);
}

static tutti_status_t share_paths(tutti__boot_t *boot, const path_bytes_t *bytes,
                                  tutti__conf_shared_t *conf)
{
    tutti_status_t status = share_path(boot, bytes->dump, conf->dump);

    return status == TUTTI_OK ? share_path(boot, bytes->trace, conf->trace) : status;
}

/*
 * The largest number of descriptors that this rank has open at a time. Each neighbour has a link
 * and a pidfd. While ranks pass arenas, this rank has two descriptors for each rank of its machine.
 * The machine's lowest rank also has a connection to each other rank of the machine.
 */
static uint32_t files_needed(const tutti__boot_t *boot)
{
    const tutti__topo_t *topo = boot->topo;
    uint32_t host = topo->host_of[topo->rank], center = 0;
    uint32_t locals = topo->host_first[host + 1] - topo->host_first[host];
    uint32_t files = FILES + 2 + 2 * topo->machine_ranks; /* 2: link and pidfd of the parent */

    while (topo->machine_of[center] != topo->machine_of[topo->rank])
        center++;
    if (center == topo->rank)
        files += topo->machine_ranks;
    if (tutti__boot_leader(boot, topo->rank) == topo->rank)
        files += 2 * locals;
    /* A link and a pidfd for each leader of another host. The pidfd is needed only for a leader on
       this machine (pretended hosts, TUTTI_HOST_ID). */
    if (topo->rank == 0)
        files += 2 * (topo->nhosts - 1);
    return files;
}

/* Keep the Unix socket open only on the rank that will pass descriptors through it. */
static void close_door(tutti__boot_t *boot)
{
    const tutti__topo_t *topo = boot->topo;
    int lowest = 1;

    for (uint32_t r = 0; r < topo->rank; r++)
        lowest = lowest && topo->machine_of[r] != topo->machine_of[topo->rank];
    if (!lowest || topo->machine_ranks == 1)
        tutti__boot_shut_door(boot);
}

/* After the first exchange the marks are no longer needed: each rank has the process ids of its
   machine. */
static void shut_marks(tutti__boot_t *boot)
{
    if (boot->meet.marks == NULL)
        return;
    tutti__net_watch_meeting(NULL, NULL);
    tutti__marks_close(boot->meet.marks);
    boot->meet.marks = NULL;
}

tutti_status_t tutti__boot_open(const tutti__meet_t *meet, tutti__conf_t *conf,
                                tutti__boot_t **ret_boot)
{
    tutti__boot_t *boot = calloc(1, sizeof(*boot));
    path_bytes_t path_bytes;
    tutti_status_t status;

    if (boot == NULL) {
        tutti__marks_close(meet->marks);
        meet->close(meet->ctx);
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "first contact");
    }
    boot->meet = *meet;
    boot->owner = getpid();
    boot->door = -1;
    boot->side.epfd = boot->side.parent = -1;
    boot->timeout_ms = wait_ms(conf->shared.timeout_ms);
    boot->deadline = meet->deadline != 0 ? meet->deadline : tutti__net_deadline(boot->timeout_ms);
    if (meet->still != NULL)
        tutti__net_watch_meeting(meet->still, meet->ctx);
    else if (meet->marks != NULL)
        tutti__net_watch_meeting(tutti__marks_still, meet->marks);
    status = say_hello(boot, conf, &path_bytes);
    shut_marks(boot);
    if (status != TUTTI_OK)
        goto close_boot;
    if (meet->still == NULL) {
        boot->meeting = 1;
        tutti__net_watch_meeting(tutti__boot_peers_still, boot);
    }

    /* From here on each rank takes part in each collective step, even if the rank has failed. */
    status = tutti__side_begin(boot);
    if (status == TUTTI_OK && boot->meet.size > 1)
        status = tutti__net_files_left(files_needed(boot));
    status = tutti__boot_agree(boot, status);
    if (status == TUTTI_OK)
        status = share_paths(boot, &path_bytes, &conf->shared);
    if (status != TUTTI_OK)
        goto close_boot;
    status = tutti__boot_connect(boot, conf);
    if (status == TUTTI_OK)
        status = tutti__side_start(boot);
    status = tutti__boot_agree(boot, status);
    if (status != TUTTI_OK)
        goto close_boot;
    close_door(boot);
    tutti__boot_remember(boot);
    *ret_boot = boot;
    return TUTTI_OK;

close_boot:
    tutti__boot_close(boot);
    return status;
}

/* After this call, waits no longer call the meeting's own check (tutti__net_watch_meeting). */
static void forget_meeting(tutti__boot_t *boot)
{
    if (boot->meet.still != NULL || boot->meeting)
        tutti__net_watch_meeting(NULL, NULL);
    boot->meeting = 0;
}

void tutti__boot_settle(tutti__boot_t *boot)
{
    forget_meeting(boot);
    tutti__boot_shut_door(boot);
    if (boot->meet.settle != NULL)
        boot->meet.settle(boot->meet.ctx);
}

void tutti__boot_close(tutti__boot_t *boot)
{
    if (boot == NULL)
        return;
    tutti__boot_forget(boot);
    forget_meeting(boot);
    tutti__side_end(boot);
    tutti__boot_shut_door(boot);
    boot->meet.close(boot->meet.ctx);
    tutti__topo_free(boot->topo);
    free(boot->peers);
    free(boot);
}

const tutti__topo_t *tutti__boot_topo(const tutti__boot_t *boot)
{
    return boot->topo;
}

uint64_t tutti__boot_id(const tutti__boot_t *boot)
{
    return boot->id;
}

uint64_t tutti__boot_deadline(const tutti__boot_t *boot)
{
    return boot->deadline;
}

uint64_t tutti__boot_step_deadline(const tutti__boot_t *boot)
{
    return TUTTI__MIN(boot->deadline, tutti__net_deadline(TUTTI__BOOT_CONNECT_MS));
}

tutti_status_t tutti__boot_allgather(tutti__boot_t *boot, const void *mine, size_t bytes,
                                     void *ret_all)
{
    /* The previous step may have lasted until the deadline, so this step has a little more time. */
    uint64_t until = boot->deadline + tutti__net_span(TUTTI__MIN(boot->timeout_ms / 8, 1000u));

    return boot->meet.allgather(boot->meet.ctx, mine, bytes, ret_all,
                                (uint64_t)tutti__net_left_ms(until));
}

/* Can this error be the consequence of another rank's end? */
static int may_follow(tutti_status_t status)
{
    return status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_TRANSPORT ||
           status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_SYSTEM;
}

tutti_status_t tutti__boot_agree(tutti__boot_t *boot, tutti_status_t mine)
{
    uint32_t size = boot->meet.size;
    agree_t *all = calloc(size, sizeof(*all)), own = { .status = (int32_t)mine };
    tutti_status_t status;

    if (all == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "statuses of %u ranks", size);
    if (mine != TUTTI_OK) {
        snprintf(own.text, sizeof(own.text), "%s", tutti_last_error());
        tutti__net_failed(mine);
        if (boot->meeting && (mine == TUTTI_ERR_PEER_LOST || mine == TUTTI_ERR_TRANSPORT))
            tutti__boot_await_death(boot);
    }
    status = tutti__boot_allgather(boot, &own, sizeof(own), all);
    if (status != TUTTI_OK) {
        free(all);
        /* If this rank's error can be the consequence of another rank's end, return the error of
           the allgather, which names that rank. */
        if (mine == TUTTI_OK ||
            (may_follow(mine) && (mine != TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_PEER_LOST)))
            return status;
        return tutti__fail(mine, "%s", own.text);
    }
    for (uint32_t r = 0; r < size && status == TUTTI_OK; r++)
        if (all[r].status != TUTTI_OK)
            status = tutti__fail((tutti_status_t)all[r].status, "rank %u: %.*s", r,
                                 (int)sizeof(all[r].text), all[r].text);
    free(all);
    return status;
}

/* ---- names of ranks ---- */

uint32_t tutti__boot_world_rank(const tutti__boot_t *boot, uint32_t rank, int *ret_is_group)
{
    *ret_is_group = 0;
    if (boot != NULL && boot->meet.world_rank != NULL)
        *ret_is_group = boot->meet.comm_name != NULL ? 2 : 1;
    return *ret_is_group ? boot->meet.world_rank[rank] : rank;
}

const char *tutti__boot_rank_name(const tutti__boot_t *boot, uint32_t rank)
{
    static _Thread_local char texts[4][128];
    static _Thread_local unsigned turn;
    char *text = texts[turn++ % 4];
    const char *name = boot != NULL ? boot->meet.comm_name : NULL;
    int is_group;
    uint32_t world_rank = tutti__boot_world_rank(boot, rank, &is_group);

    if (is_group && name != NULL)
        snprintf(text, sizeof(texts[0]), "rank %u of the group (rank %u of %s)", rank, world_rank,
                 name);
    else if (is_group)
        snprintf(text, sizeof(texts[0]), "rank %u of the group (world rank %u)", rank, world_rank);
    else if (name != NULL)
        snprintf(text, sizeof(texts[0]), "rank %u of %s", rank, name);
    else
        snprintf(text, sizeof(texts[0]), "rank %u", rank);
    return text;
}
