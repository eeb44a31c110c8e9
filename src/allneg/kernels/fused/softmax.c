/* The softmax of rows of scores: log-sum-exp and gradient, for the rows from `first` to `last`;
   and ranks.

   reference.py calls it. Vectors have a fixed size, which a compiler splits to fit the CPU, so no
   order of a sum depends on the CPU. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
#define CHUNK (64 * LANES) /* scores whose sum is a float; sums of chunks are added as doubles */

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int ints __attribute__((vector_size(4 * LANES)));

static floats load(const float *from)
{
    floats out;
    memcpy(&out, from, sizeof out);
    return out;
}

static floats load_some(const float *from, long count)
{
    floats out = {0};
    out -= INFINITY;
    memcpy(&out, from, sizeof(float) * count);
    return out;
}

static floats choose(ints first, floats a, floats b)
{
    return (floats)(((ints)a & first) | ((ints)b & ~first));
}

/* e to the power of x, within 2 units of the last place; 0 below -87, where floats lose digits. */
static floats exponential(floats x)
{
    const float magic = 12582912; /* adding it rounds to a whole number, in the last bits */
    floats shifted = x * 1.44269504f + magic, n = shifted - magic;
    floats r = x - n * 0.693359375f + n * 2.12194440e-4f, square = r * r; /* x - n log 2 */
    floats y = 1.9875691500e-4f * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * square + r + 1;
    y *= (floats)(((ints)shifted - 0x4B400000 + 127) << 23); /* 2 to the power of n */
    floats zero = {0};
    y = choose(x < -87.3f, zero, y);
    return choose(x > 88.3f, zero + INFINITY, y);
}

static float largest(const float *row, long count)
{
    long whole = count - count % LANES;
    floats most = load_some(row + whole, count - whole);
    for (long k = 0; k < whole; k += LANES) {
        floats x = load(row + k);
        most = choose(x > most, x, most);
    }
    float out = most[0];
    for (long i = 1; i < LANES; i++)
        out = most[i] > out ? most[i] : out;
    return out;
}

/* The score at the target, which becomes -inf, and log sum exp of the others before `count`. */
void log_sum_exp(float *scores, long step, long width, long count, const int64_t *target,
                 float *answer, float *total, long first, long last)
{
    for (long b = first; b < last; b++) {
        float *row = scores + b * step, most;
        answer[b] = -INFINITY;
        if (target[b] >= 0 && target[b] < count) {
            answer[b] = row[target[b]];
            row[target[b]] = -INFINITY;
        }
        most = largest(row, count);
        total[b] = most;
        if (isinf(most))
            continue;
        double sum = 0;
        for (long start = 0; start < count; start += CHUNK) {
            long some = start + CHUNK < count ? CHUNK : count - start, whole = some - some % LANES;
            floats part = exponential(load_some(row + start + whole, some - whole) - most);
            for (long k = start; k < start + whole; k += LANES)
                part += exponential(load(row + k) - most);
            for (long i = 0; i < LANES; i++)
                sum += part[i];
        }
        total[b] = most + (float)log(sum);
    }
}

/* exp(score - shift) in place, 0 from `count` on, and `value` at the target. */
void softmax_gradient(float *scores, long step, long width, long count, const int64_t *target,
                      const float *shift, const float *value, long first, long last)
{
    for (long b = first; b < last; b++) {
        float *row = scores + b * step;
        long whole = count - count % LANES;
        floats y = exponential(load_some(row + whole, count - whole) - shift[b]);
        memcpy(row + whole, &y, sizeof(float) * (count - whole));
        for (long k = 0; k < whole; k += LANES) {
            y = exponential(load(row + k) - shift[b]);
            memcpy(row + k, &y, sizeof y);
        }
        for (long k = count; k < width; k++)
            row[k] = 0;
        if (target[b] >= 0 && target[b] < count)
            row[target[b]] = value[b];
    }
}

/* Scores above each answer in its row, and scores equal to it, or within its tolerance if there
   are any. `first` and `last` count answers. */
void count_ranks(const float *scores, long step, long width, const int64_t *row,
                 const float *answer, const float *tolerance, int64_t *out, long first, long last)
{
    for (long a = first; a < last; a++) {
        const float *values = scores + row[a] * step;
        float slack = tolerance ? tolerance[a] : 0;
        ints above = {0}, equal = {0};
        for (long k = 0; k < width; k += LANES) {
            floats x = k + LANES <= width ? load(values + k) : load_some(values + k, width - k);
            ints higher = x > answer[a], same = x == answer[a];
            if (tolerance) {
                floats apart = x - answer[a];
                same = (apart <= slack) & (apart >= -slack);
                higher &= ~same;
            }
            if (k + LANES > width) /* an answer of -inf would equal the lanes beyond the end */
                for (long i = width - k; i < LANES; i++)
                    higher[i] = same[i] = 0;
            above -= higher;
            equal -= same;
        }
        out[2 * a] = out[2 * a + 1] = 0;
        for (long i = 0; i < LANES; i++) {
            out[2 * a] += above[i];
            out[2 * a + 1] += equal[i];
        }
    }
}
