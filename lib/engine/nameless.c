/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers and names of calls without a name. See nameless.h. */
#include "engine/nameless.h"

#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const char call_text[] = "call ", message_text[] = "message ", end_text[] = "without a name";

/* A call of strncmp would take longer: most names differ from the text in the first bytes. */
static int begins_with(const char *name, const char *text)
{
    for (; *text != '\0' && *name == *text; text++)
        name++;
    return *text == '\0';
}

int tutti__engine_owns_name(const char *name)
{
    size_t length, end = sizeof(end_text) - 1;

    if (!begins_with(name, call_text) && !begins_with(name, message_text))
        return 0;
    length = strlen(name);
    return length >= end && strcmp(name + length - end, end_text) == 0;
}

tutti_status_t tutti__nameless_open(tutti__nameless_t *nameless, uint32_t rank, uint32_t size,
                                    int has_lane)
{
    uint64_t *messages = calloc(2 * (size_t)size, sizeof(*messages));

    if (messages == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "numbers of messages of %u ranks", size);
    *nameless = (tutti__nameless_t){ rank, size, has_lane, 0, messages };
    return TUTTI_OK;
}

void tutti__nameless_close(tutti__nameless_t *nameless)
{
    free(nameless->messages);
    nameless->messages = NULL;
}

/* The counter from which a request gets its number. */
static uint64_t *counter(tutti__nameless_t *nameless, const tutti__request_t *request)
{
    uint32_t peer = request->call.root;

    if (!tutti__call_is_message(request->call.kind))
        return &nameless->calls;
    assert(request->call.kind != TUTTI_CALL_SENDRECV && peer < nameless->size);
    return &nameless
                ->messages[request->call.kind == TUTTI_CALL_SEND ? peer : nameless->size + peer];
}

/* printf is not used: it takes longer than the rest of a small call's submission. */
static char *put_text(char *at, const char *text)
{
    size_t length = strlen(text);

    memcpy(at, text, length);
    return at + length;
}

static char *put_number(char *at, uint64_t number)
{
    char digits[20];
    int n = 0;

    do
        digits[n++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    while (n > 0)
        *at++ = digits[--n];
    return at;
}

void tutti__nameless_number(tutti__nameless_t *nameless, tutti__request_t *request)
{
    uint64_t number = ++*counter(nameless, request);
    uint32_t rank = nameless->rank, peer = request->call.root;
    int is_message = tutti__call_is_message(request->call.kind);
    int sends = request->call.kind == TUTTI_CALL_SEND;
    char *at = put_text(request->name, is_message ? message_text : call_text);

    assert(request->nameless && !request->known);
    at = put_number(at, number);
    if (is_message) {
        at = put_number(put_text(at, " from rank "), sends ? rank : peer);
        at = put_number(put_text(at, " to rank "), sends ? peer : rank);
        at = put_text(at, ",");
    }
    at = put_text(put_text(at, " "), end_text);
    *at = '\0';
    request->name_bytes = (uint8_t)(at - request->name);
    request->ordered = (uint8_t)tutti__nameless_is_ordered(nameless, request);
    /* No rank looks up an ordered request by its name. */
    request->hash =
        request->ordered ? number : tutti__hash_name(request->name, request->name_bytes);
}

void tutti__nameless_undo(tutti__nameless_t *nameless, const tutti__request_t *request)
{
    uint64_t *count = counter(nameless, request);

    assert(request->nameless && *count > 0);
    --*count;
}

void tutti__nameless_restart(tutti__nameless_t *nameless)
{
    nameless->calls = 0;
    memset(nameless->messages, 0, 2 * (size_t)nameless->size * sizeof(*nameless->messages));
}
