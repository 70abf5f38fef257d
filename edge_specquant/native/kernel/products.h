/* One product of weights of any format, on one thread's share: columns [first, last) times row groups [from, to). */

enum { FORMAT_NESTED = 0, FORMAT_Q8_0 = 1, FORMAT_F16 = 2, FORMAT_Q4_K = 3, FORMAT_Q4_0 = 4, N_FORMATS = 5 };

/* Whether this processor has the instructions of a level, and this library the code. */
EXPORT bool esq_has_level(int level) {
    if (level == LEVEL_C) return true;
#if defined(__x86_64__)
    unsigned a = 0, b, c, d;
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool vnni = __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (level == LEVEL_AVX2) return avx2;
    if (level == LEVEL_VNNI || level == LEVEL_EVEX_256) return vnni;
#if defined(HAS_AVX_VNNI)
    if (level == LEVEL_AVX_VNNI) return avx2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
#endif
#elif defined(__ARM_FEATURE_DOTPROD)
    if (level == LEVEL_DOTPROD) return true;
#endif
    return false;
}

EXPORT int esq_best_level(void) {
    static const int by_speed[] = {LEVEL_VNNI, LEVEL_AVX_VNNI, LEVEL_AVX2, LEVEL_DOTPROD};
    for (size_t i = 0; i < sizeof by_speed / sizeof *by_speed; i++)
        if (esq_has_level(by_speed[i])) return by_speed[i];
    return LEVEL_C;
}

/* By format. Nested weights without a residual are Q4_0. */
static strip_fn strip_of(int format, int level) {
    static const strip_fn plain_c[N_FORMATS] = {strip_c, strip_q8_0_c, strip_f16_c, strip_q4_k_c, strip_c};
#if defined(__x86_64__)
    static const strip_fn vnni[N_FORMATS] = {strip_vnni, strip_q8_0_vnni, strip_f16_vnni, strip_q4_k_vnni, strip_vnni};
    static const strip_fn avx2[N_FORMATS] = {strip_avx2, avx2_strip_q8_0, strip_f16_avx2, avx2_strip_q4_k,
                                             avx2_strip_q4_0};
    static const strip_fn evex[N_FORMATS] = {evex_strip_nested, evex_strip_q8_0, strip_f16_avx2, evex_strip_q4_k,
                                             evex_strip_q4_0};
    if (level == LEVEL_VNNI) return vnni[format];
    if (level == LEVEL_AVX2) return avx2[format];
    if (level == LEVEL_EVEX_256) return evex[format];
#if defined(HAS_AVX_VNNI)
    static const strip_fn avx_vnni[N_FORMATS] = {avx_vnni_strip_nested, avx_vnni_strip_q8_0, strip_f16_avx2,
                                                 avx_vnni_strip_q4_k, avx_vnni_strip_q4_0};
    if (level == LEVEL_AVX_VNNI) return avx_vnni[format];
#endif
#elif defined(__ARM_FEATURE_DOTPROD)
    if (level == LEVEL_DOTPROD && (format == FORMAT_NESTED || format == FORMAT_Q4_0)) return strip_dotprod;
#endif
    (void)level;
    return plain_c[format];
}

/* Activations of up to TILE columns as 8-bit codes with a scale and a sum for each block; grows when it must. */
struct scratch {
    int64_t max_cols;
    int8_t *codes;
    float *scales;
    int32_t *sums;
};

static void free_scratch(struct scratch *scratch) {
    free(scratch->codes);
    free(scratch->scales);
    free(scratch->sums);
    memset(scratch, 0, sizeof *scratch);
}

static bool make_scratch(struct scratch *scratch, int64_t n_cols) {
    if (scratch->max_cols >= n_cols) return true;
    free_scratch(scratch);
    scratch->scales = malloc(sizeof(float) * (size_t)(TILE * n_blocks(n_cols)));
    scratch->sums = malloc(sizeof(int32_t) * (size_t)(TILE * n_blocks(n_cols)));
    scratch->codes = malloc((size_t)(TILE * n_cols));
    if (!scratch->codes || !scratch->scales || !scratch->sums) {
        free_scratch(scratch);
        return false;
    }
    scratch->max_cols = n_cols;
    return true;
}

/* A product under way: y[c * y_stride + row], columns of x as s.x has them. */
struct product {
    int format;
    strip_fn strip;
    struct strip s;
    float *y;
    int64_t y_stride;
    struct scratch *scratch;
};

/* Up to TILE columns from `first` on as 8-bit codes, where the format wants them. */
static void take_columns(const struct product *p, int64_t first, int64_t width) {
    const int64_t blocks = n_blocks(p->s.n_cols);
    if (p->format == FORMAT_F16) return;
    for (int64_t c = 0; c < width; c++)
        quantize_column(p->s.x + (first + c) * p->s.x_stride, p->s.n_cols, p->scratch->codes + c * p->s.n_cols,
                        p->scratch->scales + c * blocks, p->scratch->sums + c * blocks);
}

/* The columns taken last, times row groups [from, to): a group's weights stay in the cache while all strips pass. */
static void multiply_groups(const struct product *p, int64_t first, int64_t width, int64_t from, int64_t to) {
    const int64_t blocks = n_blocks(p->s.n_cols);
    struct strip s = p->s;
    for (int64_t group = from; group < to; group++) {
        const int64_t rows = s.n_rows - group * GROUP < GROUP ? s.n_rows - group * GROUP : GROUP;
        for (int64_t c = 0; c < width; c += STRIP) {
            const int n = width - c < STRIP ? (int)(width - c) : STRIP;
            float out[STRIP * GROUP];
            s.codes = p->scratch->codes + c * s.n_cols;
            s.scales = p->scratch->scales + c * blocks;
            s.sums = p->scratch->sums + c * blocks;
            s.x = p->s.x + (first + c) * s.x_stride;
            p->strip(&s, group, n, out);
            for (int i = 0; i < n; i++)
                memcpy(p->y + (first + c + i) * p->y_stride + group * GROUP, out + i * GROUP,
                       sizeof(float) * (size_t)rows);
        }
    }
}

/* Columns [first, last) times row groups [from, to), tile by tile, so that a tile's activations stay in the cache. */
static void multiply(const struct product *p, int64_t first, int64_t last, int64_t from, int64_t to) {
    for (int64_t tile = first; tile < last; tile += TILE) {
        const int64_t width = last - tile < TILE ? last - tile : TILE;
        take_columns(p, tile, width);
        multiply_groups(p, tile, width, from, to);
    }
}

/* For tests: y (n x n_rows) = x (n x n_cols) times the weights. Returns false for want of memory. */
EXPORT bool esq_multiply(int format, int level, int layout, const uint8_t *base, const uint8_t *residual,
                         int64_t n_cols, int64_t n_rows, const float *x, int64_t n, float *y) {
    struct scratch scratch = {0};
    const struct product p = {format, strip_of(format, level),
                              {.layout = layout, .base = base, .residual = residual, .n_cols = n_cols,
                               .n_rows = n_rows, .x = x, .x_stride = n_cols},
                              y, n_rows, &scratch};
    const bool ready = make_scratch(&scratch, n_cols);
    if (ready) multiply(&p, 0, n, 0, (n_rows + GROUP - 1) / GROUP);
    free_scratch(&scratch);
    return ready;
}

/* Where a node of ours counts the shares its threads have taken: behind what a custom operation keeps there. */
enum { COUNTER = 12, SHARES = 4 };

/* A node of the engine's graph: this thread's part of dst = weights x input. Returns false for want of memory.
 *
 * Few columns: the row groups are dealt out in shares, so that a slow core (of two kinds, or a busy one) holds nobody
 * up. Many: each thread has columns of its own, so that none is quantized twice.
 */
static bool multiply_node(int format, int level, struct strip s, struct tensor *dst, int ith, int nth,
                          struct scratch *scratch) {
    const struct tensor *input = dst->src[1];
    const int64_t n = input->ne[1], groups = (s.n_rows + GROUP - 1) / GROUP;
    if (!make_scratch(scratch, s.n_cols)) return false;
    s.base = dst->src[0]->data;
    s.x = (const float *)input->data;
    s.x_stride = (int64_t)(input->nb[1] / sizeof(float));
    const struct product p = {format, strip_of(format, level), s, (float *)dst->data,
                              (int64_t)(dst->nb[1] / sizeof(float)), scratch};
    if (n >= (int64_t)TILE * nth) {
        multiply(&p, n * ith / nth, n * (ith + 1) / nth, 0, groups);
    } else if (n > TILE) {
        multiply(&p, 0, n, groups * ith / nth, groups * (ith + 1) / nth);
    } else {
        const int64_t n_shares = groups < (int64_t)SHARES * nth ? groups : (int64_t)SHARES * nth;
        int64_t share;
        take_columns(&p, 0, n);
        while ((share = __atomic_fetch_add(&dst->op_params[COUNTER], 1, __ATOMIC_RELAXED)) < n_shares)
            multiply_groups(&p, 0, n, groups * share / n_shares, groups * (share + 1) / n_shares);
    }
    return true;
}

/* Whether a product of the engine has the shape these can do: one matrix, columns of 32-bit floats. */
static bool is_plain(const struct tensor *node) {
    const struct tensor *weight = node->src[0], *input = node->src[1];
    return weight->ne[2] == 1 && weight->ne[3] == 1 && input->ne[2] == 1 && input->ne[3] == 1 &&
           node->type == TYPE_F32 && node->nb[0] == sizeof(float) && input->nb[0] == sizeof(float) &&
           input->nb[1] % sizeof(float) == 0 && node->nb[1] % sizeof(float) == 0;
}
