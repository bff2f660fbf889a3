/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gate's two sides. See gate.h; gate_reach.c finds the way to it.
 *
 * The host serves all guests at once from one poll(), because a guest that says nothing must not
 * keep the others out. Guests not yet admitted have a place in a small array; when it is full the
 * oldest one makes room.
 */
#include "boot/gate.h"

#include "base/log.h"
#include "base/time.h"
#include "boot/net.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC 0x6574616769747475u /* "uttigate" */
#define CONFIRM 0x796573u
#define GUESTS 64
/* No job has more ranks. */
#define MOST_RANKS (1u << 24)

/* Places in the list for poll(). */
#define DOOR 0u
#define STOP 1u
#define FIRST 2u

typedef struct {
    uint64_t magic;
    uint32_t layout, purpose, number, rank, size, unused;
    unsigned char token[16];
} knock_t;

typedef struct {
    uint64_t magic;
    uint32_t layout;
    int32_t status;
    unsigned char token[16];
    char text[224];
} answer_t;

typedef struct {
    int fd;
    int answered; /* reads its confirmation, else its knock */
    size_t have;  /* bytes of either */
    uint32_t confirm;
    knock_t knock;
} guest_t;

typedef struct {
    const tutti__gate_t *gate;
    int door;
    uint32_t rank, size; /* the gate's; if nobody knows, the first guest's, and 0 before it came */
    int **ret_fds;       /* nobody knew; where to keep fds then */
    uint64_t deadline;
    uint64_t timeout_ms; /* of a deadline that begins with the first guest */
    const char *refusal; /* what everybody is told, or NULL */
    int *fds;
    uint32_t awaited;
    uint32_t strangers; /* that came; the first one is a warning */
    uint32_t nguests;
    guest_t guest[GUESTS];
    struct pollfd poll[FIRST + GUESTS];
} host_t;

static void drop_guest(host_t *host, uint32_t i, int close_fd)
{
    if (close_fd) {
        /* A child forked meanwhile may hold it, too. */
        shutdown(host->guest[i].fd, SHUT_WR);
        close(host->guest[i].fd);
    }
    host->nguests--;
    memmove(&host->guest[i], &host->guest[i + 1], (host->nguests - i) * sizeof(guest_t));
    memmove(&host->poll[FIRST + i], &host->poll[FIRST + i + 1],
            (host->nguests - i) * sizeof(struct pollfd));
}

/* Takes the same time wherever they differ. */
static int same_token(const unsigned char *a, const unsigned char *b)
{
    unsigned differ = 0;

    for (size_t i = 0; i < 16; i++)
        differ |= (unsigned)(a[i] ^ b[i]);
    return differ == 0;
}

/* Is this one of us? If not, it gets no answer. */
static int is_stranger(const tutti__gate_t *gate, const knock_t *knock)
{
    return knock->magic != MAGIC || knock->purpose != (uint32_t)gate->purpose ||
           !same_token(knock->token, gate->token.knock);
}

/* The first guest that belongs here says how many there are. */
static tutti_status_t take_size(host_t *host, const knock_t *knock)
{
    if (knock->size == 0 || knock->size > MOST_RANKS || knock->rank >= knock->size)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "there is no rank %u among %u", knock->rank,
                           knock->size);
    host->fds = malloc(knock->size * sizeof(*host->fds));
    if (host->fds == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "gate for %u ranks", knock->size);
    *host->ret_fds = host->fds;
    for (uint32_t r = 0; r < knock->size; r++)
        host->fds[r] = TUTTI__GATE_AWAITED;
    host->rank = knock->rank;
    host->size = host->awaited = knock->size;
    host->deadline = tutti__net_deadline(host->timeout_ms);
    return TUTTI_OK;
}

/* One of us: does it say what can be? */
static tutti_status_t judge(host_t *host, const knock_t *knock)
{
    const tutti__gate_t *gate = host->gate;
    tutti_status_t status = TUTTI_OK;

    if (knock->layout != TUTTI__BOOT_LAYOUT)
        return tutti__fail(TUTTI_ERR_ABI, "rank %u has layout %u, rank %u has %u", knock->rank,
                           knock->layout, host->rank, TUTTI__BOOT_LAYOUT);
    if (host->refusal != NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s", host->refusal);
    if (host->size == 0)
        status = take_size(host, knock);
    if (status != TUTTI_OK)
        return status;
    if (knock->size != host->size)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "rank %u was told of %u ranks, rank %u of %u", knock->rank, knock->size,
                           host->rank, host->size);
    if (knock->rank >= host->size)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "there is no rank %u among %u", knock->rank,
                           host->size);
    if (host->fds[knock->rank] != TUTTI__GATE_AWAITED || knock->number != gate->number)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "two processes are rank %u", knock->rank);
    return TUTTI_OK;
}

/* An answer always fits into an empty socket; if not, the guest is none of us. */
static int send_answer(const host_t *host, int fd, tutti_status_t status)
{
    answer_t answer = { .magic = MAGIC, .layout = TUTTI__BOOT_LAYOUT, .status = (int32_t)status };

    memcpy(answer.token, host->gate->token.answer, sizeof(answer.token));
    if (status != TUTTI_OK)
        snprintf(answer.text, sizeof(answer.text), "%s", tutti_last_error());
    return send(fd, &answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           (ssize_t)sizeof(answer);
}

/* At most as many at once as there are places, so that deadlines are looked after. */
static tutti_status_t welcome(host_t *host)
{
    for (unsigned n = 0; n < GUESTS; n++) {
        int fd = accept4(host->door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
                return tutti__fail_errno("accept a connection");
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            break;
        }
        if (tutti__net_same_user(fd) != TUTTI_OK) {
            TUTTI__LOG(TUTTI__LOG_WARN, "refused a connection: %s", tutti_last_error());
            close(fd);
            continue;
        }
        if (host->nguests == GUESTS)
            drop_guest(host, 0, 1);
        host->poll[FIRST + host->nguests] = (struct pollfd){ fd, POLLIN, 0 };
        host->guest[host->nguests++] = (guest_t){ .fd = fd };
    }
    return TUTTI_OK;
}

/* Read on; 1: whole, 0: not yet, -1: gone. */
static int read_guest(guest_t *guest)
{
    char *at = guest->answered ? (char *)&guest->confirm : (char *)&guest->knock;
    size_t bytes = guest->answered ? sizeof(guest->confirm) : sizeof(guest->knock);
    ssize_t n = recv(guest->fd, at + guest->have, bytes - guest->have, MSG_DONTWAIT);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        return -1;
    if (n > 0)
        guest->have += (size_t)n;
    return guest->have == bytes;
}

/* Hear guest i. An error ends the gate. */
static tutti_status_t hear(host_t *host, uint32_t i)
{
    guest_t *guest = &host->guest[i];
    int whole = read_guest(guest);
    tutti_status_t status;

    if (whole == 0)
        return TUTTI_OK;
    if (whole < 0)
        goto drop;
    if (is_stranger(host->gate, &guest->knock)) {
        TUTTI__LOG(host->strangers++ == 0 ? TUTTI__LOG_WARN : TUTTI__LOG_DEBUG,
                   "refused a connection that is not of this job");
        goto drop;
    }
    if (guest->answered && guest->confirm != CONFIRM)
        goto drop;
    /* Again after the confirmation: another one may have come in as the same rank. */
    status = judge(host, &guest->knock);
    if (status == TUTTI_OK && guest->answered) {
        host->fds[guest->knock.rank] = guest->fd;
        host->awaited--;
        drop_guest(host, i, 0);
        return TUTTI_OK;
    }
    if (!send_answer(host, guest->fd, status))
        goto drop;
    if (status == TUTTI_OK) {
        guest->answered = 1;
        guest->have = 0;
        return TUTTI_OK;
    }
    drop_guest(host, i, 1);
    return host->gate->strict ? status : TUTTI_OK;

drop:
    drop_guest(host, i, 1);
    return TUTTI_OK;
}

static tutti_status_t missing(const host_t *host, uint64_t begin_ns)
{
    double waited_s = (double)(tutti__now_ns() - begin_ns) * 1e-9;
    unsigned char *listed = calloc(host->size, 1);
    char text[160] = "some ranks";

    for (uint32_t r = 0; listed != NULL && r < host->size; r++)
        listed[r] = host->fds[r] == TUTTI__GATE_AWAITED;
    if (listed != NULL)
        tutti__net_list_ranks(listed, host->size, text, sizeof(text));
    free(listed);
    if (host->ret_fds != NULL)
        return tutti__fail(TUTTI_ERR_TIMEOUT, "%s did not come within %.1f s", text,
                           (double)host->timeout_ms * 1e-3);
    return tutti__fail(TUTTI_ERR_TIMEOUT, "%s did not connect to rank %u within %.1f s", text,
                       host->rank, waited_s);
}

/* What has come in at one look. */
static tutti_status_t hear_all(host_t *host)
{
    tutti_status_t status;

    if (host->poll[STOP].revents != 0)
        return tutti__fail(TUTTI_ERR_SHUTDOWN, "the gate was closed");
    /* From the last one, because hearing may drop the guest. */
    for (uint32_t i = host->nguests; i-- > 0;) {
        if (host->poll[FIRST + i].revents == 0)
            continue;
        status = hear(host, i);
        if (status != TUTTI_OK)
            return status;
    }
    return host->poll[DOOR].revents != 0 ? welcome(host) : TUTTI_OK;
}

static tutti_status_t serve(host_t *host)
{
    uint64_t begin_ns = tutti__now_ns();

    while (host->awaited > 0) {
        int late = tutti__net_left_ms(host->deadline) == 0, ready;
        tutti_status_t status;

        status = tutti__net_poll(host->poll, FIRST + host->nguests, host->deadline, &ready);
        if (status == TUTTI_OK && ready > 0)
            status = hear_all(host);
        if (status != TUTTI_OK)
            return status;
        if (host->awaited > 0 && late)
            return missing(host, begin_ns);
    }
    return TUTTI_OK;
}

static void begin(host_t *host, const tutti__gate_t *gate, int door, int stop)
{
    memset(host, 0, sizeof(*host));
    host->gate = gate;
    host->rank = gate->rank;
    host->door = door;
    host->poll[DOOR] = (struct pollfd){ door, POLLIN, 0 };
    host->poll[STOP] = (struct pollfd){ stop, POLLIN, 0 };
}

static void drop_all(host_t *host)
{
    while (host->nguests > 0)
        drop_guest(host, 0, 1);
}

tutti_status_t tutti__gate_admit(const tutti__gate_t *gate, int door, int *fds, uint64_t deadline)
{
    tutti_status_t status;
    host_t host;

    begin(&host, gate, door, -1);
    host.size = gate->size;
    host.fds = fds;
    host.deadline = deadline;
    for (uint32_t r = 0; r < gate->size; r++)
        host.awaited += fds[r] == TUTTI__GATE_AWAITED;
    status = serve(&host);
    drop_all(&host);
    return status;
}

tutti_status_t tutti__gate_admit_all(const tutti__gate_t *gate, int door, int stop,
                                     uint64_t timeout_ms, uint32_t *ret_size, int **ret_fds)
{
    tutti_status_t status;
    host_t host;

    begin(&host, gate, door, stop);
    *ret_fds = NULL;
    host.ret_fds = ret_fds;
    host.timeout_ms = timeout_ms;
    host.deadline = UINT64_MAX; /* until the first guest has come */
    host.awaited = 1;           /* it */
    status = serve(&host);
    *ret_size = host.size;
    drop_all(&host);
    return status;
}

void tutti__gate_refuse(const tutti__gate_t *gate, int door, int stop, const char *text)
{
    tutti_status_t status = TUTTI_OK;
    host_t host;

    begin(&host, gate, door, stop);
    host.refusal = text;
    host.deadline = UINT64_MAX;
    host.awaited = 1; /* who never comes */
    while (status != TUTTI_ERR_SHUTDOWN) {
        status = serve(&host);
        /* No descriptor for a guest, say: he waits in the kernel's queue. */
        if (status != TUTTI_ERR_SHUTDOWN)
            tutti__net_sleep_ms(100);
    }
    drop_all(&host);
}

tutti_status_t tutti__gate_knock(const tutti__gate_t *gate, int fd, uint32_t host,
                                 uint64_t deadline)
{
    knock_t knock = {
        MAGIC, TUTTI__BOOT_LAYOUT, gate->purpose, gate->number, gate->rank, gate->size, 0, { 0 }
    };
    uint32_t confirm = CONFIRM;
    answer_t answer;
    tutti_status_t status;

    status = tutti__net_same_user(fd);
    if (status != TUTTI_OK)
        return status;
    memcpy(knock.token, gate->token.knock, sizeof(knock.token));
    status = tutti__net_send(fd, host, &knock, sizeof(knock), deadline);
    if (status != TUTTI_OK)
        return status;
    status = tutti__net_recv(fd, host, &answer, sizeof(answer), deadline);
    if (status != TUTTI_OK)
        return status;
    if (answer.magic != MAGIC || !same_token(answer.token, gate->token.answer))
        return tutti__fail(TUTTI_ERR_TRANSPORT,
                           host == TUTTI__NET_MAKER ? "who answered is not of this job"
                                                    : "who answered instead of rank %u is not of "
                                                      "this job",
                           host);
    if (answer.status != TUTTI_OK)
        return tutti__fail((tutti_status_t)answer.status, "%.*s", (int)sizeof(answer.text),
                           answer.text);
    return tutti__net_send(fd, host, &confirm, sizeof(confirm), deadline);
}
