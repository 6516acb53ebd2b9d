// The branches of a transformer on a CPU, for a handful of rows (selfspec_core/native/).
//
// What it is for: a window of 1 to 20 rows reads every weight once and computes little with it,
// so time is what reading takes plus what a call costs. Branches in a row are one call here; weights
// lie in the order in which they are read; nothing depends on how many rows there are, nor on which
// row a token stands in, so its bits don't either (design §3, the fixed window).
//
// Numbers are rounded where the eager modules round (after a norm, a linear, each rotary product,
// the attention, the activation), so that logits differ from eager ones by summation order only.
//
// Built by build.py with the compiler's own vector types: no instruction set is named but AVX512,
// where the compiler wouldn't find the best itself, AVX512-BF16 for its dot product of pairs, and
// AMX-BF16, whose tiles multiply 16 rows in the time of one; all only where the compiler says that
// the CPU has them.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>
#ifdef __AVX512F__
#include <immintrin.h>
#endif
#if defined(__AMX_BF16__) && defined(__linux__) && defined(__x86_64__)
#define TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

using torch::stable::Tensor;
using Optional = std::optional<Tensor>;

namespace {

constexpr int LANES = 16;  // numbers in a vector
constexpr int TILE = 6;    // rows that are computed at once

typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));
typedef uint32_t Words __attribute__((vector_size(LANES * sizeof(float)), aligned(2)));
typedef uint16_t Shorts __attribute__((vector_size(LANES * sizeof(uint16_t)), aligned(2)));

// -- number types: bfloat16 as its bits, and float -------------------------------------------

struct Half {
  uint16_t bits;
};

inline float load(Half x) {
  uint32_t wide = uint32_t(x.bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}
inline float load(float x) { return x; }

inline void store(Half& to, float value) {  // to nearest, ties to even; NaN stays NaN
  uint32_t wide;
  std::memcpy(&wide, &value, 4);
  uint32_t rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16;
  to.bits = value != value ? 0x7FC0 : uint16_t(rounded);
}
inline void store(float& to, float value) { to = value; }

// Sixteen numbers at once.
inline Lanes load_lanes(const Half* at) {
#ifdef __AVX512F__  // where the compiler would do it in halves
  const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  return (Lanes)_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16);
#else
  Shorts narrow;
  std::memcpy(&narrow, at, sizeof narrow);
  return (Lanes)(__builtin_convertvector(narrow, Words) << 16);
#endif
}
inline Lanes load_lanes(const float* at) {
  Lanes value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
#ifdef __AVX512BF16__
inline void store_lanes(Half* to, Lanes value) {  // numbers nearer to 0 than 1.2e-38 become 0
  const __m256bh narrow = _mm512_cvtneps_pbh((__m512)value);
  std::memcpy(to, &narrow, sizeof narrow);
}
#else
inline void store_lanes(Half* to, Lanes value) {
  Words wide = (Words)value;
  Words even = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16;
  Words number = (Words)(value == value);  // all ones, or zero for NaN
  Shorts narrow = __builtin_convertvector((even & number) | (0x7FC0 & ~number), Shorts);
  std::memcpy(to, &narrow, sizeof narrow);
}
#endif
inline void store_lanes(float* to, Lanes value) { std::memcpy(to, &value, sizeof value); }

inline Lanes all(float value) { return Lanes{} + value; }
inline Lanes least(Lanes a, Lanes b) { return a < b ? a : b; }
inline Lanes most(Lanes a, Lanes b) { return a > b ? a : b; }

// Sixteen numbers become one: halves are joined until four are left, then these by `last`.
template <class Join, class Last>
inline float across(Lanes value, Join join, Last last) {
  const Lanes eight =
      join(value, __builtin_shufflevector(value, value, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4,
                                          5, 6, 7));
  const Lanes four =
      join(eight, __builtin_shufflevector(eight, eight, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8,
                                          9, 10, 11));
  return last(last(four[0], four[2]), last(four[1], four[3]));
}
inline float sum_of(Lanes value) {
  return across(value, [](Lanes a, Lanes b) { return a + b; },
                [](float a, float b) { return a + b; });
}
inline float most_of(Lanes value) {
  return across(value, most, [](float a, float b) { return a > b ? a : b; });
}

template <class T>
inline float rounded(float value) {
  T narrow;
  store(narrow, value);
  return load(narrow);
}

template <class T>
inline Lanes rounded(Lanes value) {
  T narrow[LANES];
  store_lanes(narrow, value);
  return load_lanes(narrow);
}

// e^x to about 2e-7 relative (Cody and Waite's reduction, Taylor's polynomial).
inline Lanes exponential(Lanes x) {
  x = most(least(x, all(88.0f)), all(-87.0f));
  const float magic = 12582912.0f;  // 1.5 · 2²³: adding and taking it away rounds
  const Lanes n = (x * 1.44269504f + magic) - magic;
  const Lanes r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
  Lanes p = all(1.0f / 5040);
  for (float term : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = p * r + term;
  typedef int32_t Integers __attribute__((vector_size(LANES * sizeof(int32_t))));
  const Integers power = (__builtin_convertvector(n, Integers) + 127) << 23;
  return p * (Lanes)power;
}

// -- memory and threads ---------------------------------------------------------------------

constexpr int64_t LINE = 64;  // bytes that come from memory at once

struct Free {
  void operator()(void* at) const { std::free(at); }
};
template <class T>
using Buffer = std::unique_ptr<T[], Free>;

// Room for `count` numbers, whatever they are.
template <class T>
Buffer<T> room_for(int64_t count) {
  const int64_t nbytes = count * int64_t(sizeof(T));
  return Buffer<T>(static_cast<T*>(std::aligned_alloc(LINE, (nbytes + LINE - 1) / LINE * LINE)));
}

// What one thread still has to do: first and end, in one number, so that taking is one step.
class alignas(LINE) Range {
 public:
  void set(uint64_t first, uint64_t end) { left_ = first << 32 | end; }

  // The first of it, or the last; -1 where nothing is left.
  int64_t take(bool last) {
    uint64_t now = left_;
    while (true) {
      const uint64_t first = now >> 32, end = now & 0xFFFFFFFF;
      if (first >= end) return -1;
      const uint64_t rest = last ? first << 32 | (end - 1) : (first + 1) << 32 | end;
      if (left_.compare_exchange_weak(now, rest)) return last ? end - 1 : first;
    }
  }

 private:
  std::atomic<uint64_t> left_{0};
};

// Does 0 to `count` on all threads: `enter()` is called once in each, and gives what is called with
// each number. A thread has an equal share, which it goes through upwards, so that what it reads
// lies in one piece; threads aren't equally fast, so who is done takes the others' last.
template <class F>
void share_out(int64_t count, F enter) {
  const int64_t threads = std::min<int64_t>(count, torch::stable::get_num_threads());
  const auto ranges = std::make_unique<Range[]>(threads);
  for (int64_t t = 0; t < threads; ++t)
    ranges[t].set(count * t / threads, count * (t + 1) / threads);
  torch::stable::parallel_for(0, threads, 1, [&](int64_t mine, int64_t) {
    auto run = enter();
    int64_t at;
    while ((at = ranges[mine].take(false)) >= 0) run(at);
    for (int64_t other = 1; other < threads; ++other)
      while ((at = ranges[(mine + other) % threads].take(true)) >= 0) run(at);
  });
}

// Fetch what other threads have just written: all of it at once, rather than line by line as it
// is come to. More than fits near the processor isn't worth it.
template <class T>
inline void fetch(const T* x, int64_t count) {
  const int64_t nbytes = std::min<int64_t>(count * sizeof(T), 24 * 1024);
  for (int64_t i = 0; i < nbytes; i += LINE)
    __builtin_prefetch(reinterpret_cast<const char*>(x) + i);
}

// -- linear ---------------------------------------------------------------------------------
// Packed weights: [N / W, K / P, W, P] (weights.py): W outputs, 16, 32 or 64, are computed at once,
// and P inputs of an output lie together, a pair in bfloat16, one in float. So what is read next
// always lies next in memory, and the processor fetches it unasked.

template <class T>
struct Packed;

template <>
struct Packed<Half> {
  static constexpr int PAIR = 2;
#ifdef __AVX512BF16__
  using Weights = __m512bh;
  static Weights read(const Half* at) { return (Weights)_mm512_loadu_si512(at); }
  static void multiply(Lanes& sum, Weights w, const Half* x) {
    int32_t pair;
    std::memcpy(&pair, x, 4);
    sum = (Lanes)_mm512_dpbf16_ps((__m512)sum, w, (__m512bh)_mm512_set1_epi32(pair));
  }
#else
  using Weights = Words;
  static Weights read(const Half* at) {
    Words w;
    std::memcpy(&w, at, sizeof w);
    return w;
  }
  static void multiply(Lanes& sum, Weights w, const Half* x) {
    sum += (Lanes)(w << 16) * load(x[0]);
    sum += (Lanes)(w & 0xFFFF0000u) * load(x[1]);
  }
#endif
};

template <>
struct Packed<float> {
  static constexpr int PAIR = 1;
  using Weights = Lanes;
  static Weights read(const float* at) {
    Lanes w;
    std::memcpy(&w, at, sizeof w);
    return w;
  }
  static void multiply(Lanes& sum, Weights w, const float* x) { sum += w * x[0]; }
};

// `R` rows of x times weights of `B` vectors of outputs. Few instructions for each vector of
// weights: the more of them fit into what the processor looks ahead, the sooner memory is asked.
template <class T, int R, int B>
inline void tile(const T* x, const T* w, int64_t k, const float* bias, T* y, int64_t n) {
  using P = Packed<T>;
  constexpr int STEP = LANES * P::PAIR;
  Lanes sums[R][B] = {};
  const T* rows[R];
  for (int r = 0; r < R; ++r) rows[r] = x + r * k;
#pragma GCC unroll 2
  for (int64_t at = 0; at < k; at += P::PAIR, w += B * STEP) {
    typename P::Weights weights[B];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) weights[b] = P::read(w + b * STEP);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) P::multiply(sums[r][b], weights[b], rows[r] + at);
  }
  for (int r = 0; r < R; ++r)
    for (int b = 0; b < B; ++b) {
      Lanes sum = sums[r][b];
      if (bias) sum += load_lanes(bias + b * LANES);
      store_lanes(y + r * n + b * LANES, sum);
    }
}

template <class T, int B>
inline void all_rows(
    const T* x, int64_t rows, const T* w, int64_t k, const float* bias, T* y, int64_t n) {
  int64_t r = 0;
  for (; r + TILE <= rows; r += TILE) tile<T, TILE, B>(x + r * k, w, k, bias, y + r * n, n);
  const T* left = x + r * k;
  T* out = y + r * n;
  switch (rows - r) {
    case 5: return tile<T, 5, B>(left, w, k, bias, out, n);
    case 4: return tile<T, 4, B>(left, w, k, bias, out, n);
    case 3: return tile<T, 3, B>(left, w, k, bias, out, n);
    case 2: return tile<T, 2, B>(left, w, k, bias, out, n);
    case 1: return tile<T, 1, B>(left, w, k, bias, out, n);
  }
}

#ifdef TILES
// AMX: 16 outputs of up to 16 rows at once, 32 inputs a step. Sums are rounded in another order
// than above, so one row goes this way too where a linear's width allows it.
constexpr int TALL = 16, DEEP = 32;
constexpr int AHEAD = 4096;  // bytes per 16 outputs that weights are asked for in advance

// What a thread's tiles look like: sums in 0 to 3, weights in 4 to 6, rows of x in 7.
struct alignas(LINE) TileShapes {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t nbytes[16] = {};
  uint8_t rows[16] = {};

  explicit TileShapes(int64_t height) {
    for (int t = 0; t < 8; ++t) {
      nbytes[t] = LINE;
      rows[t] = uint8_t(t >= 4 && t < 7 ? TALL : height);
    }
  }
};

// Whether the system lets this process use tiles: it has to be asked, once.
bool has_tiles() {
  constexpr long REQUEST = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool granted = syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
  return granted;
}

// All of it lies in memory by now: compilers don't know how much the tile instructions read.
inline void written(const void* at) { asm volatile("" ::"r"(at) : "memory"); }

template <int B>
inline void by_tiles(
    const Half* x, int64_t rows, const Half* w, int64_t k, const float* bias, Half* y, int64_t n) {
  const int64_t height = std::min<int64_t>(rows, TALL);
  written(x);
  for (int64_t first = 0; first < rows; first += height) {
    const int64_t from = std::min(first, rows - height);  // the last rows lie over those before
    const Half *row = x + from * k, *weights = w;
    _tile_zero(0);
    if constexpr (B > 1) _tile_zero(1);
    if constexpr (B > 2) _tile_zero(2);
    if constexpr (B > 3) _tile_zero(3);
    for (int64_t at = 0; at < k; at += DEEP, weights += B * LANES * DEEP) {
      const char* later = reinterpret_cast<const char*>(weights) + B * AHEAD;
      for (int line = 0; line < B * TALL; ++line) __builtin_prefetch(later + line * LINE);
      _tile_loadd(7, row + at, k * sizeof(Half));
      _tile_loadd(4, weights, B * LINE);
      _tile_dpbf16ps(0, 7, 4);
      if constexpr (B > 1) {
        _tile_loadd(5, weights + DEEP, B * LINE);
        _tile_dpbf16ps(1, 7, 5);
      }
      if constexpr (B > 2) {
        _tile_loadd(6, weights + 2 * DEEP, B * LINE);
        _tile_dpbf16ps(2, 7, 6);
        _tile_loadd(4, weights + 3 * DEEP, B * LINE);
        _tile_dpbf16ps(3, 7, 4);
      }
    }
    alignas(LINE) Lanes sums[B][TALL];
    _tile_stored(0, sums[0], LINE);
    if constexpr (B > 1) _tile_stored(1, sums[1], LINE);
    if constexpr (B > 2) _tile_stored(2, sums[2], LINE);
    if constexpr (B > 3) _tile_stored(3, sums[3], LINE);
    for (int b = 0; b < B; ++b) {
      const Lanes more = bias ? load_lanes(bias + b * LANES) : Lanes{};
      for (int64_t r = 0; r < height; ++r)
        store_lanes(y + (from + r) * n + b * LANES, sums[b][r] + more);
    }
  }
}
#endif

// To be called in each thread before linears are computed there for so many rows.
template <class T>
void make_ready([[maybe_unused]] int64_t rows) {
#ifdef TILES
  if constexpr (std::is_same_v<T, Half>) {
    if (!has_tiles()) return;
    const TileShapes shapes(std::clamp<int64_t>(rows, 1, TALL));
    written(&shapes);
    _tile_loadconfig(&shapes);
  }
#endif
}

// A linear's packed weights [n / width, k / P, width, P], whose groups may lie apart, and its
// bias [n], or none.
template <class T>
struct Linear {
  const T* weights;
  const float* bias;
  int64_t n, k, width, stride;

  Linear(const Tensor& packed, const Optional& bias)
      : weights(static_cast<const T*>(packed.data_ptr())),
        bias(bias ? static_cast<const float*>(bias->data_ptr()) : nullptr),
        n(packed.size(0) * packed.size(2)),
        k(packed.size(1) * packed.size(3)),
        width(packed.size(2)),
        stride(packed.stride(0)) {}

  int64_t groups() const { return n / width; }

  // The outputs of group `g` of x [rows, k]: `width` of them, `step` after each other in y.
  void compute(int64_t g, const T* x, int64_t rows, T* y, int64_t step) const {
    auto run = all_rows<T, 1>;
    if (width == 2 * LANES) run = all_rows<T, 2>;
    if (width == 4 * LANES) run = all_rows<T, 4>;
#ifdef TILES
    if constexpr (std::is_same_v<T, Half>)
      if (k % DEEP == 0 && has_tiles()) {
        run = by_tiles<1>;
        if (width == 2 * LANES) run = by_tiles<2>;
        if (width == 4 * LANES) run = by_tiles<4>;
      }
#endif
    run(x, rows, weights + g * stride, k, bias ? bias + g * width : nullptr, y, step);
  }
};

// y [rows, n] = x [rows, k] · wᵀ + bias.
template <class T>
void multiply(const Linear<T>& linear, const T* x, int64_t rows, T* y) {
  share_out(linear.groups(), [&] {
    make_ready<T>(rows);
    fetch(x, rows * linear.k);
    return [&](int64_t g) { linear.compute(g, x, rows, y + g * linear.width, linear.n); };
  });
}

// -- norms ----------------------------------------------------------------------------------

enum Norm : int64_t { RMS = 0, GEMMA = 1, LAYER = 2 };

// One row; its width a multiple of 16.
template <class T>
void normalise(
    const T* x, int64_t n, const T* weight, const T* bias, int64_t kind, float eps, T* y) {
  Lanes sums{}, squares{};
  if (kind == LAYER)
    for (int64_t i = 0; i < n; i += LANES) sums += load_lanes(x + i);
  const Lanes mean = all(sum_of(sums) / n);
  for (int64_t i = 0; i < n; i += LANES) {
    const Lanes centred = load_lanes(x + i) - mean;
    squares += centred * centred;
  }
  const float scale = 1.0f / std::sqrt(sum_of(squares) / n + eps);
  for (int64_t i = 0; i < n; i += LANES) {
    const Lanes normal = (load_lanes(x + i) - mean) * scale, w = load_lanes(weight + i);
    if (kind == RMS) {
      store_lanes(y + i, w * rounded<T>(normal));
    } else if (kind == GEMMA) {
      store_lanes(y + i, normal * (1.0f + w));
    } else {
      store_lanes(y + i, bias ? normal * w + load_lanes(bias + i) : normal * w);
    }
  }
}

// -- attention ------------------------------------------------------------------------------

// x · cos + rotate_half(x) · sin on the first `width` of a head, each product rounded.
template <class T>
void rotate(T* x, const T* cos, const T* sin, int64_t width) {
  const int64_t half = width / 2;
  int64_t i = 0;
  for (; i + LANES <= half; i += LANES) {
    const Lanes a = load_lanes(x + i), b = load_lanes(x + i + half);
    const Lanes first =
        rounded<T>(a * load_lanes(cos + i)) + rounded<T>(-b * load_lanes(sin + i));
    const Lanes second = rounded<T>(b * load_lanes(cos + i + half)) +
                         rounded<T>(a * load_lanes(sin + i + half));
    store_lanes(x + i, first);
    store_lanes(x + i + half, second);
  }
  for (; i < half; ++i) {
    float a = load(x[i]), b = load(x[i + half]);
    float first = rounded<T>(a * load(cos[i])) + rounded<T>(-b * load(sin[i]));
    float second =
        rounded<T>(b * load(cos[i + half])) + rounded<T>(a * load(sin[i + half]));
    store(x[i], first);
    store(x[i + half], second);
  }
}

struct Shape {
  int64_t heads, groups, size;  // query heads, key/value heads, head size
  int64_t start, capacity, window;
  float scale, softcap;
};

// A stretch of slots that a row sees.
template <class T>
struct Stretch {
  const T* keys;
  const T* values;
  int64_t count;
};

constexpr int QUERIES = 6;  // that share the reading of keys and values

typedef Words Square[LANES];  // sixteen vectors of sixteen words

// Rows become columns: pairs of rows change halves, then quarters, then eighths, then sixteenths.
inline void transpose(Square& m) {
#define SELFSPEC_SWAP(STEP, LOW, HIGH)                            \
  _Pragma("GCC unroll 16") for (int i = 0; i < LANES; ++i)        \
    if (!(i & STEP)) {                                            \
      const Words a = m[i], b = m[i + STEP];                      \
      m[i] = __builtin_shufflevector(a, b, LOW);                  \
      m[i + STEP] = __builtin_shufflevector(a, b, HIGH);          \
    }
#define SELFSPEC_LIST(...) __VA_ARGS__
  SELFSPEC_SWAP(8, SELFSPEC_LIST(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
                SELFSPEC_LIST(8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
  SELFSPEC_SWAP(4, SELFSPEC_LIST(0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
                SELFSPEC_LIST(4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))
  SELFSPEC_SWAP(2, SELFSPEC_LIST(0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
                SELFSPEC_LIST(2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
  SELFSPEC_SWAP(1, SELFSPEC_LIST(0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
                SELFSPEC_LIST(1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
#undef SELFSPEC_LIST
#undef SELFSPEC_SWAP
}

// Keys of `count` slots, [count, size], in the order of a linear's weights:
// [⌈count / 16⌉, size / P, 16, P], so that the scores of sixteen slots lie side by side, and no sum
// runs across a vector. Those of slots that aren't there are zeros.
template <class T>
inline void turn(const T* keys, int64_t count, int64_t size, T* to) {
  using P = Packed<T>;
  constexpr int STEP = LANES * P::PAIR;  // numbers that fill a vector
  for (int64_t t = 0; t < count; t += LANES) {
    const int there = int(std::min<int64_t>(LANES, count - t));
    for (int64_t i = 0; i < size; i += STEP) {
      const int64_t width = std::min<int64_t>(STEP, size - i);
      const T* from = keys + t * size + i;
      Square part;
      if (there == LANES && width == STEP) {
#pragma GCC unroll 16
        for (int slot = 0; slot < LANES; ++slot)
          std::memcpy(&part[slot], from + slot * size, sizeof part[slot]);
      } else {
        for (int slot = 0; slot < LANES; ++slot) {
          part[slot] = Words{};
          if (slot < there) std::memcpy(&part[slot], from + slot * size, width * sizeof(T));
        }
      }
      transpose(part);
      std::memcpy(to + (t * size + i * LANES), &part, width * LANES * sizeof(T));
    }
  }
}

// The scores of C queries (a size of them each) with V vectors' worth of turned keys.
template <class T, int C, int V>
inline void score_vectors(const T* turned, const T* const* q, int64_t size, float scale,
                          float* scores, int64_t stride) {
  using P = Packed<T>;
  Lanes sums[C][V] = {};
  for (int64_t at = 0; at < size; at += P::PAIR) {
    typename P::Weights weights[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) weights[v] = P::read(turned + (v * size + at) * LANES);
#pragma GCC unroll 6
    for (int c = 0; c < C; ++c)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) P::multiply(sums[c][v], weights[v], q[c] + at);
  }
  for (int c = 0; c < C; ++c)
    for (int v = 0; v < V; ++v) store_lanes(scores + c * stride + v * LANES, sums[c][v] * scale);
}

// The scores of C queries with `count` slots' turned keys, in whole vectors: `scores` has room for
// those of slots that aren't there.
template <class T, int C>
inline void score(const T* turned, int64_t count, const T* const* q, const Shape& s, float* scores,
                  int64_t stride) {
  int64_t t = 0;
  for (; t + LANES < count; t += 2 * LANES)
    score_vectors<T, C, 2>(turned + t * s.size, q, s.size, s.scale, scores + t, stride);
  if (t < count)
    score_vectors<T, C, 1>(turned + t * s.size, q, s.size, s.scale, scores + t, stride);
}

struct Weighed {
  float top, total;  // the highest score, and the sum of the weights
};

// One query's scores become weights e^(score − top), 0 outside from ≤ slot < to.
inline Weighed weigh(float* w, int64_t from, int64_t to, int64_t seen, float softcap) {
  if (softcap > 0)
    for (int64_t t = from; t < to; ++t) w[t] = std::tanh(w[t] / softcap) * softcap;
  std::fill(w, w + from, -INFINITY);
  std::fill(w + to, w + seen, -INFINITY);
  Lanes highest = all(-INFINITY), sums{};
  for (int64_t t = 0; t < seen; t += LANES) highest = most(highest, load_lanes(w + t));
  const float top = most_of(highest);
  for (int64_t t = 0; t < seen; t += LANES) {
    const Lanes score = load_lanes(w + t);
    const Lanes weight = score > -INFINITY ? exponential(score - top) : Lanes{};
    sums += weight;
    store_lanes(w + t, weight);
  }
  return {top, sum_of(sums)};
}

constexpr int PIECE = 4;  // vectors of a head that are mixed at once

// Adds V vectors of `count` slots' values, weighted, to the sums of C queries.
template <class T, int C, int V>
inline void mix(const T* values, int64_t count, const Shape& s, const float* weights, int64_t seen,
                Lanes (&all_sums)[C][PIECE]) {
  Lanes sums[C][V];  // in registers: what is passed may lie anywhere
  for (int c = 0; c < C; ++c)
    for (int v = 0; v < V; ++v) sums[c][v] = all_sums[c][v];
  for (int64_t t = 0; t < count; ++t) {
    Lanes value[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) value[v] = load_lanes(values + t * s.size + v * LANES);
#pragma GCC unroll 6
    for (int c = 0; c < C; ++c)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[c][v] += value[v] * weights[c * seen + t];
  }
  for (int c = 0; c < C; ++c)
    for (int v = 0; v < V; ++v) all_sums[c][v] = sums[c][v];
}

// Calls run(vectors, i) for a head's numbers, PIECE vectors of them at a time from number i on.
template <class F>
inline void by_pieces(int64_t size, F run) {
  int64_t i = 0;
  for (; i + PIECE * LANES <= size; i += PIECE * LANES)
    run(std::integral_constant<int, PIECE>{}, i);
  for (; i < size; i += LANES) run(std::integral_constant<int, 1>{}, i);
}

inline int64_t whole_vectors(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

// A text is read in parts of so many slots, each by one thread, for all queries at once; parts
// begin at multiples of it, whatever rows there are.
constexpr int64_t PART = 128;
constexpr int64_t SHARES = 1 << 20;  // floats that queries may take from all parts at once

// What queries take from each part of what they see: [parts, rows, heads, size + LANES] of weighted
// values, the highest score and the sum of the weights.
struct Shares {
  float* at;
  int64_t rows, heads, size;

  int64_t stride() const { return size + LANES; }
  float* of(int64_t part, int64_t row, int64_t head) const {
    return at + ((part * rows + row) * heads + head) * stride();
  }
  void mark(float* share, Weighed found) const {
    share[size] = found.top;
    share[size + 1] = found.total;
  }
  Weighed marked(const float* share) const { return {share[size], share[size + 1]}; }
};

// `C` queries, each a head of a row, numbered row by row, of one key/value head, with one part.
template <class T, int C>
void attend(const T* projected, int64_t stride, int64_t first_query, int64_t group, int64_t part,
            int64_t begin, int64_t count, const T* turned, const T* values, const Shape& s,
            const Shares& shares) {
  const int64_t per_group = s.heads / s.groups;
  const T* q[C];
  float* share[C];
  int64_t from[C], to[C];
  bool any = false;
  for (int c = 0; c < C; ++c) {
    const int64_t row = (first_query + c) / per_group;
    const int64_t head = group * per_group + (first_query + c) % per_group;
    q[c] = projected + row * stride + head * s.size;
    share[c] = shares.of(part, row, head);
    const int64_t high = s.start + row + 1, low = s.window > 0 ? high - s.window : 0;
    from[c] = std::clamp<int64_t>(low - begin, 0, count);
    to[c] = std::clamp<int64_t>(high - begin, from[c], count);
    any = any || from[c] < to[c];
  }
  if (!any) {
    for (int c = 0; c < C; ++c) shares.mark(share[c], {-INFINITY, 0.0f});
    return;
  }
  float scores[C * PART];
  score<T, C>(turned, count, q, s, scores, PART);
  for (int c = 0; c < C; ++c)
    shares.mark(share[c],
                weigh(scores + c * PART, from[c], to[c], whole_vectors(count), s.softcap));
  by_pieces(s.size, [&](auto vectors, int64_t i) {
    Lanes sums[C][PIECE] = {};
    mix<T, C, vectors>(values + i, count, s, scores, PART, sums);
    for (int c = 0; c < C; ++c)
      for (int v = 0; v < vectors; ++v) store_lanes(share[c] + i + v * LANES, sums[c][v]);
  });
}

// The shares of all parts of one head of a row, together.
template <class T>
void join(const Shares& shares, int64_t parts, int64_t row, int64_t head, T* mixed) {
  float top = -INFINITY;
  for (int64_t p = 0; p < parts; ++p)
    top = std::max(top, shares.marked(shares.of(p, row, head)).top);
  by_pieces(shares.size, [&](auto vectors, int64_t i) {
    Lanes sums[vectors] = {};
    float total = 0.0f;
    for (int64_t p = 0; p < parts; ++p) {
      const float* share = shares.of(p, row, head);
      const Weighed found = shares.marked(share);
      if (found.total == 0.0f) continue;  // it sees nothing of this part
      const float scale = exponential(all(found.top - top))[0];
      total += scale * found.total;
      for (int v = 0; v < vectors; ++v) sums[v] += load_lanes(share + i + v * LANES) * scale;
    }
    for (int v = 0; v < vectors; ++v) store_lanes(mixed + i + v * LANES, sums[v] / total);
  });
}

// `C` heads of one row, of one key/value head, over what the row sees of its text and then of its
// own chain. `scores` has room for [C, slots], in whole vectors and one more.
template <class T, int C>
void attend_apart(const T* q, const Stretch<T>& text, const Stretch<T>& own, const Shape& s,
                  T* turned, float* scores, T* mixed) {
  const int64_t count = text.count + own.count, seen = whole_vectors(count);
  const int64_t stride = seen + LANES;  // the chain's last vector may begin anywhere
  const T* queries[C];
  for (int c = 0; c < C; ++c) queries[c] = q + c * s.size;
  float* at = scores;
  for (const Stretch<T>* slots : {&text, &own})
    for (int64_t t = 0; t < slots->count; t += PART) {
      const int64_t some = std::min(PART, slots->count - t);
      turn(slots->keys + t * s.size, some, s.size, turned);
      score<T, C>(turned, some, queries, s, at, stride);
      at += some;
    }
  float totals[C];
  for (int c = 0; c < C; ++c) totals[c] = weigh(scores + c * stride, 0, count, seen, s.softcap).total;
  by_pieces(s.size, [&](auto vectors, int64_t i) {
    Lanes sums[C][PIECE] = {};
    mix<T, C, vectors>(text.values + i, text.count, s, scores, stride, sums);
    mix<T, C, vectors>(own.values + i, own.count, s, scores + text.count, stride, sums);
    for (int c = 0; c < C; ++c)
      for (int v = 0; v < vectors; ++v)
        store_lanes(mixed + c * s.size + i + v * LANES, sums[c][v] / totals[c]);
  });
}

// Calls `run` with how many of `count` queries (1 to QUERIES) it takes at once.
template <class F>
void with_queries(int64_t count, F run) {
  switch (count) {
    case 6: return run(std::integral_constant<int, 6>{});
    case 5: return run(std::integral_constant<int, 5>{});
    case 4: return run(std::integral_constant<int, 4>{});
    case 3: return run(std::integral_constant<int, 3>{});
    case 2: return run(std::integral_constant<int, 2>{});
    default: return run(std::integral_constant<int, 1>{});
  }
}

// -- activations ----------------------------------------------------------------------------

enum Activation : int64_t { SILU = 0, GELU_TANH = 1 };

inline Lanes activate(Lanes x, int64_t kind) {
  if (kind == SILU) return x / (1.0f + exponential(-x));
  const Lanes inner = 0.79788456f * (x + 0.044715f * x * x * x);
  return x - x / (1.0f + exponential(2.0f * inner));  // 0.5 x (1 + tanh(inner))
}

// -- parts of both branches -----------------------------------------------------------------

template <class T>
const T* data(const Tensor& t) { return static_cast<const T*>(t.data_ptr()); }
template <class T>
const T* data(const Optional& t) { return t ? data<T>(*t) : nullptr; }

// A new tensor of x's type, as `torch::stable::new_empty` makes it in several times the time.
Tensor like(const Tensor& x, std::initializer_list<int64_t> sizes) {
  int64_t strides[3], step = 1;
  for (auto i = sizes.size(); i-- > 0; step *= sizes.begin()[i]) strides[i] = step;
  int32_t dtype;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(x.get(), &dtype));
  AtenTensorHandle made;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      int64_t(sizes.size()), sizes.begin(), strides, dtype, aoti_torch_device_type_cpu(), 0,
      &made));
  return Tensor(made);
}

// What branches are called with: tensors, whole numbers and reals, read here in the order in which
// calls.py and branches.py put them down.
class Arguments {
 public:
  Arguments(const std::vector<Tensor>& tensors, const Tensor& numbers, const Tensor& reals)
      : tensors_(tensors),
        number_(data<int64_t>(numbers)),
        end_(number_ + numbers.numel()),
        real_(data<double>(reals)) {}

  bool more() const { return number_ < end_; }
  const Tensor& tensor() { return tensors_.at(tensor_++); }
  int64_t number() { return *number_++; }
  double real() { return *real_++; }
  Optional maybe() { return number() ? Optional(tensor()) : Optional(); }

 private:
  const std::vector<Tensor>& tensors_;
  size_t tensor_ = 0;
  const int64_t *number_, *end_;
  const double* real_;
};

// A norm, or none where it has no weight.
struct NormOf {
  Optional weight, bias;
  int64_t kind;
  double eps;

  explicit NormOf(Arguments& from)
      : weight(from.maybe()), bias(from.maybe()), kind(from.number()), eps(from.real()) {}

  template <class T>
  void run(const T* x, int64_t rows, int64_t n, T* y) const {
    torch::stable::parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        normalise(x + r * n, n, data<T>(*weight), data<T>(bias), kind, float(eps), y + r * n);
    });
  }
};

// y[i] = f(y[i], i) for vectors of numbers, which a handful of rows isn't worth sharing out for.
template <class T, class F>
void change(T* y, int64_t count, F f) {
  torch::stable::parallel_for(0, count / LANES, 2048, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * LANES; i < end * LANES; i += LANES)
      store_lanes(y + i, f(load_lanes(y + i), i));
  });
}

// What is done to what a branch wrote: a norm, a multiplier, both or nothing.
struct Finish {
  NormOf norm;
  double multiplier;

  explicit Finish(Arguments& from) : norm(from), multiplier(from.real()) {}

  template <class T>
  void run(T* y, int64_t rows, int64_t n) const {
    if (norm.weight) norm.run(y, rows, n, y);
    if (multiplier != 1.0)
      change(y, rows * n, [&](Lanes value, int64_t) { return value * float(multiplier); });
  }
};

// What a branch reads: the stream, or its norm.
template <class T>
const T* read_stream(const Tensor& h, const NormOf& norm, Buffer<T>& held) {
  if (!norm.weight) return data<T>(h);
  const int64_t n = h.size(-1), rows = h.numel() / n;
  held = room_for<T>(rows * n);
  norm.run(data<T>(h), rows, n, held.get());
  return held.get();
}

template <class T>
Tensor linear_of(const Tensor& x, const Tensor& packed, const Optional& bias) {
  const Linear<T> linear(packed, bias);
  const int64_t rows = x.numel() / linear.k;
  Tensor y = like(x, {rows, linear.n});
  multiply(linear, data<T>(x), rows, static_cast<T*>(y.data_ptr()));
  return y;
}

// An attention as it is called.
struct Attention {
  NormOf norm;
  Tensor qkv;
  Optional bias, q_norm, k_norm;
  int64_t head_norm_kind;
  double head_eps;
  Tensor out;
  Optional out_bias;
  int64_t heads, window, turning;  // `turning`: which cos and sin, -1 for none
  double scale, softcap;
  Finish finish;

  explicit Attention(Arguments& from)
      : norm(from), qkv(from.tensor()), bias(from.maybe()), q_norm(from.maybe()),
        k_norm(from.maybe()), head_norm_kind(from.number()), head_eps(from.real()),
        out(from.tensor()), out_bias(from.maybe()), heads(from.number()), window(from.number()),
        turning(from.number()), scale(from.real()), softcap(from.real()), finish(from) {}

  Shape shape(const Tensor& keys, int64_t start) const {
    return {heads, keys.size(1), keys.size(3), start, keys.size(2), window, float(scale),
            float(softcap)};
  }
};

// [rows, heads + 2 groups, size], normed and turned; `keep(row, k, v)` stores a row's.
template <class T, class Keep>
Buffer<T> project(const Tensor& h, const Attention& a, const std::vector<Tensor>& rotary,
                  const Shape& s, Keep keep) {
  const int64_t width = h.size(-1), rows = h.numel() / width;
  const int64_t q_size = s.heads * s.size, kv_size = s.groups * s.size;
  const int64_t all = q_size + 2 * kv_size;
  Buffer<T> held, projected = room_for<T>(rows * all);
  const T* x = read_stream<T>(h, a.norm, held);
  multiply(Linear<T>(a.qkv, a.bias), x, rows, projected.get());
  torch::stable::parallel_for(0, rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* q = projected.get() + r * all;
      T* k = q + q_size;
      T* v = k + kv_size;
      auto norm_heads = [&](const Optional& weight, T* at, int64_t size) {
        if (!weight) return;
        const int64_t each = weight->numel();  // one head, or all of them together
        for (int64_t i = 0; i < size; i += each)
          normalise<T>(at + i, each, data<T>(*weight), nullptr, a.head_norm_kind,
                       float(a.head_eps), at + i);
      };
      norm_heads(a.q_norm, q, q_size);
      norm_heads(a.k_norm, k, kv_size);
      if (a.turning >= 0) {
        const Tensor &cos = rotary.at(2 * a.turning), &sin = rotary.at(2 * a.turning + 1);
        const int64_t turned = cos.size(-1);
        const T* c = data<T>(cos) + r * turned;
        const T* d = data<T>(sin) + r * turned;
        for (int64_t i = 0; i < q_size; i += s.size) rotate(q + i, c, d, turned);
        for (int64_t i = 0; i < kv_size; i += s.size) rotate(k + i, c, d, turned);
      }
      keep(r, k, v);
    }
  });
  return projected;
}

template <class T>
Tensor written(const Tensor& h, const T* x, const Tensor& out, const Optional& bias,
               const Finish& finish) {
  const Linear<T> linear(out, bias);
  const int64_t rows = h.numel() / h.size(-1);
  Tensor y = like(h, {1, rows, linear.n});
  T* to = static_cast<T*>(y.data_ptr());
  multiply(linear, x, rows, to);
  finish.run(to, rows, linear.n);
  return y;
}

// What `rows` projected rows take from slots up to their own, the first one's being s.start.
template <class T>
void attend_rows(const T* projected, int64_t stride, int64_t rows, const T* k_cache,
                 const T* v_cache, const Shape& s, T* mixed) {
  const int64_t per_group = s.heads / s.groups, queries = rows * per_group;
  const int64_t end = s.start + rows;
  const int64_t first = s.window > 0 ? std::max<int64_t>(0, s.start + 1 - s.window) / PART : 0;
  const int64_t parts = (end + PART - 1) / PART - first;
  const Buffer<float> room = room_for<float>(parts * rows * s.heads * (s.size + LANES));
  const Shares shares{room.get(), rows, s.heads, s.size};
  const auto left = std::make_unique<std::atomic<int64_t>[]>(s.groups);  // parts, of each group
  for (int64_t group = 0; group < s.groups; ++group) left[group] = parts;
  share_out(s.groups * parts, [&] {
    fetch(projected, rows * stride);
    return [&, turned = room_for<T>(PART * s.size)](int64_t task) {
      const int64_t group = task / parts, part = task % parts, begin = (first + part) * PART;
      const int64_t count = std::min(PART, end - begin);
      const T* keys = k_cache + (group * s.capacity + begin) * s.size;
      const T* values = v_cache + (group * s.capacity + begin) * s.size;
      turn(keys, count, s.size, turned.get());
      if (part + 1 < parts) {  // which this thread most likely does next
        fetch(keys + PART * s.size, PART * s.size);
        fetch(values + PART * s.size, PART * s.size);
      }
      for (int64_t query = 0; query < queries; query += QUERIES)
        with_queries(std::min<int64_t>(QUERIES, queries - query), [&](auto some) {
          attend<T, some>(projected, stride, query, group, part, begin, count, turned.get(), values,
                          s, shares);
        });
      if (--left[group] > 0) return;  // whoever does a group's last part joins them
      for (int64_t query = 0; query < queries; ++query) {
        const int64_t row = query / per_group, head = group * per_group + query % per_group;
        join(shares, parts, row, head, mixed + (row * s.heads + head) * s.size);
      }
    };
  });
}

template <class T>
Tensor attention_of(const Tensor& h, const Attention& a, const std::vector<Tensor>& rotary,
                    const Tensor& keys, const Tensor& values, int64_t start) {
  const Shape s = a.shape(keys, start);
  const int64_t rows = h.numel() / h.size(-1);
  const int64_t q_size = s.heads * s.size, all = q_size + 2 * s.groups * s.size;
  T* k_cache = static_cast<T*>(keys.data_ptr());
  T* v_cache = static_cast<T*>(values.data_ptr());
  const Buffer<T> projected = project<T>(h, a, rotary, s, [&](int64_t r, const T* k, const T* v) {
    for (int64_t g = 0; g < s.groups; ++g) {
      const int64_t slot = (g * s.capacity + s.start + r) * s.size;
      std::copy_n(k + g * s.size, s.size, k_cache + slot);
      std::copy_n(v + g * s.size, s.size, v_cache + slot);
    }
  });
  const Buffer<T> mixed = room_for<T>(rows * q_size);
  // A prompt's rows in turns, so that what they take of every part doesn't outgrow the caches.
  const int64_t parts = (s.start + rows + PART - 1) / PART;
  const int64_t most = std::max<int64_t>(1, SHARES / (parts * s.heads * (s.size + LANES)));
  for (int64_t r = 0; r < rows; r += most) {
    Shape own = s;
    own.start += r;
    attend_rows(projected.get() + r * all, all, std::min(most, rows - r), k_cache, v_cache, own,
                mixed.get() + r * q_size);
  }
  return written(h, mixed.get(), a.out, a.out_bias, a.finish);
}

// Rows that each continue a text on their own: row r sees the first begins[r] slots of text
// texts[r], and its own chain's, of which this is number `depth`.
template <class T>
Tensor attention_apart_of(const Tensor& h, const Attention& a, const std::vector<Tensor>& rotary,
                          const Tensor& keys, const Tensor& values, const Tensor& own_keys,
                          const Tensor& own_values, const Tensor& texts, const Tensor& begins,
                          int64_t depth) {
  const Shape s = a.shape(keys, depth);  // `s.start` is the depth, `s.capacity` the texts'
  const int64_t rows = h.numel() / h.size(-1), room_of_own = own_keys.size(2);
  const int64_t q_size = s.heads * s.size, all = q_size + 2 * s.groups * s.size;
  T* k_own = static_cast<T*>(own_keys.data_ptr());
  T* v_own = static_cast<T*>(own_values.data_ptr());
  const Buffer<T> projected = project<T>(h, a, rotary, s, [&](int64_t r, const T* k, const T* v) {
    for (int64_t g = 0; g < s.groups; ++g) {
      const int64_t slot = ((r * s.groups + g) * room_of_own + s.start) * s.size;
      std::copy_n(k + g * s.size, s.size, k_own + slot);
      std::copy_n(v + g * s.size, s.size, v_own + slot);
    }
  });
  const Buffer<T> mixed = room_for<T>(rows * q_size);
  const int64_t per_group = s.heads / s.groups;
  const int64_t* text_of = static_cast<const int64_t*>(texts.data_ptr());
  const int64_t* begin_of = static_cast<const int64_t*>(begins.data_ptr());
  const int64_t most = QUERIES * (whole_vectors(s.capacity + room_of_own) + LANES);
  share_out(rows, [&] {
    return [&, scores = room_for<float>(most), turned = room_for<T>(PART * s.size)](int64_t r) {
      // A window of w slots ends with the row's own, which is number s.start of its chain.
      const int64_t hidden = s.window > 0 ? begin_of[r] + s.start + 1 - s.window : 0;
      const int64_t low = std::min(std::max<int64_t>(0, hidden), begin_of[r]);
      const int64_t own_low = std::max<int64_t>(0, hidden - begin_of[r]);
      for (int64_t g = 0; g < s.groups; ++g) {
        const int64_t at = ((text_of[r] * s.groups + g) * s.capacity + low) * s.size;
        const int64_t own = ((r * s.groups + g) * room_of_own + own_low) * s.size;
        const Stretch<T> text{data<T>(keys) + at, data<T>(values) + at, begin_of[r] - low};
        const Stretch<T> chain{k_own + own, v_own + own, s.start + 1 - own_low};
        for (int64_t first = 0; first < per_group; first += QUERIES) {
          const int64_t head = (g * per_group + first) * s.size;
          with_queries(std::min<int64_t>(QUERIES, per_group - first), [&](auto count) {
            attend_apart<T, count>(projected.get() + r * all + head, text, chain, s, turned.get(),
                                   scores.get(), mixed.get() + r * q_size + head);
          });
        }
      }
    };
  });
  return written(h, mixed.get(), a.out, a.out_bias, a.finish);
}

// Where in `up` the groups are that a gated MLP's gate opens: after all of the gate's, or each after
// the gate's group that opens it, so that what a thread reads lies in one piece.
enum Gate : int64_t { NONE = 0, HALVES = 1, PAIRS = 2 };

// An MLP as it is called.
struct Mlp {
  NormOf norm;
  Tensor up;
  Optional up_bias;
  int64_t gate, activation;
  Tensor down;
  Optional down_bias;
  Finish finish;

  explicit Mlp(Arguments& from)
      : norm(from), up(from.tensor()), up_bias(from.maybe()), gate(from.number()),
        activation(from.number()), down(from.tensor()), down_bias(from.maybe()), finish(from) {}
};

template <class T>
Tensor mlp_of(const Tensor& h, const Mlp& m) {
  const int64_t rows = h.numel() / h.size(-1);
  const Linear<T> rising(m.up, m.up_bias);
  const int64_t width = rising.width, groups = rising.groups() / (m.gate == NONE ? 1 : 2);
  const int64_t inner = groups * width, next = m.gate == PAIRS ? 2 : 1;
  const int64_t opened = m.gate == PAIRS ? 1 : groups;  // so many groups after the gate's
  Buffer<T> held, active = room_for<T>(rows * inner);
  const T* x = read_stream<T>(h, m.norm, held);
  // What is computed is activated at once, by the same thread.
  share_out(groups, [&] {
    make_ready<T>(rows);
    fetch(x, rows * rising.k);
    return [&, wide = room_for<T>(rows * 2 * width)](int64_t g) {
      rising.compute(next * g, x, rows, wide.get(), 2 * width);
      if (m.gate != NONE)
        rising.compute(next * g + opened, x, rows, wide.get() + width, 2 * width);
      for (int64_t r = 0; r < rows; ++r) {
        const T* a = wide.get() + r * 2 * width;
        T* to = active.get() + r * inner + g * width;
        for (int64_t i = 0; i < width; i += LANES) {
          Lanes value = activate(load_lanes(a + i), m.activation);
          if (m.gate != NONE) value = rounded<T>(value) * load_lanes(a + width + i);
          store_lanes(to + i, value);
        }
      }
    };
  });
  return written(h, active.get(), m.down, m.down_bias, m.finish);
}

enum Kind : int64_t { ATTENTION = 0, MLP = 1 };

// What the first branch writes; or, to be added, the stream after all of them.
template <class T>
Tensor branches_of(const Tensor& h, Arguments from, const std::vector<Tensor>& rotary,
                   const std::vector<Tensor>& caches, int64_t start, bool add) {
  Tensor stream = h;
  for (size_t cache = 0; from.more();) {
    const auto run = [&]() -> Tensor {
      if (from.number() == MLP) return mlp_of<T>(stream, Mlp(from));
      const Tensor &keys = caches.at(cache), &values = caches.at(cache + 1);
      cache += 2;
      return attention_of<T>(stream, Attention(from), rotary, keys, values, start);
    };
    Tensor y = run();
    if (!add) return y;
    const T* before = data<T>(stream);
    change(static_cast<T*>(y.data_ptr()), y.numel(),
           [&](Lanes value, int64_t i) { return value + load_lanes(before + i); });
    stream = y;
  }
  return stream;
}

bool narrow(const Tensor& t) { return t.scalar_type() == torch::headeronly::ScalarType::BFloat16; }

// -- the operators --------------------------------------------------------------------------

Tensor linear(Tensor x, Tensor packed, Optional bias) {
  return narrow(x) ? linear_of<Half>(x, packed, bias) : linear_of<float>(x, packed, bias);
}

using Tensors = std::vector<Tensor>;

Tensor branches(Tensor h, Tensors tensors, Tensor numbers, Tensor reals, Tensors rotary,
                Tensors caches, int64_t start, bool add) {
  auto run = narrow(h) ? branches_of<Half> : branches_of<float>;
  return run(h, Arguments(tensors, numbers, reals), rotary, caches, start, add);
}

Tensor attention_apart(Tensor h, Tensors tensors, Tensor numbers, Tensor reals, Tensors rotary,
                       Tensor keys, Tensor values, Tensor own_keys, Tensor own_values, Tensor texts,
                       Tensor begins, int64_t depth) {
  Arguments from(tensors, numbers, reals);
  from.number();  // its kind
  auto run = narrow(h) ? attention_apart_of<Half> : attention_apart_of<float>;
  return run(h, Attention(from), rotary, keys, values, own_keys, own_values, texts, begins, depth);
}

}  // namespace

STABLE_TORCH_LIBRARY(selfspec, m) {
  m.def("linear(Tensor x, Tensor packed, Tensor? bias) -> Tensor");
  m.def(
      "branches(Tensor h, Tensor[] tensors, Tensor numbers, Tensor reals, Tensor[] rotary, "
      "Tensor(a!)[] caches, int start, bool add) -> Tensor");
  m.def(
      "attention_apart(Tensor h, Tensor[] tensors, Tensor numbers, Tensor reals, Tensor[] rotary, "
      "Tensor keys, Tensor values, Tensor(a!) own_keys, Tensor(b!) own_values, Tensor texts, "
      "Tensor begins, int depth) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(selfspec, CPU, m) {
  m.impl("linear", TORCH_BOX(&linear));
  m.impl("branches", TORCH_BOX(&branches));
  m.impl("attention_apart", TORCH_BOX(&attention_apart));
}
