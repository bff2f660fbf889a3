/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement: from announcements to buckets. agree.c has the idea; with the token, all of it.
 */
#ifndef TUTTI__ENGINE_AGREE_H
#define TUTTI__ENGINE_AGREE_H

#include "engine/state.h"

/* The group of calls that one rank has submitted together. */
struct tutti__gang {
    uint64_t hash;
    uint32_t rank;
    uint32_t size, received; /* counts only once all of it are here */
    tutti__party_t *party[]; /* [size] */
};

/* One rank's announcement that is not merged with others: of a message, or of a group. */
struct tutti__party {
    uint32_t rank;
    uint32_t mark;
    tutti__facts_t facts;
    tutti__gang_t *gang; /* or NULL */
    tutti__tensor_t *tensor;
};

/* A tensor that some ranks of my subtree have announced. */
struct tutti__tensor {
    uint64_t hash;
    tutti__announce_msg_t msg; /* what was merged */
    tutti__facts_t other;      /* if there is a conflict */
    uint32_t passed;           /* of msg.nranks: announced to the parent already */
    uint32_t nparties;         /* of whole gangs, or without one */
    tutti__party_t **party;    /* [size of the world], or NULL if there are none */
    uint64_t since_ns;
    uint64_t clash_ns; /* since when it is known not to fit; 0: it is not */
    tutti__tensor_t *next;
    tutti__tensor_t *related;     /* see decide.c */
    char name[TUTTI__NAME_BYTES]; /* from here on it is not cleared before it is set */
    unsigned char from[];         /* [nlinks + 1] who has announced it: links, and last myself */
};

/* agree.c: announcements */
void tutti__agree_submit(tutti__engine_t *e, tutti__request_t *request);
void tutti__agree_announce(tutti__engine_t *e, int link, const void *body, size_t bytes);
/* This rank, or one of my subtree, joins; all have joined. */
void tutti__agree_join(tutti__engine_t *e, uint32_t rank);
void tutti__agree_joined(tutti__engine_t *e, uint32_t last_rank);
/* Forget everything that is not in a lane. */
void tutti__agree_clear(tutti__engine_t *e);

/* tensors.c: the table of what was announced */
tutti__tensor_t *tutti__tensor_find(tutti__engine_t *e, const char *name, size_t bytes,
                                    uint8_t phase);
/* Found or made; NULL: no memory, and the communicator is dead. */
tutti__tensor_t *tutti__tensor_get(tutti__engine_t *e, const char *name, size_t bytes,
                                   uint8_t phase);
void tutti__tensor_take_out(tutti__engine_t *e, tutti__tensor_t *tensor);
void tutti__tensor_free(tutti__engine_t *e, tutti__tensor_t *tensor);
/* If nobody's announcement is left of it. */
void tutti__tensor_free_if_empty(tutti__engine_t *e, tutti__tensor_t *tensor);
/* Out of the table, with all announcements that were submitted together with one of it. */
void tutti__tensor_drop(tutti__engine_t *e, tutti__tensor_t *tensor);
/* Forget one rank's announcement, with its group; the tensor too if it was all. */
void tutti__tensor_drop_party(tutti__engine_t *e, tutti__tensor_t *tensor, uint32_t rank);
/* 1 if it was added and counts; its gang is whole then. */
int tutti__tensor_add_party(tutti__engine_t *e, const tutti__announce_msg_t *msg,
                            const tutti__group_msg_t *group, const char *name,
                            tutti__party_t **ret_party);

/* facts.c: what must fit */
tutti__facts_t tutti__facts_of(const tutti__engine_t *e, const tutti__request_t *request);
int tutti__facts_is_message(const tutti__facts_t *facts);
int tutti__facts_differ(const tutti__facts_t *a, const tutti__facts_t *b);
/* Add one announcement to what is known; remember the first pair of ranks that differ. */
void tutti__facts_merge(tutti__tensor_t *into, const tutti__announce_msg_t *from,
                        const tutti__facts_t *other);
/* "an allreduce of 8 elements of float32, sum" */
void tutti__facts_call_text(char *text, size_t bytes, const tutti__facts_t *facts);
/* "rank 1 has an allreduce of 8 elements of float32, sum" */
void tutti__facts_text(char *text, size_t bytes, uint32_t rank, const tutti__facts_t *facts,
                       const tutti__gang_t *gang);

/* decide.c: rank 0, when all have announced a tensor */
/* 1: it is gone from the table, perhaps others with it. 0: it does not fit, but is given time until
   what was submitted together with it is here as well. */
int tutti__decide(tutti__engine_t *e, tutti__tensor_t *tensor);
/* `rank` has announced a message: are the ranks that it concerns all there? */
void tutti__decide_message(tutti__engine_t *e, tutti__tensor_t *tensor, uint32_t rank);
/* Ranks have joined: messages end, whoever they concern. 1 if there were any; the tensor may be
   gone. */
int tutti__decide_joined(tutti__engine_t *e, tutti__tensor_t *tensor);

/* What was given time has had it, perhaps. If clash_ns is set. */
void tutti__decide_late(tutti__engine_t *e);

/* refuse.c: rank 0 */
/* Have all ranks come with it, one way or another? */
int tutti__refuse_is_complete(const tutti__engine_t *e, const tutti__tensor_t *tensor);
/* Chain (by `related`) the tensors that share groups with the first, and those with them; 1 if all
   of them are complete. Then one of the two below. */
int tutti__refuse_gather(const tutti__engine_t *e, tutti__tensor_t *first);
void tutti__refuse_ungather(tutti__tensor_t *first);
/* End them. */
void tutti__refuse_gathered(tutti__engine_t *e, tutti__tensor_t *first, tutti_status_t status,
                            const char *text);
/* Those who have it in groups have it for themselves now, marked; also the others of the groups. */
void tutti__refuse_dissolve(const tutti__engine_t *e, tutti__tensor_t *tensor);

/* missing.c */
/* Say in words whom a request waits for that is not agreed; 1 if this rank knows it exactly. */
int tutti__agree_missing(tutti__engine_t *e, const tutti__request_t *request, char *text,
                         size_t bytes);
/* tutti__agree_missing for a tensor of this rank's table. 0: the tensor waits for no rank, or waits
   elsewhere. */
int tutti__missing_tensor(const tutti__engine_t *e, const tutti__tensor_t *tensor, char *text,
                          size_t bytes);

/* plan.c: buckets */
/* Rank 0: put what is ready into buckets; 1 if it did anything. */
int tutti__plan(tutti__engine_t *e);
void tutti__plan_ready(tutti__engine_t *e, tutti__tensor_t *tensor);
void tutti__plan_bucket(tutti__engine_t *e, const void *body, size_t bytes);
void tutti__plan_reject(tutti__engine_t *e, const void *body, size_t bytes);
/* Rank 0: tell everybody, or the members [nmembers] if there are any, that a tensor ends. */
void tutti__plan_refuse(tutti__engine_t *e, const tutti__tensor_t *tensor, tutti_status_t status,
                        const char *text, const uint32_t *members, uint32_t nmembers);

/* join.c */
/* Rank 0: may this be served while some have joined? NULL: yes; else why not. */
const char *tutti__join_refuses(const tutti__engine_t *e, const tutti__facts_t *facts);

#endif
