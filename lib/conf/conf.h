/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The settings: one table of TUTTI_* variables, the only caller of getenv.
 *
 * Read once per tutti_init. The first part is the same on all ranks: rank 0's values are sent to
 * everyone (so that all ranks choose alike); the second part belongs to each rank.
 */
#ifndef TUTTI__CONF_CONF_H
#define TUTTI__CONF_CONF_H

#include <tutti/tutti.h>

#include <stdio.h>

#define TUTTI__CONF_TEXT 256
#define TUTTI__CONF_LONG_TEXT 2048

/* Of a number: the library decides. */
#define TUTTI__CONF_AUTO UINT64_MAX

/* Plain data: sent between ranks as bytes. */
typedef struct {
    uint64_t fusion_bytes;     /* TUTTI_FUSION_BYTES: largest fused bucket; 0: no fusion; or AUTO */
    uint64_t chunk_bytes;      /* TUTTI_CHUNK_BYTES: one slot of a channel */
    uint64_t credits;          /* TUTTI_CREDITS: slots per channel */
    uint64_t oneshot_bytes;    /* TUTTI_ONESHOT_BYTES: ranks x bytes up to which one-shot serves */
    uint64_t node_chunk_bytes; /* TUTTI_NODE_CHUNK_BYTES: one pipeline chunk of two-shot */
    uint64_t l3_bytes;         /* TUTTI_L3_BYTES: of one L3 cache; AUTO */
    uint64_t huge_pages;       /* TUTTI_HUGE_PAGES: tutti__huge_t of mem/shared.h */
    uint64_t timeout_ms;       /* TUTTI_TIMEOUT (seconds in the variable): deadline of each wait */
    uint64_t stall_ms;         /* TUTTI_STALL_WARNING (seconds): report tensors missing so long */
    uint64_t strict;           /* TUTTI_DETERMINISTIC=strict: one association class */
    uint64_t check;            /* TUTTI_CHECK: 1: prove schedules */
    uint64_t compare;          /* TUTTI_COMPARE: 1: direct calls, before data moves */
    uint64_t group_size;       /* TUTTI_GROUP_SIZE: local ranks of a core group; 0: all */
    uint64_t stage_bytes;      /* TUTTI_STAGE_BYTES: pinned host memory of each lane */
    uint64_t device_chunk_bytes;  /* TUTTI_DEVICE_CHUNK_BYTES: one chunk of a device's pipeline */
    uint64_t device_staged_bytes; /* TUTTI_DEVICE_STAGED_BYTES: allreduces of several hosts that are
                                     made in host memory; or AUTO */
    uint64_t gpu_direct;  /* TUTTI_GPU_DIRECT: 1: device memory to other hosts, where it works */
    uint64_t stream_wait; /* TUTTI_STREAM_WAIT=device: streams wait for the host's share */
    char algorithm[TUTTI__CONF_LONG_TEXT]; /* TUTTI_ALGORITHM */
    char xport[TUTTI__CONF_TEXT];          /* TUTTI_XPORT: "auto", "shm", "mpi" between hosts */
} tutti__conf_shared_t;

typedef struct {
    tutti__conf_shared_t shared;
    int64_t log_level;                /* TUTTI_LOG: tutti__log_level_t */
    char isa[TUTTI__CONF_TEXT];       /* TUTTI_ISA: as tutti__reduce_force takes it */
    char host_id[TUTTI__CONF_TEXT];   /* TUTTI_HOST_ID: "" = this machine's own */
    char module_dir[4096];            /* TUTTI_MODULE_DIR: "" = where they were installed */
    char boot[TUTTI__CONF_TEXT];      /* TUTTI_BOOT: "" = find out; "self"; "mpi"; "local:NAME" */
    int64_t rank, size;               /* TUTTI_RANK, TUTTI_SIZE for local:NAME; -1: not given */
    char interface[TUTTI__CONF_TEXT]; /* TUTTI_INTERFACE: network interface of the side channel */
    char tuned[4096];                 /* TUTTI_TUNED: "" = this machine's own file; "none" */
    char device[TUTTI__CONF_TEXT];    /* TUTTI_DEVICE: "auto"; "none"; a module's name */
    int64_t device_id;                /* TUTTI_DEVICE_ID; -1: not given */
} tutti__conf_t;

/*
 * Defaults, then the tuned file (tuned.h), then the environment; an empty value counts as not set.
 * A value that makes no sense is TUTTI_ERR_INVALID_ARGUMENT, naming variable, value and what is
 * allowed; a tuned file that makes no sense is a warning, and none of it counts. Once per process,
 * and in rank 0 only where a launcher, or TUTTI_RANK with local:NAME, says who that is: unknown
 * TUTTI_* names warn (TUTTI_TEST_* do not), the tuned file is spoken of, TUTTI_HELP=1 prints the
 * table. Does not set up the log.
 */
tutti_status_t tutti__conf_read(tutti__conf_t *ret_conf);

/* One setting, as text. */
typedef struct {
    const char *name;
    const char *value; /* as it is written, "" if not set; of the environment: as it is there */
    const char *from;  /* "default", "environment", "tuned file" */
    const char *wrong; /* the allowed values, if this value is invalid; else NULL */
} tutti__conf_shown_t;

/*
 * Show all settings and where each comes from. Prints nothing, and sets no error.
 *
 * setting    called for each row of the table; its texts are valid during the call
 * unknown    called for each TUTTI_* variable that is no setting; guess: the setting that may be
 *            meant, or NULL
 * ret_conf   the settings; an invalid value leaves the default
 * ret_tuned  which tuned file counts, or why none does
 */
void tutti__conf_show(void (*setting)(void *arg, const tutti__conf_shown_t *shown),
                      void (*unknown)(void *arg, const char *name, const char *guess), void *arg,
                      tutti__conf_t *ret_conf, char *ret_tuned, size_t room);

/* All defaults, no environment: for tests and for what tests build on. */
void tutti__conf_defaults(tutti__conf_t *ret_conf);

/* 1: NCCL_MULTI_RANK_GPU_ENABLE is set, with which NCCL 2.30.3 and later take several ranks on one
   GPU. */
int tutti__conf_nccl_shares_gpus(void);
/* NCCL_HOSTID, which NCCL takes for the host's name: so ranks with one each may share a GPU, and
   talk over sockets. NULL: it is not set. The environment's. */
const char *tutti__conf_nccl_host(void);

/* What the launcher's variables say: N of the job, 0 if started by nobody. `ret_name` gets the
   launcher's name for messages ("mpirun"); not touched if the answer is 0. */
int tutti__conf_launcher_size(const char **ret_name);
/* Its rank of this process; -1 if it does not say. MPI may say something else. */
int tutti__conf_launcher_rank(void);
/* How many ranks it started on this host; with srun, on the job's first host; 0 if it does not say.
   Of several hosts rank 0's answer counts, as with all settings. */
int tutti__conf_launcher_local_size(void);
/* A text that is equal on all ranks of the launcher's job on this host, and different in other
   jobs; "": not known. */
void tutti__conf_launcher_job(char *ret_text, size_t text_bytes);

/* Do the launchers' variables contradict a world of one? */
typedef enum {
    TUTTI__CONF_ALONE,         /* no variable contradicts */
    TUTTI__CONF_PERHAPS_ALONE, /* a variable contradicts, but may be left over */
    TUTTI__CONF_IN_COMPANY     /* certainly */
} tutti__conf_company_t;
/* ret_text: the variables and their values; not touched if none contradicts. */
tutti__conf_company_t tutti__conf_company(char *ret_text, size_t text_bytes);

/* Which MPI the launcher belongs to: "openmpi", "mpich", or NULL if it does not say. */
const char *tutti__conf_launcher_mpi(void);

#endif
