/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Modules: parts that need a big package, opened at run time from tutti/ beside the library.
 *
 * A module is a shared object "mpi_openmpi.so" that exports one symbol, tutti_module, a table. It
 * does not link the library: what it needs of the core it gets through a table of services. So one
 * build serves a laptop and a cluster, and a missing package is a message, not a link error.
 */
#ifndef TUTTI__BOOT_MODULE_H
#define TUTTI__BOOT_MODULE_H

#include "base/log.h"
#include "boot/boot.h"
#include "mem/device.h"

/* Of xport/xport.h, which stands above this room. */
typedef struct tutti__xport tutti__xport_t;

#define TUTTI__MODULE_ABI 4

/* What the core offers to modules. */
typedef struct {
    uint32_t abi, unused;
    /* Sets the thread's last error to `text`, returns status. */
    tutti_status_t (*fail)(tutti_status_t status, const char *text);
    int (*log_on)(tutti__log_level_t level);
    void (*log)(tutti__log_level_t level, const char *text);
} tutti__core_t;

/* Some ranks of a meeting, which have a transport of their own. */
typedef struct {
    uint32_t rank, size;
    const uint32_t *world;  /* [size] their ranks in the meeting */
    const uint32_t *number; /* [size] what each of them got from take_number */
} tutti__part_t;

/* What an MPI module offers. */
typedef struct {
    uint32_t abi;
    uint32_t unused;
    const char *name; /* "openmpi" */
    /* Meet over MPI: initialises MPI if nobody has, duplicates *mpi_comm (NULL: MPI_COMM_WORLD). */
    tutti_status_t (*meet)(const tutti__core_t *core, const void *mpi_comm,
                           tutti__meet_t *ret_meet);
    /* The transport over the communicator of that meeting. Local. slot_bytes and credits: those of
       its channels. The meeting outlives it. */
    tutti_status_t (*xport_open)(const tutti__meet_t *meet, size_t slot_bytes, uint32_t credits,
                                 tutti__xport_t **ret_xport);
    /* The same for a part of the meeting's ranks, once they have told each other their numbers.
       Any thread. Local. */
    tutti_status_t (*xport_open_part)(const tutti__meet_t *meet, const tutti__part_t *part,
                                      size_t slot_bytes, uint32_t credits,
                                      tutti__xport_t **ret_xport);
    /* A number for messages to this rank over one transport: no other one of the meeting has it
       here. Others may have it elsewhere. Not given again. Any thread. Local. */
    tutti_status_t (*take_number)(const tutti__meet_t *meet, uint32_t *ret_number);
    /* The job has failed: an MPI that the module started is not finalized at exit, because that
       would wait for ranks that no longer answer. Any thread, also before meet. */
    void (*give_up)(void);
} tutti__mpi_module_t;

/*
 * Find and open the MPI module that fits: the libmpi already in this process decides, else the
 * launcher's variables, else the first that opens. Stays loaded for ever (MPI cannot be unloaded).
 * TUTTI_ERR_UNSUPPORTED, naming the directory and the reasons, if none does.
 */
tutti_status_t tutti__module_mpi(const tutti__conf_t *conf, const tutti__mpi_module_t **ret_module);

/*
 * Open the device that conf->device names, of "NAME.so"; it stays for ever. "auto": CUDA's, if the
 * process has loaded that already, so that nothing is loaded for programs without. Any thread.
 *
 * ret_ops       NULL: there is none, by "none" or "auto"
 * ret_versions  static
 *
 * UNSUPPORTED or ABI, with the module's reason: also of CUDA that is loaded.
 */
tutti_status_t tutti__module_device(const tutti__conf_t *conf, const tutti__device_ops_t **ret_ops,
                                    const char **ret_versions);

/* The folder in which modules are looked for. */
void tutti__module_dir(const tutti__conf_t *conf, char ret_dir[4096]);

/* For tutti_info, in a process of its own: open the module in a file of that folder, whether this
   process needs it or not. NULL: it does not load; the last error has the reason. */
const void *tutti__module_probe(const tutti__conf_t *conf, const char *file, void **ret_handle);

/* probe.c: the same, as texts. name: "library" (note: its path), "version", "devices" or "error".
   note: or NULL. */
typedef void (*tutti__module_put_t)(void *arg, const char *name, const char *value,
                                    const char *note);
void tutti__module_describe(const tutti__conf_t *conf, const char *file, tutti__module_put_t put,
                            void *arg);

/* For tests: the device of this name, in place of a file. NULL: no more. */
void tutti__module_lend_device(const tutti__device_ops_t *ops);

/* The services for modules. */
const tutti__core_t *tutti__module_core(void);

/* Has this process initialised an MPI, and not finalized it? */
int tutti__module_mpi_runs(void);

/*
 * How this process meets the others: conf->boot if set; the caller's mpi_comm; a launcher's
 * variables; an MPI that the process itself initialised; else a world of one. Started by a launcher
 * for N > 1 ranks without a module that fits, or with an MPI that says size 1, is an error, never N
 * worlds of one. ret_module: NULL unless they meet over MPI.
 */
tutti_status_t tutti__boot_meet(const tutti__conf_t *conf, const void *mpi_comm,
                                tutti__meet_t *ret_meet, const tutti__mpi_module_t **ret_module);

#endif
