/* SPDX-License-Identifier: BSD-3-Clause */
/* The verdict on a communicator, as a paragraph and as a line of JSON. */
#include "report/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const verdicts[VERDICTS] = { "nothing", "failed", "no_dump", "tensor",
                                                "order",   "bucket", "direct" };

static double seconds(const judged_t *judged, int64_t since_ns)
{
    return since_ns > 0 && judged->now_ns > since_ns ? (double)(judged->now_ns - since_ns) / 1e9
                                                     : 0;
}

static int64_t count(const judged_t *judged, const int *set)
{
    int64_t n = 0;

    for (int64_t r = 0; r < judged->size; r++)
        n += set[r] != 0;
    return n;
}

/* "rank 1", "ranks 0, 1 and 3". After 8 ranks, only the number of the others is printed. */
static void put_ranks(FILE *out, const judged_t *judged, const int *set)
{
    int64_t n = count(judged, set), at = 0;

    fprintf(out, n == 1 ? "rank" : "ranks");
    for (int64_t r = 0; r < judged->size && at < 8; r++) {
        if (!set[r])
            continue;
        fprintf(out, "%s%" PRId64, at == 0 ? " " : at + 1 == n ? " and " : ", ", r);
        at++;
    }
    if (n > at)
        fprintf(out, " and %" PRId64 " others", n - at);
}

static const char *many(const judged_t *judged, const int *set, const char *one, const char *more)
{
    return count(judged, set) == 1 ? one : more;
}

static void put_tensor(FILE *out, const tensor_t *tensor)
{
    fprintf(out, "tensor '%s'", tensor->name);
    if (tensor->call[0] != '\0')
        fprintf(out, " (%s of %" PRId64 " elements of %s%s%s)", tensor->call, tensor->count,
                tensor->dtype, tensor->op[0] != '\0' ? ", " : "", tensor->op);
}

static const char *past(const char *kind)
{
    static const char *const words[][2] = {

        { "slow", "a wait in the bucket of" },
        { "done", "the end of" },
        { "wait", "a wait for" },
        { "waited", "the end of a wait for" },
        { "direct", "a direct call" },
        { "direct_end", "the end of a direct call" }
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (strcmp(kind, words[i][0]) == 0)
            return words[i][1];
    return kind;
}

/* What a rank does now. */
static void put_doing(FILE *out, const judged_t *judged, int64_t rank)
{
    const part_t *part = judged->part[rank];
    const tensor_t *oldest = NULL;

    fprintf(out, "Rank %" PRId64 " ", rank);
    if (part == NULL) {
        fprintf(out, "left no dump: its process is stopped or has ended, or its file is missing. ");
        return;
    }
    for (size_t i = 0; i < part->ntensors; i++)
        if (oldest == NULL || part->tensors[i].since_ns < oldest->since_ns)
            oldest = &part->tensors[i];
    if (part->is_direct) {
        fprintf(out, "has waited %.1f s in a direct %s", seconds(judged, part->direct_since_ns),
                part->direct_call);
        if (part->direct_peer >= 0)
            fprintf(out, " for rank %" PRId64, part->direct_peer);
        fprintf(out, ". ");
    } else if (oldest != NULL) {
        fprintf(out, "%s ", part->waits > 0 ? "waits for" : "has pending");
        put_tensor(out, oldest);
        fprintf(out, ", submitted %.1f s ago", seconds(judged, oldest->since_ns));
        if (part->ntensors > 1)
            fprintf(out, ", and %zu more", part->ntensors - 1);
        fprintf(out, ". ");
    } else if (part->last_ns != 0) {
        fprintf(out, "has no call in progress; the last event there was %s%s%s%s, %.1f s ago. ",
                past(part->last_kind), part->last_name[0] != '\0' ? " '" : "", part->last_name,
                part->last_name[0] != '\0' ? "'" : "", seconds(judged, part->last_ns));
    } else {
        fprintf(out, "has no call in progress, and has made no asynchronous call. ");
    }
}

static void put_doings(FILE *out, const judged_t *judged)
{
    int n = 0;

    for (int64_t r = 0; r < judged->size && n < 8; r++)
        if (judged->culprit[r] && ++n)
            put_doing(out, judged, r);
}

/* ---- the verdicts ---- */

/* "Ranks 0 and 2 have waited 2.1 s for " */
static void put_waiting(FILE *out, const judged_t *judged)
{
    put_ranks(out, judged, judged->waiting);
    fprintf(out, " %s waited %.1f s ", many(judged, judged->waiting, "has", "have"),
            seconds(judged, judged->since_ns));
}

static void put_lacking(FILE *out, const judged_t *judged)
{
    put_waiting(out, judged);
    fprintf(out, "for ");
    put_tensor(out, &judged->what);
    fprintf(out, ", which ");
    put_ranks(out, judged, judged->lacking);
    fprintf(out, " %s not submitted. ", many(judged, judged->lacking, "has", "have"));
    if (judged->verdict == VERDICT_ORDER)
        fprintf(out, "The ranks wait for different tensors. ");
    put_doings(out, judged);
}

/* How many messages a waiting rank has received from its peer, or sent to it. */
static void put_messages(FILE *out, int64_t rank, const lane_t *lane)
{
    int receives = lane->received >= 0;

    fprintf(out,
            "Rank %" PRId64 " has %s %" PRId64 " of %" PRId64 " messages %s rank %" PRId64
            ", and %s %" PRId64 " bytes. ",
            rank, receives ? "received" : "sent", receives ? lane->received : lane->sent,
            lane->messages, receives ? "from" : "to", lane->peer,
            receives ? "waits for" : "waits to send", lane->bytes);
}

static int has_messages(const lane_t *lane)
{
    return lane != NULL && (lane->received >= 0 || lane->sent >= 0);
}

static void put_arrived(FILE *out, const judged_t *judged)
{
    int n = 0;

    for (int64_t r = 0; r < judged->size && n < 8; r++)
        if (judged->waiting[r] && has_messages(judged_lane(judged, r)) && ++n)
            put_messages(out, r, judged_lane(judged, r));
}

static void put_culprits(FILE *out, const judged_t *judged)
{
    if (count(judged, judged->culprit) > 0)
        put_ranks(out, judged, judged->culprit);
    else
        fprintf(out, "work on a device, which does not report the rank that it waits for");
    fprintf(out, ". ");
    put_doings(out, judged);
}

/* No lane has a bucket in flight. */
static void put_pending(FILE *out, const judged_t *judged)
{
    int n = 0;

    for (int64_t r = 0; r < judged->size && n < 8; r++)
        if (judged->part[r] != NULL && judged->part[r]->lost > 0 && ++n)
            fprintf(out,
                    "the recorder of rank %" PRId64 " was full, and has not recorded %" PRId64
                    " submitted tensors. ",
                    r, judged->part[r]->lost);
    fprintf(out, "calls are pending, and every %srank has submitted them. ", n > 0 ? "other " : "");
}

static void put_bucket(FILE *out, const judged_t *judged)
{
    const lane_t *lane = judged->lane;

    if (lane == NULL) {
        put_pending(out, judged);
        return;
    }
    put_waiting(out, judged);
    fprintf(out, "in bucket %" PRId64 " (%" PRId64 " %s '%s')", lane->bucket, lane->tensors,
            lane->tensors == 1 ? "tensor," : "tensors, the first is", lane->name);
    if (lane->of > 0)
        fprintf(out, ", in step %" PRId64 " of %" PRId64 " of the schedule, %s", lane->step + 1,
                lane->of, lane->doing);
    fprintf(out, ". ");
    put_arrived(out, judged);
    fprintf(out, "The chain of waits leads to ");
    put_culprits(out, judged);
}

/* "Ranks 0 and 2 have waited 2.1 s in a direct allreduce". 0: no direct call waits. */
static int put_direct_wait(FILE *out, const judged_t *judged)
{
    for (int64_t r = 0; r < judged->size; r++) {
        const part_t *part = judged->part[r];

        if (!judged->waiting[r] || part == NULL || !part->is_direct ||
            part->direct_since_ns != judged->since_ns)
            continue;
        put_waiting(out, judged);
        fprintf(out, "in a direct %s", part->direct_call);
        return 1;
    }
    return 0;
}

static void put_direct(FILE *out, const judged_t *judged)
{
    if (put_direct_wait(out, judged))
        fprintf(out, " for ");
    put_culprits(out, judged);
}

static void put_absent(FILE *out, const judged_t *judged)
{
    put_ranks(out, judged, judged->culprit);
    fprintf(out, " left no dump: %s stopped or %s ended, or %s missing. ",
            many(judged, judged->culprit, "its process is", "their processes are"),
            many(judged, judged->culprit, "has", "have"),
            many(judged, judged->culprit, "its file is", "their files are"));
    if (judged->what.name[0] == '\0' && put_direct_wait(out, judged)) {
        fprintf(out, ". ");
        return;
    }
    put_ranks(out, judged, judged->waiting);
    fprintf(out, " %s", many(judged, judged->waiting, "waits", "wait"));
    if (judged->what.name[0] != '\0') {
        fprintf(out, " for ");
        put_tensor(out, &judged->what);
        fprintf(out, "%s, submitted %.1f s ago",
                judged->what.is_agreed ? ", which all ranks have submitted" : "",
                seconds(judged, judged->since_ns));
    }
    fprintf(out, ". ");
}

/* The paragraph, without its line end. */
static void put_paragraph(FILE *out, const judged_t *judged)
{
    const part_t *any = judged->any;

    if (strcmp(any->kind, "world") == 0)
        fprintf(out, "World of %" PRId64 " ranks", judged->size);
    else
        fprintf(out, "Group of %" PRId64 " ranks, from world rank %" PRId64, judged->size,
                any->first);
    if (any->status != 0)
        fprintf(out, ", which has failed: %s. ", any->text);
    else
        fprintf(out, ", which has not failed. ");
    switch (judged->verdict) {
    case VERDICT_NOTHING:
        fprintf(out, "No call is in progress. ");
        break;
    case VERDICT_NO_DUMP:
        put_absent(out, judged);
        break;
    case VERDICT_TENSOR:
    case VERDICT_ORDER:
        put_lacking(out, judged);
        break;
    case VERDICT_BUCKET:
        put_bucket(out, judged);
        break;
    case VERDICT_DIRECT:
        put_direct(out, judged);
        break;
    default:
        break;
    }
}

/* ---- output ---- */

static char *paragraph(const judged_t *judged)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    if (out == NULL) {
        fprintf(stderr, "tutti_report: no memory\n");
        exit(1);
    }
    put_paragraph(out, judged);
    fclose(out);
    while (text[0] != '\0' && text[strlen(text) - 1] == ' ')
        text[strlen(text) - 1] = '\0';
    /* A sentence may begin with a part that was printed in lower case, such as "ranks". */
    for (char *at = text; (at = strstr(at, ". ")) != NULL; at++)
        if (at[2] == 'r' || at[2] == 'c' || at[2] == 't')
            at[2] -= 'a' - 'A';
    return text;
}

/* Lines of at most 100 columns, cut between words. */
static void print_wrapped(FILE *out, const char *text)
{
    size_t column = 0;

    while (*text != '\0') {
        size_t word = strcspn(text, " ");

        if (column > 0 && column + 1 + word > 100) {
            fputc('\n', out);
            column = 0;
        }
        column += (size_t)fprintf(out, "%s%.*s", column > 0 ? " " : "", (int)word, text);
        text += word + strspn(text + word, " ");
    }
    fputc('\n', out);
}

static void json_text(FILE *out, const char *key, const char *text)
{
    fprintf(out, ",\"%s\":\"", key);
    for (; *text != '\0'; text++)
        fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    fputc('"', out);
}

static void json_ranks(FILE *out, const char *key, const judged_t *judged, const int *set)
{
    const char *between = "";

    fprintf(out, ",\"%s\":[", key);
    for (int64_t r = 0; r < judged->size; r++) {
        if (set != NULL ? !set[r] : judged->part[r] == NULL)
            continue;
        fprintf(out, "%s%" PRId64, between, r);
        between = ",";
    }
    fputc(']', out);
}

static void json_arrived(FILE *out, const judged_t *judged)
{
    const char *between = "";

    fprintf(out, ",\"arrived\":[");
    for (int64_t r = 0; r < judged->size; r++) {
        const lane_t *lane = judged_lane(judged, r);

        if (!has_messages(lane))
            continue;
        fprintf(out,
                "%s{\"rank\":%" PRId64 ",\"step\":%" PRId64 ",\"peer\":%" PRId64 ",\"%s\":%" PRId64
                ",\"messages\":%" PRId64 ",\"bytes\":%" PRId64 "}",
                between, r, lane->step, lane->peer, lane->received >= 0 ? "received" : "sent",
                lane->received >= 0 ? lane->received : lane->sent, lane->messages, lane->bytes);
        between = ",";
    }
    fputc(']', out);
}

static void print_json(FILE *out, const judged_t *judged, const char *text)
{
    const lane_t *lane = judged->lane;

    fprintf(out, "{\"comm\":\"%s\",\"first\":%" PRId64 ",\"size\":%" PRId64, judged->any->kind,
            judged->any->first, judged->size);
    json_text(out, "verdict", verdicts[judged->verdict]);
    json_ranks(out, "dumps", judged, NULL);
    json_ranks(out, "culprits", judged, judged->culprit);
    json_ranks(out, "waiting", judged, judged->waiting);
    json_ranks(out, "lacking", judged, judged->lacking);
    if (judged->what.name[0] != '\0')
        json_text(out, "tensor", judged->what.name);
    if (lane != NULL)
        fprintf(out, ",\"bucket\":%" PRId64 ",\"step\":%" PRId64 ",\"of\":%" PRId64, lane->bucket,
                lane->step, lane->of);
    if (lane != NULL)
        json_arrived(out, judged);
    if (judged->since_ns != 0)
        fprintf(out, ",\"waited_s\":%.3f", seconds(judged, judged->since_ns));
    if (judged->any->status != 0)
        json_text(out, "reason", judged->any->text);
    json_text(out, "text", text);
    fprintf(out, "}\n");
}

void print_judged(FILE *out, const judged_t *judged, int json)
{
    char *text = paragraph(judged);

    if (json)
        print_json(out, judged, text);
    else
        print_wrapped(out, text);
    free(text);
}
