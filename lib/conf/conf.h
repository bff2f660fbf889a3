/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The settings: one table of TUTTI_* variables. No other room calls getenv.
 *
 * tutti_init, tutti_comm_connect and tutti_unique_id_create read the settings once per call. The
 * first part, tutti__conf_shared_t, is equal on all ranks of a communicator: rank 0 sends its
 * values to the other ranks, so all ranks make the same choices. The second part may differ between
 * ranks.
 */
#ifndef TUTTI__CONF_CONF_H
#define TUTTI__CONF_CONF_H

#include <tutti/tutti.h>

#include <stdio.h>

#define TUTTI__CONF_TEXT 256
#define TUTTI__CONF_LONG_TEXT 2048
/* Bytes of a path with its '\0'. PATH_MAX is 4096; the library appends up to ".16777215.part". */
#define TUTTI__CONF_PATH 4001

/* TUTTI_WIRE: the type in which float32 is sent to other hosts. */
typedef enum {
    TUTTI__CONF_WIRE_FLOAT32,
    TUTTI__CONF_WIRE_BFLOAT16,
    TUTTI__CONF_WIRE_FLOAT16,
    TUTTI__CONF_WIRE_FLOAT8_E4M3
} tutti__conf_wire_t;

/* This value in place of a number means that the library chooses the number. */
#define TUTTI__CONF_AUTO UINT64_MAX

/* Plain data, sent between ranks as bytes. The fields before `dump` are part of each rank's hello
   (boot/boot.c), whose size is limited. The paths `dump` and `trace` are sent after the hello if
   they are set. */
typedef struct {
    uint64_t fusion_bytes;  /* TUTTI_FUSION_BYTES: largest fused bucket; 0: no fusion; or AUTO */
    uint64_t plans;         /* TUTTI_PLANS: 1: learn plans */
    uint64_t chunk_bytes;   /* TUTTI_CHUNK_BYTES: size of a channel's slot; or AUTO (api/shape.c) */
    uint64_t credits;       /* TUTTI_CREDITS: slots per channel */
    uint64_t oneshot_bytes; /* TUTTI_ONESHOT_BYTES: largest ranks x bytes of a one-shot call */
    uint64_t node_chunk_bytes; /* TUTTI_NODE_CHUNK_BYTES: one pipeline chunk of two-shot */
    uint64_t l3_bytes;         /* TUTTI_L3_BYTES: size of an L3 cache; or AUTO */
    uint64_t huge_pages;       /* TUTTI_HUGE_PAGES: tutti__huge_t of mem/shared.h */
    uint64_t timeout_ms;       /* TUTTI_TIMEOUT (seconds in the variable): deadline of each wait */
    uint64_t stall_ms;         /* TUTTI_STALL_WARNING (seconds): warn after a wait of this length */
    uint64_t strict;           /* TUTTI_DETERMINISTIC: 1 (strict): one association for all sizes */
    uint64_t check;            /* TUTTI_CHECK: 1: run the checker on schedules */
    uint64_t compare;          /* TUTTI_COMPARE: 1: compare direct calls before data moves */
    uint64_t group_size;       /* TUTTI_GROUP_SIZE: local ranks of a core group; 0: from the
                                  topology, but all local ranks in algorithm three_level */
    uint64_t stage_bytes;      /* TUTTI_STAGE_BYTES: pinned host memory of each lane */
    uint64_t device_chunk_bytes;  /* TUTTI_DEVICE_CHUNK_BYTES: one chunk of a device's pipeline */
    uint64_t device_staged_bytes; /* TUTTI_DEVICE_STAGED_BYTES: largest allreduce of several hosts
                                     that runs in host memory; or AUTO */
    uint64_t gpu_direct;          /* TUTTI_GPU_DIRECT: 1: transports use device memory */
    uint64_t stream_wait;         /* TUTTI_STREAM_WAIT=device: CUDA streams wait for host work */
    uint64_t link_mbps;           /* TUTTI_LINK_MBPS: speed of a host's link; 0: as detected */
    uint64_t link_ns;             /* TUTTI_LINK_NS: latency between hosts; 0: depends on card */
    uint64_t wire;                /* TUTTI_WIRE: tutti__conf_wire_t */
    char algorithm[TUTTI__CONF_LONG_TEXT]; /* TUTTI_ALGORITHM */
    char transport[TUTTI__CONF_TEXT];      /* TUTTI_TRANSPORT: between hosts */
    char dump[TUTTI__CONF_PATH];           /* TUTTI_DUMP: path of dumps; "": no dumps */
    char trace[TUTTI__CONF_PATH];          /* TUTTI_TRACE: path of the trace; "": no trace */
} tutti__conf_shared_t;

/* TUTTI_STATS */
typedef enum {
    TUTTI__CONF_STATS_OFF,
    TUTTI__CONF_STATS_PRINT, /* measure times, and print a table at the end */
    TUTTI__CONF_STATS_QUIET  /* measure times */
} tutti__conf_stats_t;

typedef struct {
    tutti__conf_shared_t shared;
    int64_t log_level;                /* TUTTI_LOG: tutti__log_level_t */
    int64_t stats;                    /* TUTTI_STATS: tutti__conf_stats_t */
    char stats_file[4096];            /* TUTTI_STATS_FILE; "": none */
    int64_t stats_port;               /* TUTTI_STATS_PORT; -1: not set */
    char isa[TUTTI__CONF_TEXT];       /* TUTTI_TEST_ISA: the argument of tutti__reduce_force */
    char host_id[TUTTI__CONF_TEXT];   /* TUTTI_HOST_ID: "" = the machine is one host */
    char module_dir[4096];            /* TUTTI_MODULE_DIR: "" = the installed folder */
    char boot[TUTTI__CONF_TEXT];      /* TUTTI_BOOT: "" = not set; "self"; "mpi"; "env";
                                    "pmix"; "pmi2"; "local:NAME" */
    int64_t rank, size;               /* TUTTI_RANK, TUTTI_SIZE for local:NAME; -1: not set */
    int64_t port;                     /* TUTTI_PORT: where rank 0 listens; -1: not set */
    char job_secret[1024];            /* TUTTI_JOB_SECRET; "": none */
    char job_secret_file[4096];       /* TUTTI_JOB_SECRET_FILE; "": none */
    char interface[TUTTI__CONF_TEXT]; /* TUTTI_INTERFACE: network interface of the side channel */
    char tuned[4096];                 /* TUTTI_TUNED: "" = this machine's file; "none" */
    char device[TUTTI__CONF_TEXT];    /* TUTTI_DEVICE: "auto"; "none"; a module's name */
    int64_t device_id;                /* TUTTI_DEVICE_ID; -1: not set */
} tutti__conf_t;

/*
 * Read all settings: values of the environment replace values of the tuned file (tuned.h), and both
 * replace the defaults. An empty variable counts as not set.
 *
 * Returns TUTTI_ERR_INVALID_ARGUMENT if a value is invalid; the error text has the variable, its
 * value and the allowed values. An invalid tuned file causes only a warning, and is not used.
 *
 * Once per process, this function prints warnings about unknown TUTTI_* names (not TUTTI_TEST_*), a
 * report about the tuned file and, with TUTTI_HELP=1, the table. If the rank is known from a
 * launcher, or from TUTTI_RANK with local:NAME, only rank 0 prints. Does not set the log's level.
 */
tutti_status_t tutti__conf_read(tutti__conf_t *ret_conf);

/* One setting, as text. */
typedef struct {
    const char *name;
    const char *value; /* the text in the table, file or variable; "": not set */
    const char *from;  /* "default", "environment", "tuned file" */
    const char *wrong; /* the allowed values, if this value is invalid; otherwise NULL */
} tutti__conf_shown_t;

/*
 * Report all settings, and the source of each, to callbacks. Prints nothing, and sets no error.
 *
 * setting    called for each row of the table; its texts are valid during the call
 * unknown    called for each TUTTI_* variable that is not a setting; guess: the setting that the
 *            user may have meant, or NULL
 * ret_conf   the settings; an invalid value is ignored
 * ret_tuned  the tuned file in use, or the reason why none is used
 */
void tutti__conf_show(void (*setting)(void *arg, const tutti__conf_shown_t *shown),
                      void (*unknown)(void *arg, const char *name, const char *guess), void *arg,
                      tutti__conf_t *ret_conf, char *ret_tuned, size_t capacity);

/* Set all fields to their defaults, without reading the environment. */
void tutti__conf_defaults(tutti__conf_t *ret_conf);

/* The value of an environment variable; NULL if the variable is not set, or empty. */
const char *tutti__conf_text(const char *name);

/* Returns 1 if NCCL_MULTI_RANK_GPU_ENABLE is set, and is not "0". With this variable NCCL 2.30.3
   and later accept several ranks on one GPU. */
int tutti__conf_nccl_shares_gpus(void);
/* The value of NCCL_HOSTID; NULL: not set. NCCL uses this value as the host's name. Two ranks with
   different values may share a GPU, and NCCL connects such ranks by sockets. */
const char *tutti__conf_nccl_host(void);

/* The number of ranks according to the launcher's variables; 0: no launcher. ret_name: the
   launcher's name for messages ("mpirun"); not changed if 0 is returned. */
int tutti__conf_launcher_size(const char **ret_name);
/* The number of ranks of the job: WORLD_SIZE, if env:// is complete (see job.c); otherwise the
   launcher's number of ranks; 0: not known. */
int tutti__conf_job_size(void);
/* This process's rank in the launcher's variables; -1: not set. Its rank in MPI may differ. */
int tutti__conf_launcher_own_rank(void);
/* The number of ranks on this host (srun: on the job's first host), according to env:// or the
   launcher; 0: not known. Rank 0's number selects the tuned file. */
int tutti__conf_launcher_local_size(void);
/* The name of the launcher's job: all ranks of the job on this host have the same name, and other
   jobs have other names; "": not known. */
void tutti__conf_launcher_job(char *ret_text, size_t text_bytes);

/* Do the launchers' variables contradict a world of one rank? */
typedef enum {
    TUTTI__CONF_ALONE,         /* no variable contradicts */
    TUTTI__CONF_PERHAPS_ALONE, /* a variable contradicts, but may belong to another program */
    TUTTI__CONF_IN_COMPANY     /* a variable proves that there are other ranks */
} tutti__conf_company_t;
/* ret_text: the variables that contradict, with their values; not changed if there are none. */
tutti__conf_company_t tutti__conf_company(char *ret_text, size_t text_bytes);

/*
 * This process's place in a job whose ranks meet without MPI, from the variables of env:// (as in
 * PyTorch) or of a launcher. See job.c for the variables and their order.
 */
typedef struct {
    char source[64];       /* for messages: "env://", "mpirun's variables", "srun's variables" */
    uint32_t rank, size;   /* size 0: there are no variables of a job */
    char missing[96];      /* "": complete; otherwise the variables that are not set */
    char addr[256];        /* name or address of rank 0's host; "": all ranks are on this host */
    uint32_t port;         /* rank 0's port; also distinguishes jobs */
    char port_source[32];  /* the variable with the port: "MASTER_PORT" */
    int port_is_taken;     /* torchrun's agent listens at `port`: rank 0 uses a higher port */
    char run[256];         /* the job's name; "": none */
    uint64_t restart;      /* number of restarts of the job */
    int is_env;            /* the source is env:// */
    int is_launcher_equal; /* a launcher has the same rank and size as env:// */
    int is_addressed;      /* MASTER_ADDR, AZ_BATCH_MASTER_NODE or TUTTI_PORT is set */
} tutti__conf_job_t;

/*
 * Read the place. TUTTI_ERR_INVALID_ARGUMENT: the variables of env:// are invalid or contradictory.
 *
 * told  1 (for TUTTI_BOOT=env): also use the variables that Slurm sets outside of srun
 */
tutti_status_t tutti__conf_job(const tutti__conf_t *conf, int told, tutti__conf_job_t *ret_job);

/* List the variables of env:// that are not set: "MASTER_ADDR and MASTER_PORT". If all four
   variables are set, list all four. */
void tutti__conf_env_unset(char *ret_text, size_t text_bytes);

/* Returns 1 if, according to env:// or the launcher, the job has one rank. */
int tutti__conf_job_is_one(void);

/* Returns 1 for srun --mpi=none. This launcher provides no PMI, so MPI cannot connect the ranks. */
int tutti__conf_launcher_lacks_mpi(void);
/* Returns 1 if the launcher is srun, and provides no PMIx. */
int tutti__conf_launcher_lacks_pmix(void);

/* The launcher's process manager, through which this process can meet the other ranks without
   MPI. */
typedef enum {
    TUTTI__CONF_NO_PM,
    TUTTI__CONF_PMIX,
    TUTTI__CONF_PMI2
} tutti__conf_pm_t;

tutti__conf_pm_t tutti__conf_pm(void);

/* The MPI of the launcher: "openmpi" or "mpich"; NULL if the launcher serves several MPIs, or if
   there is no launcher. */
const char *tutti__conf_launcher_mpi(void);

#endif
