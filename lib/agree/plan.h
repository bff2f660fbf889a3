/* SPDX-License-Identifier: BSD-3-Clause */
/* Learned plans: the state, and the functions that the files of this room share. See plan.c. */
#ifndef TUTTI__AGREE_PLAN_H
#define TUTTI__AGREE_PLAN_H

#include "agree/agree.h"
#include "agree/name_table.h"

/* ---- messages ---- */

/* PLAN: one tensor of a plan. Behind the structure follows the name, not terminated. */
typedef struct {
    tutti__metadata_t metadata;
    tutti__group_msg_t group;
    uint32_t number; /* of the plan */
    uint32_t bucket; /* from 0, ascending */
    uint8_t first, last;
    uint8_t is_adjacent; /* see tutti__planned_t */
    uint8_t name_bytes, unused[4];
} tutti__plan_msg_t;

/* The body of PLAN_STOP, PLAN_STOPPED and PLAN_END. */
typedef struct {
    uint64_t buckets; /* the largest number of buckets that a rank has started. STOPPED: among
                         the ranks of the subtree; END: among all ranks */
    uint32_t number;  /* of the plan */
    uint32_t is_deviation;
} tutti__plan_note_t;

/* ---- state ---- */

typedef enum {
    TUTTI__PLAN_NONE,
    TUTTI__PLAN_ARRIVES, /* the plan's first tensors have arrived; it has no effect yet */
    TUTTI__PLAN_RUNS,
    TUTTI__PLAN_STOPS /* this rank starts no further bucket of the plan */
} tutti__plan_state_t;

/* The plan, as every rank keeps it. Tensor i of `tensor` has name i of `names`. */
typedef struct {
    tutti__plan_state_t state;
    uint32_t number; /* of the plan; from 1 */
    tutti__tensor_names_t names;
    tutti__planned_t *tensor;
    uint32_t capacity;
    uint32_t nbuckets;
    int has_asked;         /* this rank has sent PLAN_STOP up; rank 0: it has stopped the plan */
    uint32_t awaited;      /* number of links to children whose subtrees have not stopped */
    unsigned char *awaits; /* [nlinks] 1: `awaited` counts this link */
    uint64_t started;      /* the largest number of buckets started by a rank of the subtree */
} tutti__plan_t;

/* A tensor that rank 0's program submits. */
typedef struct {
    tutti__metadata_t metadata;
    uint64_t place; /* address in last_step; 0: none, see tutti__agree_learn */
    uint32_t first_step, last_step;
    uint32_t position;    /* place in the order of last_step */
    uint32_t streak;      /* number of consecutive steps with an equal call, up to last_step */
    uint8_t after_wait;   /* in a step of the streak, a thread began to wait just before the call */
    uint8_t waits_inside; /* as after_wait, and the tensor was not the first of the step */
    uint8_t has_moved;    /* one step before last_step, another tensor was just before it */
    uint32_t before;      /* 1 + index of the tensor before it; 0: it is the first of its step */
    uint8_t is_planned;
    uint8_t is_refused;       /* the call has failed on all ranks, so it is not planned */
    tutti__group_msg_t group; /* of the last call */
    /* 1 + index of the first call of the tensor's group, the leader; 0: the tensor is in no group,
       or the first call cannot be planned */
    uint32_t leader;
    uint32_t members; /* of a leader: calls of its group in last_step with a long enough streak */
} tutti__known_t;

/* The state from which the coordinator learns plans. */
typedef struct {
    tutti__tensor_names_t names;
    tutti__known_t *known; /* [capacity] */
    uint32_t capacity;
    uint32_t step, position; /* the present step, and the next position in this step */
    uint32_t last;           /* 1 + index of the last tensor of this step; 0: none yet */
    uint32_t leader;         /* 1 + index of the first call of the last group; 0: none yet */
    uint32_t need;           /* number of equal steps after which a plan is made */
    uint32_t begun;          /* the step in which the last plan began */
    uint32_t *planned; /* [nplanned] for each tensor of the plan that runs: its index in `known` */
    uint32_t nplanned; /* 0: there is no plan, or the indices are not known */
    int has_waited;    /* a thread has begun to wait since the last submission */
} tutti__learn_t;

/* plan.c */
tutti_status_t tutti__plan_open(tutti__plan_t *plan, uint32_t nlinks);
void tutti__plan_close(tutti__plan_t *plan);
/* Is the announcement of a call in phase 0 void? It is void if the plan has the name, and the call
   is in no submission group or in the same group as in the plan. Do not call this function for a
   message that is in no group: such an announcement is never void. */
int tutti__plan_voids(const tutti__plan_t *plan, const char *name, size_t bytes,
                      const tutti__group_msg_t *group);
void tutti__plan_message(tutti__agree_t *a, uint32_t link, uint32_t kind, const void *body,
                         size_t bytes);
void tutti__plan_clear(tutti__plan_t *plan);

/* A tensor of a plan that is being laid out. */
typedef struct {
    uint32_t position, tensor; /* index of the name */
    uint32_t bucket;
    uint32_t leader; /* see tutti__known_t */
    uint64_t place;
    uint8_t after_wait;  /* no bucket has both this tensor and an earlier tensor */
    uint8_t is_adjacent; /* see tutti__planned_t */
} tutti__laid_t;

/* learn.c */
/* The entry of a name. NULL: the call cannot be planned, or there is no memory. */
tutti__known_t *tutti__learn_entry(tutti__learn_t *learn, const char *name, size_t bytes,
                                   uint64_t hash, const tutti__metadata_t *metadata);
/* Does the submission end the step? If so, the caller makes a plan if possible, and afterwards
   calls tutti__learn_next_step. A step does not end within a submission group. */
static inline int tutti__learn_ends_step(const tutti__learn_t *learn, const tutti__known_t *known,
                                         const tutti__group_msg_t *group)
{
    return known->last_step == learn->step && group->index == 0;
}
void tutti__learn_next_step(tutti__learn_t *learn);
/* Note in its entry that rank 0's program submits a tensor. */
void tutti__learn_note(tutti__learn_t *learn, tutti__known_t *known,
                       const tutti__metadata_t *metadata, const tutti__group_msg_t *group,
                       uint64_t place);
/* As tutti__learn_note, for a call that is equal to the tensor's previous call. */
void tutti__learn_repeat(tutti__learn_t *learn, tutti__known_t *known, uint64_t place);
/* Note that a plan begins. laid: its tensors, [n]. */
void tutti__learn_begin(tutti__learn_t *learn, const tutti__laid_t *laid, uint32_t n);
/* In the last `need` steps, were the tensor and all other calls of its submission group equal? */
int tutti__learn_is_regular(const tutti__learn_t *learn, const tutti__known_t *known);
/* The number of regular tensors; 0 if other tensors may become regular soon. *ret_more 1: some
   regular tensors are not in the present plan. */
uint32_t tutti__learn_regular(const tutti__learn_t *learn, int *ret_more);
/* The n regular tensors in the order of their plan; the caller frees them. NULL: no memory. */
tutti__laid_t *tutti__learn_lay_out(const tutti__learn_t *learn, uint32_t n,
                                    const tutti__agree_env_t *env);
void tutti__learn_open(tutti__learn_t *learn);
void tutti__learn_close(tutti__learn_t *learn);
/* Learn the next plan, after a plan has been stopped. */
void tutti__learn_again(tutti__learn_t *learn, int is_deviation);

#endif
