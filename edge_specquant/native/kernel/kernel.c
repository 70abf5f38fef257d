/* Matrix products and attention inside the engine's own graph and threads, faster than the engine's.
 *
 * The engine's eval callback, asked about a node before it is computed, turns it into a custom operation of the engine;
 * nothing is computed twice and no thread waits for Python. Two users: `plain` takes the products of ordinary Q8_0, F16,
 * Q4_0 and Q4_K weights; `nested` those of bit-nested ones, whose block is a Q4_0 block (scale d, codes q of 0..15) and 16
 * bytes of residual codes r of 0..15, in value d / 16 * (16 q + r - 136). Both take attention.
 *
 * Knows nothing of files.
 */

#include "common.h"

#define EXPORT __attribute__((visibility("default")))

#include "nested.h"
#include "plain.h"
#include "kquants.h"

#if defined(__x86_64__)
#define V256 AVX2
#define NAMED(name) avx2_##name
#include "strips256.h"
#undef V256
#undef NAMED
#define V256 __attribute__((target("avx512vnni,avx512vl,avx2,fma,f16c")))
#define NAMED(name) evex_##name
#define DOT _mm256_dpbusd_epi32
#include "strips256.h"
#undef V256
#undef NAMED
#undef DOT
#if __GNUC__ >= 11 || __clang_major__ >= 12
#define HAS_AVX_VNNI
#define V256 __attribute__((target("avxvnni,avx2,fma,f16c")))
#define NAMED(name) avx_vnni_##name
#define DOT _mm256_dpbusd_avx_epi32
#include "strips256.h"
#undef V256
#undef NAMED
#undef DOT
#endif
#endif

#include "products.h"
#include "attention.h"

/* -- what both users keep ------------------------------------------------------------------------------------------ */

typedef bool (*is_host_fn)(void *buffer);
typedef const char *(*name_fn)(void *buffer);

struct common {
    int level;
    is_host_fn is_host; /* ggml_backend_buffer_is_host */
    name_fn name_of;    /* ggml_backend_buffer_name */
    int32_t op_mul_mat, op_mul_mat_id, op_attention, custom_op, attention_params[16];
    int64_t n_taken;  /* nodes turned over to us; the engine keeps a graph it can use again */
    int64_t n_left;   /* products and attentions left to the engine, where bits may depend on the width */
    int64_t n_failed; /* out of memory while computing */
    struct scratch scratch[MAX_THREADS];
};

static void run_attention(struct tensor *dst, int ith, int nth, void *user) {
    struct common *common = user;
    if (!attend_node(common->level, dst, ith, nth, &common->scratch[ith])) common->n_failed++;
}

EXPORT void *esq_attention_address(void) { return (void *)run_attention; }
EXPORT int64_t esq_n_taken(const struct common *common) { return common->n_taken; }
EXPORT int64_t esq_n_left(const struct common *common) { return common->n_left; }
EXPORT int64_t esq_n_failed(const struct common *common) { return common->n_failed; }

/* Whether the CPU may read a tensor where it lies. Its own order of weights is no memory of a host to the engine. */
static bool is_readable(const struct tensor *tensor, const struct common *common) {
    return tensor->buffer && (common->is_host(tensor->buffer) || !strcmp(common->name_of(tensor->buffer), "CPU_REPACK"));
}

/* Whether the CPU computes a node: a device keeps results in its own memory, and what it is given is copied there, under
 * other names. It knows no custom nodes: Vulkan passes over them without a word, CUDA ends the process. */
static bool is_ours(const struct tensor *node, const struct common *common) {
    if (!is_readable(node, common)) return false;
    for (int i = 0; i < N_SOURCES; i++)
        if (node->src[i] && !is_readable(node->src[i], common)) return false;
    return true;
}

/* The numbers of the engine's operations, and what a custom node of it holds (ggml_custom_4d) for attention. */
EXPORT void esq_set_ops(struct common *common, const int32_t ops[4], const int32_t *attention_params,
                        is_host_fn is_host, name_fn name_of) {
    common->is_host = is_host;
    common->name_of = name_of;
    common->op_mul_mat = ops[0];
    common->op_mul_mat_id = ops[1];
    common->op_attention = ops[2];
    common->custom_op = ops[3];
    memcpy(common->attention_params, attention_params, sizeof common->attention_params);
}

/* A node of attention becomes one of ours, which keeps its scale. */
static void take_attention(struct tensor *node, struct common *common) {
    const int32_t scale = node->op_params[0];
    memcpy(node->op_params, common->attention_params, sizeof node->op_params);
    node->op_params[SCALE] = scale;
    node->op = common->custom_op;
    common->n_taken++;
}

/* What both callbacks do about a node that is not a product. */
static void look_at(struct tensor *node, struct common *common) {
    if (node->op == common->custom_op) {
        start_counting(node); /* a graph used again */
    } else if (node->op == common->op_attention && is_ours(node, common) && is_plain_attention(node, common->level)) {
        take_attention(node, common);
    } else if (node->op == common->op_attention || node->op == common->op_mul_mat_id) {
        common->n_left++;
    }
}

static void free_common(struct common *common) {
    for (int i = 0; i < MAX_THREADS; i++) free_scratch(&common->scratch[i]);
}

/* -- nested weights, known by name ------------------------------------------------------------------------------- */

struct bound {
    const struct tensor *tensor;
    const struct weight *weight;
    int layout;
};

struct nested {
    struct common common;
    struct weight *weights;
    struct bound *table;
    int64_t n_weights, n_slots;
    int32_t op_get_rows, mul_mat_params[16], get_rows_params[16];
    int64_t n_refused; /* products of nested weights that this kernel does not know how to do */
};

static struct bound *slot_of(struct nested *nested, const struct tensor *tensor) {
    uint64_t hash = (uint64_t)(uintptr_t)tensor * 0x9E3779B97F4A7C15u;
    int64_t at = (int64_t)(hash >> 32) & (nested->n_slots - 1);
    while (nested->table[at].tensor && nested->table[at].tensor != tensor) at = (at + 1) & (nested->n_slots - 1);
    return &nested->table[at];
}

static int by_name(const void *name, const void *weight) {
    return strncmp(name, ((const struct weight *)weight)->name, NAME_BYTES);
}

static struct bound *bind(struct nested *nested, const struct tensor *tensor) {
    struct bound *slot = slot_of(nested, tensor);
    if (slot->tensor) return slot;
    struct weight *weight =
        bsearch(tensor->name, nested->weights, (size_t)nested->n_weights, sizeof(struct weight), by_name);
    if (!weight) return NULL;
    if (weight->n_cols != tensor->ne[0] || weight->n_rows != tensor->ne[1] || weight->n_seen >= 2) {
        nested->n_refused++; /* the table has room for two tensors of a name: a tied embedding and the head made of it */
        return NULL;
    }
    *slot = (struct bound){tensor, weight, find_layout(weight, tensor->data)};
    weight->n_seen++;
    return slot;
}

static void run_mul_mat(struct tensor *dst, int ith, int nth, void *user) {
    struct nested *nested = user;
    const struct bound *bound = slot_of(nested, dst->src[0]);
    const struct weight *weight = bound->weight;
    const struct strip s = {.layout = bound->layout, .residual = weight->residual, .n_cols = weight->n_cols,
                            .n_rows = weight->n_rows};
    struct common *common = &nested->common;
    if (!multiply_node(FORMAT_NESTED, common->level, s, dst, ith, nth, &common->scratch[ith])) common->n_failed++;
}

static void run_get_rows(struct tensor *dst, int ith, int nth, void *user) {
    struct nested *nested = user;
    const struct bound *bound = slot_of(nested, dst->src[0]);
    const struct weight *weight = bound->weight;
    const int32_t *rows = (const int32_t *)dst->src[1]->data;
    for (int64_t i = ith; i < dst->src[1]->ne[0]; i += nth) {
        int64_t group = rows[i] / GROUP, row = rows[i] % GROUP;
        const uint8_t *residual = residual_group(weight->residual, group, weight->n_cols);
        const int step = residual_step(weight->residual);
        float *out = (float *)(dst->data + (size_t)i * dst->nb[1]);
        for (int64_t block = 0; block < n_blocks(weight->n_cols); block++, residual += step, out += BLOCK) {
            uint16_t half[GROUP];
            uint8_t codes[128];
            gather(bound->layout, dst->src[0]->data, group, block, weight->n_cols, weight->n_rows, half, codes);
            float d = from_half(half[row]) / 16.0f;
            for (int j = 0; j < 16; j++) {
                int at = 64 * (j / 8) + 8 * (int)row + j % 8;
                out[j] = d * (float)(16 * (codes[at] & 15) + (residual[at] & 15) - 136);
                out[j + 16] = d * (float)(16 * (codes[at] >> 4) + (residual[at] >> 4) - 136);
            }
        }
    }
}

/* ggml_backend_sched_eval_callback: rewrites nodes while being asked, wants none of their data. */
EXPORT bool esq_callback(struct tensor *node, bool ask, void *user) {
    struct nested *nested = user;
    struct common *common = &nested->common;
    if (!ask) return true;
    look_at(node, common);
    if (node->op != common->op_mul_mat && node->op != nested->op_get_rows) return false;
    bool product = node->op == common->op_mul_mat;
    if (!is_ours(node, common)) { /* a weight's copy on a device has another name, and no residual beside it */
        nested->n_refused++;
        return false;
    }
    struct bound *bound = bind(nested, node->src[0]);
    if (!bound) {
        common->n_left += product;
        return false;
    }
    bool known = bound->layout >= 0 && node->src[0]->type == TYPE_Q4_0 && is_plain(node) &&
                 node->src[1]->type == (product ? TYPE_F32 : TYPE_I32);
    if (!known) {
        nested->n_refused++;
        return false;
    }
    memcpy(node->op_params, product ? nested->mul_mat_params : nested->get_rows_params, sizeof node->op_params);
    node->op = common->custom_op;
    common->n_taken++;
    return false;
}

/* -- life ----------------------------------------------------------------------------------------------------------- */

EXPORT void *esq_mul_mat_address(void) { return (void *)run_mul_mat; }
EXPORT void *esq_get_rows_address(void) { return (void *)run_get_rows; }

/* Weights are named in ascending order of their names, so that they are found by bisection. NULL for want of memory. */
EXPORT struct nested *esq_new(int64_t n_weights, int level, int32_t op_get_rows) {
    struct nested *nested = calloc(1, sizeof *nested);
    if (!nested) return NULL;
    nested->n_slots = 16;
    while (nested->n_slots < 4 * n_weights) nested->n_slots *= 2;
    nested->weights = calloc((size_t)n_weights + 1, sizeof(struct weight));
    nested->table = calloc((size_t)nested->n_slots, sizeof(struct bound));
    nested->n_weights = n_weights;
    nested->common.level = level;
    nested->op_get_rows = op_get_rows;
    if (nested->weights && nested->table) return nested;
    free(nested->weights);
    free(nested->table);
    free(nested);
    return NULL;
}

EXPORT void esq_set_weight(struct nested *nested, int64_t index, const char *name, int64_t n_cols, int64_t n_rows,
                           const uint8_t *residual, const uint8_t *sample) {
    struct weight *weight = &nested->weights[index];
    strncpy(weight->name, name, NAME_BYTES - 1);
    weight->n_cols = n_cols;
    weight->n_rows = n_rows;
    weight->residual = residual;
    memcpy(weight->sample, sample, (size_t)(n_rows < GROUP ? n_rows : GROUP) * BLOCK_BYTES);
}

/* What a custom node of the engine holds, for products and for embeddings. */
EXPORT void esq_set_template(struct nested *nested, const int32_t *mul_mat_params, const int32_t *get_rows_params) {
    memcpy(nested->mul_mat_params, mul_mat_params, sizeof nested->mul_mat_params);
    memcpy(nested->get_rows_params, get_rows_params, sizeof nested->get_rows_params);
}

EXPORT int64_t esq_n_refused(const struct nested *nested) { return nested->n_refused; }

EXPORT int64_t esq_n_unseen(const struct nested *nested) {
    int64_t n = 0;
    for (int64_t i = 0; i < nested->n_weights; i++) n += nested->weights[i].n_seen == 0;
    return n;
}

EXPORT void esq_free(struct nested *nested) {
    if (!nested) return;
    free_common(&nested->common);
    free(nested->weights);
    free(nested->table);
    free(nested);
}

/* -- ordinary weights, known by type ------------------------------------------------------------------------------- */

struct plain {
    struct common common;
    int32_t op_none, params[16];
};

/* An ordinary format: the engine's type, and how many weights how many bytes hold. */
struct format {
    int32_t type;
    int64_t n_weights, n_bytes;
    bool is_repacked; /* on x86 the engine may hold it in groups of eight rows */
};

static const struct format formats[N_FORMATS] = {
    [FORMAT_NESTED] = {-1, 0, 0, false}, /* known by name */
    [FORMAT_Q8_0] = {TYPE_Q8_0, BLOCK, Q8_BYTES, false},
    [FORMAT_F16] = {TYPE_F16, BLOCK, 2 * BLOCK, false},
    [FORMAT_Q4_K] = {TYPE_Q4_K, SUPER, Q4_K_BYTES, true},
    [FORMAT_Q4_0] = {TYPE_Q4_0, BLOCK, BLOCK_BYTES, true},
};

static int format_of(int32_t type) {
    for (int format = 0; format < N_FORMATS; format++)
        if (formats[format].type == type) return format;
    return -1;
}

static void run_plain(struct tensor *dst, int ith, int nth, void *user) {
    struct plain *plain = user;
    const struct tensor *weight = dst->src[0];
    const struct strip s = {.layout = weight->extra ? LAYOUT_8X8 : LAYOUT_ROWS,
                            .n_cols = weight->ne[0], .n_rows = weight->ne[1]};
    struct common *common = &plain->common;
    if (!multiply_node(format_of(weight->type), common->level, s, dst, ith, nth, &common->scratch[ith]))
        common->n_failed++;
}

/* Whole rows, one after another, as a file has them or as the engine repacks them on x86; not the cache's. */
static bool is_known(const struct plain *plain, const struct tensor *weight) {
    const int format = format_of(weight->type);
    if (format < 0 || weight->op != plain->op_none || weight->view_src ||
        weight->ne[0] % formats[format].n_weights || weight->ne[1] % GROUP)
        return false;
    if (weight->nb[1] != (size_t)(weight->ne[0] / formats[format].n_weights * formats[format].n_bytes)) return false;
    if (weight->extra) return formats[format].is_repacked && !plain->common.is_host(weight->buffer);
    return plain->common.is_host(weight->buffer);
}

/* ggml_backend_sched_eval_callback, as above; a product it does not know is left to the engine. */
EXPORT bool esq_plain_callback(struct tensor *node, bool ask, void *user) {
    struct plain *plain = user;
    struct common *common = &plain->common;
    if (!ask) return true;
    look_at(node, common);
    if (node->op != common->op_mul_mat) return false;
    if (node->src[1]->type == TYPE_F32 && is_plain(node) && is_ours(node, common) && is_known(plain, node->src[0])) {
        memcpy(node->op_params, plain->params, sizeof node->op_params);
        node->op = common->custom_op;
        common->n_taken++;
    } else {
        common->n_left++;
    }
    return false;
}

EXPORT void *esq_plain_address(void) { return (void *)run_plain; }

/* NULL: no memory. */
EXPORT struct plain *esq_plain_new(int level, int32_t op_none) {
    struct plain *plain = calloc(1, sizeof *plain);
    if (!plain) return NULL;
    plain->common.level = level;
    plain->op_none = op_none;
    return plain;
}

EXPORT void esq_plain_set_template(struct plain *plain, const int32_t *params) {
    memcpy(plain->params, params, sizeof plain->params);
}

EXPORT void esq_plain_free(struct plain *plain) {
    if (!plain) return;
    free_common(&plain->common);
    free(plain);
}
