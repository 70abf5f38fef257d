/* Strips by 256-bit registers, four rows x up to eight columns at a time: what laptops without AVX-512 have.
 *
 * Included once for each instruction set, by who defines V256 (the function attribute), NAMED (a prefix) and, where there
 * is one, DOT: VPDPBUSD, which multiplies unsigned with signed bytes and adds four products at once. AVX-VNNI and AVX-512
 * have it in two encodings that differ in nothing else: what tests find about one holds for the other.
 */

/* Twice each of four halves. */
V256 static inline __m256 NAMED(twice_each)(__m128i halves) {
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_cvtph_ps(halves)), _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}

/* Neighbouring lanes are one row's. */
V256 static inline __m128 NAMED(row_sums)(__m256 value) {
    const __m256 both = _mm256_hadd_ps(value, value);
    return _mm_movelh_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1));
}

#if defined(DOT)

#define IS_BIASED true /* bytes go in as code + 128 */

/* start + the products of four rows' 32 unsigned codes with one column's. */
V256 static inline __m256i NAMED(dot_nibbles)(__m256i start, const __m256i w[4], const int8_t *a0, const int8_t *a1,
                                              const int8_t *a2, const int8_t *a3) {
    start = DOT(start, w[0], _mm256_set1_epi64x(eight(a0)));
    start = DOT(start, w[1], _mm256_set1_epi64x(eight(a1)));
    start = DOT(start, w[2], _mm256_set1_epi64x(eight(a2)));
    return DOT(start, w[3], _mm256_set1_epi64x(eight(a3)));
}

#define DOT_BYTES(start, w, a) NAMED(dot_nibbles)(start, w, a, (a) + 8, (a) + 16, (a) + 24)

#else

#define IS_BIASED false

/* 16-bit sums of 8 products of a nibble and a code cannot overflow: 8 x 15 x 127. */
V256 static inline __m256i NAMED(dot_nibbles)(__m256i start, const __m256i w[4], const int8_t *a0, const int8_t *a1,
                                              const int8_t *a2, const int8_t *a3) {
    const __m256i low = _mm256_add_epi16(_mm256_maddubs_epi16(w[0], _mm256_set1_epi64x(eight(a0))),
                                         _mm256_maddubs_epi16(w[1], _mm256_set1_epi64x(eight(a1))));
    const __m256i high = _mm256_add_epi16(_mm256_maddubs_epi16(w[2], _mm256_set1_epi64x(eight(a2))),
                                          _mm256_maddubs_epi16(w[3], _mm256_set1_epi64x(eight(a3))));
    return _mm256_add_epi32(start, _mm256_madd_epi16(_mm256_add_epi16(low, high), _mm256_set1_epi16(1)));
}

/* Bytes as they are: |w| x (a with w's sign), since the first factor is unsigned; two products fit 16 bits. */
V256 static inline __m256i NAMED(dot_bytes)(__m256i start, const __m256i w[4], const int8_t *a) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (int i = 0; i < 4; i++) {
        const __m256i signs = _mm256_sign_epi8(_mm256_set1_epi64x(eight(a + 8 * i)), w[i]);
        start = _mm256_add_epi32(start, _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w[i]), signs), ones));
    }
    return start;
}

#define DOT_BYTES(start, w, a) NAMED(dot_bytes)(start, w, a)

#endif

V256 static inline __attribute__((always_inline)) void NAMED(strip_q8_0_n)(const struct strip *s, int64_t group,
                                                                           const int n, float *out) {
    const int64_t blocks = n_blocks(s->n_cols), stride = blocks * Q8_BYTES;
    const __m256i flip = _mm256_set1_epi8(IS_BIASED ? (char)0x80 : 0);
    for (int quad = 0; quad < GROUP; quad += 4) {
        const uint8_t *from = s->base + (group * GROUP + quad) * stride;
        __m256 acc[STRIP];
        for (int c = 0; c < n; c++) acc[c] = _mm256_setzero_ps();
        for (int64_t block = 0; block < blocks; block++, from += Q8_BYTES) {
            __m256i row[4], w[4];
            uint16_t half[4];
            for (int i = 0; i < 4; i++) {
                memcpy(&half[i], from + i * stride, 2);
                row[i] = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(from + i * stride + 2)), flip);
                fetch(from + (4 + i) * stride, Q8_BYTES);
            }
            const __m256i even0 = _mm256_unpacklo_epi64(row[0], row[1]), odd0 = _mm256_unpackhi_epi64(row[0], row[1]);
            const __m256i even1 = _mm256_unpacklo_epi64(row[2], row[3]), odd1 = _mm256_unpackhi_epi64(row[2], row[3]);
            w[0] = _mm256_permute2x128_si256(even0, even1, 0x20);
            w[1] = _mm256_permute2x128_si256(odd0, odd1, 0x20);
            w[2] = _mm256_permute2x128_si256(even0, even1, 0x31);
            w[3] = _mm256_permute2x128_si256(odd0, odd1, 0x31);
            const __m256 d = NAMED(twice_each)(_mm_loadl_epi64((const __m128i *)half));
            for (int c = 0; c < n; c++) {
                const struct codes *a = s->codes + block * n + c;
                const __m256i sum = DOT_BYTES(_mm256_set1_epi32(IS_BIASED ? a->start : 0), w, a->q);
                acc[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(d, _mm256_set1_ps(a->scale)), acc[c]);
            }
        }
        for (int c = 0; c < n; c++) _mm_storeu_ps(out + c * GROUP + quad, NAMED(row_sums)(acc[c]));
    }
}

FOR_EACH_WIDTH(V256, NAMED(strip_q8_0))

/* One block of four rows of Q4_0 weights, unsigned nibbles of columns 0-7 and 16-23, 8-15 and 24-31; their scales. */
V256 static inline __attribute__((always_inline)) __m256 NAMED(q4_0_block)(const struct strip *s, int64_t group,
                                                                           int64_t block, int quad, const bool is_fetched,
                                                                           __m256i q[2]) {
    uint16_t half[GROUP];
    uint8_t codes[128];
    if (s->layout == LAYOUT_8X8) {
        const uint8_t *from = s->base + (group * n_blocks(s->n_cols) + block) * GROUP * BLOCK_BYTES;
        const __m256i flip = _mm256_set1_epi8((char)0x88);
        if (is_fetched && quad == 0) fetch(from + n_blocks(s->n_cols) * GROUP * BLOCK_BYTES, GROUP * BLOCK_BYTES);
        q[0] = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(from + 16 + 8 * quad)), flip);
        q[1] = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(from + 80 + 8 * quad)), flip);
        return NAMED(twice_each)(_mm_loadl_epi64((const __m128i *)(from + 2 * quad)));
    }
    gather(s->layout, s->base, group, block, s->n_cols, s->n_rows, half, codes);
    q[0] = _mm256_loadu_si256((const __m256i *)(codes + 8 * quad));
    q[1] = _mm256_loadu_si256((const __m256i *)(codes + 64 + 8 * quad));
    return NAMED(twice_each)(_mm_loadl_epi64((const __m128i *)(half + quad)));
}

V256 static inline __attribute__((always_inline)) void NAMED(strip_q4_0_n)(const struct strip *s, int64_t group,
                                                                           const int n, float *out) {
    const int64_t blocks = n_blocks(s->n_cols);
    const bool is_fetched = s->layout == LAYOUT_8X8 && fill_cache(s, n, GROUP * BLOCK_BYTES);
    const __m256i low = _mm256_set1_epi8(15);
    for (int quad = 0; quad < GROUP; quad += 4) {
        __m256 acc[STRIP];
        for (int c = 0; c < n; c++) acc[c] = _mm256_setzero_ps();
        for (int64_t block = 0; block < blocks; block++) {
            __m256i q[2], w[4];
            const __m256 d = NAMED(q4_0_block)(s, group, block, quad, is_fetched, q);
            for (int part = 0; part < 2; part++) {
                w[2 * part] = _mm256_and_si256(q[part], low);
                w[2 * part + 1] = _mm256_and_si256(_mm256_srli_epi16(q[part], 4), low);
            }
            for (int c = 0; c < n; c++) {
                const struct codes *a = s->codes + block * n + c;
                __m256i sum = _mm256_set1_epi32(a->start);
                sum = NAMED(dot_nibbles)(sum, w, a->q, a->q + 16, a->q + 8, a->q + 24);
                acc[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(d, _mm256_set1_ps(a->scale)), acc[c]);
            }
        }
        for (int c = 0; c < n; c++) _mm_storeu_ps(out + c * GROUP + quad, NAMED(row_sums)(acc[c]));
    }
}

FOR_EACH_WIDTH(V256, NAMED(strip_q4_0))

#if defined(DOT)

/* Nested weights: 16 q + r as unsigned bytes. */
V256 static inline __attribute__((always_inline)) void NAMED(strip_nested_n)(const struct strip *s, int64_t group,
                                                                             const int n, float *out) {
    const int64_t blocks = n_blocks(s->n_cols);
    const int step = residual_step(s->residual);
    const bool is_fetched = s->layout == LAYOUT_8X8 && fill_cache(s, n, GROUP * BLOCK_BYTES + step);
    const __m256i low = _mm256_set1_epi8(15), high = _mm256_set1_epi8((char)0xF0);
    for (int quad = 0; quad < GROUP; quad += 4) {
        const uint8_t *residual = residual_group(s->residual, group, s->n_cols) + 8 * quad;
        __m256 acc[STRIP];
        for (int c = 0; c < n; c++) acc[c] = _mm256_setzero_ps();
        for (int64_t block = 0; block < blocks; block++, residual += step) {
            __m256i q[2], w[4];
            if (is_fetched && quad == 0) fetch(residual + blocks * step, step);
            const __m256 d = NAMED(q4_0_block)(s, group, block, quad, is_fetched, q);
            for (int part = 0; part < 2; part++) {
                const __m256i r = _mm256_loadu_si256((const __m256i *)(residual + 64 * part));
                w[2 * part] = _mm256_or_si256(_mm256_slli_epi16(_mm256_and_si256(q[part], low), 4),
                                              _mm256_and_si256(r, low));
                w[2 * part + 1] = _mm256_or_si256(_mm256_and_si256(q[part], high),
                                                  _mm256_and_si256(_mm256_srli_epi16(r, 4), low));
            }
            for (int c = 0; c < n; c++) {
                const struct codes *a = s->codes + block * n + c;
                __m256i sum = _mm256_set1_epi32(a->start);
                sum = NAMED(dot_nibbles)(sum, w, a->q, a->q + 16, a->q + 8, a->q + 24);
                acc[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(d, _mm256_set1_ps(a->scale)), acc[c]);
            }
        }
        for (int c = 0; c < n; c++)
            _mm_storeu_ps(out + c * GROUP + quad, _mm_mul_ps(NAMED(row_sums)(acc[c]), _mm_set1_ps(1.0f / 16.0f)));
    }
}

FOR_EACH_WIDTH(V256, NAMED(strip_nested))

#endif

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
    const bool is_fetched = s->layout == LAYOUT_8X8 && fill_cache(s, n, Q4_K_BYTES);
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
            if (is_fetched && quad == 0)
                fetch(from + s->n_cols / SUPER * GROUP * Q4_K_BYTES + within * Q4_K_BYTES, Q4_K_BYTES);
            for (int i = 0; i < 4; i++) {
                const __m256i both = _mm256_loadu_si256((const __m256i *)(nibbles + 64 * i));
                w[i] = _mm256_and_si256(within % 2 ? _mm256_srli_epi16(both, 4) : both, low);
            }
            unpack_scales(from + Q4_K_SCALES + PACKED_SCALES * within, scales);
            const __m256 scale = _mm256_permutevar8x32_ps(
                _mm256_castps128_ps256(NAMED(four_scaled)(scales + quad, from + 2 * quad)), twice);
            const __m128 minimum = NAMED(four_scaled)(scales + 8 + quad, from + 16 + 2 * quad);
            for (int c = 0; c < n; c++) {
                const struct codes *a = s->codes + block * n + c;
                const __m256i sum = NAMED(dot_nibbles)(_mm256_setzero_si256(), w, a->q, a->q + 8, a->q + 16, a->q + 24);
                acc[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, _mm256_set1_ps(a->scale)), acc[c]);
                below[c] = _mm_fmadd_ps(minimum, _mm_set1_ps(a->scaled_sum), below[c]);
            }
        }
        for (int c = 0; c < n; c++)
            _mm_storeu_ps(out + c * GROUP + quad, _mm_sub_ps(NAMED(row_sums)(acc[c]), below[c]));
    }
}

FOR_EACH_WIDTH(V256, NAMED(strip_q4_k))

#undef DOT_BYTES
#undef IS_BIASED
