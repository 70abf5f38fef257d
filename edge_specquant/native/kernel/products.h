/* One product of weights of any format, on one thread's share: columns [first, last) times row groups [from, to). */

enum { FORMAT_NESTED = 0, FORMAT_Q8_0 = 1, FORMAT_F16 = 2 };

/* The best level this processor has; a level that is not built in falls back to plain C. */
EXPORT int esq_best_level(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return LEVEL_VNNI;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return LEVEL_AVX2;
#elif defined(__ARM_FEATURE_DOTPROD)
    return LEVEL_DOTPROD;
#endif
    return LEVEL_C;
}

static strip_fn strip_of(int format, int level) {
#if defined(__x86_64__)
    if (level == LEVEL_VNNI)
        return format == FORMAT_F16 ? strip_f16_vnni : format == FORMAT_Q8_0 ? strip_q8_0_vnni : strip_vnni;
    if (level == LEVEL_AVX2 && format == FORMAT_NESTED) return strip_avx2;
#elif defined(__ARM_FEATURE_DOTPROD)
    if (level == LEVEL_DOTPROD && format == FORMAT_NESTED) return strip_dotprod;
#endif
    (void)level;
    return format == FORMAT_F16 ? strip_f16_c : format == FORMAT_Q8_0 ? strip_q8_0_c : strip_c;
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

/* Tile by tile: a tile's activations stay in the cache, and a group's weights too while the strips of the tile pass
 * over them. */
static void multiply(int format, int level, struct strip s, float *y, size_t y_stride, int64_t first, int64_t last,
                     int64_t from, int64_t to, struct scratch *scratch) {
    const strip_fn strip = strip_of(format, level);
    const float *x = s.x;
    const int64_t blocks = n_blocks(s.n_cols);
    for (int64_t tile = first; tile < last; tile += TILE) {
        const int64_t width = last - tile < TILE ? last - tile : TILE;
        if (format != FORMAT_F16)
            for (int64_t c = 0; c < width; c++)
                quantize_column(x + (tile + c) * s.x_stride, s.n_cols, scratch->codes + c * s.n_cols,
                                scratch->scales + c * blocks, scratch->sums + c * blocks);
        for (int64_t group = from; group < to; group++) {
            const int64_t rows = s.n_rows - group * GROUP < GROUP ? s.n_rows - group * GROUP : GROUP;
            for (int64_t c = 0; c < width; c += STRIP) {
                const int n = width - c < STRIP ? (int)(width - c) : STRIP;
                float out[STRIP * GROUP];
                s.codes = scratch->codes + c * s.n_cols;
                s.scales = scratch->scales + c * blocks;
                s.sums = scratch->sums + c * blocks;
                s.x = x + (tile + c) * s.x_stride;
                strip(&s, group, n, out);
                for (int i = 0; i < n; i++)
                    memcpy(y + (tile + c + i) * (int64_t)y_stride + group * GROUP, out + i * GROUP,
                           sizeof(float) * (size_t)rows);
            }
        }
    }
}

/* For tests: y (n x n_rows) = x (n x n_cols) times the weights. Returns false for want of memory. */
EXPORT bool esq_multiply(int format, int level, int layout, const uint8_t *base, const uint8_t *residual,
                         int64_t n_cols, int64_t n_rows, const float *x, int64_t n, float *y) {
    struct scratch scratch = {0};
    const struct strip s = {.layout = layout, .base = base, .residual = residual, .n_cols = n_cols, .n_rows = n_rows,
                            .x = x, .x_stride = n_cols};
    const bool ready = make_scratch(&scratch, n_cols);
    if (ready)
        multiply(format, level, s, y, (size_t)n_rows, 0, n, 0, (n_rows + GROUP - 1) / GROUP, &scratch);
    free_scratch(&scratch);
    return ready;
}

/* A node of the engine's graph: this thread's share of dst = weights x input. Returns false for want of memory. */
static bool multiply_node(int format, int level, struct strip s, struct tensor *dst, int ith, int nth,
                          struct scratch *scratch) {
    const struct tensor *input = dst->src[1];
    const int64_t n = input->ne[1], groups = (s.n_rows + GROUP - 1) / GROUP;
    int64_t first = 0, last = n, from = 0, to = groups;
    if (!make_scratch(scratch, s.n_cols)) return false;
    if (n >= (int64_t)TILE * nth) { /* wide: each thread its own columns, so that none is quantized twice */
        first = n * ith / nth;
        last = n * (ith + 1) / nth;
    } else {
        from = groups * ith / nth;
        to = groups * (ith + 1) / nth;
    }
    s.base = dst->src[0]->data;
    s.x = (const float *)input->data;
    s.x_stride = (int64_t)(input->nb[1] / sizeof(float));
    multiply(format, level, s, (float *)dst->data, dst->nb[1] / sizeof(float), first, last, from, to, scratch);
    return true;
}

/* Whether a product of the engine has the shape these can do: one matrix, columns of 32-bit floats. */
static bool is_plain(const struct tensor *node) {
    const struct tensor *weight = node->src[0], *input = node->src[1];
    return weight->ne[2] == 1 && weight->ne[3] == 1 && input->ne[2] == 1 && input->ne[3] == 1 &&
           node->type == TYPE_F32 && node->nb[0] == sizeof(float) && input->nb[0] == sizeof(float) &&
           input->nb[1] % sizeof(float) == 0 && node->nb[1] % sizeof(float) == 0;
}
