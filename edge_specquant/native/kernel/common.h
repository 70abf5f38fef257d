/* What all products share: the engine's tensor, sizes, the activations as 8-bit codes, and what one strip is given. */

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

enum { LINE = 64, BLOCK = 32, GROUP = 8, BLOCK_BYTES = 18, TILE = 32, STRIP = 8, MAX_THREADS = 512 };
enum { NAME_BYTES = 64, N_SOURCES = 10 };
enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q4_0 = 2, TYPE_Q8_0 = 8, TYPE_Q4_K = 12, TYPE_I32 = 26 };
enum { LAYOUT_ROWS = 0, LAYOUT_8X8 = 1, LAYOUT_4X8 = 2, LAYOUT_4X4 = 3, N_LAYOUTS = 4 };
enum { LEVEL_C = 0, LEVEL_AVX2 = 1, LEVEL_VNNI = 2, LEVEL_DOTPROD = 3, LEVEL_AVX_VNNI = 4, LEVEL_EVEX_256 = 5 };

struct tensor { /* ggml_tensor (ggml.h); whoever loads this checks it */
    int32_t type;
    void *buffer;
    int64_t ne[4];
    size_t nb[4];
    int32_t op;
    int32_t op_params[16];
    int32_t flags;
    struct tensor *src[N_SOURCES];
    void *view_src;
    size_t view_offs;
    uint8_t *data;
    char name[NAME_BYTES];
    void *extra;
};

/* A block of one column: q * scale. Of 48 bytes, so that no eight codes lie in two cache lines. */
struct codes {
    int8_t q[BLOCK];
    float scale;
    int32_t sum;
    float scaled_sum; /* scale * sum */
    int32_t start;    /* what a lane of dot products with biased weights begins with */
};

/* A matrix of weights and the activations of a few columns that meet it. */
struct strip {
    int layout;
    const uint8_t *base, *residual; /* whole tensors */
    int64_t n_cols, n_rows;
    const struct codes *codes; /* block b of column c at b * n + c */
    const float *x; /* the same columns as they came, column c at x + c * x_stride */
    int64_t x_stride;
};

/* Eight rows x n columns, n at most STRIP; out: n x GROUP. The order of a sum's terms does not depend on n. */
typedef void (*strip_fn)(const struct strip *s, int64_t group, int n, float *out);

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

/* -- activations -------------------------------------------------------------------------------------------------- */

/* One column's blocks, `step` apart. A row's products lie in two lanes, so that each takes half of the weights' bias. */
static void quantize_column(const float *x, int64_t n_cols, int bias, struct codes *to, int64_t step) {
    for (int64_t block = 0; block < n_blocks(n_cols); block++, x += BLOCK, to += step) {
        float largest = 0.0f;
        int32_t sum = 0;
        for (int i = 0; i < BLOCK; i++) largest = fmaxf(largest, fabsf(x[i]));
        float scale = largest / 127.0f, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        for (int i = 0; i < BLOCK; i++) {
            int32_t code = (int32_t)rintf(x[i] * inverse);
            to->q[i] = (int8_t)code;
            sum += code;
        }
        to->scale = scale;
        to->sum = sum;
        to->scaled_sum = scale * (float)sum;
        to->start = -bias / 2 * sum;
    }
}

#if defined(__x86_64__)

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma")))
#define AVX2 __attribute__((target("avx2,fma,f16c")))

/* NAME for n of 1 to 8 columns, from NAME_n: where n is known, the compiler keeps all sums in registers. */
#define FOR_EACH_WIDTH(TARGET, NAME) FOR_EACH_WIDTH_OF(TARGET, NAME)
#define FOR_EACH_WIDTH_OF(TARGET, NAME)                                                    \
    TARGET static void NAME(const struct strip *s, int64_t group, int n, float *out) {     \
        switch (n) {                                                                       \
        case 1: NAME##_n(s, group, 1, out); break;                                         \
        case 2: NAME##_n(s, group, 2, out); break;                                         \
        case 3: NAME##_n(s, group, 3, out); break;                                         \
        case 4: NAME##_n(s, group, 4, out); break;                                         \
        case 5: NAME##_n(s, group, 5, out); break;                                         \
        case 6: NAME##_n(s, group, 6, out); break;                                         \
        case 7: NAME##_n(s, group, 7, out); break;                                         \
        default: NAME##_n(s, group, 8, out); break;                                        \
        }                                                                                  \
    }

/* The next rows are fetched while these compute: rows side by side are streams too short for the processor to foresee. */
static inline __attribute__((always_inline)) void fetch(const uint8_t *from, const int n_bytes) {
    for (int at = 0; at < n_bytes; at += LINE) _mm_prefetch((const char *)from + at, _MM_HINT_T1);
}

/* Whether eight rows, of so many bytes a block, and n columns fill half of a first cache of 32 KB. Then both keep falling
 * out of it and even rows read in order are late unless they are fetched; a smaller strip only pays for the asking. */
static inline bool fill_cache(const struct strip *s, int n, int n_bytes) {
    return n_blocks(s->n_cols) * (n_bytes + n * (int64_t)sizeof(struct codes)) > 14 * 1024;
}

static inline int64_t eight(const int8_t *a) {
    int64_t value;
    memcpy(&value, a, sizeof value);
    return value;
}

/* start + the products of eight rows' 32 unsigned bytes with one column's. */
VNNI static inline __attribute__((always_inline)) __m512i dot(__m512i start, const __m512i w[4], const int8_t *a0,
                                                              const int8_t *a1, const int8_t *a2, const int8_t *a3) {
    start = _mm512_dpbusd_epi32(start, w[0], _mm512_set1_epi64(eight(a0)));
    start = _mm512_dpbusd_epi32(start, w[1], _mm512_set1_epi64(eight(a1)));
    start = _mm512_dpbusd_epi32(start, w[2], _mm512_set1_epi64(eight(a2)));
    return _mm512_dpbusd_epi32(start, w[3], _mm512_set1_epi64(eight(a3)));
}

/* Sums of neighbouring lanes: 16 -> 8. */
VNNI static inline __m256 pair_sums(__m512 value) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castps512_ps256(
        _mm512_add_ps(_mm512_permutexvar_ps(even, value), _mm512_permutexvar_ps(odd, value)));
}

#endif
