// GEMM with AMX tiles: 16 columns by 16 rows by 64 inputs in one instruction, int8 to int32.
//
// Types with integer scales only, since their sums stay integers over a whole super-block; and from a few rows on, since
// below that memory sets the pace and unpacking to tiles costs more than it saves.
#include "kernels/amx/scaled_planes.hpp"
#include "kernels/avx512/gemm.hpp"
#include "kernels/table_parts.hpp"
#include "kernels/templates/gemm.hpp"
#include "paceline/tile_config.hpp"

namespace paceline::amx {
namespace {

constexpr int64_t kFirstTileRows = 8;  // from here on tiles are faster
constexpr int kHalfRows = 16;
constexpr int kTileRows = 2 * kHalfRows;
constexpr int kTileInputs = 64;
constexpr int kTileSteps = 4;  // of a super-block
constexpr int kTileBytes = 1024;
constexpr int kProducts = kHalfRows * static_cast<int>(kColumnBlock);

// Up to 32 rows are multiplied at once, in two halves. Tiles 0 and 1 are the sums of rows 0..15 with the high and low planes of
// weights, 2 and 3 those of rows 16..31; tiles 4 and 5 are activations of both halves, 6 and 7 weights (high, low). With up to 16
// rows the second half is not used.
inline TileConfig tile_config(int64_t num_rows) {
  const auto at_most_half = [](int64_t rows) { return static_cast<uint8_t>(rows < kHalfRows ? rows : kHalfRows); };
  const uint8_t first = at_most_half(num_rows);
  const uint8_t second = num_rows > kHalfRows ? at_most_half(num_rows - kHalfRows) : first;
  const uint8_t rows[8] = {first, first, second, second, first, second, kTileInputs / 4, kTileInputs / 4};
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = kRegisterBytes;
    config.rows[tile] = rows[tile];
  }
  return config;
}

class TileSession {
 public:
  explicit TileSession(int64_t num_rows) {
    const TileConfig config = tile_config(num_rows);
    // GCC's own intrinsic names only the first eight bytes as read.
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
  ~TileSession() { _tile_release(); }
};

// Sums of a tile of rows over a super-block, of one plane of activations.
struct alignas(64) TileSums {
  int32_t products[2][2][kProducts];  // [half][high, low weights][16 rows][16]

  I32x16 load(int weights, int row) const {
    return {_mm512_load_si512(products[row / kHalfRows][weights] + row % kHalfRows * kColumnBlock)};
  }
};

// GCC's tile intrinsics do not say which memory they read.
inline void finish_memory_writes() { __asm__ volatile("" : : : "memory"); }

// Multiplies one plane of a tile of rows by a super-block, in kTileSteps steps. Products take dozens of cycles of waiting, in
// which other work is done: a part after each step, and the rest before the sums are stored.
template <bool is_signed, int kHalves, class WorkAfterStep, class WorkAfterAll>
inline __attribute__((always_inline)) void multiply_tile(const int8_t* activations, const uint8_t* weights, TileSums& sums,
                                                         WorkAfterStep work_after_step, WorkAfterAll work_after_all) {
  constexpr int64_t kHalf = kHalfRows * kActivationPlane;
  finish_memory_writes();
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kHalves == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int step = 0; step < kTileSteps; ++step) {
    _tile_loadd(4, activations + step * kTileInputs, kActivationPlane);
    _tile_loadd(6, weights + step * kTileBytes, kRegisterBytes);
    _tile_loadd(7, weights + kPlaneBytes + step * kTileBytes, kRegisterBytes);
    if constexpr (kHalves == 2) _tile_loadd(5, activations + kHalf + step * kTileInputs, kActivationPlane);
    if constexpr (is_signed) {
      _tile_dpbssd(0, 4, 6);
      if constexpr (kHalves == 2) _tile_dpbssd(2, 5, 6);
    } else {
      _tile_dpbsud(0, 4, 6);
      if constexpr (kHalves == 2) _tile_dpbsud(2, 5, 6);
    }
    _tile_dpbsud(1, 4, 7);
    if constexpr (kHalves == 2) _tile_dpbsud(3, 5, 7);
    work_after_step(step);
  }
  work_after_all();
  _tile_stored(0, sums.products[0][0], kRegisterBytes);
  _tile_stored(1, sums.products[0][1], kRegisterBytes);
  if constexpr (kHalves == 2) {
    _tile_stored(2, sums.products[1][0], kRegisterBytes);
    _tile_stored(3, sums.products[1][1], kRegisterBytes);
  }
  finish_memory_writes();
}

// Adds up a strip of column blocks: a walk over items, each a super-block of one of them. While one tile of rows is multiplied,
// the sums of the tile before become totals and the next item's weights are split.
template <GgmlType type, int kHalves>
class TileStrip {
 public:
  TileStrip(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, const GemmScratch& scratch)
      : weights_(weights), rows_(rows), num_rows_(num_rows), scratch_(scratch) {}

  // Adds column blocks [first, last) to the scratch memory's totals.
  void add(int64_t first, int64_t last) {
    first_ = first;
    num_blocks_ = last - first;
    const int64_t count = num_blocks_ * rows_.num_super_blocks();
    Item item = item_at(0);
    split_groups<type>(item.block.integers, item.block.scales, 0, 8, item.planes);
    pending_[1 - turn_] = Pending{.scales = item.block.scales};
    for (int64_t i = 0; i < count; ++i) {
      const Item next = item_at(i + 1 < count ? i + 1 : i);
      const bool has_next = i + 1 < count;
      for (int64_t row = 0; row < num_rows_; row += kTileRows) add_tile(item, row, next, has_next && row == 0);
      item = next;
    }
    finish(pending_[1 - turn_], sums_[1 - turn_]);
  }

 private:
  struct Item {
    SuperBlock<type> block;
    int64_t super_block;
    float* totals;    // [row_capacity][16]
    uint8_t* planes;  // where its weights are split to
  };
  // A tile of rows whose sums are not in the totals yet.
  struct Pending {
    const uint8_t* scales = nullptr;
    const ActivationSums* row_sums = nullptr;
    const float* row_scales = nullptr;
    float* totals = nullptr;
    int count = 0;
    bool has_high = false;
  };

  // Few rows fit in cache and leave memory as the limit: weights are read in order. Many rows are read a super-block at a time.
  Item item_at(int64_t i) const {
    const bool is_in_order = num_rows_ <= kTileRows;
    const int64_t block = is_in_order ? i / rows_.num_super_blocks() : i % num_blocks_;
    const int64_t super_block = is_in_order ? i % rows_.num_super_blocks() : i / num_blocks_;
    return {SuperBlock<type>(weights_, first_ + block, super_block), super_block,
            scratch_.totals + block * rows_.row_capacity * kColumnBlock, scratch_.weights + i % 2 * 2 * kPlaneBytes};
  }

  inline __attribute__((always_inline)) void add_tile(const Item& item, int64_t row, const Item& next, bool splits_next) {
    const TileRows rows(rows_, item.super_block, row);
    const Pending done = pending_[1 - turn_];
    const TileSums (&done_sums)[2] = sums_[1 - turn_];
    const int count = static_cast<int>(num_rows_ - row < kTileRows ? num_rows_ - row : kTileRows);
    // The tile after this one; the last one asks for its own rows again.
    const int8_t* next_rows = row + kTileRows < num_rows_ ? rows.planes[0] + kTileRows * kActivationPlane
                                                          : TileRows(rows_, next.super_block, 0).planes[0];
    const bool has_high = rows.have_high(count);
    pending_[turn_] = {item.block.scales, rows.sums, rows.scales, item.totals + row * kColumnBlock, count, has_high};
    constexpr bool kIsSigned = ScaledPlanes<type>::kIsSigned;
    const auto prepare_next = [&](int step) {
      if (splits_next) {
        split_groups<type>(next.block.integers, next.block.scales, 2 * step, 2 * step + 2, next.planes);
      }
      if (num_rows_ > kTileRows) prefetch_step(next_rows + step * kTileInputs);
    };
    multiply_tile<kIsSigned, kHalves>(rows.planes[0], item.planes, sums_[turn_][0], prepare_next,
                                      [&] { finish(done, done_sums); });
    if (has_high) {
      multiply_tile<kIsSigned, kHalves>(rows.planes[1], item.planes, sums_[turn_][1], [](int) {}, [] {});
    }
    turn_ = 1 - turn_;
  }

  // Asks for what a step of a tile will read. (Few rows are in the first-level cache anyway.)
  static inline void prefetch_step(const int8_t* rows) {
    PACELINE_UNROLL
    for (int row = 0; row < kTileRows; ++row) __builtin_prefetch(rows + row * kActivationPlane);
  }

  // Adds a tile's sums to its totals.
  static inline __attribute__((always_inline)) void finish(const Pending& done, const TileSums (&sums)[2]) {
    if (done.has_high) {
      finish_planes<2>(done, sums);
    } else {
      finish_planes<1>(done, sums);
    }
  }

  template <int kPlanes>
  static inline __attribute__((always_inline)) void finish_planes(const Pending& done, const TileSums (&sums)[2]) {
    constexpr int kShift = ScaledPlanes<type>::kShift;
    const BlockFinish<type, true> finish{ScaleReader<Layout<type>::kScales>(done.scales, 8)};
    for (int row = 0; row < done.count; ++row) {
      I32x16 of_planes[kPlanes];
      PACELINE_UNROLL
      for (int plane = 0; plane < kPlanes; ++plane) {
        of_planes[plane] = add_int(shift_left<kShift>(sums[plane].load(0, row)), sums[plane].load(1, row));
      }
      float* total = done.totals + row * kColumnBlock;
      store(total, finish.add(load(total), of_planes, done.row_sums[row], done.row_scales[row]));
    }
  }

  const PackedMatrix& weights_;
  const QuantizedRows& rows_;
  int64_t num_rows_;
  const GemmScratch& scratch_;
  int64_t first_ = 0;
  int64_t num_blocks_ = 0;
  int turn_ = 0;  // which of the two sums is written next
  TileSums sums_[2][2];  // [turn][low, high activations]
  Pending pending_[2];
};

template <GgmlType type, int kHalves>
void gemm_tiles(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t block_begin,
                int64_t block_end, const GemmScratch& scratch, float* out, int64_t stride) {
  const TileSession session(num_rows);
  TileStrip<type, kHalves> strip(weights, rows, num_rows, scratch);
  walk_strips(weights, rows, num_rows, block_begin, block_end, scratch.totals, out, stride,
              [&](int64_t first, int64_t last) { strip.add(first, last); });
}

void multiply_quantized(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t block_begin,
                        int64_t block_end, const GemmScratch& scratch, float* out, int64_t stride) {
  visit_quantized(weights.type, [&]<GgmlType type>() {
    if constexpr (LayoutTraits<type>::kHasIntegerScales) {
      if (num_rows >= kFirstTileRows) {
        const auto multiply = num_rows <= kHalfRows ? gemm_tiles<type, 1> : gemm_tiles<type, 2>;
        return multiply(weights, rows, num_rows, block_begin, block_end, scratch, out, stride);
      }
    }
    avx512::multiply_quantized(weights, rows, num_rows, block_begin, block_end, scratch, out, stride);
  });
}

}  // namespace

void fill_gemm_kernels(KernelTable& table) { table.gemm_quantized = multiply_quantized; }

}  // namespace paceline::amx
