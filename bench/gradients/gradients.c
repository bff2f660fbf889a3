/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gradients of three networks, from their published structure.
 *
 *                                                           gradients    elements
 *      resnet50    He et al. 2015, stride in the 3x3 convolution  161    25 557 032
 *      bert-large  Devlin et al. 2018, encoder and pooler         391   335 141 888
 *      gpt2        Radford et al. 2019, the small one             148   124 439 808
 *
 * Layers are listed in the order of the forward pass, with PyTorch's names, and then reversed.
 *
 * A gradient is ready when the backward pass has computed its layer. A layer's cost is its elements
 * times the positions to which it is applied (pixels of the output, or tokens; all layers of a
 * transformer have the same number of tokens). Computations without parameters, such as attention
 * scores, are ignored. An embedding has cost 0: its gradient is a sum of rows.
 *
 * "1000x1K" is also a model: 1000 tensors of 1 KiB, all of the same cost.
 */
#include "gradients/gradients.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST = 512 /* gradients of a network */
};

static const char *const models[GRADIENTS_MODELS] = { "resnet50", "bert-large", "gpt2" };

const char *gradients_model(size_t index)
{
    return index < GRADIENTS_MODELS ? models[index] : NULL;
}

/* Until finish(), `ready` holds the cost of the gradient's own layer. */
static void add(gradients_t *list, size_t count, double positions, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void add(gradients_t *list, size_t count, double positions, const char *fmt, ...)
{
    gradient_t *gradient = &list->all[list->n++];
    va_list args;

    va_start(args, fmt);
    vsnprintf(gradient->name, sizeof(gradient->name), fmt, args);
    va_end(args);
    gradient->count = count;
    gradient->ready = (double)count * positions;
}

/* ---- ResNet-50, images of 224 x 224 ---- */

/* A convolution and its batch normalisation; `side` of the output, pixels. */
static void add_conv(gradients_t *list, size_t in, size_t out, size_t kernel, size_t side,
                     const char *conv, const char *norm)
{
    double positions = (double)(side * side);

    add(list, out * in * kernel * kernel, positions, "%s.weight", conv);
    add(list, out, positions, "%s.weight", norm);
    add(list, out, positions, "%s.bias", norm);
}

static void list_resnet50(gradients_t *list)
{
    static const int blocks[] = { 3, 4, 6, 3 };
    size_t in = 64;
    size_t side = 56; /* of the input, pixels */
    char name[32];
    char conv[64];
    char norm[64];

    add_conv(list, 3, 64, 7, 112, "conv1", "bn1");
    for (int layer = 0; layer < 4; layer++) {
        size_t width = (size_t)64 << layer;

        for (int block = 0; block < blocks[layer]; block++) {
            size_t half = layer > 0 && block == 0 ? side / 2 : side;
            const size_t plan[3][4] = { { in, width, 1, side },
                                        { width, width, 3, half },
                                        { width, 4 * width, 1, half } };

            snprintf(name, sizeof(name), "layer%d.%d", layer + 1, block);
            for (int i = 0; i < 3; i++) {
                snprintf(conv, sizeof(conv), "%s.conv%d", name, i + 1);
                snprintf(norm, sizeof(norm), "%s.bn%d", name, i + 1);
                add_conv(list, plan[i][0], plan[i][1], plan[i][2], plan[i][3], conv, norm);
            }
            snprintf(conv, sizeof(conv), "%s.downsample.0", name);
            snprintf(norm, sizeof(norm), "%s.downsample.1", name);
            if (block == 0)
                add_conv(list, in, 4 * width, 1, half, conv, norm);
            in = 4 * width;
            side = half;
        }
    }
    add(list, 1000 * in, 1.0, "fc.weight");
    add(list, 1000, 1.0, "fc.bias");
}

/* ---- transformers ---- */

static void add_dense(gradients_t *list, size_t in, size_t out, const char *layer, int i,
                      const char *name)
{
    add(list, in * out, 1.0, "%s.%d.%s.weight", layer, i, name);
    add(list, out, 1.0, "%s.%d.%s.bias", layer, i, name);
}

static void add_norm(gradients_t *list, size_t width, const char *layer, int i, const char *name)
{
    add_dense(list, 1, width, layer, i, name);
}

static void list_bert_large(gradients_t *list)
{
    static const char layer[] = "encoder.layer";
    size_t width = 1024;

    add(list, 30522 * width, 0.0, "embeddings.word_embeddings.weight");
    add(list, 512 * width, 0.0, "embeddings.position_embeddings.weight");
    add(list, 2 * width, 0.0, "embeddings.token_type_embeddings.weight");
    add(list, width, 1.0, "embeddings.LayerNorm.weight");
    add(list, width, 1.0, "embeddings.LayerNorm.bias");
    for (int i = 0; i < 24; i++) {
        add_dense(list, width, width, layer, i, "attention.self.query");
        add_dense(list, width, width, layer, i, "attention.self.key");
        add_dense(list, width, width, layer, i, "attention.self.value");
        add_dense(list, width, width, layer, i, "attention.output.dense");
        add_norm(list, width, layer, i, "attention.output.LayerNorm");
        add_dense(list, width, 4 * width, layer, i, "intermediate.dense");
        add_dense(list, 4 * width, width, layer, i, "output.dense");
        add_norm(list, width, layer, i, "output.LayerNorm");
    }
    add(list, width * width, 0.0, "pooler.dense.weight"); /* applied to one token only */
    add(list, width, 0.0, "pooler.dense.bias");
}

static void list_gpt2(gradients_t *list)
{
    static const char layer[] = "transformer.h";
    size_t width = 768;
    size_t words = 50257;

    add(list, words * width, 0.0, "transformer.wte.weight");
    add(list, 1024 * width, 0.0, "transformer.wpe.weight");
    for (int i = 0; i < 12; i++) {
        add_norm(list, width, layer, i, "ln_1");
        add_dense(list, width, 3 * width, layer, i, "attn.c_attn");
        add_dense(list, width, width, layer, i, "attn.c_proj");
        add_norm(list, width, layer, i, "ln_2");
        add_dense(list, width, 4 * width, layer, i, "mlp.c_fc");
        add_dense(list, 4 * width, width, layer, i, "mlp.c_proj");
    }
    add(list, width, 1.0, "transformer.ln_f.weight");
    /* The backward pass begins with the head, a product with the whole token embedding (wte). The
       gradient of wte is complete at the end of the pass, when the embedding's own part has been
       added. */
    add(list, width, 1.0 + (double)words, "transformer.ln_f.bias");
}

/* ---- tensors of one size ---- */

int gradients_tensors(const char *text, uint64_t *ret_tensors, uint64_t *ret_bytes)
{
    const char *times = strchr(text, 'x');
    char first[24];

    if (times == NULL || (size_t)(times - text) >= sizeof(first))
        return 0;
    memcpy(first, text, (size_t)(times - text));
    first[times - text] = '\0';
    return bench_number(first, ret_tensors) && bench_number(times + 1, ret_bytes) &&
           *ret_tensors >= 1 && *ret_tensors <= GRADIENTS_TENSORS_MOST && *ret_bytes >= 1 &&
           *ret_bytes <= GRADIENTS_BYTES_MOST;
}

static void list_tensors(gradients_t *list, uint64_t tensors, size_t count)
{
    for (uint64_t i = 0; i < tensors; i++)
        add(list, count, 1.0 / (double)count, "tensor.%llu", (unsigned long long)i);
}

/* ---- all models ---- */

/* Reverses the list, and fills in places and times. */
static void finish(gradients_t *list, size_t element_bytes, size_t scale, bench_align_t align)
{
    double total = 0.0;
    double spent = 0.0;

    for (size_t i = 0; i < list->n / 2; i++) {
        gradient_t kept = list->all[i];

        list->all[i] = list->all[list->n - 1 - i];
        list->all[list->n - 1 - i] = kept;
    }
    for (size_t i = 0; i < list->n; i++)
        total += list->all[i].ready;
    for (size_t i = 0; i < list->n; i++) {
        gradient_t *gradient = &list->all[i];

        spent += gradient->ready;
        gradient->ready = spent / total;
        gradient->count = gradient->count > scale ? gradient->count / scale : 1;
        gradient->first = list->count;
        list->region_bytes += -list->region_bytes & (size_t)(align.bytes - 1);
        gradient->offset = list->region_bytes + align.offset;
        list->count += gradient->count;
        list->region_bytes = gradient->offset + gradient->count * element_bytes;
    }
}

gradients_t gradients_make(const char *model, size_t element_bytes, size_t scale,
                           bench_align_t align)
{
    gradients_t list = { .model = model };
    uint64_t tensors = MOST;
    uint64_t bytes = 0;
    int is_network = !gradients_tensors(model, &tensors, &bytes);

    list.all = bench_allocate(is_network ? MOST : tensors, sizeof(gradient_t));
    if (!is_network)
        list_tensors(&list, tensors, bytes > element_bytes ? bytes / element_bytes : 1);
    else if (strcmp(model, "resnet50") == 0)
        list_resnet50(&list);
    else if (strcmp(model, "bert-large") == 0)
        list_bert_large(&list);
    else
        list_gpt2(&list);
    finish(&list, element_bytes, scale, align);
    return list;
}

void gradients_free(gradients_t *gradients)
{
    free(gradients->all);
    gradients->all = NULL;
}
