/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement: which named tensors are ready on all ranks.
 *
 * Each rank of a communicator has one such state machine, without a thread, a socket or a clock.
 * The engine owns the state machine, passes messages and this rank's submissions to it, and
 * provides its callbacks.
 *
 *      submission --> announce --> merge at each inner rank --> decide at the coordinator
 *                                                                      |
 *      serve or reject  <----------- down the tree <------- bucket  <--+
 *
 * The ranks form a tree of links. Rank 0 is the root, and the coordinator. A link delivers messages
 * in order. Announcements go up: an inner rank (a rank with children) merges the announcements of
 * its subtree into one. Buckets (agreed tensors that one call serves) and rejections go down, so
 * all ranks receive them in the same order.
 *
 * Announcements of two kinds are not merged, but go up to the coordinator at once:
 *   - "messages", which are the calls of send, receive and sendrecv: each concerns only some ranks;
 *   - submission groups (the calls of one tutti_submit): each is served or rejected as a whole.
 *
 * Only one thread at a time may use a tutti__agree_t. The callbacks run on this thread. They may
 * call the functions of the section "questions", but no other functions on the same object.
 */
#ifndef TUTTI__AGREE_AGREE_H
#define TUTTI__AGREE_AGREE_H

#include "agree/metadata.h"
#include "agree/name_table.h"
#include "base/status.h"

typedef struct tutti__agree tutti__agree_t;
typedef struct tutti__tensor tutti__tensor_t;

#define TUTTI__NAME_BYTES 256

/* Kinds of messages between neighbours. The owner's own kinds start at TUTTI__MSG_OTHERS. */
enum {
    TUTTI__MSG_ANNOUNCE = 1, /* up */
    TUTTI__MSG_BUCKET,       /* down: a tensor of a bucket */
    TUTTI__MSG_REJECT,       /* down: a tensor that will not be served */
    TUTTI__MSG_JOIN,         /* up: uint32_t, the rank that has called tutti_join */
    TUTTI__MSG_JOINED,       /* down: all ranks have joined; uint32_t, the rank that joined last */
    TUTTI__MSG_PLAN,         /* down: a tensor of a learned plan. plan.c explains all PLAN kinds */
    TUTTI__MSG_PLAN_STOP,    /* up and down */
    TUTTI__MSG_PLAN_STOPPED, /* up */
    TUTTI__MSG_PLAN_END,     /* down */
    TUTTI__MSG_OTHERS
};

/* The longest body of a message. A body is aligned to 8 bytes. */
#define TUTTI__BODY_BYTES 1536

/* One tensor of a bucket. The tensors are served in the order of the bucket. */
typedef struct {
    const char *name; /* [name_bytes], not terminated */
    size_t name_bytes;
    uint32_t bucket; /* number of the bucket: 0, 1, 2, ... */
    uint8_t phase;
    uint8_t is_mine; /* 1: the tensor concerns this rank */
    uint8_t counts;  /* 1: the ranks exchange their counts first */
    uint8_t last;    /* 1: the bucket is complete */
    /* NULL, or if some ranks have joined (tutti_join): the metadata of the other ranks' calls. */
    const tutti__metadata_t *metadata;
} tutti__agreed_t;

/* A tensor of this rank that will not be served. */
typedef struct {
    const char *name; /* [name_bytes], not terminated */
    size_t name_bytes;
    uint8_t phase;
    tutti_status_t status;
    const char *text; /* the reason */
} tutti__rejected_t;

/* One tensor of a learned plan (plan.c). A plan has its tensors in the order of its buckets. */
typedef struct {
    tutti__metadata_t metadata;
    /* If a plan contains a call of a submission group, the plan contains all calls of the group.
       The buckets of the group follow each other, and contain no other tensors. */
    tutti__group_msg_t group;
    uint32_t bucket; /* from 0, ascending */
    /* 1: on rank 0 the tensors of this bucket follow each other in memory. All ranks then lay the
       bucket out without gaps, so that rank 0 need not pack it. */
    uint8_t is_adjacent;
} tutti__planned_t;

/* The callbacks. Pointers in their arguments are valid during the call only. */
typedef struct {
    /* Queue a message. urgent 1: wake the neighbour even if it has no pending request. */
    void (*send)(void *owner, uint32_t link, uint32_t kind, const void *body, size_t bytes,
                 int urgent);
    /* Serve the tensor. Returns 0 if the communicator has ended. */
    int (*serve)(void *owner, const tutti__agreed_t *tensor);
    void (*reject)(void *owner, const tutti__rejected_t *tensor);
    /* All ranks have joined; `last_rank` joined last. */
    void (*joined)(void *owner, uint32_t last_rank);
    /* A plan begins: see tutti__agree_get_plan. If this rank has announced a tensor of the plan,
       and the tensor is in no bucket yet, the announcement is void. The owner must enter this
       rank's request for the tensor into the plan. */
    void (*plan)(void *owner);
    /* Start no further bucket of the plan. Returns the number of buckets that this rank started. */
    uint64_t (*plan_stop)(void *owner);
    /* The plan is over. Every rank takes part in the first `buckets` buckets since the start of
       the plan, including buckets that this rank has not started. */
    void (*plan_end)(void *owner, uint64_t buckets);
    /* No memory, or a damaged message: the owner ends the communicator. */
    void (*fail)(void *owner, tutti_status_t status, const char *text);
    uint64_t (*now_ns)(void *owner);
    /* A rank's name in messages to users, and its rank in the world; see boot.h. */
    const char *(*rank_name)(void *owner, uint32_t rank);
    uint32_t (*world_rank)(void *owner, uint32_t rank, int *ret_is_group);
} tutti__agree_ops_t;

/* A link of the tree. */
typedef struct {
    uint32_t rank;         /* the neighbour */
    uint32_t nranks;       /* ranks in the subtree behind the link; 0: the link to the parent */
    const uint32_t *ranks; /* [nranks] */
} tutti__agree_link_t;

typedef struct {
    uint32_t rank, size;
    int parent; /* index of the link to the parent; -1 at rank 0 */
    uint32_t nlinks;
    const tutti__agree_link_t *links; /* [nlinks] */
    uint64_t bucket_bytes;            /* largest bucket of several tensors in host memory */
    uint64_t device_bucket_bytes;     /* largest bucket of several tensors in device memory */
    uint64_t plan_bytes;              /* the largest bucket of a plan; 0: no plan is learned */
    uint64_t plan_part_bytes; /* a plan with at least TUTTI__PLAN_PARTS times this many bytes is cut
                                 into at least TUTTI__PLAN_PARTS buckets; 0: no such rule */
    const tutti__agree_ops_t *ops;
    void *owner;
} tutti__agree_env_t;

/* env is copied, but its pointers must stay valid until close. Local. The only error: NO_MEMORY. */
tutti_status_t tutti__agree_open(const tutti__agree_env_t *env, tutti__agree_t **ret_agree);
/* NULL is allowed. */
void tutti__agree_close(tutti__agree_t *agree);

/* ---- input ---- */

/* This rank has submitted a tensor. name: [name_bytes], at most 255 bytes, need not be terminated.
   group: the submission group. Its size is 0 if the call was submitted alone, and in phase 1 (the
   data of a call whose counts were exchanged before). */
void tutti__agree_submit(tutti__agree_t *agree, const char *name, size_t name_bytes,
                         const tutti__metadata_t *metadata, const tutti__group_msg_t *group);
/* This rank has called tutti_join. Until all ranks have joined, this rank counts as having
   announced every tensor. */
void tutti__agree_join(tutti__agree_t *agree);
/* A message of a kind below TUTTI__MSG_OTHERS. body: aligned to 8 bytes. */
void tutti__agree_message(tutti__agree_t *agree, uint32_t link, uint32_t kind, const void *body,
                          size_t bytes);

/* Learn a plan from this rank's submissions. The owner calls this function before each submission
   in phase 0. It does nothing unless this rank is the coordinator. hash: tutti__hash_name of the
   name. place: the address of a tensor that is reduced in place, without factors; otherwise 0.
   may_begin 1: no bucket of an earlier plan is in flight on this rank. */
void tutti__agree_learn(tutti__agree_t *agree, const char *name, size_t bytes, uint64_t hash,
                        const tutti__metadata_t *metadata, const tutti__group_msg_t *group,
                        uint64_t place, int may_begin);
/* As tutti__agree_learn. planned: index of the tensor in the plan that runs. The caller has checked
   that the call is equal to the planned call. */
void tutti__agree_learn_planned(tutti__agree_t *agree, uint32_t planned, uint64_t place,
                                int may_begin);
/* The tensor's call has failed on all ranks, although all ranks made it. Until the call changes,
   the tensor is not planned. This function has an effect at the coordinator only. */
void tutti__agree_refused(tutti__agree_t *agree, const char *name, size_t bytes, uint64_t hash);
/* A thread of this rank has begun to wait for a tensor. */
void tutti__agree_waited(tutti__agree_t *agree);
/* Rank 0 stops the plan; any other rank asks rank 0 to stop it. is_deviation 1: this rank's program
   has deviated from the plan; 0: the plan makes no progress, or rank 0 can make a plan with more
   tensors. Further calls for the same plan do nothing. */
void tutti__agree_stop_plan(tutti__agree_t *agree, int is_deviation);

/* The coordinator's owner calls these two functions in each step; on other ranks they do nothing.
   The first function rejects tensors in conflict whose grace period is over. The second function
   sends one bucket of agreed tensors. It returns 0 if no agreed tensor waits for a bucket. */
void tutti__agree_late(tutti__agree_t *agree);
int tutti__agree_bucket(tutti__agree_t *agree);

/* After a departure: do what tutti__agree_clear does, and ignore later announcements. */
void tutti__agree_depart(tutti__agree_t *agree);
/* Forget the plan, and every tensor that is not in a bucket. */
void tutti__agree_clear(tutti__agree_t *agree);

/* ---- questions ---- */

/* The index of a tensor in the plan, or -1. A rank that has a plan does not announce the tensors of
   the plan. It still announces messages that are in no submission group, and submission groups that
   are not in the plan. */
int64_t tutti__agree_find_planned(const tutti__agree_t *agree, const char *name, size_t bytes);

/* A plan; valid until plan_end or clear. */
typedef struct {
    uint32_t number; /* 1, 2, ... */
    uint32_t ntensors, nbuckets;
    const tutti__planned_t *tensor;     /* [ntensors] */
    const tutti__tensor_names_t *names; /* of the tensors, with the same indices */
} tutti__agree_plan_t;

/* Get the present plan. Call this function in the callback `plan`, or later. */
void tutti__agree_get_plan(const tutti__agree_t *agree, tutti__agree_plan_t *ret_plan);
/* Returns 1 if the plan is being stopped and a child in the tree has not answered. *ret_rank: the
   child. *ret_certain 1: the child is late; 0: some rank of the child's subtree is late. */
int tutti__agree_unstopped(const tutti__agree_t *agree, uint32_t *ret_rank, int *ret_certain);

int tutti__agree_has_joined(const tutti__agree_t *agree);

/* Write which ranks a tensor of this rank waits for. Returns 1 if these ranks have certainly not
   submitted the tensor, and 0 if the text is a guess. */
int tutti__agree_missing(tutti__agree_t *agree, const char *name, size_t name_bytes,
                         const tutti__metadata_t *metadata, char *text, size_t bytes);
/* The same for this rank's tutti_join. */
int tutti__agree_missing_join(const tutti__agree_t *agree, char *text, size_t bytes);

/* A tensor that ranks of this rank's subtree have announced, and that is not agreed yet. */
typedef struct {
    const char *name;
    uint64_t since_ns;
    const tutti__metadata_t *metadata; /* NULL: announced only in messages or submission groups */
    const tutti__tensor_t *tensor;
} tutti__waiting_t;

/* Call `visit` for each such tensor. Of this header, `visit` may call only tutti__agree_awaits. */
void tutti__agree_each(const tutti__agree_t *agree,
                       void (*visit)(void *arg, const tutti__waiting_t *waiting), void *arg);
/* Write which ranks the tensor waits for. Returns 0, without a text, if the tensor waits for no
   rank or if another rank must report this wait. */
int tutti__agree_awaits(const tutti__agree_t *agree, const tutti__tensor_t *tensor, char *text,
                        size_t bytes);
/* The tensor of a name and phase, or NULL. */
const tutti__tensor_t *tutti__agree_find(tutti__agree_t *agree, const char *name, size_t name_bytes,
                                         uint8_t phase);

#endif
