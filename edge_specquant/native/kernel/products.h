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
    static const strip_fn vnni[N_FORMATS] = {strip_nested_vnni, strip_q8_0_vnni, strip_f16_vnni, strip_q4_k_vnni,
                                             strip_q4_0_vnni};
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

/* How much too large a format's weights are where they are multiplied as unsigned bytes (Q4_K's are unsigned). */
static const int bias_of[N_FORMATS] = {136, 128, 0, 0, 8};

/* One thread's working memory, for whatever node it is at; grows when it must. */
struct scratch {
    size_t n_bytes;
    void *room;
};

static void free_scratch(struct scratch *scratch) {
    free(scratch->room);
    memset(scratch, 0, sizeof *scratch);
}

/* NULL: no memory. */
static void *make_room(struct scratch *scratch, size_t n_bytes) {
    if (scratch->n_bytes >= n_bytes) return scratch->room;
    free_scratch(scratch);
    n_bytes = (n_bytes + LINE - 1) / LINE * LINE;
    scratch->room = aligned_alloc(LINE, n_bytes);
    if (scratch->room) scratch->n_bytes = n_bytes;
    return scratch->room;
}

/* Room for the activations of up to TILE columns. */
static struct codes *room_for_codes(struct scratch *scratch, int64_t n_cols) {
    return make_room(scratch, sizeof(struct codes) * (size_t)(TILE * n_blocks(n_cols)));
}

/* A product under way: y[c * y_stride + row], columns of x as s.x has them. */
struct product {
    int format;
    strip_fn strip;
    struct strip s;
    float *y;
    int64_t y_stride;
    struct codes *codes; /* of the tile under way */
};

/* Up to TILE columns from `first` on as 8-bit codes, where the format wants them. */
static void take_columns(const struct product *p, int64_t first, int64_t width) {
    const int64_t blocks = n_blocks(p->s.n_cols);
    if (p->format == FORMAT_F16) return;
    for (int64_t c = 0; c < width; c++) {
        const int64_t strip = c / STRIP * STRIP, n = width - strip < STRIP ? width - strip : STRIP;
        quantize_column(p->s.x + (first + c) * p->s.x_stride, p->s.n_cols, bias_of[p->format],
                        p->codes + strip * blocks + c - strip, n);
    }
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
            s.codes = p->codes + c * blocks;
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
                              y, n_rows, room_for_codes(&scratch, n_cols)};
    const bool ready = p.codes != NULL;
    if (ready) multiply(&p, 0, n, 0, (n_rows + GROUP - 1) / GROUP);
    free_scratch(&scratch);
    return ready;
}

/* Where a node of ours counts the shares taken of each region (uint16_t): behind what a custom operation keeps there. */
enum { COUNTERS = 8, MAX_REGIONS = 16, SHARES = 4 };

static void start_counting(struct tensor *node) {
    memset(&node->op_params[COUNTERS], 0, MAX_REGIONS * sizeof(uint16_t));
}

/* Row groups in as many regions as there are threads. A thread reads its own region in order, share by share, since
 * every jump costs a wait for memory, and then helps others, so that a slow or busy core holds nobody up. */
static void multiply_regions(const struct product *p, int64_t n, int64_t groups, int ith, int nth, uint16_t *taken) {
    const int n_regions = nth < MAX_REGIONS ? nth : MAX_REGIONS;
    for (int i = 0; i < n_regions; i++) {
        const int region = (ith + i) % n_regions;
        const int64_t first = groups * region / n_regions, size = groups * (region + 1) / n_regions - first;
        while (__atomic_load_n(&taken[region], __ATOMIC_RELAXED) < SHARES) {
            const int share = __atomic_fetch_add(&taken[region], 1, __ATOMIC_RELAXED);
            if (share < SHARES)
                multiply_groups(p, 0, n, first + size * share / SHARES, first + size * (share + 1) / SHARES);
        }
    }
}

/* A node of the engine's graph: this thread's part of dst = weights x input. Returns false for want of memory.
 * Where there are many columns each thread has columns of its own, so that none is quantized twice. */
static bool multiply_node(int format, int level, struct strip s, struct tensor *dst, int ith, int nth,
                          struct scratch *scratch) {
    const struct tensor *input = dst->src[1];
    const int64_t n = input->ne[1], groups = (s.n_rows + GROUP - 1) / GROUP;
    struct codes *codes = room_for_codes(scratch, s.n_cols);
    if (!codes) return false;
    s.base = dst->src[0]->data;
    s.x = (const float *)input->data;
    s.x_stride = (int64_t)(input->nb[1] / sizeof(float));
    const struct product p = {format, strip_of(format, level), s, (float *)dst->data,
                              (int64_t)(dst->nb[1] / sizeof(float)), codes};
    if (n >= (int64_t)TILE * nth) {
        multiply(&p, n * ith / nth, n * (ith + 1) / nth, 0, groups);
    } else if (n > TILE) {
        multiply(&p, 0, n, groups * ith / nth, groups * (ith + 1) / nth);
    } else {
        take_columns(&p, 0, n);
        multiply_regions(&p, n, groups, ith, nth, (uint16_t *)&dst->op_params[COUNTERS]);
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
