/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: the data that strangers send to the gate of a job whose ranks meet by env://.
 *
 * Two gates, with and without a secret, wait for ranks 1 and 2 of 3, each gate in its own thread.
 * Each input is cut into two pieces and sent twice, each time over a new connection: unchanged, and
 * in the form of a hello and a knock with right magic numbers, so that the input reaches the checks
 * after the magic numbers. The gate must answer only with a greeting and refusals, close the
 * connection, and continue.
 *
 * The first byte: bit 0: which gate; bit 1: keep the right token of this connection, which only the
 * gate without a secret accepts; bits 2 to 7: where to cut.
 */
#include "fuzz.h"

#include "boot/gate_wire.h"
#include "boot/net.h"
#include "boot/pass.h"
#include "tag.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAIT_MS 20000u

typedef struct {
    char name[64];
    int door;
    tutti__gate_t gate;
    tutti__pass_t pass;
} place_t;

typedef struct {
    tutti__gate_hello_t hello;
    tutti__gate_knock_t knock;
} letter_t;

static place_t places[2]; /* [0]: without a secret; [1]: with a secret */

static void demand(int truth)
{
    if (!truth)
        abort();
}

/* The gate is not strict: a strict gate would end at the first contradiction with a right token. */
static void *serve(void *arg)
{
    place_t *place = arg;
    int fds[3] = { TUTTI__GATE_NOBODY, TUTTI__GATE_AWAITED, TUTTI__GATE_AWAITED };

    (void)tutti__gate_admit(&place->gate, place->door, fds, UINT64_MAX);
    abort(); /* the gate cannot end, because rank 2 never connects */
}

static void open_places(void)
{
    static const char secret[] = "of this fuzzer";
    pthread_t thread;

    for (int i = 0; i < 2; i++) {
        place_t *place = &places[i];
        tutti__conf_job_t job = { .run = "fuzz", .port = 1 };
        tutti__conf_t conf;

        tutti__conf_defaults(&conf);
        if (i == 1)
            memcpy(conf.job_secret, secret, sizeof(secret));
        if (tutti__pass_init(&place->pass, &conf, &job) != TUTTI_OK) {
            fprintf(stderr, "skipped: %s\n", tutti_last_error());
            exit(77);
        }
        snprintf(place->name, sizeof(place->name), "tutti-fuzz-gate-%d-%d", tag(), i);
        place->gate =
            (tutti__gate_t){ .purpose = TUTTI__GATE_JOB, .size = 3, .pass = &place->pass };
        demand(tutti__net_unix_listen(place->name, strlen(place->name), &place->door) == TUTTI_OK);
        demand(pthread_create(&thread, NULL, serve, place) == 0);
        pthread_detach(thread);
    }
}

/* Read until the gate closes the connection. It may send at most one answer, which must be a
   refusal. */
static void hear(const place_t *place, int fd)
{
    uint64_t deadline = tutti__net_deadline(WAIT_MS);
    tutti__gate_answer_t answer;
    struct pollfd pfd = { fd, POLLIN, 0 };
    size_t have = 0;
    int ready;

    for (;;) {
        ssize_t n;

        demand(tutti__net_poll(&pfd, 1, deadline, &ready) == TUTTI_OK && ready > 0);
        n = recv(fd, (char *)&answer + have, sizeof(answer) - have, MSG_DONTWAIT);
        if (n <= 0)
            break;
        have += (size_t)n;
        demand(have < sizeof(answer) || answer.status != TUTTI_OK);
        demand(have < sizeof(answer) || memchr(answer.text, '\0', sizeof(answer.text)) != NULL);
        if (have == sizeof(answer))
            break;
    }
    demand(have == 0 || have == sizeof(answer));
    (void)place;
}

static void send_pieces(int fd, const uint8_t *data, size_t bytes, size_t cut)
{
    cut = TUTTI__MIN(cut, bytes);
    (void)send(fd, data, cut, MSG_NOSIGNAL);
    (void)send(fd, data + cut, bytes - cut, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
}

static int reach(const place_t *place, tutti__gate_greeting_t *ret_greeting)
{
    uint64_t deadline = tutti__net_deadline(WAIT_MS);
    int fd;

    demand(tutti__net_unix_connect(place->name, strlen(place->name), 1, deadline, &fd) == TUTTI_OK);
    demand(tutti__net_recv(fd, 0, ret_greeting, sizeof(*ret_greeting), deadline) == TUTTI_OK);
    demand(tutti__pass_judge_greeting(&place->pass, ret_greeting) == TUTTI_OK);
    return fd;
}

/* Change the input into a hello and a knock. If the input keeps a right token, it must not have a
   rank that the gate could admit. */
static void mend(const place_t *place, const tutti__gate_greeting_t *greeting, letter_t *letter,
                 int keep_token)
{
    tutti__gate_token_t token;

    letter->hello.magic = TUTTI__GATE_HELLO;
    letter->hello.layout = TUTTI__BOOT_LAYOUT;
    letter->knock.magic = TUTTI__GATE_MAGIC;
    letter->knock.purpose = TUTTI__GATE_JOB;
    if (!keep_token)
        return;
    if (letter->knock.rank == 1 || letter->knock.rank == 2)
        letter->knock.rank = 0;
    demand(tutti__pass_tokens(&place->pass, greeting, &letter->hello, letter->knock.rank,
                              letter->knock.size, &token) == TUTTI_OK);
    memcpy(letter->knock.token, token.knock, sizeof(letter->knock.token));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    tutti__gate_greeting_t greeting;
    const place_t *place;
    letter_t letter;
    int fd;

    if (places[0].name[0] == '\0')
        open_places();
    if (bytes == 0)
        return 0;
    place = &places[data[0] & 1];
    fd = reach(place, &greeting);
    send_pieces(fd, data + 1, bytes - 1, data[0] >> 2);
    hear(place, fd);
    close(fd);

    memset(&letter, 0, sizeof(letter));
    memcpy(&letter, data + 1, TUTTI__MIN(bytes - 1, sizeof(letter)));
    fd = reach(place, &greeting);
    mend(place, &greeting, &letter, data[0] & 2);
    send_pieces(fd, (const uint8_t *)&letter, sizeof(letter), data[0]);
    hear(place, fd);
    close(fd);
    return 0;
}

size_t fuzz_seed(unsigned n, uint8_t *ret_data, size_t room)
{
    letter_t letter;

    if (n >= 4 || room < 1 + sizeof(letter))
        return 0;
    if (places[0].name[0] == '\0')
        open_places();
    memset(&letter, 0, sizeof(letter));
    demand(tutti__pass_hello(&places[0].pass, &letter.hello) == TUTTI_OK);
    letter.knock.magic = TUTTI__GATE_MAGIC;
    letter.knock.layout = TUTTI__BOOT_LAYOUT;
    letter.knock.purpose = TUTTI__GATE_JOB;
    letter.knock.rank = n;
    letter.knock.size = 3;
    ret_data[0] = (uint8_t)(n | 40u * n);
    memcpy(ret_data + 1, &letter, sizeof(letter));
    return 1 + sizeof(letter);
}
