/* Strips of Q4_K weights: superblocks of 256, eight blocks of 32 each with a 6-bit scale and a 6-bit minimum.
 *
 * A weight is d * scale * q - dmin * minimum. The engine repacks eight rows into one run of bytes: eight d, eight dmin,
 * for each block the eight rows' packed scales and minima (12 bytes), then the nibbles, eight bytes of each row in turn.
 * Rows as a file has them are brought into that order first, superblock by superblock.
 */

enum { SUPER = 256, Q4_K_BYTES = 144, Q4_K_SCALES = 32, Q4_K_NIBBLES = 128, PACKED_SCALES = 12 };

/* Scales (bytes 0-7) and minima (8-15) out of 12 packed bytes: of one row's blocks, or of one block's rows. */
static inline void unpack_scales(const uint8_t *packed, uint8_t values[16]) {
    uint32_t a, b, c, found[4];
    memcpy(&a, packed, 4);
    memcpy(&b, packed + 4, 4);
    memcpy(&c, packed + 8, 4);
    found[0] = a & 0x3F3F3F3Fu;
    found[1] = (c & 0x0F0F0F0Fu) | (a >> 2 & 0x30303030u);
    found[2] = b & 0x3F3F3F3Fu;
    found[3] = (c >> 4 & 0x0F0F0F0Fu) | (b >> 2 & 0x30303030u);
    memcpy(values, found, 16);
}

static inline void pack_scales(const uint8_t values[16], uint8_t *packed) {
    uint32_t a, b, c, d, found[3];
    memcpy(&a, values, 4);
    memcpy(&b, values + 4, 4);
    memcpy(&c, values + 8, 4);
    memcpy(&d, values + 12, 4);
    found[0] = a | (b & 0x30303030u) << 2;
    found[1] = c | (d & 0x30303030u) << 2;
    found[2] = (b & 0x0F0F0F0Fu) | (d & 0x0F0F0F0Fu) << 4;
    memcpy(packed, found, 12);
}

/* One superblock of eight rows in the repacked order; `room` is used where the engine holds rows. */
static const uint8_t *q4_k_group(const struct strip *s, int64_t group, int64_t super, uint8_t room[GROUP * Q4_K_BYTES]) {
    const int64_t supers = s->n_cols / SUPER;
    if (s->layout == LAYOUT_8X8) return s->base + (group * supers + super) * GROUP * Q4_K_BYTES;
    uint8_t by_row[GROUP][16];
    for (int row = 0; row < GROUP; row++) {
        const uint8_t *from = s->base + ((group * GROUP + row) * supers + super) * Q4_K_BYTES;
        memcpy(room + 2 * row, from, 2);
        memcpy(room + 16 + 2 * row, from + 2, 2);
        unpack_scales(from + 4, by_row[row]);
        for (int i = 0; i < 16; i++) memcpy(room + Q4_K_NIBBLES + 64 * i + 8 * row, from + 16 + 8 * i, 8);
    }
    for (int block = 0; block < 8; block++) {
        uint8_t of_block[16];
        for (int row = 0; row < GROUP; row++) {
            of_block[row] = by_row[row][block];
            of_block[8 + row] = by_row[row][8 + block];
        }
        pack_scales(of_block, room + Q4_K_SCALES + PACKED_SCALES * block);
    }
    return room;
}

static void strip_q4_k_c(const struct strip *s, int64_t group, int n, float *out) {
    const int64_t blocks = n_blocks(s->n_cols);
    uint8_t room[GROUP * Q4_K_BYTES];
    memset(out, 0, sizeof(float) * GROUP * (size_t)n);
    for (int64_t block = 0; block < blocks; block++) {
        const uint8_t *from = q4_k_group(s, group, block / 8, room);
        const int within = (int)(block % 8), shift = 4 * (within % 2);
        uint8_t scales[16];
        unpack_scales(from + Q4_K_SCALES + PACKED_SCALES * within, scales);
        for (int row = 0; row < GROUP; row++) {
            uint16_t d, dmin;
            memcpy(&d, from + 2 * row, 2);
            memcpy(&dmin, from + 16 + 2 * row, 2);
            const float scale = from_half(d) * scales[row], minimum = from_half(dmin) * scales[8 + row];
            for (int c = 0; c < n; c++) {
                const struct codes *a = s->codes + block * n + c;
                int32_t sum = 0;
                for (int i = 0; i < BLOCK; i++) {
                    const uint8_t both = from[Q4_K_NIBBLES + 256 * (within / 2) + 64 * (i / 8) + 8 * row + i % 8];
                    sum += (both >> shift & 15) * a->q[i];
                }
                out[c * GROUP + row] += (float)sum * (scale * a->scale) - minimum * a->scaled_sum;
            }
        }
    }
}

#if defined(__x86_64__)

/* Eight rows' bytes, times the eight rows' d. */
VNNI static inline __m256 scaled(const uint8_t *bytes, __m256 d) {
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)bytes))));
}

/* Nibbles are unsigned: one VPDPBUSD for eight rows x eight columns; minima meet the sums of the activations. */
VNNI static inline __attribute__((always_inline)) void strip_q4_k_vnni_n(const struct strip *s, int64_t group,
                                                                         const int n, float *out) {
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const bool is_fetched = n > 1 && s->layout == LAYOUT_8X8 && fill_cache(s, n, Q4_K_BYTES);
    uint8_t room[GROUP * Q4_K_BYTES];
    __m512 acc[STRIP];
    __m256 below[STRIP];
    for (int c = 0; c < n; c++) {
        acc[c] = _mm512_setzero_ps();
        below[c] = _mm256_setzero_ps();
    }
    for (int64_t super = 0; super < s->n_cols / SUPER; super++) {
        const uint8_t *from = q4_k_group(s, group, super, room);
        const __m256 d = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
        const __m256 dmin = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 16)));
        for (int within = 0; within < 8; within++) {
            const uint8_t *nibbles = from + Q4_K_NIBBLES + 256 * (within / 2);
            const int64_t block = super * 8 + within;
            uint8_t scales[16];
            __m512i w[4];
            if (is_fetched) fetch(from + s->n_cols / SUPER * GROUP * Q4_K_BYTES + within * Q4_K_BYTES, Q4_K_BYTES);
            for (int i = 0; i < 4; i++) {
                const __m512i both = _mm512_loadu_si512(nibbles + 64 * i);
                w[i] = _mm512_and_si512(within % 2 ? _mm512_srli_epi16(both, 4) : both, low);
            }
            unpack_scales(from + Q4_K_SCALES + PACKED_SCALES * within, scales);
            const __m512 scale = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(scaled(scales, d)));
            const __m256 minimum = scaled(scales + 8, dmin);
            for (int c = 0; c < n; c++) {
                const struct codes *a = s->codes + block * n + c;
                const __m512i sum = dot(_mm512_setzero_si512(), w, a->q, a->q + 8, a->q + 16, a->q + 24);
                acc[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, _mm512_set1_ps(a->scale)), acc[c]);
                below[c] = _mm256_fmadd_ps(minimum, _mm256_set1_ps(a->scaled_sum), below[c]);
            }
        }
    }
    for (int c = 0; c < n; c++) _mm256_storeu_ps(out + c * GROUP, _mm256_sub_ps(pair_sums(acc[c]), below[c]));
}

FOR_EACH_WIDTH(VNNI, strip_q4_k_vnni)

#endif
