/* Strips of bit-nested weights, or of their Q4_0 base alone, in whatever order the engine holds the base. */

/* Residual codes lie in groups of eight rows: a group holds for each block 2 halves x 8 rows x 8 bytes, and a byte the
 * codes of column j (low nibble) and j + 16. That is the order of the engine's repacked Q4_0 weights. */
struct weight {
    char name[NAME_BYTES];
    int64_t n_cols, n_rows;
    const uint8_t *residual; /* NULL: the base alone */
    uint8_t sample[GROUP * BLOCK_BYTES]; /* the first Q4_0 block of the first eight rows, as the file has it */
    int64_t n_seen;
};

/* Without a residual every code is 8, the middle: 16 q + 8 - 136 = 16 (q - 8), the base alone. */
static const uint8_t no_residual[128] = {
#define EIGHTS 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88
    EIGHTS, EIGHTS, EIGHTS, EIGHTS, EIGHTS, EIGHTS, EIGHTS, EIGHTS
#undef EIGHTS
};

static const uint8_t *residual_group(const uint8_t *residual, int64_t group, int64_t n_cols) {
    return residual ? residual + group * n_cols * (GROUP / 2) : no_residual;
}

static int residual_step(const uint8_t *residual) { return residual ? 128 : 0; }

/* One block of eight rows in the repacked order, whatever order the engine holds it in: scales and nibbles (unsigned). */
static void gather(int layout, const uint8_t *base, int64_t group, int64_t block, int64_t n_cols, int64_t n_rows,
                   uint16_t d[GROUP], uint8_t codes[128]) {
    int64_t blocks = n_blocks(n_cols);
    if (layout == LAYOUT_8X8) {
        const uint8_t *from = base + (group * blocks + block) * GROUP * BLOCK_BYTES;
        memcpy(d, from, 16);
        for (int i = 0; i < 128; i++) codes[i] = from[16 + i] ^ 0x88;
        return;
    }
    for (int row = 0; row < GROUP; row++) {
        int64_t absolute = group * GROUP + row;
        uint8_t bytes[16];
        if (absolute >= n_rows) {
            d[row] = 0;
            memset(bytes, 0, sizeof bytes);
        } else if (layout == LAYOUT_ROWS) {
            const uint8_t *from = base + (absolute * blocks + block) * BLOCK_BYTES;
            memcpy(&d[row], from, 2);
            memcpy(bytes, from + 2, 16);
        } else {
            int chunk = layout == LAYOUT_4X8 ? 8 : 4, inner = row % 4;
            const uint8_t *from = base + ((group * 2 + row / 4) * blocks + block) * 4 * BLOCK_BYTES;
            memcpy(&d[row], from + 2 * inner, 2);
            for (int j = 0; j < 16; j++) bytes[j] = from[8 + (j / chunk) * 4 * chunk + inner * chunk + j % chunk] ^ 0x88;
        }
        memcpy(codes + 8 * row, bytes, 8);
        memcpy(codes + 64 + 8 * row, bytes + 8, 8);
    }
}

/* Which order a tensor's bytes are in, found by comparing the file's first blocks; -1 when none fits. */
static int find_layout(const struct weight *weight, const uint8_t *data) {
    int rows = weight->n_rows < GROUP ? (int)weight->n_rows : GROUP;
    for (int layout = 0; layout < N_LAYOUTS; layout++) {
        uint16_t d[GROUP];
        uint8_t codes[128];
        bool same = true;
        if (layout != LAYOUT_ROWS && weight->n_rows % GROUP) continue;
        gather(layout, data, 0, 0, weight->n_cols, weight->n_rows, d, codes);
        for (int row = 0; row < rows; row++) {
            const uint8_t *expected = weight->sample + row * BLOCK_BYTES;
            same = same && !memcmp(&d[row], expected, 2) && !memcmp(codes + 8 * row, expected + 2, 8) &&
                   !memcmp(codes + 64 + 8 * row, expected + 10, 8);
        }
        if (same) return layout;
    }
    return -1;
}

/* -- eight rows x up to eight columns, plain C --------------------------------------------------------------------- */

static void strip_c(const struct strip *s, int64_t group, int n, float *out) {
    const uint8_t *residual = residual_group(s->residual, group, s->n_cols);
    const int step = residual_step(s->residual);
    memset(out, 0, sizeof(float) * GROUP * (size_t)n);
    for (int64_t block = 0; block < n_blocks(s->n_cols); block++, residual += step) {
        uint16_t half[GROUP];
        uint8_t q[128];
        int8_t w[4][GROUP][8]; /* 16 (q - 8) + r, columns 0-7, 16-23, 8-15, 24-31 */
        gather(s->layout, s->base, group, block, s->n_cols, s->n_rows, half, q);
        for (int part = 0; part < 2; part++)
            for (int i = 0; i < 64; i++) {
                uint8_t b = q[64 * part + i] ^ 0x88, r = residual[64 * part + i];
                w[2 * part][i / 8][i % 8] = (int8_t)(uint8_t)(b << 4 | (r & 15));
                w[2 * part + 1][i / 8][i % 8] = (int8_t)(uint8_t)((b & 0xF0) | r >> 4);
            }
        for (int c = 0; c < n; c++) {
            const struct codes *a = s->codes + block * n + c;
            float scale = a->scale;
            int32_t shift = 8 * a->sum;
            for (int row = 0; row < GROUP; row++) {
                int32_t sum = -shift;
                for (int j = 0; j < 8; j++)
                    sum += w[0][row][j] * a->q[j] + w[1][row][j] * a->q[16 + j] + w[2][row][j] * a->q[8 + j] +
                           w[3][row][j] * a->q[24 + j];
                out[c * GROUP + row] += (float)sum * (from_half(half[row]) / 16.0f * scale);
            }
        }
    }
}

#if defined(__x86_64__)

/* Unsigned bytes against signed activations: one VPDPBUSD for eight rows x eight columns. Nested ones are 16 q + r, others
 * q. What is constant where this is inlined leaves no branch, and no call for which sums must leave registers. */
VNNI static inline __attribute__((always_inline)) void planes_vnni(const struct strip *s, int64_t group, const int n,
                                                                   const bool is_repacked, const bool is_nested,
                                                                   float *out) {
    const int64_t blocks = n_blocks(s->n_cols);
    const uint8_t *residual = residual_group(s->residual, group, s->n_cols);
    const int step = is_nested ? residual_step(s->residual) : 0;
    const uint8_t *from = s->base + group * blocks * GROUP * BLOCK_BYTES;
    const __m512i low = _mm512_set1_epi8(15), high = _mm512_set1_epi8((char)0xF0), flip = _mm512_set1_epi8((char)0x88);
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const bool is_fetched = n > 1 && is_repacked && fill_cache(s, n, GROUP * BLOCK_BYTES + step);
    __m512 acc[STRIP];
    for (int c = 0; c < n; c++) acc[c] = _mm512_setzero_ps();
    for (int64_t block = 0; block < blocks; block++, residual += step, from += GROUP * BLOCK_BYTES) {
        __m512i q[2], w[4];
        __m128i half;
        if (is_fetched) {
            fetch(from + blocks * GROUP * BLOCK_BYTES, GROUP * BLOCK_BYTES);
            if (is_nested) fetch(residual + blocks * step, step);
        }
        if (is_repacked) {
            half = _mm_loadu_si128((const __m128i *)from);
            for (int i = 0; i < 2; i++) q[i] = _mm512_xor_si512(_mm512_loadu_si512(from + 16 + 64 * i), flip);
        } else {
            uint16_t d[GROUP];
            uint8_t codes[128];
            gather(s->layout, s->base, group, block, s->n_cols, s->n_rows, d, codes);
            half = _mm_loadu_si128((const __m128i *)d);
            for (int i = 0; i < 2; i++) q[i] = _mm512_loadu_si512(codes + 64 * i);
        }
        for (int i = 0; i < 2; i++) { /* columns 0-7 and 16-23, 8-15 and 24-31 */
            w[2 * i] = _mm512_and_si512(q[i], low);
            if (is_nested) {
                const __m512i r = _mm512_loadu_si512(residual + 64 * i);
                w[2 * i] = _mm512_or_si512(_mm512_slli_epi16(w[2 * i], 4), _mm512_and_si512(r, low));
                w[2 * i + 1] =
                    _mm512_or_si512(_mm512_and_si512(q[i], high), _mm512_and_si512(_mm512_srli_epi16(r, 4), low));
            } else {
                w[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(q[i], 4), low);
            }
        }
        const __m512 d = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_cvtph_ps(half)));
        for (int c = 0; c < n; c++) {
            const struct codes *a = s->codes + block * n + c;
            const __m512i sum = dot(_mm512_set1_epi32(a->start), w, a->q, a->q + 16, a->q + 8, a->q + 24);
            acc[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(d, _mm512_set1_ps(a->scale)), acc[c]);
        }
    }
    const __m256 unit = _mm256_set1_ps(is_nested ? 1.0f / 16.0f : 1.0f);
    for (int c = 0; c < n; c++) _mm256_storeu_ps(out + c * GROUP, _mm256_mul_ps(pair_sums(acc[c]), unit));
}

VNNI static inline __attribute__((always_inline)) void strip_nested_vnni_n(const struct strip *s, int64_t group,
                                                                           const int n, float *out) {
    if (s->layout == LAYOUT_8X8)
        planes_vnni(s, group, n, true, true, out);
    else
        planes_vnni(s, group, n, false, true, out);
}

FOR_EACH_WIDTH(VNNI, strip_nested_vnni)

VNNI static inline __attribute__((always_inline)) void strip_q4_0_vnni_n(const struct strip *s, int64_t group,
                                                                         const int n, float *out) {
    if (s->layout == LAYOUT_8X8)
        planes_vnni(s, group, n, true, false, out);
    else
        planes_vnni(s, group, n, false, false, out);
}

FOR_EACH_WIDTH(VNNI, strip_q4_0_vnni)

/* Four rows x eight columns a register. Both planes are multiplied apart: 16-bit sums of 8 products of a nibble and a
 * code cannot overflow (8 x 15 x 127), those of a whole byte could. */
AVX2 static inline __attribute__((always_inline)) void strip_avx2_n(const struct strip *s, int64_t group, int width,
                                                                    const int n, float *out) {
    const int64_t blocks = n_blocks(s->n_cols);
    const uint8_t *residual = residual_group(s->residual, group, s->n_cols);
    const int step = residual_step(s->residual);
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1), sixteen = _mm256_set1_epi16(16);
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3), twice_high = _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7);
    __m256 acc[STRIP][2];
    for (int c = 0; c < n; c++) acc[c][0] = acc[c][1] = _mm256_setzero_ps();
    for (int64_t block = 0; block < blocks; block++, residual += step) {
        uint16_t half[GROUP];
        uint8_t codes[128];
        gather(s->layout, s->base, group, block, s->n_cols, s->n_rows, half, codes);
        const __m256 d8 = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)half));
        const __m256 d[2] = {_mm256_permutevar8x32_ps(d8, twice), _mm256_permutevar8x32_ps(d8, twice_high)};
        for (int quad = 0; quad < 2; quad++) {
            __m256i q[4], r[4];
            for (int part = 0; part < 2; part++) {
                __m256i both = _mm256_loadu_si256((const __m256i *)(codes + 64 * part + 32 * quad));
                q[2 * part] = _mm256_and_si256(both, low);
                q[2 * part + 1] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
                both = _mm256_loadu_si256((const __m256i *)(residual + 64 * part + 32 * quad));
                r[2 * part] = _mm256_and_si256(both, low);
                r[2 * part + 1] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
            }
            for (int c = 0; c < n; c++) {
                const struct codes *a = s->codes + block * width + c;
                __m256i base = _mm256_setzero_si256(), fine = _mm256_setzero_si256();
                for (int part = 0; part < 4; part++) {
                    const __m256i x = _mm256_set1_epi64x(eight(a->q + 16 * (part % 2) + 8 * (part / 2)));
                    base = _mm256_add_epi16(base, _mm256_maddubs_epi16(q[part], x));
                    fine = _mm256_add_epi16(fine, _mm256_maddubs_epi16(r[part], x));
                }
                __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(base, sixteen), _mm256_madd_epi16(fine, ones));
                sum = _mm256_add_epi32(sum, _mm256_set1_epi32(a->start));
                acc[c][quad] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum),
                                               _mm256_mul_ps(d[quad], _mm256_set1_ps(a->scale)), acc[c][quad]);
            }
        }
    }
    for (int c = 0; c < n; c++) {
        /* hadd gives rows 0 1 4 5 | 2 3 6 7 */
        const __m256 pairs = _mm256_hadd_ps(acc[c][0], acc[c][1]);
        const __m256i order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
        _mm256_storeu_ps(out + c * GROUP,
                         _mm256_mul_ps(_mm256_permutevar8x32_ps(pairs, order), _mm256_set1_ps(1.0f / 16.0f)));
    }
}

AVX2 static void strip_avx2(const struct strip *s, int64_t group, int n, float *out) {
    int done = 0;
    struct strip rest = *s;
    while (done < n) { /* four columns fill the sixteen registers */
        int now = n - done < 4 ? n - done : 4;
        switch (now) {
        case 1: strip_avx2_n(&rest, group, n, 1, out + done * GROUP); break;
        case 2: strip_avx2_n(&rest, group, n, 2, out + done * GROUP); break;
        case 3: strip_avx2_n(&rest, group, n, 3, out + done * GROUP); break;
        default: strip_avx2_n(&rest, group, n, 4, out + done * GROUP); break;
        }
        rest.codes += now;
        done += now;
    }
}

#elif defined(__ARM_FEATURE_DOTPROD)

/* 16 (q - 8) + r as signed bytes: one SDOT for two rows x eight columns. */
static void strip_dotprod(const struct strip *s, int64_t group, int n, float *out) {
    const int64_t blocks = n_blocks(s->n_cols);
    const uint8_t *residual = residual_group(s->residual, group, s->n_cols);
    const int step = residual_step(s->residual);
    const uint8x16_t low = vdupq_n_u8(15), high = vdupq_n_u8(0xF0), flip = vdupq_n_u8(0x88);
    float32x4_t acc[STRIP][2];
    for (int c = 0; c < n; c++) acc[c][0] = acc[c][1] = vdupq_n_f32(0.0f);
    for (int64_t block = 0; block < blocks; block++, residual += step) {
        uint16_t half[GROUP];
        uint8_t codes[128];
        float d[GROUP];
        int8x16_t w[4][4]; /* part, pair of rows */
        gather(s->layout, s->base, group, block, s->n_cols, s->n_rows, half, codes);
        for (int row = 0; row < GROUP; row++) d[row] = from_half(half[row]);
        for (int part = 0; part < 2; part++)
            for (int pair = 0; pair < 4; pair++) {
                const uint8x16_t q = veorq_u8(vld1q_u8(codes + 64 * part + 16 * pair), flip);
                const uint8x16_t r = vld1q_u8(residual + 64 * part + 16 * pair);
                w[2 * part][pair] = vreinterpretq_s8_u8(vorrq_u8(vshlq_n_u8(q, 4), vandq_u8(r, low)));
                w[2 * part + 1][pair] = vreinterpretq_s8_u8(vorrq_u8(vandq_u8(q, high), vshrq_n_u8(r, 4)));
            }
        for (int c = 0; c < n; c++) {
            const struct codes *a = s->codes + block * n + c;
            int32x4_t sum[4];
            for (int pair = 0; pair < 4; pair++) sum[pair] = vdupq_n_s32(-4 * a->sum);
            for (int part = 0; part < 4; part++) {
                const int8x8_t x = vld1_s8(a->q + 16 * (part % 2) + 8 * (part / 2));
                const int8x16_t both = vcombine_s8(x, x);
                for (int pair = 0; pair < 4; pair++) sum[pair] = vdotq_s32(sum[pair], w[part][pair], both);
            }
            const float scale = a->scale;
            for (int quad = 0; quad < 2; quad++) {
                const float32x4_t rows = vcvtq_f32_s32(vpaddq_s32(sum[2 * quad], sum[2 * quad + 1]));
                acc[c][quad] = vfmaq_f32(acc[c][quad], rows, vmulq_n_f32(vld1q_f32(d + 4 * quad), scale));
            }
        }
    }
    for (int c = 0; c < n; c++) {
        vst1q_f32(out + c * GROUP, vmulq_n_f32(acc[c][0], 1.0f / 16.0f));
        vst1q_f32(out + c * GROUP + 4, vmulq_n_f32(acc[c][1], 1.0f / 16.0f));
    }
}

#endif
