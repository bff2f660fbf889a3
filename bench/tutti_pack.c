/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Speed of packing gradients into a fusion buffer on a device, compared with the device's copies.
 *
 * A network's gradients (gradients.c) pass through a fusion buffer as in the engine: each filling
 * packs as many pieces as fit, and cuts the last one where the buffer is full. A copy moves the
 * same bytes between the same places, but in one piece, so it is the upper limit of the speed.
 *
 *      gradients  |..|.|......|...|.|..|....|....      in device memory
 *      pack          v      v            v             copy-in: all of it in one piece
 *      fusion     |.............|                      the same buffer for all fillings
 *
 * One process, no ranks, no tutti_init. Times are measured by the device (events). In each round
 * all contestants have one block, in a random order; ratios are computed in each round.
 */
#include "harness/device.h"
#include "harness/refuse.h"
#include "gradients/gradients.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    COPY_IN,
    PACK,
    COPY_OUT,
    UNPACK,
    CONTESTANTS
};

static const char *const names[CONTESTANTS] = { "copy-in", "pack", "copy-out", "unpack" };

typedef struct {
    const char *device, *model; /* model NULL: all */
    const bench_type_t *type;
    uint64_t fusion_bytes, scale, rounds, sweeps, seed;
    int validate, spoil, csv;
} options_t;

/* One filling of the fusion buffer. */
typedef struct {
    size_t first, count; /* elements of the list */
    size_t piece, npieces;
} bucket_t;

typedef struct {
    const options_t *options;
    const bench_world_t *world;
    gradients_t gradients;
    char *region, *fusion; /* device memory */
    tutti__piece_t *in, *out;
    bucket_t *buckets;
    size_t nbuckets;
    uint64_t *random;
} run_t;

static const struct option long_options[] = {
    { "accelerator", required_argument, NULL, 'd' },
    { "model", required_argument, NULL, 'm' },
    { "type", required_argument, NULL, 'T' },
    { "fusion", required_argument, NULL, 'f' },
    { "iterations", required_argument, NULL, 'i' },
    { "rounds", required_argument, NULL, 'r' },
    { "scale", required_argument, NULL, 's' },
    { "seed", required_argument, NULL, 'S' },
    { "validation", no_argument, NULL, 'c' },
    { "spoil", no_argument, NULL, 'p' },
    { "csv", no_argument, NULL, 'C' },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

static const char usage[] =
    "Usage: tutti_pack [options]\n\n"
    "Speed of packing and unpacking a network's gradients on a device, compared with the\n"
    "device's copies.\n\n"
    "  -d, --accelerator KIND  the device (default cuda; its number: TUTTI_DEVICE_ID, default 0)\n"
    "      --model NAME        resnet50, bert-large, gpt2 or all (default all)\n"
    "  -T, --type TYPE         float32 (default), float64, bfloat16, ...\n"
    "      --fusion BYTES      the fusion buffer (default 16M)\n"
    "  -i, --iterations N      passes over all gradients in a block (default 10)\n"
    "      --rounds R          blocks of each contestant (default 21)\n"
    "      --scale N           each gradient has 1/N of its elements\n"
    "      --seed N            seed of the order of the blocks (default: the clock)\n"
    "  -c, --validation        check the packed and unpacked data\n"
    "      --spoil             damage one element, to test -c\n"
    "      --csv               comma-separated, one head line, no comments\n"
    "  -h, --help\n";

/* ---- flags ---- */

__attribute__((noreturn)) static void refuse(const char *text)
{
    fprintf(stderr, "tutti_pack: %s makes no sense; see --help\n", text);
    exit(2);
}

static uint64_t number(uint64_t most)
{
    uint64_t n = 0;

    if (!bench_number(optarg, &n) || n < 1 || n > most)
        refuse(optarg);
    return n;
}

static const char *model_of(const char *text)
{
    const char *model = NULL;

    for (size_t i = 0; i < GRADIENTS_MODELS && model == NULL; i++) {
        if (strcmp(text, gradients_model(i)) == 0)
            model = gradients_model(i);
    }
    if (model == NULL && strcmp(text, "all") != 0)
        refuse(text);
    return model;
}

static void take(int letter, char **argv, options_t *options)
{
    switch (letter) {
    case 'd':
        if (!bench_is_module(options->device = optarg))
            refuse(optarg);
        break;
    case 'm':
        options->model = model_of(optarg);
        break;
    case 'T':
        if ((options->type = bench_type_find(optarg)) == NULL)
            refuse(optarg);
        break;
    case 'f':
        options->fusion_bytes = number(UINT64_C(1) << 40);
        break;
    case 'i':
        options->sweeps = number(1 << 20);
        break;
    case 'r':
        options->rounds = number(1 << 20);
        break;
    case 's':
        options->scale = number(UINT64_C(1) << 40);
        break;
    case 'S':
        options->seed = number(UINT64_C(1) << 60);
        break;
    case 'c':
        options->validate = 1;
        break;
    case 'p':
        options->spoil = 1;
        break;
    case 'C':
        options->csv = 1;
        break;
    case 'h':
        fputs(usage, stdout);
        exit(0);
    default:
        bench_refuse_option("tutti_pack", letter, argv, long_options);
    }
}

static options_t parse(int argc, char **argv)
{
    options_t options = {
        .device = "cuda",
        .type = bench_type_find("float32"),
        .fusion_bytes = 16u << 20,
        .scale = 1,
        .rounds = 21,
        .sweeps = 10,
        .seed = bench_now_ns() | 1,
    };
    int letter;

    opterr = 0;
    while ((letter = getopt_long(argc, argv, "+:d:T:i:ch", long_options, NULL)) != -1)
        take(letter, argv, &options);
    if (optind < argc)
        bench_refuse_argument("tutti_pack", argv[optind]);
    if (options.spoil && !options.validate)
        refuse("--spoil without -c");
    if (options.fusion_bytes < options.type->bytes)
        refuse("--fusion below one element");
    return options;
}

/* ---- the moved data ---- */

/* List all fillings: a gradient that does not fit is cut. */
static void plan(run_t *run)
{
    size_t element = run->options->type->bytes;
    size_t room = run->options->fusion_bytes / element;
    size_t most = run->gradients.count / room + 1;
    size_t n = 0;

    run->buckets = bench_allocate(most, sizeof(*run->buckets));
    run->in = bench_allocate(run->gradients.n + most, sizeof(*run->in));
    run->out = bench_allocate(run->gradients.n + most, sizeof(*run->out));
    for (size_t i = 0; i < run->gradients.n; i++) {
        const gradient_t *gradient = &run->gradients.all[i];

        for (size_t done = 0, now; done < gradient->count; done += now) {
            bucket_t *bucket = &run->buckets[(gradient->first + done) / room];
            size_t at = (gradient->first + done) % room;
            char *here = run->region + gradient->offset + done * element;
            char *there = run->fusion + at * element;

            if (at == 0)
                *bucket = (bucket_t){ .first = gradient->first + done, .piece = n };
            now = gradient->count - done < room - at ? gradient->count - done : room - at;
            run->in[n] = (tutti__piece_t){ .src = here, .dst = there, .count = now };
            run->out[n++] = (tutti__piece_t){ .src = there, .dst = here, .count = now };
            bucket->npieces++;
            bucket->count += now;
        }
    }
    run->nbuckets = (run->gradients.count + room - 1) / room;
}

static void move(const run_t *run, int who, const bucket_t *bucket)
{
    const bench_device_t *device = run->world->device;
    const bench_type_t *type = run->options->type;
    char *there = run->region + bucket->first * type->bytes; /* ignores the gaps */
    size_t bytes = bucket->count * type->bytes;
    tutti_status_t status;

    if (who == COPY_IN)
        status = device->ops->copy(run->fusion, there, bytes, device->stream);
    else if (who == COPY_OUT)
        status = device->ops->copy(there, run->fusion, bytes, device->stream);
    else
        status = device->ops->pack((who == PACK ? run->in : run->out) + bucket->piece,
                                   bucket->npieces, type->dtype, type->dtype, 1.0, device->stream);
    bench_device_check(run->world, status, names[who]);
}

static void sweep(const run_t *run, int who)
{
    for (size_t i = 0; i < run->nbuckets; i++)
        move(run, who, &run->buckets[i]);
}

/* ---- checking ---- */

static size_t wrong_in(const run_t *run, char *host)
{
    const bench_type_t *type = run->options->type;
    size_t wrong = 0;

    for (size_t i = 0; i < run->gradients.n; i++) {
        const gradient_t *gradient = &run->gradients.all[i];

        bench_fill(host + gradient->offset, type, gradient->first, gradient->count, 0);
    }
    bench_device_copy(run->world, run->region, host, run->gradients.region_bytes);
    for (size_t i = 0; i < run->nbuckets; i++) {
        const bucket_t *bucket = &run->buckets[i];

        move(run, PACK, bucket);
        bench_device_copy(run->world, host, run->fusion, bucket->count * type->bytes);
        host[0] ^= run->options->spoil ? 0x40 : 0;
        wrong += bench_wrong(host, type, bucket->first, bucket->count, 0);
    }
    return wrong;
}

static size_t wrong_out(const run_t *run, char *host)
{
    const bench_type_t *type = run->options->type;
    size_t wrong = 0;

    memset(host, 0xa5, run->gradients.region_bytes);
    bench_device_copy(run->world, run->region, host, run->gradients.region_bytes);
    for (size_t i = 0; i < run->nbuckets; i++) {
        const bucket_t *bucket = &run->buckets[i];

        bench_fill(host, type, bucket->first, bucket->count, 0);
        bench_device_copy(run->world, run->fusion, host, bucket->count * type->bytes);
        move(run, UNPACK, bucket);
        bench_device_wait(run->world);
    }
    bench_device_copy(run->world, host, run->region, run->gradients.region_bytes);
    for (size_t i = 0; i < run->gradients.n; i++) {
        const gradient_t *gradient = &run->gradients.all[i];

        wrong += bench_wrong(host + gradient->offset, type, gradient->first, gradient->count, 0);
    }
    return wrong;
}

/* 1: all data is right. */
static int check(const run_t *run)
{
    char *host = bench_allocate(run->gradients.region_bytes, 1);
    size_t in = wrong_in(run, host);
    size_t out = wrong_out(run, host);

    free(host);
    if (in + out > 0)
        fprintf(stderr, "%s: %zu elements are wrong when packed, %zu when unpacked\n",
                run->gradients.model, in, out);
    return in + out == 0;
}

/* ---- measuring ---- */

static double time_block(const run_t *run, int who)
{
    sweep(run, who);
    bench_device_wait(run->world);
    bench_device_clock(run->world);
    for (uint64_t i = 0; i < run->options->sweeps; i++)
        sweep(run, who);
    return bench_device_us(run->world) / (double)run->options->sweeps;
}

static void print_row(const run_t *run, int who, const double *us, const double *copy_us)
{
    static const char *const formats[] = {
        "%-12s%9zu%14zu  %-10s%14.3f%12.2f%9.3f%9.3f%9.3f\n",
        "%s,%zu,%zu,%s,%.3f,%.3f,%.4f,%.4f,%.4f\n",
    };
    size_t rounds = run->options->rounds;
    size_t bytes = run->gradients.count * run->options->type->bytes;
    double *shares = bench_allocate(rounds, sizeof(double));
    double median_us = bench_median(us, rounds);

    for (size_t r = 0; r < rounds; r++)
        shares[r] = us[r] > 0.0 ? copy_us[r] / us[r] : 0.0;
    bench_sort(shares, rounds);
    printf(formats[run->options->csv], run->gradients.model, run->gradients.n, bytes, names[who],
           median_us, median_us > 0.0 ? 2.0 * (double)bytes / median_us * 1e-3 : 0.0,
           bench_quantile(shares, rounds, 0.5), bench_quantile(shares, rounds, 0.1),
           bench_quantile(shares, rounds, 0.9));
    free(shares);
}

static void measure(const run_t *run)
{
    size_t rounds = run->options->rounds;
    double *us[CONTESTANTS];
    int order[CONTESTANTS] = { COPY_IN, PACK, COPY_OUT, UNPACK };

    for (int who = 0; who < CONTESTANTS; who++)
        us[who] = bench_allocate(rounds, sizeof(double));
    for (size_t r = 0; r < rounds; r++) {
        bench_shuffle(run->random, order, CONTESTANTS);
        for (int i = 0; i < CONTESTANTS; i++)
            us[order[i]][r] = time_block(run, order[i]);
    }
    for (int who = 0; who < CONTESTANTS; who++)
        print_row(run, who, us[who], us[who < COPY_OUT ? COPY_IN : COPY_OUT]);
    for (int who = 0; who < CONTESTANTS; who++)
        free(us[who]);
    fflush(stdout);
}

/* 1: all checks have passed. */
static int run_model(const options_t *options, const bench_world_t *world, const char *model,
                     uint64_t *random)
{
    run_t run = {
        .options = options,
        .world = world,
        .gradients = gradients_make(model, options->type->bytes, options->scale,
                                    (bench_align_t){ .bytes = 64 }),
        .random = random,
    };
    int right = 1;

    run.region = bench_device_alloc(world, run.gradients.region_bytes);
    run.fusion = bench_device_alloc(world, options->fusion_bytes);
    plan(&run);
    if (options->validate)
        right = check(&run);
    measure(&run);
    if (options->validate)
        right = check(&run) && right;
    bench_device_free(world, run.fusion);
    bench_device_free(world, run.region);
    free(run.buckets);
    free(run.in);
    free(run.out);
    gradients_free(&run.gradients);
    return right;
}

static void print_head(const options_t *options, const bench_world_t *world, int argc, char **argv)
{
    char host[64];

    if (options->csv) {
        puts("model,tensors,bytes,what,median_us,gb_per_s,share,share_p10,share_p90");
        return;
    }
    bench_fact_host(host, sizeof(host));
    printf("\n# Tutti Pack, %s\n# Command:", options->type->name);
    for (int i = 0; i < argc; i++)
        printf(" %s", argv[i]);
    printf("\n# Ranks: none, one process\n# Host: %s; commit %s\n# Device: %s %d: %s\n", host,
           bench_fact_commit(), options->device, world->device->number, world->device->versions);
    printf("# Fusion %llu bytes; scale 1/%llu; %llu rounds of %llu; seed %llu\n",
           (unsigned long long)options->fusion_bytes, (unsigned long long)options->scale,
           (unsigned long long)options->rounds, (unsigned long long)options->sweeps,
           (unsigned long long)options->seed);
    printf("# GB/s count what is read and written; /copy is of each round: median, P10, P90\n");
    printf("%-12s%9s%14s  %-10s%14s%12s%9s%9s%9s\n", "# Model", "Tensors", "Bytes", "What",
           "Median(us)", "GB/s", "/copy", "P10", "P90");
}

int main(int argc, char **argv)
{
    options_t options = parse(argc, argv);
    bench_world_t world = { .size = 1 };
    uint64_t random = options.seed;
    int right = 1;

    bench_device_open(&world, options.device);
    print_head(&options, &world, argc, argv);
    for (size_t i = 0; i < GRADIENTS_MODELS; i++) {
        if (options.model == NULL || strcmp(options.model, gradients_model(i)) == 0)
            right = run_model(&options, &world, gradients_model(i), &random) && right;
    }
    bench_device_close(&world);
    return !right;
}
