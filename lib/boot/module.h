/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Modules are the parts of Tutti that need a large external package. Modules are opened at run
 * time, from the folder tutti/ beside the library.
 *
 * A module is a shared object, such as mpi_openmpi.so. A module exports one symbol, tutti_module,
 * which is a table. A module does not link the library; it calls the core (the library without
 * modules) through a table of services. So one build serves a laptop and a cluster, and a missing
 * package causes a message, not a link error.
 */
#ifndef TUTTI__BOOT_MODULE_H
#define TUTTI__BOOT_MODULE_H

#include "base/log.h"
#include "boot/boot.h"
#include "mem/device.h"

/* Declared here, because xport/xport.h is above this room. */
typedef struct tutti__xport tutti__xport_t;

#define TUTTI__MODULE_ABI 8

/* The services of the core for modules. */
typedef struct {
    uint32_t abi, unused;
    /* Sets the thread's last error to `text` and returns status. */
    tutti_status_t (*fail)(tutti_status_t status, const char *text);
    int (*log_on)(tutti__log_level_t level);
    void (*log)(tutti__log_level_t level, const char *text);
    /* Called while a communicator is made. Returns an error if another rank has ended. */
    tutti_status_t (*still)(void);
    /* The value of an environment variable; NULL: it is not set, or empty. */
    const char *(*env)(const char *name);
} tutti__core_t;

/* A part of the ranks of a meeting (tutti__meet_t), for a transport between these ranks. */
typedef struct {
    uint32_t rank, size;
    const uint32_t *world;  /* [size] the ranks' numbers in the meeting */
    const uint32_t *number; /* [size] each rank's result of take_number */
} tutti__part_t;

/* The functions of an MPI module. */
typedef struct {
    uint32_t abi;
    uint32_t unused;
    const char *name; /* "openmpi" */
    /* Meet over MPI: initialise MPI if necessary; duplicate *mpi_comm (NULL: MPI_COMM_WORLD). */
    tutti_status_t (*meet)(const tutti__core_t *core, const void *mpi_comm,
                           tutti__meet_t *ret_meet);
    /* Open a transport over the MPI communicator of a meeting. Local. slot_bytes, credits: for the
       transport's channels (xport/xport.h). Close the transport before the meeting. */
    tutti_status_t (*xport_open)(const tutti__meet_t *meet, size_t slot_bytes, uint32_t credits,
                                 tutti__xport_t **ret_xport);
    /* As xport_open, but for a part of the meeting's ranks. Before this call, these ranks must
       exchange their results of take_number (part->number). Any thread. Local. */
    tutti_status_t (*xport_open_part)(const tutti__meet_t *meet, const tutti__part_t *part,
                                      size_t slot_bytes, uint32_t credits,
                                      tutti__xport_t **ret_xport);
    /* Returns a new number, for messages to this rank over one transport. This rank never gets the
       number again in this meeting; other ranks may get the same number. Any thread. Local. */
    tutti_status_t (*take_number)(const tutti__meet_t *meet, uint32_t *ret_number);
    /* Call this when the job has failed. The module then does not finalize MPI at exit, because
       MPI_Finalize would wait for ranks that no longer answer. Any thread, also before meet. */
    void (*give_up)(void);
} tutti__mpi_module_t;

/* The functions of the UCX module. */
typedef struct {
    uint32_t abi, unused;
    const char *name;             /* "ucx" */
    const char *(*version)(void); /* of UCX: "1.13.1" */
    /* Open this rank's end of a transport between `size` ranks. Local. slot_bytes, credits: for the
       transport's channels. shares 1: ranks share processors, so a message should wake a rank that
       sleeps. ret_address: the other ranks need this address; valid until close. */
    tutti_status_t (*open)(const tutti__core_t *core, uint32_t rank, uint32_t size, int shares,
                           size_t slot_bytes, uint32_t credits, tutti__xport_t **ret_xport,
                           const void **ret_address, size_t *ret_bytes);
    /* Pass the addresses of all ranks, one every `stride` bytes; the module copies the addresses.
       Call this before the first channel is opened. */
    tutti_status_t (*connect)(tutti__xport_t *xport, const void *addresses, size_t stride);
} tutti__ucx_module_t;

/*
 * Find and open the MPI module for the libmpi in this process. If the process has no libmpi, the
 * launcher's variables select the module. Without such variables, the first module that opens is
 * used. The module stays loaded, because MPI cannot be unloaded. TUTTI_ERR_UNSUPPORTED: no module
 * fits; the text has the directory and the reasons.
 */
tutti_status_t tutti__module_mpi(const tutti__conf_t *conf, const tutti__mpi_module_t **ret_module);

/* module_ucx.c: open the UCX module, ucx.so. The module stays loaded. TUTTI_ERR_UNSUPPORTED: the
   module cannot be loaded; the text has the reason. Any thread. */
tutti_status_t tutti__module_ucx(const tutti__conf_t *conf, const tutti__ucx_module_t **ret_module);

/*
 * Open the device that conf->device names, from the file NAME.so. The module stays loaded. "auto":
 * CUDA if the process has loaded it, otherwise no device. Any thread.
 *
 * ret_ops       NULL: no device ("none", or "auto" without CUDA)
 * ret_versions  a text that stays valid
 *
 * TUTTI_ERR_UNSUPPORTED or TUTTI_ERR_ABI: the device cannot be used; the text has the reason. These
 * errors are also possible with "auto", if the process has loaded CUDA.
 */
tutti_status_t tutti__module_device(const tutti__conf_t *conf, const tutti__device_ops_t **ret_ops,
                                    const char **ret_versions);

/* The folder that contains the modules. */
void tutti__module_dir(const tutti__conf_t *conf, char ret_dir[4096]);

/* For tutti_info, which calls this in a separate process: open the module in `file` of the module
   folder, even if this process does not need the module. Returns NULL if the module cannot be
   loaded; the thread's last error has the reason. */
const void *tutti__module_probe(const tutti__conf_t *conf, const char *file, void **ret_handle);

/* probe.c: describe the module in texts, with one call of `put` for each text. name: "library"
   (note: the library's path), "version", "devices" or "error". note may be NULL. */
typedef void (*tutti__module_put_t)(void *arg, const char *name, const char *value,
                                    const char *note);
void tutti__module_describe(const tutti__conf_t *conf, const char *file, tutti__module_put_t put,
                            void *arg);

/* For tests: use this table for the device `ops->name`, not the module's file. NULL: use files. */
void tutti__module_lend_device(const tutti__device_ops_t *ops);

/* Returns the services for modules. */
const tutti__core_t *tutti__module_core(void);

/* Has this process initialised an MPI, and not finalized it? */
int tutti__module_mpi_runs(void);

/*
 * Meet the other processes in the first way that applies; meet.c lists the ways. If a launcher has
 * started N > 1 ranks, but no way works or MPI reports size 1, the function returns an error, and
 * never a world of one in each process. ret_module: the MPI module; NULL: the ranks do not meet
 * over MPI.
 */
tutti_status_t tutti__boot_meet(const tutti__conf_t *conf, const void *mpi_comm,
                                tutti__meet_t *ret_meet, const tutti__mpi_module_t **ret_module);

#endif
