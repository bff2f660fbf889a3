/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes and checks greetings, hellos and tokens. See pass.h. */
#include "boot/pass.h"

#include "base/hash.h"
#include "boot/net.h"

#include <stdio.h>
#include <string.h>

tutti_status_t tutti__pass_init(tutti__pass_t *ret_pass, const tutti__conf_t *conf,
                                const tutti__conf_job_t *job)
{
    memset(ret_pass, 0, sizeof(*ret_pass));
    snprintf(ret_pass->run, sizeof(ret_pass->run), "%.*s", (int)sizeof(ret_pass->run) - 1,
             job->run);
    ret_pass->run_hash = tutti__hash(job->run, strlen(job->run));
    ret_pass->restart = job->restart;
    ret_pass->port = job->port;
    return tutti__secret_read(conf, &ret_pass->secret);
}

void tutti__pass_clear(tutti__pass_t *pass)
{
    explicit_bzero(&pass->secret, sizeof(pass->secret));
}

tutti_status_t tutti__pass_greet(const tutti__pass_t *pass, tutti__gate_greeting_t *ret_greeting)
{
    memset(ret_greeting, 0, sizeof(*ret_greeting));
    ret_greeting->magic = TUTTI__GATE_GREETING;
    ret_greeting->layout = TUTTI__BOOT_LAYOUT;
    ret_greeting->has_secret = pass->secret.bytes > 0;
    ret_greeting->restart = pass->restart;
    ret_greeting->run_hash = pass->run_hash;
    ret_greeting->port = pass->port;
    return tutti__net_random(ret_greeting->number, sizeof(ret_greeting->number));
}

tutti_status_t tutti__pass_hello(const tutti__pass_t *pass, tutti__gate_hello_t *ret_hello)
{
    memset(ret_hello, 0, sizeof(*ret_hello));
    ret_hello->magic = TUTTI__GATE_HELLO;
    ret_hello->layout = TUTTI__BOOT_LAYOUT;
    ret_hello->port = pass->port;
    ret_hello->restart = pass->restart;
    ret_hello->run_hash = pass->run_hash;
    memcpy(ret_hello->run, pass->run, sizeof(ret_hello->run));
    return tutti__net_random(ret_hello->number, sizeof(ret_hello->number));
}

tutti_status_t tutti__pass_tokens(const tutti__pass_t *pass, const tutti__gate_greeting_t *greeting,
                                  const tutti__gate_hello_t *hello, uint32_t rank, uint32_t size,
                                  tutti__gate_token_t *ret_token)
{
    struct {
        char purpose[8]; /* distinguishes the tokens, so that a false gate cannot answer with the
                            token of the guest's knock */
        uint32_t rank, size;
        tutti__gate_greeting_t greeting;
        tutti__gate_hello_t hello;
    } text = { "knock", rank, size, *greeting, *hello };
    tutti_status_t status;

    _Static_assert(sizeof(text) == 16 + sizeof(*greeting) + sizeof(*hello), "no padding");
    _Static_assert(sizeof(ret_token->knock) == TUTTI__CODE_BYTES, "a token is a code");
    status = tutti__secret_code(&pass->secret, &text, sizeof(text), ret_token->knock);
    memcpy(text.purpose, "answer", 7);
    return status == TUTTI_OK
               ? tutti__secret_code(&pass->secret, &text, sizeof(text), ret_token->answer)
               : status;
}

tutti_status_t tutti__pass_judge_greeting(const tutti__pass_t *pass,
                                          const tutti__gate_greeting_t *greeting)
{
    if (greeting->magic != TUTTI__GATE_GREETING)
        return tutti__fail(TUTTI_ERR_PEER_LOST, "the process that listens there is not rank 0");
    if (greeting->layout != TUTTI__BOOT_LAYOUT)
        return tutti__fail(TUTTI_ERR_ABI, "rank 0 has layout %u, this rank %u", greeting->layout,
                           TUTTI__BOOT_LAYOUT);
    /* Without this check, a false gate could make a rank meet without the job's secret. */
    if (!greeting->has_secret && pass->secret.bytes > 0)
        return tutti__fail(TUTTI_ERR_PEER_LOST,
                           "the process that listens there has no job secret, but this rank has");
    if (greeting->has_secret && pass->secret.bytes == 0)
        return tutti__fail(TUTTI_ERR_PEER_LOST,
                           "the process that listens there demands a job secret: set "
                           "TUTTI_JOB_SECRET or TUTTI_JOB_SECRET_FILE on all ranks");
    return TUTTI_OK;
}

int tutti__pass_is_ours(const tutti__pass_t *pass, const tutti__gate_greeting_t *greeting)
{
    return greeting->run_hash == pass->run_hash && greeting->restart == pass->restart &&
           greeting->port == pass->port;
}

/* A job's name for messages. Any process can send a hello, so print only plain ASCII. */
static const char *name_run(const char *run, char ret_text[TUTTI__GATE_RUN_BYTES])
{
    size_t i = 0;

    for (; i < TUTTI__GATE_RUN_BYTES - 1 && run[i] != '\0'; i++)
        ret_text[i] = (char)(run[i] > ' ' && run[i] <= '~' ? run[i] : '?');
    ret_text[i] = '\0';
    return i > 0 ? ret_text : "without a name";
}

tutti_status_t tutti__pass_judge_hello(const tutti__pass_t *pass, const tutti__gate_hello_t *hello,
                                       uint32_t rank)
{
    char theirs[TUTTI__GATE_RUN_BYTES], ours[TUTTI__GATE_RUN_BYTES];

    if (hello->run_hash != pass->run_hash || memcmp(hello->run, pass->run, sizeof(pass->run)) != 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "rank %u belongs to job %s, rank 0 to job %s", rank,
                           name_run(hello->run, theirs), name_run(pass->run, ours));
    if (hello->port != pass->port)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "rank %u belongs to the job of port %u, rank 0 to that of port %u", rank,
                           hello->port, pass->port);
    if (hello->restart != pass->restart)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "rank %u belongs to restart %llu of the job, rank 0 to restart %llu",
                           rank, (unsigned long long)hello->restart,
                           (unsigned long long)pass->restart);
    return TUTTI_OK;
}
