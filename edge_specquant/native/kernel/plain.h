/* Strips of ordinary weights, Q8_0 and F16, rows as the file has them: few columns cost little more than one.
 *
 * The engine's own products of these types read and unpack each weight once per column (or per two); here a weight is
 * unpacked once for all columns of a strip. Rows come in whole groups of eight.
 */

enum { Q8_BYTES = 34 };

static void strip_q8_0_c(const struct strip *s, int64_t group, int n, float *out) {
    const int64_t blocks = n_blocks(s->n_cols);
    memset(out, 0, sizeof(float) * GROUP * (size_t)n);
    for (int row = 0; row < GROUP; row++) {
        const uint8_t *from = s->base + (group * GROUP + row) * blocks * Q8_BYTES;
        for (int64_t block = 0; block < blocks; block++, from += Q8_BYTES) {
            uint16_t half;
            memcpy(&half, from, sizeof half);
            const float d = from_half(half);
            for (int c = 0; c < n; c++) {
                const struct codes *a = s->codes + block * n + c;
                const int8_t *w = (const int8_t *)from + 2;
                int32_t sum = 0;
                for (int i = 0; i < BLOCK; i++) sum += w[i] * a->q[i];
                out[c * GROUP + row] += (float)sum * (d * a->scale);
            }
        }
    }
}

static void strip_f16_c(const struct strip *s, int64_t group, int n, float *out) {
    memset(out, 0, sizeof(float) * GROUP * (size_t)n);
    for (int row = 0; row < GROUP; row++) {
        const uint8_t *from = s->base + (group * GROUP + row) * s->n_cols * 2;
        for (int64_t i = 0; i < s->n_cols; i++) {
            uint16_t half;
            memcpy(&half, from + 2 * i, sizeof half);
            for (int c = 0; c < n; c++) out[c * GROUP + row] += from_half(half) * s->x[c * s->x_stride + i];
        }
    }
}

#if defined(__x86_64__)

VNNI static inline __m512i two_rows(const uint8_t *first, const uint8_t *second) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(first + 2))),
                              _mm256_loadu_si256((const __m256i *)(second + 2)), 1);
}

VNNI static inline __m512 scales_of(const uint8_t *from, int64_t stride) {
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    uint16_t d[GROUP];
    for (int row = 0; row < GROUP; row++) memcpy(&d[row], from + row * stride, 2);
    const __m128i half = _mm_setr_epi16((short)d[0], (short)d[1], (short)d[2], (short)d[3], (short)d[4], (short)d[5],
                                        (short)d[6], (short)d[7]);
    return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_cvtph_ps(half)));
}

/* Eight rows' blocks are turned into four registers of eight rows x eight columns; codes + 128 are unsigned. */
VNNI static inline __attribute__((always_inline)) void strip_q8_0_vnni_n(const struct strip *s, int64_t group,
                                                                         const int n, float *out) {
    const int64_t blocks = n_blocks(s->n_cols), stride = blocks * Q8_BYTES;
    const uint8_t *from = s->base + group * GROUP * stride;
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    __m512 acc[STRIP];
    for (int c = 0; c < n; c++) acc[c] = _mm512_setzero_ps();
    for (int64_t block = 0; block < blocks; block++, from += Q8_BYTES) {
        fetch(s->base + (group + 1) * GROUP * stride + block * GROUP * Q8_BYTES, GROUP * Q8_BYTES);
        const __m512i r02 = two_rows(from, from + 2 * stride), r13 = two_rows(from + stride, from + 3 * stride);
        const __m512i r46 = two_rows(from + 4 * stride, from + 6 * stride);
        const __m512i r57 = two_rows(from + 5 * stride, from + 7 * stride);
        const __m512i even0 = _mm512_unpacklo_epi64(r02, r13), odd0 = _mm512_unpackhi_epi64(r02, r13);
        const __m512i even1 = _mm512_unpacklo_epi64(r46, r57), odd1 = _mm512_unpackhi_epi64(r46, r57);
        const __m512i w[4] = {
            _mm512_xor_si512(_mm512_shuffle_i64x2(even0, even1, 0x88), flip),
            _mm512_xor_si512(_mm512_shuffle_i64x2(odd0, odd1, 0x88), flip),
            _mm512_xor_si512(_mm512_shuffle_i64x2(even0, even1, 0xDD), flip),
            _mm512_xor_si512(_mm512_shuffle_i64x2(odd0, odd1, 0xDD), flip),
        };
        const __m512 d = scales_of(from, stride);
        for (int c = 0; c < n; c++) {
            const struct codes *a = s->codes + block * n + c;
            const __m512i sum = dot(_mm512_set1_epi32(a->start), w, a->q, a->q + 8, a->q + 16, a->q + 24);
            acc[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(d, _mm512_set1_ps(a->scale)), acc[c]);
        }
    }
    for (int c = 0; c < n; c++) _mm256_storeu_ps(out + c * GROUP, pair_sums(acc[c]));
}

FOR_EACH_WIDTH(VNNI, strip_q8_0_vnni)

VNNI static inline __m256 halves_added(__m512 value) {
    return _mm256_add_ps(_mm512_castps512_ps256(value), _mm512_extractf32x8_ps(value, 1));
}

VNNI static inline __m128 four_sums(__m512 a, __m512 b, __m512 c, __m512 d) {
    const __m256 both = _mm256_hadd_ps(_mm256_hadd_ps(halves_added(a), halves_added(b)),
                                       _mm256_hadd_ps(halves_added(c), halves_added(d)));
    return _mm_add_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1));
}

/* Four rows x up to six columns fill 24 registers; columns of weights come sixteen at a time. */
VNNI static inline __attribute__((always_inline)) void tile_f16_vnni(const struct strip *s, int64_t group, int first,
                                                                        const int n, float *out) {
    const int64_t n_cols = s->n_cols;
    const float *x = s->x + first * s->x_stride;
    for (int quad = 0; quad < GROUP; quad += 4) {
        const uint8_t *from = s->base + (group * GROUP + quad) * n_cols * 2;
        __m512 acc[6][4];
        for (int c = 0; c < n; c++)
            for (int row = 0; row < 4; row++) acc[c][row] = _mm512_setzero_ps();
        for (int64_t i = 0; i < n_cols; i += 16) {
            __m512 w[4];
            fetch(from + 8 * (n_cols + i), 128);
            for (int row = 0; row < 4; row++)
                w[row] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from + 2 * (row * n_cols + i))));
            for (int c = 0; c < n; c++) {
                const __m512 value = _mm512_loadu_ps(x + c * s->x_stride + i);
                for (int row = 0; row < 4; row++) acc[c][row] = _mm512_fmadd_ps(w[row], value, acc[c][row]);
            }
        }
        for (int c = 0; c < n; c++)
            _mm_storeu_ps(out + (first + c) * GROUP + quad, four_sums(acc[c][0], acc[c][1], acc[c][2], acc[c][3]));
    }
}

/* One column: bound by memory, which is read in order, row after row. The same sums as above. */
VNNI static void strip_f16_vnni_1(const struct strip *s, int64_t group, float *out) {
    const int64_t n_cols = s->n_cols;
    const __m512 none = _mm512_setzero_ps();
    for (int row = 0; row < GROUP; row++) {
        const uint8_t *from = s->base + (group * GROUP + row) * n_cols * 2;
        __m512 acc = none;
        for (int64_t i = 0; i < n_cols; i += 32) {
            fetch(from + 2 * (n_cols + i), LINE);
            const __m512 low = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from + 2 * i)));
            const __m512 high = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from + 2 * i + 32)));
            acc = _mm512_fmadd_ps(low, _mm512_loadu_ps(s->x + i), acc);
            acc = _mm512_fmadd_ps(high, _mm512_loadu_ps(s->x + i + 16), acc);
        }
        out[row] = _mm_cvtss_f32(four_sums(acc, none, none, none));
    }
}

VNNI static inline __attribute__((always_inline)) void strip_f16_vnni_n(const struct strip *s, int64_t group,
                                                                        const int n, float *out) {
    if (n == 1)
        strip_f16_vnni_1(s, group, out);
    else if (n <= 6)
        tile_f16_vnni(s, group, 0, n, out);
    else {
        tile_f16_vnni(s, group, 0, 4, out);
        tile_f16_vnni(s, group, 4, n - 4, out);
    }
}

FOR_EACH_WIDTH(VNNI, strip_f16_vnni)

AVX2 static inline float eight_sums(__m256 value) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(value), _mm256_extractf128_ps(value, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

/* Two rows x up to six columns fill 12 of 16 registers. */
AVX2 static inline __attribute__((always_inline)) void tile_f16_avx2(const struct strip *s, int64_t group, int first,
                                                                        const int n, float *out) {
    const int64_t n_cols = s->n_cols;
    const float *x = s->x + first * s->x_stride;
    for (int pair = 0; pair < GROUP; pair += 2) {
        const uint8_t *from = s->base + (group * GROUP + pair) * n_cols * 2;
        __m256 acc[6][2];
        for (int c = 0; c < n; c++) acc[c][0] = acc[c][1] = _mm256_setzero_ps();
        for (int64_t i = 0; i < n_cols; i += 8) {
            fetch(from + 16 * n_cols + 4 * i, 32);
            const __m256 w0 = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 2 * i)));
            const __m256 w1 = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 2 * (n_cols + i))));
            for (int c = 0; c < n; c++) {
                const __m256 value = _mm256_loadu_ps(x + c * s->x_stride + i);
                acc[c][0] = _mm256_fmadd_ps(w0, value, acc[c][0]);
                acc[c][1] = _mm256_fmadd_ps(w1, value, acc[c][1]);
            }
        }
        for (int c = 0; c < n; c++) {
            out[(first + c) * GROUP + pair] = eight_sums(acc[c][0]);
            out[(first + c) * GROUP + pair + 1] = eight_sums(acc[c][1]);
        }
    }
}

AVX2 static inline __attribute__((always_inline)) void strip_f16_avx2_n(const struct strip *s, int64_t group,
                                                                        const int n, float *out) {
    if (n <= 6)
        tile_f16_avx2(s, group, 0, n, out);
    else {
        tile_f16_avx2(s, group, 0, 4, out);
        tile_f16_avx2(s, group, 4, n - 4, out);
    }
}

FOR_EACH_WIDTH(AVX2, strip_f16_avx2)

#endif
