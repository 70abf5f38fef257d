/* Included once for each instruction set, by attention.h, which names the instructions; the names end here. Cells come
 * WIDE to a block. */

#define TOGETHER (64 / WIDE) /* blocks whose values are weighted column by column while they are in the first cache */
#define WEIGHED_AT_ONCE (AT_ONCE * WIDE / 16) /* as many sums as there are registers for */

/* exp of what is at most 0 (Cephes' polynomial, 2 units in the last place); 0 below -87. */
TARGET static inline __attribute__((always_inline)) VEC NAMED(exp)(VEC x) {
    const VEC lowest = ALL(-87.0f), bounded = MAX(x, lowest);
    const VEC n = ROUND(MUL(bounded, ALL(1.44269504088896341f)));
    const VEC f = FMA(n, ALL(2.12194440e-4f), FMA(n, ALL(-0.693359375f), bounded));
    VEC y = FMA(ALL(1.9875691500e-4f), f, ALL(1.3981999507e-3f));
    y = FMA(y, f, ALL(8.3334519073e-3f));
    y = FMA(y, f, ALL(4.1665795894e-2f));
    y = FMA(y, f, ALL(1.6666665459e-1f));
    y = FMA(y, f, ALL(5.0000001201e-1f));
    y = ADD(FMA(y, MUL(f, f), f), ALL(1.0f));
    return CHOOSE_ABOVE(x, lowest, TIMES_POWER(y, n), ALL(0.0f));
}

TARGET static inline float NAMED(sum)(VEC value) {
    float lanes[WIDE], sum = 0.0f;
    STORE(lanes, value);
    for (int i = 0; i < WIDE; i++) sum += lanes[i];
    return sum;
}

TARGET static inline float NAMED(largest)(VEC value) {
    float lanes[WIDE];
    STORE(lanes, value);
    float largest = lanes[0];
    for (int i = 1; i < WIDE; i++) largest = lanes[i] > largest ? lanes[i] : largest;
    return largest;
}

/* WIDE numbers of a row of the cache from `column` on: halves, or Q8_0 blocks of a scale and 32 codes. */
TARGET static inline __attribute__((always_inline)) VEC NAMED(load)(const uint8_t *row, int64_t column,
                                                                    const bool is_q8) {
    if (!is_q8) return LOAD_HALVES(row + 2 * column);
    const uint8_t *block = row + column / BLOCK * Q8_BYTES;
    uint16_t half;
    memcpy(&half, block, sizeof half);
    return MUL(LOAD_CODES(block + 2 + column % BLOCK), ALL(_cvtsh_ss(half)));
}

#if WIDE == 16

/* WIDE rows x WIDE columns of the cache, turned. */
TARGET static inline __attribute__((always_inline)) void NAMED(turn)(const uint8_t *rows, size_t stride, int64_t column,
                                                                     const bool is_q8, float *to) {
    __m512 a[16], b[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) a[i] = NAMED(load)(rows + (size_t)i * stride, column, is_q8);
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            const __m512d low = _mm512_castps_pd(b[i + j]), high = _mm512_castps_pd(b[i + j + 2]);
            a[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            a[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    /* a[4 g + c] has of rows 4 g to 4 g + 3 the columns c, 4 + c, 8 + c, 12 + c */
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        const __m512 even0 = _mm512_shuffle_f32x4(a[c], a[4 + c], 0x88), odd0 = _mm512_shuffle_f32x4(a[c], a[4 + c], 0xDD);
        const __m512 even1 = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x88);
        const __m512 odd1 = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xDD);
        STORE(to + 16 * c, _mm512_shuffle_f32x4(even0, even1, 0x88));
        STORE(to + 16 * (4 + c), _mm512_shuffle_f32x4(odd0, odd1, 0x88));
        STORE(to + 16 * (8 + c), _mm512_shuffle_f32x4(even0, even1, 0xDD));
        STORE(to + 16 * (12 + c), _mm512_shuffle_f32x4(odd0, odd1, 0xDD));
    }
}

#else

TARGET static inline __attribute__((always_inline)) void NAMED(turn)(const uint8_t *rows, size_t stride, int64_t column,
                                                                     const bool is_q8, float *to) {
    __m256 a[8], b[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) a[i] = NAMED(load)(rows + (size_t)i * stride, column, is_q8);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            const __m256d low = _mm256_castps_pd(b[i + j]), high = _mm256_castps_pd(b[i + j + 2]);
            a[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, high));
            a[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, high));
        }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        STORE(to + 8 * c, _mm256_permute2f128_ps(a[c], a[4 + c], 0x20));
        STORE(to + 8 * (4 + c), _mm256_permute2f128_ps(a[c], a[4 + c], 0x31));
    }
}

#endif

/* Row r's scores with the first block; with the next they are AT_ONCE x WIDE further, those of row r + 1 WIDE further. */
static inline float *NAMED(scores)(const struct attention *a, int r) {
    return a->scores + r / AT_ONCE * AT_ONCE * a->k->ne[1] + r % AT_ONCE * WIDE;
}

/* Scores of n queries with a block of cells whose keys are turned. */
TARGET static inline __attribute__((always_inline)) void NAMED(score_n)(const struct attention *a, const float *queries,
                                                                        const int n, float *score) {
    const int64_t n_size = a->k->ne[0];
    VEC sum[AT_ONCE];
    for (int r = 0; r < n; r++) sum[r] = ALL(0.0f);
    for (int64_t d = 0; d < n_size; d++) {
        const VEC keys = LOAD(a->turned + d * WIDE);
        for (int r = 0; r < n; r++) sum[r] = FMA(keys, ALL(queries[d * AT_ONCE + r]), sum[r]);
    }
    for (int r = 0; r < n; r++) STORE(score + r * WIDE, sum[r]);
}

/* To n queries' sums: 2 x WIDE columns of the values of blocks [first, last), weighted. */
TARGET static inline __attribute__((always_inline)) void NAMED(weigh_n)(const struct attention *a, const uint8_t *values,
                                                                        int64_t column, int64_t first, int64_t last,
                                                                        const float *weights, const bool is_q8,
                                                                        const int n, float *out) {
    const int64_t n_values = a->v->ne[0];
    const size_t step = a->v->nb[1];
    VEC low[AT_ONCE], high[AT_ONCE];
    for (int r = 0; r < n; r++) {
        low[r] = LOAD(out + r * n_values);
        high[r] = LOAD(out + r * n_values + WIDE);
    }
    for (int64_t b = first; b < last; b++) {
        const uint8_t *block = values + (size_t)a->blocks[b] * WIDE * step;
        for (uint32_t rest = a->in_use[b]; rest; rest &= rest - 1) {
            const int cell = __builtin_ctz(rest);
            const uint8_t *row = block + (size_t)cell * step;
            const VEC value0 = NAMED(load)(row, column, is_q8), value1 = NAMED(load)(row, column + WIDE, is_q8);
            _mm_prefetch((const char *)row + VALUES_AHEAD * step + column * (is_q8 ? 1 : 2), _MM_HINT_T1);
            for (int r = 0; r < n; r++) {
                const VEC weight = ALL(weights[(b * AT_ONCE + r) * WIDE + cell]);
                low[r] = FMA(value0, weight, low[r]);
                high[r] = FMA(value1, weight, high[r]);
            }
        }
    }
    for (int r = 0; r < n; r++) {
        STORE(out + r * n_values, low[r]);
        STORE(out + r * n_values + WIDE, high[r]);
    }
}

/* With n known the compiler keeps all sums in registers. */
#define BY_COUNT(NAME, n, ...)                        \
    switch (n) {                                      \
    case 1: NAMED(NAME)(__VA_ARGS__, 1, out); break;  \
    case 2: NAMED(NAME)(__VA_ARGS__, 2, out); break;  \
    case 3: NAMED(NAME)(__VA_ARGS__, 3, out); break;  \
    case 4: NAMED(NAME)(__VA_ARGS__, 4, out); break;  \
    case 5: NAMED(NAME)(__VA_ARGS__, 5, out); break;  \
    case 6: NAMED(NAME)(__VA_ARGS__, 6, out); break;  \
    case 7: NAMED(NAME)(__VA_ARGS__, 7, out); break;  \
    default: NAMED(NAME)(__VA_ARGS__, 8, out); break; \
    }

TARGET static void NAMED(score)(const struct attention *a, const float *queries, int n, float *out) {
    BY_COUNT(score_n, n, a, queries)
}

TARGET static void NAMED(weigh)(const struct attention *a, const uint8_t *values, int64_t column, int64_t first,
                                int64_t last, const float *weights, int n, float *out) {
    if (a->v->type == TYPE_F16) {
        BY_COUNT(weigh_n, n, a, values, column, first, last, weights, false)
    } else {
        BY_COUNT(weigh_n, n, a, values, column, first, last, weights, true)
    }
}

#undef BY_COUNT

/* Scores with all cells that any query sees, masked; returns how many blocks those are. */
TARGET static int64_t NAMED(score_all)(const struct attention *a, int64_t stream, int64_t kv_head, int64_t first, int n,
                                       VEC highest[ROWS]) {
    const int64_t n_size = a->k->ne[0], n_cells = a->k->ne[1];
    const size_t step = a->k->nb[1];
    const bool is_q8 = a->k->type == TYPE_Q8_0;
    const int64_t n_bytes = is_q8 ? n_size / BLOCK * Q8_BYTES : 2 * n_size;
    const uint8_t *keys = a->k->data + (size_t)stream * a->k->nb[3] + (size_t)kv_head * a->k->nb[2];
    const uint8_t *masks[ROWS];
    int64_t n_blocks = 0;
    for (int r = 0; r < n; r++) {
        masks[r] = mask_of(a, stream, first + r);
        highest[r] = ALL(NOTHING);
    }
    for (int64_t cell = 0; cell < n_cells; cell += WIDE, keys += WIDE * step) {
        uint32_t in_use = 0;
        for (int r = 0; r < n; r++)
            if (r == 0 || masks[r] != masks[r - 1]) in_use |= ABOVE(LOAD_HALVES(masks[r] + 2 * cell), ALL(NOTHING));
        if (!in_use) continue;
        for (int i = 0; i < WIDE; i++)
            for (int64_t at = 0; at < n_bytes; at += LINE)
                _mm_prefetch((const char *)keys + (KEYS_AHEAD + i) * step + at, _MM_HINT_T1);
        for (int64_t d = 0; d < n_size; d += WIDE)
            if (is_q8)
                NAMED(turn)(keys, step, d, true, a->turned + d * WIDE);
            else
                NAMED(turn)(keys, step, d, false, a->turned + d * WIDE);
        for (int r = 0; r < n; r += AT_ONCE) {
            const int now = n - r < AT_ONCE ? n - r : AT_ONCE;
            float *scores = NAMED(scores)(a, r) + n_blocks * AT_ONCE * WIDE;
            NAMED(score)(a, a->queries + r * n_size, now, scores);
            for (int i = r; i < r + now; i++, scores += WIDE) {
                const VEC mask = LOAD_HALVES(masks[i] + 2 * cell);
                const VEC score = CHOOSE_ABOVE(mask, ALL(NOTHING), ADD(LOAD(scores), mask), ALL(HIDDEN));
                STORE(scores, score);
                highest[i] = MAX(highest[i], score);
            }
        }
        a->blocks[n_blocks] = (int32_t)(cell / WIDE);
        a->in_use[n_blocks++] = in_use;
    }
    return n_blocks;
}

TARGET static void NAMED(attend)(const struct attention *a, int64_t stream, int64_t kv_head, int64_t first, int n) {
    const int64_t n_size = a->k->ne[0], n_values = a->v->ne[0];
    const uint8_t *values = a->v->data + (size_t)stream * a->v->nb[3] + (size_t)kv_head * a->v->nb[2];
    float share[ROWS];
    VEC highest[ROWS];
    for (int r = 0; r < n; r++) {
        const float *query = query_of(a, stream, kv_head, first + r);
        float *to = a->queries + r / AT_ONCE * AT_ONCE * n_size + r % AT_ONCE;
        for (int64_t d = 0; d < n_size; d++) to[d * AT_ONCE] = query[d] * a->scale;
    }
    const int64_t n_blocks = NAMED(score_all)(a, stream, kv_head, first, n, highest);
    for (int r = 0; r < n; r++) {
        const VEC most = ALL(-NAMED(largest)(highest[r]));
        VEC sum = ALL(0.0f);
        float *scores = NAMED(scores)(a, r);
        for (int64_t b = 0; b < n_blocks; b++, scores += AT_ONCE * WIDE) {
            const VEC weight = NAMED(exp)(ADD(LOAD(scores), most));
            STORE(scores, weight);
            sum = ADD(sum, weight);
        }
        const float total = NAMED(sum)(sum);
        share[r] = total > 0.0f ? 1.0f / total : 0.0f; /* who sees no cell gets nothing */
    }
    memset(a->sums, 0, sizeof(float) * (size_t)(n * n_values));
    for (int64_t first_block = 0; first_block < n_blocks; first_block += TOGETHER) {
        const int64_t last_block = n_blocks - first_block < TOGETHER ? n_blocks : first_block + TOGETHER;
        for (int64_t d = 0; d < n_values; d += 2 * WIDE)
            for (int r = 0; r < n; r += WEIGHED_AT_ONCE)
                NAMED(weigh)(a, values, d, first_block, last_block, NAMED(scores)(a, r),
                             n - r < WEIGHED_AT_ONCE ? n - r : WEIGHED_AT_ONCE, a->sums + r * n_values + d);
    }
    for (int r = 0; r < n; r++) {
        float *to = output_of(a, stream, kv_head, first + r);
        for (int64_t d = 0; d < n_values; d++) to[d] = a->sums[r * n_values + d] * share[r];
    }
}

#undef TOGETHER
#undef WEIGHED_AT_ONCE
#undef TARGET
#undef NAMED
#undef WIDE
#undef VEC
#undef LOAD
#undef STORE
#undef LOAD_HALVES
#undef LOAD_CODES
#undef ALL
#undef FMA
#undef ADD
#undef MUL
#undef MAX
#undef ABOVE
#undef CHOOSE_ABOVE
#undef ROUND
#undef TIMES_POWER
