/* Matrix products with bit-nested weights, inside the engine's own graph and threads.
 *
 * A weight block is 32 values of one row: a Q4_0 block (scale d, codes q of 0..15) and 16 bytes of residual codes r of
 * 0..15; its value is d / 16 * (16 q + r - 136). The engine's eval callback, asked about a node before it is computed,
 * turns the node's base product into a custom operation of the engine that reads both planes in one pass; nothing is
 * computed twice and no thread waits for Python.
 *
 * Knows nothing of files. `struct tensor` mirrors ggml_tensor (ggml.h) as far as `name`; whoever loads this checks it.
 */

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

#define EXPORT __attribute__((visibility("default")))

enum { BLOCK = 32, GROUP = 8, BLOCK_BYTES = 18, TILE = 32, STRIP = 8, MAX_THREADS = 512, NAME_BYTES = 64 };
enum { TYPE_F32 = 0, TYPE_Q4_0 = 2, TYPE_I32 = 26 };
enum { LAYOUT_ROWS = 0, LAYOUT_8X8 = 1, LAYOUT_4X8 = 2, LAYOUT_4X4 = 3, N_LAYOUTS = 4 };
enum { LEVEL_C = 0, LEVEL_AVX2 = 1, LEVEL_VNNI = 2, LEVEL_DOTPROD = 3 };

struct tensor {
    int32_t type;
    void *buffer;
    int64_t ne[4];
    size_t nb[4];
    int32_t op;
    int32_t op_params[16];
    int32_t flags;
    struct tensor *src[10];
    void *view_src;
    size_t view_offs;
    uint8_t *data;
    char name[NAME_BYTES];
};

/* Residual codes lie in groups of eight rows: a group holds for each block 2 halves x 8 rows x 8 bytes, and a byte the
 * codes of column j (low nibble) and j + 16. That is the order of the engine's repacked Q4_0 weights. */
struct weight {
    char name[NAME_BYTES];
    int64_t n_cols, n_rows;
    const uint8_t *residual; /* NULL: the base alone */
    uint8_t sample[GROUP * BLOCK_BYTES]; /* the first Q4_0 block of the first eight rows, as the file has it */
    int64_t n_seen;
};

struct bound {
    const struct tensor *tensor;
    const struct weight *weight;
    int layout;
};

/* Activations of up to TILE columns as 8-bit codes with a scale and a sum for each block. */
struct scratch {
    int8_t *codes;
    float *scales;
    int32_t *sums;
};

struct nested {
    struct weight *weights;
    struct bound *table;
    struct scratch scratch[MAX_THREADS];
    int64_t n_weights, n_slots, max_cols;
    int32_t op_mul_mat, op_get_rows;
    int32_t custom_op, mul_mat_params[16], get_rows_params[16];
    int level;
    int64_t n_refused; /* products of nested weights that this kernel does not know how to do */
    int64_t n_failed;  /* out of memory while computing */
};

/* -- small helpers ------------------------------------------------------------------------------------------------ */

static float from_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = (half >> 10) & 31, mantissa = half & 1023, bits;
    float value;
    if (exponent == 0) {
        value = (float)mantissa * 0x1p-24f;
        return sign ? -value : value;
    }
    bits = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | mantissa << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline int64_t n_blocks(int64_t n_cols) { return n_cols / BLOCK; }

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

/* -- activations -------------------------------------------------------------------------------------------------- */

static void quantize_column(const float *x, int64_t n_cols, int8_t *codes, float *scales, int32_t *sums) {
    for (int64_t block = 0; block < n_blocks(n_cols); block++, x += BLOCK, codes += BLOCK) {
        float largest = 0.0f;
        int32_t sum = 0;
        for (int i = 0; i < BLOCK; i++) largest = fmaxf(largest, fabsf(x[i]));
        float scale = largest / 127.0f, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        for (int i = 0; i < BLOCK; i++) {
            int32_t code = (int32_t)rintf(x[i] * inverse);
            codes[i] = (int8_t)code;
            sum += code;
        }
        scales[block] = scale / 16.0f;
        sums[block] = sum;
    }
}

/* -- eight rows x up to eight columns, plain C --------------------------------------------------------------------- */

struct strip {
    int layout;
    const uint8_t *base, *residual; /* whole tensors */
    int64_t n_cols, n_rows;
    const int8_t *codes; /* column c at codes + c * n_cols */
    const float *scales;
    const int32_t *sums;
};

typedef void (*strip_fn)(const struct strip *s, int64_t group, int n, float *out); /* out: n x GROUP */

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
            const int8_t *a = s->codes + c * s->n_cols + block * BLOCK;
            float scale = s->scales[c * n_blocks(s->n_cols) + block];
            int32_t shift = 8 * s->sums[c * n_blocks(s->n_cols) + block];
            for (int row = 0; row < GROUP; row++) {
                int32_t sum = -shift;
                for (int j = 0; j < 8; j++)
                    sum += w[0][row][j] * a[j] + w[1][row][j] * a[16 + j] + w[2][row][j] * a[8 + j] +
                           w[3][row][j] * a[24 + j];
                out[c * GROUP + row] += (float)sum * (from_half(half[row]) * scale);
            }
        }
    }
}

#if defined(__x86_64__)

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma")))
#define AVX2 __attribute__((target("avx2,fma,f16c")))

static inline int64_t eight(const int8_t *a) {
    int64_t value;
    memcpy(&value, a, sizeof value);
    return value;
}

/* 16 q + r as unsigned bytes against signed activations: one VPDPBUSD for eight rows x eight columns. */
VNNI static inline __attribute__((always_inline)) void strip_vnni_n(const struct strip *s, int64_t group, const int n,
                                                                    float *out) {
    const int64_t blocks = n_blocks(s->n_cols);
    const uint8_t *residual = residual_group(s->residual, group, s->n_cols);
    const int step = residual_step(s->residual);
    const uint8_t *from = s->base + group * blocks * GROUP * BLOCK_BYTES;
    const __m512i low = _mm512_set1_epi8(15), high = _mm512_set1_epi8((char)0xF0), flip = _mm512_set1_epi8((char)0x88);
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    __m512 acc[STRIP];
    for (int c = 0; c < n; c++) acc[c] = _mm512_setzero_ps();
    for (int64_t block = 0; block < blocks; block++, residual += step, from += GROUP * BLOCK_BYTES) {
        __m512i q0, q1;
        __m128i half;
        if (s->layout == LAYOUT_8X8) {
            half = _mm_loadu_si128((const __m128i *)from);
            q0 = _mm512_xor_si512(_mm512_loadu_si512(from + 16), flip);
            q1 = _mm512_xor_si512(_mm512_loadu_si512(from + 80), flip);
        } else {
            uint16_t d[GROUP];
            uint8_t q[128];
            gather(s->layout, s->base, group, block, s->n_cols, s->n_rows, d, q);
            half = _mm_loadu_si128((const __m128i *)d);
            q0 = _mm512_loadu_si512(q);
            q1 = _mm512_loadu_si512(q + 64);
        }
        const __m512i r0 = _mm512_loadu_si512(residual), r1 = _mm512_loadu_si512(residual + 64);
        const __m512 d = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_cvtph_ps(half)));
        const __m512i w0 = _mm512_or_si512(_mm512_slli_epi16(_mm512_and_si512(q0, low), 4), _mm512_and_si512(r0, low));
        const __m512i w2 = _mm512_or_si512(_mm512_slli_epi16(_mm512_and_si512(q1, low), 4), _mm512_and_si512(r1, low));
        const __m512i w1 =
            _mm512_or_si512(_mm512_and_si512(q0, high), _mm512_and_si512(_mm512_srli_epi16(r0, 4), low));
        const __m512i w3 =
            _mm512_or_si512(_mm512_and_si512(q1, high), _mm512_and_si512(_mm512_srli_epi16(r1, 4), low));
        for (int c = 0; c < n; c++) {
            const int8_t *a = s->codes + c * s->n_cols + block * BLOCK;
            /* each row's sum lies in two lanes, so each takes half of 136 */
            __m512i sum = _mm512_set1_epi32(-68 * s->sums[c * blocks + block]);
            sum = _mm512_dpbusd_epi32(sum, w0, _mm512_set1_epi64(eight(a)));
            sum = _mm512_dpbusd_epi32(sum, w1, _mm512_set1_epi64(eight(a + 16)));
            sum = _mm512_dpbusd_epi32(sum, w2, _mm512_set1_epi64(eight(a + 8)));
            sum = _mm512_dpbusd_epi32(sum, w3, _mm512_set1_epi64(eight(a + 24)));
            acc[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum),
                                     _mm512_mul_ps(d, _mm512_set1_ps(s->scales[c * blocks + block])), acc[c]);
        }
    }
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 0, 0, 0, 0, 0, 0, 0, 0);
    for (int c = 0; c < n; c++)
        _mm256_storeu_ps(out + c * GROUP,
                         _mm512_castps512_ps256(_mm512_add_ps(_mm512_permutexvar_ps(even, acc[c]),
                                                              _mm512_permutexvar_ps(odd, acc[c]))));
}

VNNI static void strip_vnni(const struct strip *s, int64_t group, int n, float *out) {
    switch (n) {
    case 1: strip_vnni_n(s, group, 1, out); break;
    case 2: strip_vnni_n(s, group, 2, out); break;
    case 3: strip_vnni_n(s, group, 3, out); break;
    case 4: strip_vnni_n(s, group, 4, out); break;
    case 5: strip_vnni_n(s, group, 5, out); break;
    case 6: strip_vnni_n(s, group, 6, out); break;
    case 7: strip_vnni_n(s, group, 7, out); break;
    default: strip_vnni_n(s, group, 8, out); break;
    }
}

/* Four rows x eight columns a register. Both planes are multiplied apart: 16-bit sums of 8 products of a nibble and a
 * code cannot overflow (8 x 15 x 127), those of a whole byte could. */
AVX2 static inline __attribute__((always_inline)) void strip_avx2_n(const struct strip *s, int64_t group, const int n,
                                                                    float *out) {
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
                const int8_t *a = s->codes + c * s->n_cols + block * BLOCK;
                __m256i base = _mm256_setzero_si256(), fine = _mm256_setzero_si256();
                for (int part = 0; part < 4; part++) {
                    const __m256i x = _mm256_set1_epi64x(eight(a + 16 * (part % 2) + 8 * (part / 2)));
                    base = _mm256_add_epi16(base, _mm256_maddubs_epi16(q[part], x));
                    fine = _mm256_add_epi16(fine, _mm256_maddubs_epi16(r[part], x));
                }
                __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(base, sixteen), _mm256_madd_epi16(fine, ones));
                sum = _mm256_add_epi32(sum, _mm256_set1_epi32(-68 * s->sums[c * blocks + block]));
                acc[c][quad] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum),
                                               _mm256_mul_ps(d[quad], _mm256_set1_ps(s->scales[c * blocks + block])),
                                               acc[c][quad]);
            }
        }
    }
    for (int c = 0; c < n; c++) {
        /* hadd gives rows 0 1 4 5 | 2 3 6 7 */
        const __m256 pairs = _mm256_hadd_ps(acc[c][0], acc[c][1]);
        const __m256i order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
        _mm256_storeu_ps(out + c * GROUP, _mm256_permutevar8x32_ps(pairs, order));
    }
}

AVX2 static void strip_avx2(const struct strip *s, int64_t group, int n, float *out) {
    int done = 0;
    struct strip rest = *s;
    while (done < n) { /* four columns fill the sixteen registers */
        int now = n - done < 4 ? n - done : 4;
        switch (now) {
        case 1: strip_avx2_n(&rest, group, 1, out + done * GROUP); break;
        case 2: strip_avx2_n(&rest, group, 2, out + done * GROUP); break;
        case 3: strip_avx2_n(&rest, group, 3, out + done * GROUP); break;
        default: strip_avx2_n(&rest, group, 4, out + done * GROUP); break;
        }
        rest.codes += now * s->n_cols;
        rest.scales += now * n_blocks(s->n_cols);
        rest.sums += now * n_blocks(s->n_cols);
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
            const int8_t *a = s->codes + c * s->n_cols + block * BLOCK;
            int32x4_t sum[4];
            for (int pair = 0; pair < 4; pair++) sum[pair] = vdupq_n_s32(-4 * s->sums[c * blocks + block]);
            for (int part = 0; part < 4; part++) {
                const int8x8_t x = vld1_s8(a + 16 * (part % 2) + 8 * (part / 2));
                const int8x16_t both = vcombine_s8(x, x);
                for (int pair = 0; pair < 4; pair++) sum[pair] = vdotq_s32(sum[pair], w[part][pair], both);
            }
            const float scale = s->scales[c * blocks + block];
            for (int quad = 0; quad < 2; quad++) {
                const float32x4_t rows = vcvtq_f32_s32(vpaddq_s32(sum[2 * quad], sum[2 * quad + 1]));
                acc[c][quad] = vfmaq_f32(acc[c][quad], rows, vmulq_n_f32(vld1q_f32(d + 4 * quad), scale));
            }
        }
    }
    for (int c = 0; c < n; c++) {
        vst1q_f32(out + c * GROUP, acc[c][0]);
        vst1q_f32(out + c * GROUP + 4, acc[c][1]);
    }
}

#endif

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

static strip_fn strip_of(int level) {
#if defined(__x86_64__)
    if (level == LEVEL_VNNI) return strip_vnni;
    if (level == LEVEL_AVX2) return strip_avx2;
#elif defined(__ARM_FEATURE_DOTPROD)
    if (level == LEVEL_DOTPROD) return strip_dotprod;
#endif
    (void)level;
    return strip_c;
}

/* -- one product -------------------------------------------------------------------------------------------------- */

static bool make_scratch(struct scratch *scratch, int64_t max_cols) {
    if (scratch->codes) return true;
    int64_t blocks = n_blocks(max_cols);
    scratch->scales = malloc(sizeof(float) * (size_t)(TILE * blocks));
    scratch->sums = malloc(sizeof(int32_t) * (size_t)(TILE * blocks));
    scratch->codes = malloc((size_t)(TILE * max_cols));
    return scratch->codes && scratch->scales && scratch->sums;
}

static void free_scratch(struct scratch *scratch) {
    free(scratch->codes);
    free(scratch->scales);
    free(scratch->sums);
    memset(scratch, 0, sizeof *scratch);
}

/* Columns [first, last) of x times the row groups [from, to), tile by tile: a tile's activations stay in the cache, and
 * a group's weights too while the strips of the tile pass over them. */
static void multiply(strip_fn strip, struct strip s, const float *x, size_t x_stride, float *y, size_t y_stride,
                     int64_t first, int64_t last, int64_t from, int64_t to, struct scratch *scratch) {
    int64_t blocks = n_blocks(s.n_cols);
    for (int64_t tile = first; tile < last; tile += TILE) {
        int64_t width = last - tile < TILE ? last - tile : TILE;
        for (int64_t c = 0; c < width; c++)
            quantize_column(x + (tile + c) * (int64_t)x_stride, s.n_cols, scratch->codes + c * s.n_cols,
                            scratch->scales + c * blocks, scratch->sums + c * blocks);
        for (int64_t group = from; group < to; group++) {
            int64_t rows = s.n_rows - group * GROUP < GROUP ? s.n_rows - group * GROUP : GROUP;
            for (int64_t c = 0; c < width; c += STRIP) {
                int n = width - c < STRIP ? (int)(width - c) : STRIP;
                float out[STRIP * GROUP];
                s.codes = scratch->codes + c * s.n_cols;
                s.scales = scratch->scales + c * blocks;
                s.sums = scratch->sums + c * blocks;
                strip(&s, group, n, out);
                for (int i = 0; i < n; i++)
                    memcpy(y + (tile + c + i) * (int64_t)y_stride + group * GROUP, out + i * GROUP,
                           sizeof(float) * (size_t)rows);
            }
        }
    }
}

/* For tests: y (n x n_rows) = x (n x n_cols) times nested weights. Returns false for want of memory. */
EXPORT bool esq_multiply(int level, int layout, const uint8_t *base, const uint8_t *residual, int64_t n_cols,
                         int64_t n_rows, const float *x, int64_t n, float *y) {
    struct scratch scratch = {0};
    struct strip s = {layout, base, residual, n_cols, n_rows, NULL, NULL, NULL};
    bool ready = make_scratch(&scratch, n_cols);
    if (ready)
        multiply(strip_of(level), s, x, (size_t)n_cols, y, (size_t)n_rows, 0, n, 0, (n_rows + GROUP - 1) / GROUP,
                 &scratch);
    free_scratch(&scratch);
    return ready;
}

/* -- inside the engine's graph ------------------------------------------------------------------------------------- */

static struct bound *slot_of(struct nested *nested, const struct tensor *tensor) {
    uint64_t hash = (uint64_t)(uintptr_t)tensor * 0x9E3779B97F4A7C15u;
    int64_t at = (int64_t)(hash >> 32) & (nested->n_slots - 1);
    while (nested->table[at].tensor && nested->table[at].tensor != tensor) at = (at + 1) & (nested->n_slots - 1);
    return &nested->table[at];
}

static int by_name(const void *name, const void *weight) {
    return strncmp(name, ((const struct weight *)weight)->name, NAME_BYTES);
}

static struct bound *bind(struct nested *nested, const struct tensor *tensor) {
    struct bound *slot = slot_of(nested, tensor);
    if (slot->tensor) return slot;
    struct weight *weight =
        bsearch(tensor->name, nested->weights, (size_t)nested->n_weights, sizeof(struct weight), by_name);
    if (!weight) return NULL;
    if (weight->n_cols != tensor->ne[0] || weight->n_rows != tensor->ne[1] || weight->n_seen >= 2) {
        nested->n_refused++; /* the table has room for two tensors of a name: a tied embedding and the head made of it */
        return NULL;
    }
    *slot = (struct bound){tensor, weight, find_layout(weight, tensor->data)};
    weight->n_seen++;
    return slot;
}

static void run_mul_mat(struct tensor *dst, int ith, int nth, void *user) {
    struct nested *nested = user;
    const struct bound *bound = slot_of(nested, dst->src[0]);
    const struct tensor *input = dst->src[1];
    struct scratch *scratch = &nested->scratch[ith];
    int64_t n = input->ne[1], groups = (bound->weight->n_rows + GROUP - 1) / GROUP;
    if (!make_scratch(scratch, nested->max_cols)) {
        nested->n_failed++;
        return;
    }
    struct strip s = {bound->layout, dst->src[0]->data, bound->weight->residual, bound->weight->n_cols,
                      bound->weight->n_rows, NULL, NULL, NULL};
    int64_t first = 0, last = n, from = 0, to = groups;
    if (n >= (int64_t)TILE * nth) { /* wide: each thread its own columns, so that none is quantized twice */
        first = n * ith / nth;
        last = n * (ith + 1) / nth;
    } else {
        from = groups * ith / nth;
        to = groups * (ith + 1) / nth;
    }
    multiply(strip_of(nested->level), s, (const float *)input->data, input->nb[1] / sizeof(float), (float *)dst->data,
             dst->nb[1] / sizeof(float), first, last, from, to, scratch);
}

static void run_get_rows(struct tensor *dst, int ith, int nth, void *user) {
    struct nested *nested = user;
    const struct bound *bound = slot_of(nested, dst->src[0]);
    const struct weight *weight = bound->weight;
    const int32_t *rows = (const int32_t *)dst->src[1]->data;
    for (int64_t i = ith; i < dst->src[1]->ne[0]; i += nth) {
        int64_t group = rows[i] / GROUP, row = rows[i] % GROUP;
        const uint8_t *residual = residual_group(weight->residual, group, weight->n_cols);
        const int step = residual_step(weight->residual);
        float *out = (float *)(dst->data + (size_t)i * dst->nb[1]);
        for (int64_t block = 0; block < n_blocks(weight->n_cols); block++, residual += step, out += BLOCK) {
            uint16_t half[GROUP];
            uint8_t codes[128];
            gather(bound->layout, dst->src[0]->data, group, block, weight->n_cols, weight->n_rows, half, codes);
            float d = from_half(half[row]) / 16.0f;
            for (int j = 0; j < 16; j++) {
                int at = 64 * (j / 8) + 8 * (int)row + j % 8;
                out[j] = d * (float)(16 * (codes[at] & 15) + (residual[at] & 15) - 136);
                out[j + 16] = d * (float)(16 * (codes[at] >> 4) + (residual[at] >> 4) - 136);
            }
        }
    }
}

static bool is_plain(const struct tensor *node) {
    const struct tensor *weight = node->src[0], *input = node->src[1];
    return weight->type == TYPE_Q4_0 && weight->ne[2] == 1 && weight->ne[3] == 1 && input->ne[2] == 1 &&
           input->ne[3] == 1 && node->type == TYPE_F32 && node->nb[0] == sizeof(float) &&
           input->nb[0] == sizeof(float) && input->nb[1] % sizeof(float) == 0 && node->nb[1] % sizeof(float) == 0;
}

/* ggml_backend_sched_eval_callback: rewrites nodes while being asked, wants none of their data. */
EXPORT bool esq_callback(struct tensor *node, bool ask, void *user) {
    struct nested *nested = user;
    if (!ask || (node->op != nested->op_mul_mat && node->op != nested->op_get_rows)) return !ask;
    struct bound *bound = bind(nested, node->src[0]);
    if (!bound) return false;
    bool product = node->op == nested->op_mul_mat;
    bool known = bound->layout >= 0 && is_plain(node) && node->src[1]->type == (product ? TYPE_F32 : TYPE_I32);
    if (!known) {
        nested->n_refused++;
        return false;
    }
    memcpy(node->op_params, product ? nested->mul_mat_params : nested->get_rows_params, sizeof node->op_params);
    node->op = nested->custom_op;
    return false;
}

/* -- life ----------------------------------------------------------------------------------------------------------- */

EXPORT void *esq_mul_mat_address(void) { return (void *)run_mul_mat; }
EXPORT void *esq_get_rows_address(void) { return (void *)run_get_rows; }

/* Weights are named in ascending order of their names, so that they are found by bisection. NULL for want of memory. */
EXPORT struct nested *esq_new(int64_t n_weights, int level, int32_t op_mul_mat, int32_t op_get_rows) {
    struct nested *nested = calloc(1, sizeof *nested);
    if (!nested) return NULL;
    nested->n_slots = 16;
    while (nested->n_slots < 4 * n_weights) nested->n_slots *= 2;
    nested->weights = calloc((size_t)n_weights + 1, sizeof(struct weight));
    nested->table = calloc((size_t)nested->n_slots, sizeof(struct bound));
    nested->n_weights = n_weights;
    nested->level = level;
    nested->op_mul_mat = op_mul_mat;
    nested->op_get_rows = op_get_rows;
    if (nested->weights && nested->table) return nested;
    free(nested->weights);
    free(nested->table);
    free(nested);
    return NULL;
}

EXPORT void esq_set_weight(struct nested *nested, int64_t index, const char *name, int64_t n_cols, int64_t n_rows,
                           const uint8_t *residual, const uint8_t *sample) {
    struct weight *weight = &nested->weights[index];
    strncpy(weight->name, name, NAME_BYTES - 1);
    weight->n_cols = n_cols;
    weight->n_rows = n_rows;
    weight->residual = residual;
    memcpy(weight->sample, sample, (size_t)(n_rows < GROUP ? n_rows : GROUP) * BLOCK_BYTES);
    if (n_cols > nested->max_cols) nested->max_cols = n_cols;
}

/* What a custom node of the engine holds (ggml_custom_4d), for products and for embeddings. */
EXPORT void esq_set_template(struct nested *nested, int32_t op, const int32_t *mul_mat_params,
                             const int32_t *get_rows_params) {
    nested->custom_op = op;
    memcpy(nested->mul_mat_params, mul_mat_params, sizeof nested->mul_mat_params);
    memcpy(nested->get_rows_params, get_rows_params, sizeof nested->get_rows_params);
}

EXPORT int64_t esq_n_refused(const struct nested *nested) { return nested->n_refused; }
EXPORT int64_t esq_n_failed(const struct nested *nested) { return nested->n_failed; }

EXPORT int64_t esq_n_unseen(const struct nested *nested) {
    int64_t n = 0;
    for (int64_t i = 0; i < nested->n_weights; i++) n += nested->weights[i].n_seen == 0;
    return n;
}

EXPORT void esq_free(struct nested *nested) {
    if (!nested) return;
    for (int i = 0; i < MAX_THREADS; i++) free_scratch(&nested->scratch[i]);
    free(nested->weights);
    free(nested->table);
    free(nested);
}
