/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of agreement, and the functions that its files share. */
#ifndef TUTTI__AGREE_TENSORS_H
#define TUTTI__AGREE_TENSORS_H

#include "agree/plan.h"

/* ---- messages ---- */

/* A BUCKET or REJECT that concerns only some ranks lists these ranks, its members. This is the
   largest number of members in one message; a longer list needs several messages. */
#define TUTTI__MEMBERS 64

/*
 * ANNOUNCE: one tensor that a rank, or the ranks of a subtree, announced. Behind the structure
 * follow: the other metadata, if `conflict` is 1; a tutti__group_msg_t, if `grouped` is 1; the
 * name, not terminated.
 */
typedef struct {
    tutti__metadata_t metadata;
    uint32_t rank;       /* the rank whose announcement was merged first */
    uint32_t nranks;     /* number of ranks whose announcements are merged into this one */
    uint32_t other_rank; /* if there is a conflict: a rank with other metadata */
    uint8_t conflict, grouped, name_bytes, unused;
} tutti__announce_msg_t;

/* BUCKET: one tensor of a bucket. Behind the structure follow: the metadata, if has_metadata is 1;
   the name; the members (uint32_t). */
typedef struct {
    uint32_t bucket;   /* number of the bucket: 0, 1, 2, ... */
    uint32_t nmembers; /* members in this message; 0: the tensor concerns all ranks */
    uint8_t last;      /* 1: this message completes the bucket */
    uint8_t phase;
    uint8_t counts; /* 1: the ranks exchange their counts first */
    uint8_t has_metadata;
    uint8_t name_bytes, unused[3];
} tutti__bucket_msg_t;

/* REJECT: a tensor that will not be served. Behind the structure follow the name, the text and the
   members. */
typedef struct {
    uint32_t status;
    uint32_t nmembers; /* 0: all ranks that have announced the tensor */
    uint16_t text_bytes;
    uint8_t phase, name_bytes, unused[4];
} tutti__reject_msg_t;

_Static_assert(sizeof(tutti__announce_msg_t) + sizeof(tutti__metadata_t) + TUTTI__NAME_BYTES +
                       TUTTI__ERROR_BYTES + TUTTI__MEMBERS * sizeof(uint32_t) <=
                   TUTTI__BODY_BYTES,
               "the longest message");

/* ---- state ---- */

#define TUTTI__TENSOR_BUCKETS 1024

typedef struct tutti__participant tutti__participant_t;

/* The submission group of one rank. */
typedef struct {
    uint64_t hash;
    uint32_t rank;
    uint32_t size, received;             /* calls; the group is complete if received == size */
    tutti__participant_t *participant[]; /* [size] */
} tutti__submission_t;

/* One rank's announcement of a message, or of a call in a submission group. It is not merged. */
struct tutti__participant {
    uint32_t rank;
    uint32_t mark;
    tutti__metadata_t metadata;
    tutti__submission_t *submission; /* or NULL */
    tutti__tensor_t *tensor;
};

/* A tensor that some ranks of this rank's subtree have announced. */
struct tutti__tensor {
    uint64_t hash;
    tutti__announce_msg_t msg;          /* the merged announcements */
    tutti__metadata_t other;            /* if there is a conflict: of msg.other_rank */
    uint32_t passed;                    /* part of msg.nranks that was reported to the parent */
    uint32_t nparticipants;             /* messages, and calls in complete submission groups */
    tutti__participant_t **participant; /* [env.size]; NULL: there are no participants */
    uint64_t since_ns;
    uint64_t conflict_ns; /* when the coordinator found a conflict; 0: there is none */
    tutti__tensor_t *next;
    tutti__tensor_t *related; /* next in the chain of tutti__refuse_gather */
    char *name;               /* stored behind `from`; ends with '\0' */
    unsigned char from[];     /* [nlinks + 1] 1: announced over this link; last: by this rank */
};

_Static_assert(sizeof(struct tutti__tensor) <= 192,
               "memory of a pending tensor without its name, on ranks with children");

struct tutti__agree {
    tutti__agree_env_t env;
    uint32_t subtree; /* ranks that announce through this rank, this rank included */
    tutti__tensor_t *tensors[TUTTI__TENSOR_BUCKETS];
    uint32_t nparticipants;           /* of all tensors together */
    tutti__submission_t **submission; /* [size] each rank's incomplete group, or NULL */
    unsigned char *joined;            /* [size] 1: this rank of the subtree has joined */
    uint32_t njoined;
    int departed; /* a rank has left */
    int ended;    /* the owner has ended the communicator */
    /* Only the coordinator uses the fields from here to `learn`. */
    uint32_t *members;                         /* [size] scratch */
    uint64_t conflict_ns;                      /* a grace period after this time, agree_late checks
                                                  all conflicts; 0: there is no conflict */
    tutti__tensor_t *ready_first, *ready_last; /* agreed tensors that are in no bucket yet */
    uint32_t next_bucket;
    tutti__learn_t learn;
    tutti__plan_t plan; /* on all ranks */
};

void tutti__agree_fail(tutti__agree_t *a, tutti_status_t status, const char *text);
void tutti__agree_send_down(tutti__agree_t *a, uint32_t kind, const void *body, size_t bytes);

/* tensors.c: the table of announced tensors */
tutti__tensor_t *tutti__tensor_find(tutti__agree_t *a, const char *name, size_t bytes,
                                    uint8_t phase);
/* Make a tensor outside the table. NULL: there is no memory, and the communicator has ended. */
tutti__tensor_t *tutti__tensor_new(tutti__agree_t *a, const char *name, size_t bytes, uint64_t hash,
                                   uint8_t phase);
/* Find the tensor in the table, or add a new tensor. NULL: as tutti__tensor_new. */
tutti__tensor_t *tutti__tensor_get(tutti__agree_t *a, const char *name, size_t bytes,
                                   uint8_t phase);
void tutti__tensor_take_out(tutti__agree_t *a, tutti__tensor_t *tensor);
void tutti__tensor_free(tutti__agree_t *a, tutti__tensor_t *tensor);
/* Free the tensor if it has no announcement. */
void tutti__tensor_free_if_empty(tutti__agree_t *a, tutti__tensor_t *tensor);
/* Free the tensor, and every submission group that contains it. */
void tutti__tensor_drop(tutti__agree_t *a, tutti__tensor_t *tensor);
/* Forget one rank's announcement, and the submission group that contains it. Free the tensor if it
   has no other announcement. */
void tutti__tensor_drop_participant(tutti__agree_t *a, tutti__tensor_t *tensor, uint32_t rank);
/* Is the participant's announcement in this submission group? `participant` may be NULL. */
static inline int tutti__participant_is_of(const tutti__participant_t *participant,
                                           const tutti__group_msg_t *group)
{
    const tutti__submission_t *its = participant != NULL ? participant->submission : NULL;

    return its != NULL && its->size == group->size && its->hash == group->hash;
}
/* Forget the announcements of this submission group, of all ranks. `tensor` is a tensor of the
   group, and is not freed. */
void tutti__tensor_drop_group(tutti__agree_t *a, tutti__tensor_t *tensor,
                              const tutti__group_msg_t *group);
/* Add an announcement that is not merged. group: NULL for a message. Returns 1 if the announcement
   was added and is a message, or completes its submission group. */
int tutti__tensor_add_participant(tutti__agree_t *a, const tutti__announce_msg_t *msg,
                                  const tutti__group_msg_t *group, const char *name,
                                  tutti__participant_t **ret_participant);

/* Merge an announcement into a tensor. If announcements differ, the tensor keeps the first pair of
   ranks that differ. other: the other metadata if from->conflict is 1. */
void tutti__tensor_merge(tutti__tensor_t *into, const tutti__announce_msg_t *from,
                         const tutti__metadata_t *other);
/* decide.c: the coordinator */
/* Decide on a tensor that all ranks have announced. Returns 1 if the tensor has left the table,
   perhaps together with other tensors. Returns 0 if the tensor is in conflict and stays in the
   table, because its grace period has not ended or a submission group is incomplete. */
int tutti__decide(tutti__agree_t *a, tutti__tensor_t *tensor);
/* `rank` has announced a message. If all ranks that the message concerns have announced the name,
   agree on the message, or reject it. */
void tutti__decide_message(tutti__agree_t *a, tutti__tensor_t *tensor, uint32_t rank);
/* Reject the tensor's messages, because ranks have joined. Returns 1 if there were messages; then
   the tensor may have been freed. */
int tutti__decide_joined(tutti__agree_t *a, tutti__tensor_t *tensor);

/* refuse.c: the coordinator */
/* Has every rank announced the tensor, in any form, or joined? If so, the tensor is complete. */
int tutti__refuse_is_complete(const tutti__agree_t *a, const tutti__tensor_t *tensor);
/* Link `first`, and all tensors that share submission groups with it directly or through other
   tensors, into a chain. The last tensor's `related` points to that tensor itself. Returns 1 if all
   tensors of the chain are complete. Afterwards call tutti__refuse_ungather or _gathered. */
int tutti__refuse_gather(const tutti__agree_t *a, tutti__tensor_t *first);
void tutti__refuse_ungather(tutti__tensor_t *first);
/* Reject all tensors of the chain. */
void tutti__refuse_gathered(tutti__agree_t *a, tutti__tensor_t *first, tutti_status_t status,
                            const char *text);
/* Free the submission groups that contain the tensor. The participants of these groups then have no
   group, and their `mark` is 1. */
void tutti__refuse_dissolve(const tutti__agree_t *a, tutti__tensor_t *tensor);

/* buckets.c */
/* The coordinator: add an agreed tensor to the list of tensors that wait for a bucket. */
void tutti__buckets_ready(tutti__agree_t *a, tutti__tensor_t *tensor);
void tutti__buckets_take(tutti__agree_t *a, const void *body, size_t bytes);
void tutti__buckets_take_reject(tutti__agree_t *a, const void *body, size_t bytes);
/* The coordinator: reject a tensor on all ranks, or on the members [nmembers] if there are any. */
void tutti__buckets_reject(tutti__agree_t *a, const tutti__tensor_t *tensor, tutti_status_t status,
                           const char *text, const uint32_t *members, uint32_t nmembers);

/* joins.c */
void tutti__joins_add(tutti__agree_t *a, uint32_t rank);
void tutti__joins_done(tutti__agree_t *a, uint32_t last_rank);
/* The coordinator: NULL, or the reason why this call is not served while ranks have joined. */
const char *tutti__joins_refuse(const tutti__agree_t *a, const tutti__metadata_t *metadata);
/* announce.c: if every rank of the subtree has announced the tensor, the coordinator decides on it,
   and any other rank passes its announcement on. Returns 1 if this changed or freed the tensor. */
int tutti__agree_settle(tutti__agree_t *a, tutti__tensor_t *tensor);

#endif
