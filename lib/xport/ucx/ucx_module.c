/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * UCX's context, which the transports of all communicators share, and UCX's settings.
 *
 * The module changes some defaults of UCX, for its own context only and never in the environment:
 * see choose(). If a setting has another value than UCX's default, the module does not change it.
 * If UCX_TCP_RX_SEG_SIZE is set, the module does not change it. Exceptions: the module always
 * changes TCP_PUT_ENABLE, and where only TCP carries the messages, ZCOPY_THRESH. UCX detects the
 * memory type of a buffer, unless the caller passes the type. All calls of the module pass the
 * type, so UCX installs no memory hooks on a host without InfiniBand.
 *
 * UCX installs signal handlers when it is loaded, whatever its settings are. The library restores
 * the program's handlers after it has loaded this module (boot/module_ucx.c).
 *
 * UCX has a thread of its own for connections. A forked child does not have this thread. So a child
 * of a process with an open context cannot use UCX.
 */
#include "xport/ucx/ucx_module.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The longest piece that UCX reads from a TCP connection ("segment"): a message of 256 KiB and
   UCX's headers. UCX's default is 64 KiB. Measured: docs/decisions.md, "With up to 64 ranks". */
#define TCP_SEGMENT "257k"

static struct {
    pthread_mutex_t lock; /* protects the fields below */
    const tutti__core_t *core;
    ucp_context_h context;
    int wakes; /* 1: the context's workers have descriptors, which report messages */
    uint32_t users;
    pid_t pid; /* the process that opened the context */
} ucx = { .lock = PTHREAD_MUTEX_INITIALIZER };

tutti_status_t tutti__ucx_fail(tutti_status_t status, const char *fmt, ...)
{
    char text[TUTTI__ERROR_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return ucx.core->fail(status, text);
}

tutti_status_t tutti__ucx_fail_code(ucs_status_t code, const char *fmt, ...)
{
    char what[TUTTI__ERROR_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    return tutti__ucx_fail(code == UCS_ERR_NO_MEMORY ? TUTTI_ERR_NO_MEMORY : TUTTI_ERR_TRANSPORT,
                           "ucx: %.300s: %.100s", what, ucs_status_string(code));
}

void tutti__ucx_log(tutti__log_level_t level, const char *fmt, ...)
{
    char text[TUTTI__ERROR_BYTES];
    va_list args;

    if (!ucx.core->log_on(level))
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    ucx.core->log(level, text);
}

int tutti__ucx_log_on(tutti__log_level_t level)
{
    return ucx.core->log_on(level);
}

void tutti__ucx_block_signals(sigset_t *ret_before)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, ret_before);
}

void tutti__ucx_restore_signals(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* Returns 1 if this value of UCX_TLS allows TCP. A value "^..." lists the excluded transports. */
static int has_tcp(const char *transports)
{
    size_t length = strcspn(transports, "\n");
    const char *found = strstr(transports, "tcp");
    int is_listed = found != NULL && found < transports + length;

    return transports[0] == '^' ? !is_listed : is_listed;
}

/* Change a setting of TCP, named "TCP_...". Up to UCX 1.13 the name does not contain "TCP_". */
static void set_tcp(ucp_config_t *config, const char *name, const char *value)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    ucp_config_modify(config, major == 1 && minor <= 13 ? name + strlen("TCP_") : name, value);
}

int tutti__ucx_has_rdma(void)
{
    DIR *dir = opendir("/sys/class/infiniband");
    struct dirent *entry = NULL;

    if (dir == NULL)
        return 0;
    do {
        entry = readdir(dir);
    } while (entry != NULL && entry->d_name[0] == '.');
    closedir(dir);
    return entry != NULL;
}

/*
 * Change UCX's settings of TCP. A write to remote memory ("put") needs a poll of the peer, so puts
 * are disabled. A message of 256 KiB is one segment, so UCX reads it in one piece. The length of a
 * segment must be equal on all ranks, so it does not depend on the communicator.
 *
 * is_alone 1: only TCP carries the messages. In this case long messages use no rendezvous, because
 * a rendezvous needs several polls of both ranks: docs/decisions.md. Also no message is copied,
 * whatever the user has set: UCX reports a copied message as complete even if the socket has no
 * room for it, and perhaps this rank does not poll again: see chan.c. Tried: copy messages of at
 * most 1 KiB. An allreduce of 8 bytes took 7.8 us instead of 8.6 (medians of 60 runs; 2 hosts,
 * namespaces of one machine, Xeon 2.5 GHz). But of 2900 short trainings of 3 ranks, 7 waited for
 * ever: in a step with several buckets the socket was full.
 */
static void choose_tcp(ucp_config_t *config, const char *text, int is_alone)
{
    set_tcp(config, "TCP_PUT_ENABLE", "n");
    if (ucx.core->env("UCX_TCP_RX_SEG_SIZE") == NULL)
        set_tcp(config, "TCP_RX_SEG_SIZE", TCP_SEGMENT);
    if (!is_alone)
        return;
    /* The second text: from UCX 1.17 on */
    if (strstr(text, "UCX_RNDV_THRESH=auto\n") != NULL ||
        strstr(text, "UCX_RNDV_THRESH=intra:auto,inter:auto\n") != NULL)
        ucp_config_modify(config, "RNDV_THRESH", "inf");
    ucp_config_modify(config, "ZCOPY_THRESH", "0");
}

/*
 * Change UCX's settings. The ranks of one host do not use UCX for messages to each other, so UCX's
 * shared memory is disabled. It would take space in /dev/shm, which is small in containers. If no
 * space is left there, UCX ends the process.
 *
 * rdma 1: RDMA carries the messages. Then messages longer than a frame (exec/exec.h) with 1 KiB of
 * data are not copied.
 */
static void choose(ucp_config_t *config, int rdma)
{
    static const char name[] = "UCX_TLS=";
    char *text = NULL, *transports;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    if (file == NULL)
        return;
    ucp_config_print(config, file, NULL, UCS_CONFIG_PRINT_CONFIG);
    fclose(file);
    transports = text != NULL ? strstr(text, name) : NULL;
    if (transports != NULL) {
        int is_default = strncmp(transports + strlen(name), "all\n", 4) == 0;

        if (is_default)
            ucp_config_modify(config, "TLS", "^posix,sysv");
        if (strstr(text, "UCX_ZCOPY_THRESH=auto") != NULL)
            ucp_config_modify(config, "ZCOPY_THRESH", "1041");
        /* Without TCP, UCX would warn of TCP's settings. */
        if (is_default || has_tcp(transports + strlen(name)))
            choose_tcp(config, text, !rdma);
    }
    free(text);
}

/*
 * Can UCX use RDMA? The machine may have a device that UCX cannot use: UCX_TLS or UCX_NET_DEVICES
 * excludes it, a container does not contain it, or UCX lacks its module. UCX has no function for
 * this, so the text of ucp_context_print_info is searched. It has lines such as
 *
 *      #      resource 2  :  md 1  dev 2  flags -- rc_verbs/mlx5_0:1
 */
static int can_use_rdma(ucp_context_h context)
{
    static const char *const names[] = { "-- rc_", "-- ud_", "-- dc_", "-- srd" };
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    int found = 0;

    if (file == NULL)
        return 1;
    ucp_context_print_info(context, file);
    fclose(file);
    for (size_t i = 0; text != NULL && i < sizeof(names) / sizeof(*names); i++)
        found |= strstr(text, names[i]) != NULL;
    free(text);
    return found;
}

static ucs_status_t open_context(const ucp_params_t *params, int rdma)
{
    ucp_config_t *config;
    ucs_status_t code = ucp_config_read(NULL, NULL, &config);
    sigset_t before;

    if (code != UCS_OK)
        return code;
    choose(config, rdma);
    tutti__ucx_block_signals(&before);
    code = ucp_init(params, config, &ucx.context);
    tutti__ucx_restore_signals(&before);
    ucp_config_release(config);
    return code;
}

/*
 * Make the context. shares 1: the ranks of the first communicator share processors; later
 * communicators use the same context. If a worker has a descriptor, a message wakes a rank that
 * sleeps. Over TCP the descriptor makes each message 0.3 us slower, even if no rank sleeps, because
 * the kernel reports each arrival also to the descriptor. Ranks with a processor of their own spin
 * for about a millisecond before they sleep. So over TCP, workers have a descriptor only if ranks
 * share processors. Under the lock.
 */
static ucs_status_t make_context(uint32_t size, int shares)
{
    const int rdma = tutti__ucx_has_rdma(), wakes = shares || rdma;
    const ucp_params_t params = { .field_mask =
                                      UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_TAG_SENDER_MASK |
                                      UCP_PARAM_FIELD_MT_WORKERS_SHARED |
                                      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME,
                                  .features = UCP_FEATURE_TAG | (wakes ? UCP_FEATURE_WAKEUP : 0),
                                  .tag_sender_mask = ~(uint64_t)0 << 40,
                                  .mt_workers_shared = 1,
                                  .estimated_num_eps = size,
                                  .name = "tutti" };
    ucs_status_t code = open_context(&params, rdma);

    if (code == UCS_OK && rdma && !can_use_rdma(ucx.context)) {
        ucp_cleanup(ucx.context);
        code = open_context(&params, 0);
    }
    ucx.wakes = wakes;
    return code;
}

tutti_status_t tutti__ucx_take_context(const tutti__core_t *core, uint32_t size, int shares,
                                       ucp_context_h *ret_context, int *ret_wakes)
{
    tutti_status_t status = TUTTI_OK;
    ucs_status_t code = UCS_OK;
    int is_first;

    pthread_mutex_lock(&ucx.lock);
    ucx.core = core;
    is_first = ucx.users == 0;
    if (!is_first && ucx.pid != getpid())
        status = tutti__ucx_fail(TUTTI_ERR_UNSUPPORTED,
                                 "ucx: this process was forked while its parent used UCX");
    else if (is_first)
        code = make_context(size, shares);
    if (code != UCS_OK)
        status = tutti__ucx_fail_code(code, "opening UCX");
    if (status == TUTTI_OK) {
        ucx.pid = getpid();
        ucx.users++;
        *ret_context = ucx.context;
        *ret_wakes = ucx.wakes;
    }
    pthread_mutex_unlock(&ucx.lock);
    if (status == TUTTI_OK && is_first)
        tutti__ucx_log(TUTTI__LOG_DEBUG, "ucx: version %s", ucp_get_version_string());
    return status;
}

/*
 * UCX has a named type for each kind of device memory, such as "cuda". The context lists the types
 * for which UCX has a module. Over TCP, UCX cannot send from device memory: UCX would copy the data
 * to the host in pieces of 8 KiB (UCX_TCP_TX_SEG_SIZE), and wait for each copy. Tutti copies long
 * pieces, and does not wait for each copy. So without RDMA, UCX gets no device memory.
 */
tutti_status_t tutti__ucx_find_device(ucp_context_h context, const char *device,
                                      ucs_memory_type_t *ret_type)
{
    ucp_context_attr_t about = { .field_mask = UCP_ATTR_FIELD_MEMORY_TYPES };
    int type = 0;

    while (type < UCS_MEMORY_TYPE_LAST && strcmp(ucs_memory_type_names[type], device) != 0)
        type++;
    if (type == UCS_MEMORY_TYPE_LAST || ucp_context_query(context, &about) != UCS_OK ||
        (about.memory_types & UCS_BIT(type)) == 0)
        return tutti__ucx_fail(TUTTI_ERR_UNSUPPORTED,
                               "ucx: this UCX does not support %s memory: its module for it is not "
                               "installed, or UCX_TLS excludes it",
                               device);
    if (!tutti__ucx_has_rdma())
        return tutti__ucx_fail(TUTTI_ERR_UNSUPPORTED,
                               "ucx: without an RDMA device, UCX would copy %s memory in small "
                               "pieces",
                               device);
    *ret_type = (ucs_memory_type_t)type;
    return TUTTI_OK;
}

void tutti__ucx_drop_context(void)
{
    pthread_mutex_lock(&ucx.lock);
    if (--ucx.users == 0)
        ucp_cleanup(ucx.context);
    pthread_mutex_unlock(&ucx.lock);
}

/* The one symbol of the module. */
TUTTI_API extern const tutti__ucx_module_t tutti_module;

const tutti__ucx_module_t tutti_module = {
    .abi = TUTTI__MODULE_ABI,
    .name = "ucx",
    .version = ucp_get_version_string,
    .open = tutti__ucx_open,
    .connect = tutti__ucx_connect,
};
