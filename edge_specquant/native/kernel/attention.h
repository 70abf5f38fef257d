/* Attention over a cache of half floats or Q8_0 blocks: softmax(scale * q K + mask) V, as the engine's FLASH_ATTN_EXT
 * node asks for it.
 *
 * The engine goes through the cache once for each query; here up to ROWS queries that meet the same head of the cache go
 * through it together. A query's sums have the same order whichever others are beside it and however many cells follow.
 */

enum { ROWS = 16, AT_ONCE = 8 };                  /* queries of a unit of work; those whose sums fill the registers */
enum { KEYS_AHEAD = 64, VALUES_AHEAD = 128 };     /* cells that are fetched before their use */
enum { SCALE = 7 };                               /* where a node of ours keeps it: behind a custom operation, before the counters */
static const float NOTHING = -3e38f, HIDDEN = -3.4e38f; /* less than any score; what masked cells get, less still */

/* A node, and one thread's room for a unit of its work: up to ROWS queries of one head of the cache. */
struct attention {
    const struct tensor *q, *k, *v, *mask;
    struct tensor *dst;
    float scale;
    int64_t n_group;  /* heads of queries for one head of the cache */
    float *queries;   /* AT_ONCE of them beside each other */
    float *turned;    /* keys of some cells, head size x cells */
    float *scores;    /* of AT_ONCE rows block by block */
    float *sums;      /* ROWS x size of a value */
    int32_t *blocks;  /* which cells are in use, some to a block */
    uint32_t *in_use; /* of each such block, which */
};

/* Queries [first, first + n) of a head of the cache, counted token by token, in each the group's heads. */
typedef void (*attend_fn)(const struct attention *a, int64_t stream, int64_t kv_head, int64_t first, int n);

static inline const float *query_of(const struct attention *a, int64_t stream, int64_t kv_head, int64_t row) {
    const int64_t token = row / a->n_group, head = kv_head * a->n_group + row % a->n_group;
    return (const float *)(a->q->data + (size_t)stream * a->q->nb[3] + (size_t)head * a->q->nb[2] +
                           (size_t)token * a->q->nb[1]);
}

static inline const uint8_t *mask_of(const struct attention *a, int64_t stream, int64_t row) {
    return a->mask->data + (size_t)(stream % a->mask->ne[3]) * a->mask->nb[3] +
           (size_t)(row / a->n_group) * a->mask->nb[1];
}

static inline float *output_of(const struct attention *a, int64_t stream, int64_t kv_head, int64_t row) {
    const int64_t token = row / a->n_group, head = kv_head * a->n_group + row % a->n_group;
    return (float *)(a->dst->data + (size_t)stream * a->dst->nb[3] + (size_t)token * a->dst->nb[2] +
                     (size_t)head * a->dst->nb[1]);
}

#if defined(__x86_64__)

#define TARGET VNNI
#define NAMED(name) avx512_##name
#define WIDE 16
#define VEC __m512
#define LOAD(from) _mm512_loadu_ps(from)
#define STORE(to, value) _mm512_storeu_ps(to, value)
#define LOAD_HALVES(from) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from)))
#define LOAD_CODES(from) _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(from))))
#define ALL(value) _mm512_set1_ps(value)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define ADD(a, b) _mm512_add_ps(a, b)
#define MUL(a, b) _mm512_mul_ps(a, b)
#define MAX(a, b) _mm512_max_ps(a, b)
#define ABOVE(a, b) ((uint32_t)_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ))
#define CHOOSE_ABOVE(a, b, yes, no) _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), no, yes)
#define ROUND(value) _mm512_roundscale_ps(value, 8)
#define TIMES_POWER(value, n) _mm512_scalef_ps(value, n)
#include "attend.h"

#define TARGET AVX2
#define NAMED(name) avx2_##name
#define WIDE 8
#define VEC __m256
#define LOAD(from) _mm256_loadu_ps(from)
#define STORE(to, value) _mm256_storeu_ps(to, value)
#define LOAD_HALVES(from) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from)))
#define LOAD_CODES(from) _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(from))))
#define ALL(value) _mm256_set1_ps(value)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define ADD(a, b) _mm256_add_ps(a, b)
#define MUL(a, b) _mm256_mul_ps(a, b)
#define MAX(a, b) _mm256_max_ps(a, b)
#define ABOVE(a, b) ((uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)))
#define CHOOSE_ABOVE(a, b, yes, no) _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_GT_OQ))
#define ROUND(value) _mm256_round_ps(value, 8)
#define TIMES_POWER(value, n) _mm256_castsi256_ps( \
    _mm256_add_epi32(_mm256_castps_si256(value), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)))
#include "attend.h"

#endif

/* NULL: no code for this level. */
static attend_fn attend_of(int level) {
#if defined(__x86_64__)
    if (level == LEVEL_VNNI) return avx512_attend;
    if (level == LEVEL_AVX2 || level == LEVEL_AVX_VNNI || level == LEVEL_EVEX_256) return avx2_attend;
#endif
    (void)level;
    return NULL;
}

static bool is_cache(const struct tensor *t) {
    return (t->type == TYPE_F16 && t->nb[0] == 2) || (t->type == TYPE_Q8_0 && t->nb[0] == Q8_BYTES);
}

/* Whether a FLASH_ATTN_EXT node is one these can do: with a mask, no bias by distance, no soft cap, no sinks. */
static bool is_plain_attention(const struct tensor *node, int level) {
    const struct tensor *q = node->src[0], *k = node->src[1], *v = node->src[2], *mask = node->src[3];
    float max_bias, soft_cap;
    if (!attend_of(level) || !q || !k || !v || !mask || node->src[4]) return false;
    memcpy(&max_bias, &node->op_params[1], sizeof max_bias);
    memcpy(&soft_cap, &node->op_params[2], sizeof soft_cap);
    return max_bias == 0.0f && soft_cap == 0.0f && is_cache(k) && is_cache(v) && q->type == TYPE_F32 && q->nb[0] == 4 &&
           mask->type == TYPE_F16 && mask->nb[0] == 2 && node->type == TYPE_F32 && node->nb[0] == 4 &&
           k->ne[0] % 16 == 0 && v->ne[0] % 32 == 0 && k->ne[1] % 16 == 0 && v->ne[1] == k->ne[1] &&
           v->ne[2] == k->ne[2] && q->ne[2] % k->ne[2] == 0 && mask->ne[0] >= k->ne[1] && mask->ne[1] >= q->ne[1] &&
           mask->ne[2] == 1 && q->ne[3] == k->ne[3] && q->ne[3] == v->ne[3] && q->ne[3] % mask->ne[3] == 0;
}

/* A node of the engine's graph: this thread's units. Returns false for want of memory. */
static bool attend_node(int level, struct tensor *dst, int ith, int nth, struct scratch *scratch) {
    struct attention a = {.q = dst->src[0], .k = dst->src[1], .v = dst->src[2], .mask = dst->src[3], .dst = dst};
    const int64_t n_cells = a.k->ne[1], n_size = a.k->ne[0], n_kv_heads = a.k->ne[2], n_streams = a.q->ne[3];
    const attend_fn attend = attend_of(level);
    a.n_group = a.q->ne[2] / n_kv_heads;
    memcpy(&a.scale, &dst->op_params[SCALE], sizeof a.scale);
    const int64_t n_values = a.v->ne[0];
    const int64_t n_floats = ROWS * (n_size + n_values + n_cells) + 16 * n_size + n_cells / 4;
    a.queries = make_room(scratch, sizeof(float) * (size_t)n_floats);
    if (!a.queries) return false;
    a.turned = a.queries + ROWS * n_size;
    a.scores = a.turned + 16 * n_size;
    a.sums = a.scores + ROWS * n_cells;
    a.blocks = (int32_t *)(a.sums + ROWS * n_values);
    a.in_use = (uint32_t *)(a.blocks + n_cells / 8);
    /* as many queries together as leave every thread something to do */
    const int64_t n_rows = a.q->ne[1] * a.n_group;
    int64_t step = ROWS;
    while (step > 1 && (n_rows + step - 1) / step * n_kv_heads * n_streams < nth) step /= 2;
    const int64_t n_steps = (n_rows + step - 1) / step, n_units = n_steps * n_kv_heads * n_streams;
    int64_t unit;
    (void)ith;
    while ((unit = __atomic_fetch_add(&dst->op_params[COUNTERS], 1, __ATOMIC_RELAXED)) < n_units) {
        const int64_t first = unit / (n_kv_heads * n_streams) * step, of = unit % (n_kv_heads * n_streams);
        const int64_t n = n_rows - first < step ? n_rows - first : step;
        attend(&a, of / n_kv_heads, of % n_kv_heads, first, (int)n);
    }
    return true;
}

/* For tests: out (n x heads x n_values) of queries (n x heads x n_size), keys and values (cells x kv_heads x size, of these
 * types) and a mask (n x cells), divided as for so many threads. Returns false for want of memory or of code. */
EXPORT bool esq_attend(int level, const int64_t *sizes, const float *q, const void *k, const void *v,
                       const uint16_t *mask, float scale, float *out) {
    const int64_t n = sizes[0], heads = sizes[1], kv_heads = sizes[2], size = sizes[3], values = sizes[4], cells = sizes[5];
    const bool is_q8[2] = {sizes[7] == TYPE_Q8_0, sizes[8] == TYPE_Q8_0};
    const size_t key = (size_t)(is_q8[0] ? size / BLOCK * Q8_BYTES : 2 * size);
    const size_t value = (size_t)(is_q8[1] ? values / BLOCK * Q8_BYTES : 2 * values);
    const size_t query = (size_t)(4 * size), mixed = (size_t)(4 * values), n_heads = (size_t)kv_heads, n_cells = (size_t)cells;
    struct tensor tensors[] = {
        {.type = TYPE_F32, .ne = {size, n, heads, 1}, .data = (uint8_t *)q,
         .nb = {4, query * (size_t)heads, query, query * (size_t)(heads * n)}},
        {.type = (int32_t)sizes[7], .ne = {size, cells, kv_heads, 1}, .data = (uint8_t *)k,
         .nb = {is_q8[0] ? Q8_BYTES : 2, key * n_heads, key, key * n_heads * n_cells}},
        {.type = (int32_t)sizes[8], .ne = {values, cells, kv_heads, 1}, .data = (uint8_t *)v,
         .nb = {is_q8[1] ? Q8_BYTES : 2, value * n_heads, value, value * n_heads * n_cells}},
        {.type = TYPE_F16, .ne = {cells, n, 1, 1}, .data = (uint8_t *)mask,
         .nb = {2, 2 * n_cells, 2 * n_cells * (size_t)n, 2 * n_cells * (size_t)n}},
    };
    struct tensor node = {
        .type = TYPE_F32, .ne = {values, heads, n, 1}, .data = (uint8_t *)out,
        .nb = {4, mixed, mixed * (size_t)heads, mixed * (size_t)(heads * n)},
        .src = {&tensors[0], &tensors[1], &tensors[2], &tensors[3]}};
    struct scratch scratch = {0};
    memcpy(&node.op_params[SCALE], &scale, sizeof scale);
    const bool done = is_plain_attention(&node, level) && attend_node(level, &node, 0, (int)sizes[6], &scratch);
    free_scratch(&scratch);
    return done;
}
