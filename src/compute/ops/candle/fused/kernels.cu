// What a row block needs between q·k and pattern·v, for CUDA devices. Compiled by NVRTC when it is first used.
//
// The arithmetic is that of `rows.rs` and `maps.rs`, which do it one tensor operation at a time and are its judge: same figures,
// same order of subtraction, f32 with sums of 32 lanes. Nothing here keeps a value per score but the pattern itself.

struct Rows {
    const float *products;         // q·k // [head, row, key]
    float *pattern;                // [head, row, key]
    float *scores;                 // −inf where masked; null if nobody asked // [head, row, key]
    float *figures;                // [head · row, figure]
    const float *row_scales;       // [head · row]
    const float *inverse_k_norms;  // [head, key]
    const unsigned *visible;       // start, end, hole start, hole end, number of keys // [row, 5]
    const unsigned *chosen;        // first, own and previous key // [row, 3]
    const unsigned char *real;     // null if every key is a token // [key]
    const float *bias;             // by `bias_kind`
    const float *positions;        // for slopes // [max(query, key)]
    const float *sinks;            // null if there are none // [head]
    const float *columns;          // log Σ exp over queries; null for a softmax over keys // [head, key]
    const float *value_norms;      // null if not known // [head, key]
    const float *tokens;           // of each key; null if no token is repeated // [key]
    const float *tokens_before;    // of the key before each key // [key]
    unsigned n_all_rows;           // head · row
    unsigned n_rows;               // of a head
    unsigned n_keys;
    unsigned first_query;
    unsigned n_queries;            // of the whole run
    unsigned bias_kind;            // 0 none, 1 slopes, 2 of keys, 3 of distances, 4 of pairs
    unsigned n_distances;
    float softcap;                 // 0 for none
    float share;                   // what a key gets in a row that sees none
    unsigned caps_bias;            // 1 if the softcap bounds the sum of score and bias
};

#define LOWEST (-3.4028234663852886e38f)
#define SMALLEST 1.17549435e-38f
#define INFINITE __int_as_float(0x7f800000)
#define ALL 0xffffffffu

__device__ float sum(float value) {
    for (int by = 16; by > 0; by >>= 1) value += __shfl_xor_sync(ALL, value, by);
    return value;
}

__device__ float largest(float value) {
    for (int by = 16; by > 0; by >>= 1) value = fmaxf(value, __shfl_xor_sync(ALL, value, by));
    return value;
}

__device__ float smallest(float value) {
    for (int by = 16; by > 0; by >>= 1) value = fminf(value, __shfl_xor_sync(ALL, value, by));
    return value;
}

// The two largest values and the first place of the largest.
struct Top {
    float first, second;
    unsigned at;
};

__device__ Top top_of_warp(Top top) {
    for (int by = 16; by > 0; by >>= 1) {
        float first = __shfl_xor_sync(ALL, top.first, by);
        float second = __shfl_xor_sync(ALL, top.second, by);
        unsigned at = __shfl_xor_sync(ALL, top.at, by);
        bool theirs = first > top.first || (first == top.first && at < top.at);
        float loser = theirs ? top.first : first;
        top.second = fmaxf(fmaxf(top.second, second), loser);
        if (theirs) {
            top.first = first;
            top.at = at;
        }
    }
    return top;
}

// What all keys of a row share.
struct Row {
    unsigned head, query, start, end, hole_start, hole_end;
    float scale;
};

__device__ bool sees(const Rows &p, const Row &row, unsigned key) {
    bool in_range = key >= row.start && key < row.end;
    bool in_hole = key >= row.hole_start && key < row.hole_end;
    return in_range && !in_hole && (!p.real || p.real[key]);
}

// The score of a key from scale·q·k.
__device__ float score(const Rows &p, const Row &row, unsigned key, float scaled) {
    float bias = 0.0f;
    switch (p.bias_kind) {
    case 1: bias = p.bias[row.head] * (p.positions[key] - p.positions[row.query]); break;
    case 2: bias = p.bias[(size_t)row.head * p.n_keys + key]; break;
    case 3: bias = p.bias[(size_t)row.head * p.n_distances + (p.n_queries - 1 - row.query + key)]; break;
    case 4: bias = p.bias[((size_t)row.head * p.n_queries + row.query) * p.n_keys + key]; break;
    }
    if (p.caps_bias) scaled += bias;
    float value = p.softcap > 0.0f ? tanhf(scaled * (1.0f / p.softcap)) * p.softcap : scaled;
    return p.caps_bias || p.bias_kind == 0 ? value : value + bias;
}

// One warp takes one row.
extern "C" __global__ void rows(Rows p) {
    unsigned nth = blockIdx.x * blockDim.y + threadIdx.y;
    if (nth >= p.n_all_rows) return;
    unsigned lane = threadIdx.x, row_idx = nth % p.n_rows;
    const unsigned *visible = p.visible + 5 * row_idx;
    Row row = {nth / p.n_rows, p.first_query + row_idx, visible[0], visible[1], visible[2], visible[3], p.row_scales[nth]};
    unsigned n_visible = visible[4];
    float n = (float)max(n_visible, 1u);
    bool is_raw = p.softcap <= 0.0f && p.bias_kind == 0;
    const float *products = p.products + (size_t)nth * p.n_keys;
    float *pattern = p.pattern + (size_t)nth * p.n_keys;
    const float *inverse_k_norms = p.inverse_k_norms + (size_t)row.head * p.n_keys;

    // Extremes first, so that moments and the softmax are relative to the largest value. Scores wait where the pattern will be.
    float score_max = -INFINITE, score_min = INFINITE, raw_max = -INFINITE, raw_min = INFINITE, cosine_sum = 0.0f;
    for (unsigned key = lane; key < p.n_keys; key += 32) {
        float product = products[key], scaled = product * row.scale, masked = -INFINITE;
        if (sees(p, row, key)) {
            masked = score(p, row, key, scaled);
            cosine_sum += product * inverse_k_norms[key];
            score_max = fmaxf(score_max, masked);
            score_min = fminf(score_min, masked);
            raw_max = fmaxf(raw_max, scaled);
            raw_min = fminf(raw_min, scaled);
        }
        pattern[key] = masked;
        if (p.scores) p.scores[(size_t)nth * p.n_keys + key] = masked;
    }
    score_max = fmaxf(largest(score_max), LOWEST);
    score_min = smallest(score_min);
    raw_max = is_raw ? score_max : fmaxf(largest(raw_max), LOWEST);
    raw_min = is_raw ? score_min : smallest(raw_min);
    cosine_sum = sum(cosine_sum);
    float sink = p.sinks ? p.sinks[row.head] : LOWEST;
    float origin = p.sinks ? fmaxf(score_max, sink) : score_max;

    float denominator = 0.0f, score_mean = 0.0f, raw_mean = 0.0f, weighted = 0.0f;
    for (unsigned key = lane; key < p.n_keys; key += 32) {
        if (!sees(p, row, key)) continue;
        float masked = pattern[key], shifted = masked - score_max, weight = expf(masked - origin);
        denominator += weight;
        score_mean += shifted;
        weighted += weight * shifted;
        if (!is_raw) raw_mean += products[key] * row.scale - raw_max;
    }
    denominator = sum(denominator);
    if (p.sinks) denominator += expf(sink - origin);
    score_mean = sum(score_mean) / n;
    raw_mean = is_raw ? score_mean : sum(raw_mean) / n;
    // A row without visible keys is not divided by 0.
    float divisor = denominator + (n_visible == 0 ? 1.0f : 0.0f);
    float log_p_sum = p.columns ? 0.0f : sum(weighted) / divisor;

    const unsigned *chosen = p.chosen + 3 * row_idx;
    float token = p.tokens ? p.tokens[row.query] : 0.0f;
    float fill = n_visible == 0 ? p.share : 0.0f;
    float score_var = 0.0f, raw_var = 0.0f, mass = 0.0f, squares = 0.0f, cubes = 0.0f, distance = 0.0f, later = 0.0f;
    float first = 0.0f, own = 0.0f, previous = 0.0f, duplicate = 0.0f, induction = 0.0f, carried = 0.0f, carried_logs = 0.0f;
    Top top = {-1.0f, 0.0f, 0};
    for (unsigned key = lane; key < p.n_keys; key += 32) {
        float masked = pattern[key], probability;
        bool seen = sees(p, row, key);
        if (p.columns) {
            float log_p = masked - fmaxf(p.columns[(size_t)row.head * p.n_keys + key], LOWEST);
            probability = expf(log_p);
            if (seen) log_p_sum += probability * log_p;
        } else {
            probability = expf(masked - origin) / divisor;
        }
        if (seen) {
            float centred = masked - score_max - score_mean;
            score_var += centred * centred;
            if (!is_raw) {
                centred = products[key] * row.scale - raw_max - raw_mean;
                raw_var += centred * centred;
            }
        }
        probability += fill;
        pattern[key] = probability;
        mass += probability;
        float square = probability * probability;
        squares += square;
        cubes += square * probability;
        distance += probability * fabsf((float)key - (float)row.query);
        if (key > row.query) later += probability;
        if (key == chosen[0]) first = probability;
        if (key == chosen[1]) own = probability;
        if (key == chosen[2]) previous = probability;
        if (probability > top.first) {
            top.second = fmaxf(top.second, top.first);
            top.first = probability;
            top.at = key;
        } else if (probability > top.second) {
            top.second = probability;
        }
        if (p.tokens) {
            if (p.tokens[key] == token && key < row.query) duplicate += probability;
            if (p.tokens_before[key] == token && key <= row.query) induction += probability;
        }
        if (p.value_norms) {
            float carries = probability * p.value_norms[(size_t)row.head * p.n_keys + key];
            carried += carries;
            carried_logs += carries * logf(fmaxf(carries, SMALLEST));
        }
    }
    if (p.columns) log_p_sum = sum(log_p_sum);
    score_var = sum(score_var) / n;
    raw_var = is_raw ? score_var : sum(raw_var) / n;
    top = top_of_warp(top);
    // In the order of `figures.rs`.
    float figures[] = {
        score_max, score_min, score_mean, score_var, raw_max, raw_min, raw_mean, raw_var, origin, denominator, log_p_sum,
        sum(mass), sum(squares), sum(cubes), sum(distance), top.first, fmaxf(top.second, 0.0f), (float)top.at,
        sum(first), sum(own), sum(previous), sum(duplicate), sum(induction), sum(later), cosine_sum, sum(carried), sum(carried_logs),
    };
    const unsigned n_figures = sizeof(figures) / sizeof(float);
    if (lane == 0)
        for (unsigned idx = 0; idx < n_figures; idx++) p.figures[(size_t)nth * n_figures + idx] = figures[idx];
}

// Σ over rows of the probability that each key receives. `real` has one flag per row, or is null. // [head, key]
// Blocks of 32 keys × 8 lanes of rows; lanes are added in order, so that a sum is the same in every run.
extern "C" __global__ void column_sums(const float *pattern, const unsigned char *real, double *sums, unsigned n_rows, unsigned n_keys) {
    __shared__ double lanes[8][32];
    unsigned key = blockIdx.x * 32 + threadIdx.x, head = blockIdx.y;
    const float *of_head = pattern + (size_t)head * n_rows * n_keys;
    double total = 0.0;
    if (key < n_keys)
        for (unsigned row = threadIdx.y; row < n_rows; row += 8)
            if (!real || real[row]) total += of_head[(size_t)row * n_keys + key];
    lanes[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y == 0 && key < n_keys) {
        for (unsigned lane = 1; lane < 8; lane++) total += lanes[lane][threadIdx.x];
        sums[(size_t)head * n_keys + key] = total;
    }
}

// The largest probability of each cell of the pooled map. Cells of rows begin where `band_starts` says. // [band, head, cell]
// One warp takes one cell.
extern "C" __global__ void cells(const float *pattern, const unsigned char *real, const unsigned *band_starts, float *found,
                                 unsigned n_rows, unsigned n_keys, unsigned n_heads, unsigned n_cells, unsigned keys_per_cell) {
    unsigned cell = blockIdx.x * blockDim.y + threadIdx.y, band = blockIdx.y, head = blockIdx.z;
    if (cell >= n_cells) return;
    unsigned first_key = cell * keys_per_cell, end = min(first_key + keys_per_cell, n_keys);
    unsigned width = end > first_key ? end - first_key : 0;
    unsigned first_row = band_starts[band], n = (band_starts[band + 1] - first_row) * width;
    const float *of_head = pattern + (size_t)head * n_rows * n_keys;
    float top = 0.0f;
    for (unsigned idx = threadIdx.x; idx < n; idx += 32) {
        unsigned row = first_row + idx / width;
        if (!real || real[row]) top = fmaxf(top, of_head[(size_t)row * n_keys + first_key + idx % width]);
    }
    top = largest(top);
    if (threadIdx.x == 0) found[((size_t)band * n_heads + head) * n_cells + cell] = top;
}
