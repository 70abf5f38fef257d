/* Strips by 256-bit VNNI: recent laptops have it without AVX-512. Four rows x up to eight columns at a time.
 *
 * Included once for each encoding, by who defines V256 (the function attribute), DOT (VPDPBUSD) and NAMED (a prefix).
 * The two differ in that only: what tests find about the one that runs here holds for the other.
 */

/* Twice each of four rows' scales, halves `stride` bytes apart. */
V256 static inline __m256 NAMED(four_scales)(const uint8_t *from, int64_t stride) {
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    uint16_t d[4];
    for (int row = 0; row < 4; row++) memcpy(&d[row], from + row * stride, 2);
    const __m128i half = _mm_setr_epi16((short)d[0], (short)d[1], (short)d[2], (short)d[3], 0, 0, 0, 0);
    return _mm256_permutevar8x32_ps(_mm256_cvtph_ps(half), twice);
}

/* Neighbouring lanes are one row's. */
V256 static inline __m128 NAMED(row_sums)(__m256 value) {
    const __m256 both = _mm256_hadd_ps(value, value);
    return _mm_movelh_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1));
}

/* start + the products of four rows' 32 codes with one column's. */
V256 static inline __m256i NAMED(dot_32)(__m256i start, const __m256i w[4], const int8_t *a0, const int8_t *a1,
                                        const int8_t *a2, const int8_t *a3) {
    start = DOT(start, w[0], _mm256_set1_epi64x(eight(a0)));
    start = DOT(start, w[1], _mm256_set1_epi64x(eight(a1)));
    start = DOT(start, w[2], _mm256_set1_epi64x(eight(a2)));
    return DOT(start, w[3], _mm256_set1_epi64x(eight(a3)));
}

V256 static inline __attribute__((always_inline)) void NAMED(strip_q8_0_n)(const struct strip *s, int64_t group,
                                                                           const int n, float *out) {
    const int64_t blocks = n_blocks(s->n_cols), stride = blocks * Q8_BYTES;
    const __m256i flip = _mm256_set1_epi8((char)0x80);
    for (int quad = 0; quad < GROUP; quad += 4) {
        const uint8_t *from = s->base + (group * GROUP + quad) * stride;
        __m256 acc[STRIP];
        for (int c = 0; c < n; c++) acc[c] = _mm256_setzero_ps();
        for (int64_t block = 0; block < blocks; block++, from += Q8_BYTES) {
            __m256i row[4], w[4];
            fetch(from + 4 * stride, Q8_BYTES);
            for (int i = 0; i < 4; i++) {
                row[i] = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(from + i * stride + 2)), flip);
                fetch(from + (4 + i) * stride, Q8_BYTES);
            }
            const __m256i even0 = _mm256_unpacklo_epi64(row[0], row[1]), odd0 = _mm256_unpackhi_epi64(row[0], row[1]);
            const __m256i even1 = _mm256_unpacklo_epi64(row[2], row[3]), odd1 = _mm256_unpackhi_epi64(row[2], row[3]);
            w[0] = _mm256_permute2x128_si256(even0, even1, 0x20);
            w[1] = _mm256_permute2x128_si256(odd0, odd1, 0x20);
            w[2] = _mm256_permute2x128_si256(even0, even1, 0x31);
            w[3] = _mm256_permute2x128_si256(odd0, odd1, 0x31);
            const __m256 d = NAMED(four_scales)(from, stride);
            for (int c = 0; c < n; c++) {
                const int8_t *a = s->codes + c * s->n_cols + block * BLOCK;
                __m256i sum = _mm256_set1_epi32(-64 * s->sums[c * blocks + block]); /* two lanes a row, half of 128 each */
                sum = NAMED(dot_32)(sum, w, a, a + 8, a + 16, a + 24);
                acc[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum),
                                         _mm256_mul_ps(d, _mm256_set1_ps(s->scales[c * blocks + block])), acc[c]);
            }
        }
        for (int c = 0; c < n; c++) _mm_storeu_ps(out + c * GROUP + quad, NAMED(row_sums)(acc[c]));
    }
}

FOR_EACH_WIDTH(V256, NAMED(strip_q8_0))

/* Nested weights and Q4_0: 16 q + r as unsigned bytes. Without a residual r is 8 everywhere. */
V256 static inline __attribute__((always_inline)) void NAMED(strip_nested_n)(const struct strip *s, int64_t group,
                                                                             const int n, float *out) {
    const int64_t blocks = n_blocks(s->n_cols);
    const int step = residual_step(s->residual);
    const __m256i low = _mm256_set1_epi8(15), high = _mm256_set1_epi8((char)0xF0), flip = _mm256_set1_epi8((char)0x88);
    for (int quad = 0; quad < GROUP; quad += 4) {
        const uint8_t *residual = residual_group(s->residual, group, s->n_cols) + 8 * quad;
        const uint8_t *from = s->base + group * blocks * GROUP * BLOCK_BYTES;
        __m256 acc[STRIP];
        for (int c = 0; c < n; c++) acc[c] = _mm256_setzero_ps();
        for (int64_t block = 0; block < blocks; block++, residual += step, from += GROUP * BLOCK_BYTES) {
            __m256i q[2], w[4];
            __m256 d;
            if (s->layout == LAYOUT_8X8) {
                d = NAMED(four_scales)(from + 2 * quad, 2);
                for (int part = 0; part < 2; part++)
                    q[part] = _mm256_xor_si256(
                        _mm256_loadu_si256((const __m256i *)(from + 16 + 64 * part + 8 * quad)), flip);
            } else {
                uint16_t half[GROUP];
                uint8_t codes[128];
                gather(s->layout, s->base, group, block, s->n_cols, s->n_rows, half, codes);
                d = NAMED(four_scales)((const uint8_t *)(half + quad), 2);
                for (int part = 0; part < 2; part++)
                    q[part] = _mm256_loadu_si256((const __m256i *)(codes + 64 * part + 8 * quad));
            }
            for (int part = 0; part < 2; part++) {
                const __m256i r = _mm256_loadu_si256((const __m256i *)(residual + 64 * part));
                w[2 * part] = _mm256_or_si256(_mm256_slli_epi16(_mm256_and_si256(q[part], low), 4),
                                              _mm256_and_si256(r, low));
                w[2 * part + 1] = _mm256_or_si256(_mm256_and_si256(q[part], high),
                                                  _mm256_and_si256(_mm256_srli_epi16(r, 4), low));
            }
            for (int c = 0; c < n; c++) {
                const int8_t *a = s->codes + c * s->n_cols + block * BLOCK;
                __m256i sum = _mm256_set1_epi32(-68 * s->sums[c * blocks + block]); /* two lanes a row, half of 136 each */
                sum = NAMED(dot_32)(sum, w, a, a + 16, a + 8, a + 24);
                acc[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum),
                                         _mm256_mul_ps(d, _mm256_set1_ps(s->scales[c * blocks + block])), acc[c]);
            }
        }
        for (int c = 0; c < n; c++)
            _mm_storeu_ps(out + c * GROUP + quad, _mm_mul_ps(NAMED(row_sums)(acc[c]), _mm_set1_ps(1.0f / 16.0f)));
    }
}

FOR_EACH_WIDTH(V256, NAMED(strip_nested))

/* Four rows' bytes, times the four rows' d. */
V256 static inline __m128 NAMED(four_scaled)(const uint8_t *bytes, const uint8_t *d) {
    int32_t four;
    memcpy(&four, bytes, sizeof four);
    return _mm_mul_ps(_mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)d)),
                      _mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(four))));
}

V256 static inline __attribute__((always_inline)) void NAMED(strip_q4_k_n)(const struct strip *s, int64_t group,
                                                                           const int n, float *out) {
    const int64_t blocks = n_blocks(s->n_cols);
    const __m256i low = _mm256_set1_epi8(15), twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    for (int quad = 0; quad < GROUP; quad += 4) {
        uint8_t room[GROUP * Q4_K_BYTES];
        __m256 acc[STRIP];
        __m128 below[STRIP];
        for (int c = 0; c < n; c++) {
            acc[c] = _mm256_setzero_ps();
            below[c] = _mm_setzero_ps();
        }
        const uint8_t *from = NULL;
        for (int64_t block = 0; block < blocks; block++) {
            const int within = (int)(block % 8);
            if (within == 0) from = q4_k_group(s, group, block / 8, room);
            const uint8_t *nibbles = from + Q4_K_NIBBLES + 256 * (within / 2) + 8 * quad;
            uint8_t scales[16];
            __m256i w[4];
            for (int i = 0; i < 4; i++) {
                const __m256i both = _mm256_loadu_si256((const __m256i *)(nibbles + 64 * i));
                w[i] = _mm256_and_si256(within % 2 ? _mm256_srli_epi16(both, 4) : both, low);
            }
            unpack_scales(from + Q4_K_SCALES + PACKED_SCALES * within, scales);
            const __m256 scale = _mm256_permutevar8x32_ps(
                _mm256_castps128_ps256(NAMED(four_scaled)(scales + quad, from + 2 * quad)), twice);
            const __m128 minimum = NAMED(four_scaled)(scales + 8 + quad, from + 16 + 2 * quad);
            for (int c = 0; c < n; c++) {
                const int8_t *a = s->codes + c * s->n_cols + block * BLOCK;
                const float unit = s->scales[c * blocks + block];
                const __m256i sum = NAMED(dot_32)(_mm256_setzero_si256(), w, a, a + 8, a + 16, a + 24);
                acc[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, _mm256_set1_ps(unit)), acc[c]);
                below[c] = _mm_fmadd_ps(minimum, _mm_set1_ps(unit * (float)s->sums[c * blocks + block]), below[c]);
            }
        }
        for (int c = 0; c < n; c++)
            _mm_storeu_ps(out + c * GROUP + quad, _mm_sub_ps(NAMED(row_sums)(acc[c]), below[c]));
    }
}

FOR_EACH_WIDTH(V256, NAMED(strip_q4_k))
