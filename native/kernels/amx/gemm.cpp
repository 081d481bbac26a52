// GEMM with AMX tiles: 16 columns by 16 rows by 64 inputs in one instruction, int8 to int32.
//
// Tiles are used only for types with integer scales, whose sums stay integers over a whole super-block, and only from a
// few rows on. With fewer rows memory limits the speed, and unpacking to tiles costs more than it saves.
#include "kernels/amx/scaled_planes.hpp"
#include "kernels/avx512/gemm.hpp"
#include "kernels/table_parts.hpp"
#include "kernels/templates/gemm.hpp"
#include "paceline/tile_config.hpp"

namespace paceline::amx {
namespace {

constexpr int64_t kFirstTileRows = 9;  // from here on tiles are faster
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
    // GCC's own intrinsic says that only the first eight bytes are read.
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
  ~TileSession() { _tile_release(); }
};

// Where super-block `super_block` of a column block begins, and its scales.
template <GgmlType type>
struct SuperBlock {
  const uint8_t* integers;
  int groups;
  const uint8_t* scales;

  SuperBlock(const PackedMatrix& weights, int64_t index, int64_t super_block)
      : integers(weights.block(index) + super_block * (kSuperBlock / kGroup) * Layout<type>::kGroupBytes),
        groups(groups_of<type>(weights.inputs, super_block)),
        scales(integers + groups * Layout<type>::kIntegerBytes) {}
};

// Copies the totals of column blocks [first, last), [blocks][row_capacity][16], to the result. It copies one row after
// another, because rows of the result lie on different pages.
inline void write_totals(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t first,
                         int64_t last, const float* totals, float* out, int64_t stride) {
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t index = first; index < last; ++index) {
      const float* source = totals + ((index - first) * rows.row_capacity + row) * kColumnBlock;
      store_partial(out + row * stride + index * kColumnBlock, load(source), columns_of_block(weights, index));
    }
  }
}

// Calls add_strip(first, last) for strips of column blocks. add_strip must add the strip's results to `totals`,
// [blocks][row_capacity][16], which are zero before.
template <class AddStrip>
void walk_strips(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t block_begin,
                 int64_t block_end, float* totals, float* out, int64_t stride, AddStrip add_strip) {
  for (int64_t first = block_begin; first < block_end; first += kStripBlocks) {
    const int64_t last = block_end - first < kStripBlocks ? block_end : first + kStripBlocks;
    std::memset(totals, 0, static_cast<size_t>((last - first) * rows.row_capacity * kColumnBlock) * sizeof(float));
    add_strip(first, last);
    write_totals(weights, rows, num_rows, first, last, totals, out, stride);
  }
}

// Sums of a tile of rows over a super-block, for one plane of activations.
struct alignas(64) TileSums {
  int32_t products[2][2][kProducts];  // [half][high, low weights][16 rows][16]

  I32x16 load(int weights, int row) const {
    return {_mm512_load_si512(products[row / kHalfRows][weights] + row % kHalfRows * kColumnBlock)};
  }
};

// GCC's tile intrinsics do not say which memory they read.
inline void finish_memory_writes() { __asm__ volatile("" : : : "memory"); }

// Multiplies one plane of a tile of rows by a super-block, in kTileSteps steps. Products take dozens of cycles.
// Meanwhile other work is done: a part after each step, and the rest before the sums are stored.
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

// Computes a strip of column blocks, item by item; an item is one super-block of one column block. While one tile of
// rows is multiplied, the sums of the tile before are added to the totals and the next item's weights are split. Few
// rows have a high plane that is not zero. With one half (at most 16 rows), all high planes are multiplied if any is
// not zero. With two halves, the high planes that are not zero are gathered and multiplied first.
template <GgmlType type, int kHalves>
class TileStrip {
 public:
  TileStrip(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, const GemmScratch& scratch)
      : weights_(weights), rows_(rows), num_rows_(num_rows), scratch_(scratch) {}

  // Adds column blocks [first, last) to the scratch memory's totals.
  void add(int64_t first, int64_t last) {
    first_ = first;
    num_blocks_ = last - first;
    const int64_t num_super_blocks = rows_.num_super_blocks();
    const int64_t count = num_blocks_ * num_super_blocks;
    // Few rows fit in cache, and memory is the limit: weights are read in order. Otherwise one super-block of all rows
    // is read at a time.
    const bool is_in_order = num_rows_ <= kTileRows;
    int64_t block = 0;
    int64_t super_block = 0;
    const auto advance = [&] {
      int64_t& inner = is_in_order ? super_block : block;
      int64_t& outer = is_in_order ? block : super_block;
      if (++inner == (is_in_order ? num_super_blocks : num_blocks_)) {
        inner = 0;
        ++outer;
      }
    };
    Item item = item_at(block, super_block);
    split_groups<type>(item.block.integers, item.block.scales, 0, 8, item.planes);
    pending_[1 - turn_] = Pending{.scales = item.block.scales};
    for (int64_t i = 0; i < count; ++i) {
      const bool has_next = i + 1 < count;
      if (has_next) advance();
      const Item next = item_at(block, super_block);
      if constexpr (kGathersHigh) {
        if (i == 0 || item.super_block != gathered_) gather_high(item.super_block);
        add_high(item);
      }
      int first_high = 0;
      for (int64_t row = 0; row < num_rows_; row += kTileRows) {
        first_high = add_tile(item, row, first_high, next, has_next && row == 0);
      }
      item = next;
    }
    add_sums(pending_[1 - turn_], sums_[1 - turn_]);
  }

 private:
  static constexpr bool kGathersHigh = kHalves == 2;
  static constexpr bool kIsSigned = ScaledPlanes<type>::kIsSigned;

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
    bool has_high = false;               // its high planes were multiplied with it; if not, the gathered ones are here:
    const int32_t* high_rows = nullptr;  // the tile's rows that have one, counted from the first row of all
    const int32_t* high_sums = nullptr;  // [num_high][16]
    int num_high = 0;
    int first_row = 0;
  };

  Item item_at(int64_t block, int64_t super_block) {
    planes_turn_ = 1 - planes_turn_;
    return {SuperBlock<type>(weights_, first_ + block, super_block), super_block,
            scratch_.totals + block * rows_.row_capacity * kColumnBlock, scratch_.weights + planes_turn_ * 2 * kPlaneBytes};
  }

  // Copies a super-block's high planes that are not zero side by side.
  void gather_high(int64_t super_block) {
    const TileRows rows(rows_, super_block, 0);
    num_high_ = 0;
    rows_turn_ = 1 - rows_turn_;
    for (int row = 0; row < num_rows_; ++row) {
      if ((rows.flags[row] & kHasHigh) == 0) continue;
      const int8_t* source = rows.planes[1] + row * kActivationPlane;
      std::memcpy(scratch_.high_values + num_high_ * kActivationPlane, source, kActivationPlane);
      high_rows()[num_high_++] = row;
    }
    gathered_ = super_block;
  }

  // Multiplies gathered planes by an item's weights, into the part of high_sums that no pending tile reads.
  void add_high(const Item& item) {
    high_turn_ = 1 - high_turn_;
    int32_t* target = high_sums();
    const auto nothing = [](auto...) {};
    for (int row = 0; row < num_high_; row += kTileRows) {
      const int8_t* values = scratch_.high_values + row * kActivationPlane;
      if (num_high_ - row > kHalfRows) {
        multiply_tile<kIsSigned, kHalves>(values, item.planes, gathered_sums_, nothing, nothing);
      } else {
        multiply_tile<kIsSigned, 1>(values, item.planes, gathered_sums_, nothing, nothing);
      }
      const int count = num_high_ - row < kTileRows ? num_high_ - row : kTileRows;
      for (int i = 0; i < count; ++i, target += kColumnBlock) _mm512_store_si512(target, join(gathered_sums_, i).value);
    }
  }

  int32_t* high_sums() const { return scratch_.high_sums + high_turn_ * rows_.row_capacity * kColumnBlock; }
  int32_t* high_rows() const { return scratch_.high_rows + rows_turn_ * rows_.row_capacity; }

  // Multiplies a tile of rows. `first_high` is the first gathered row that is not before the tile; returns the first
  // one after it.
  inline __attribute__((always_inline)) int add_tile(const Item& item, int64_t row, int first_high, const Item& next,
                                                     bool splits_next) {
    const TileRows rows(rows_, item.super_block, row);
    const Pending done = pending_[1 - turn_];
    const TileSums (&done_sums)[2] = sums_[1 - turn_];
    const int count = static_cast<int>(num_rows_ - row < kTileRows ? num_rows_ - row : kTileRows);
    // The rows of the tile that is multiplied next, which may be the first tile of the next item.
    const int8_t* next_rows = row + kTileRows < num_rows_ ? rows.planes[0] + kTileRows * kActivationPlane
                                                          : TileRows(rows_, next.super_block, 0).planes[0];
    const bool has_high = !kGathersHigh && (rows.all_flags(count) & kHasHigh) != 0;
    int last_high = first_high;
    while (last_high < num_high_ && high_rows()[last_high] < row + count) ++last_high;
    pending_[turn_] = {item.block.scales, rows.sums, rows.scales, item.totals + row * kColumnBlock, count, has_high,
                       high_rows() + first_high, high_sums() + first_high * kColumnBlock, last_high - first_high,
                       static_cast<int>(row)};
    const auto prepare_next = [&](int step) {
      if (splits_next) {
        split_groups<type>(next.block.integers, next.block.scales, 2 * step, 2 * step + 2, next.planes);
      }
      if (num_rows_ > kTileRows) prefetch_step(next_rows + step * kTileInputs);
    };
    multiply_tile<kIsSigned, kHalves>(rows.planes[0], item.planes, sums_[turn_][0], prepare_next,
                                      [&] { add_sums(done, done_sums); });
    if (has_high) {
      multiply_tile<kIsSigned, kHalves>(rows.planes[1], item.planes, sums_[turn_][1], [](int) {}, [] {});
    }
    turn_ = 1 - turn_;
    return last_high;
  }

  // Prefetches what a step of a tile will read. (Few rows are in the first-level cache anyway.)
  static inline void prefetch_step(const int8_t* rows) {
    PACELINE_UNROLL
    for (int row = 0; row < kTileRows; ++row) __builtin_prefetch(rows + row * kActivationPlane);
  }

  // Returns a row's sum over both planes of weights.
  static inline __attribute__((always_inline)) I32x16 join(const TileSums& sums, int row) {
    return add_int(shift_left<ScaledPlanes<type>::kShift>(sums.load(0, row)), sums.load(1, row));
  }

  // Adds a tile's sums to its totals.
  static inline __attribute__((always_inline)) void add_sums(const Pending& done, const TileSums (&sums)[2]) {
    const BlockFinish<type, true> finish{ScaleReader<Layout<type>::kScales>(done.scales, 8)};
    const auto total_of = [&](int row) { return done.totals + row * kColumnBlock; };
    const auto add_row = [&](int row, F32x16 total, const auto& of_planes) __attribute__((always_inline)) {
      store(total_of(row), finish.add(total, of_planes, done.row_sums[row], done.row_scales[row]));
    };
    if (done.has_high) {
      for (int row = 0; row < done.count; ++row) {
        const I32x16 both[2] = {join(sums[0], row), join(sums[1], row)};
        add_row(row, load(total_of(row)), both);
      }
      return;
    }
    // The loop treats rows with gathered planes like the others; then they are computed again from their old totals.
    F32x16 before[kTileRows];
    for (int i = 0; i < done.num_high; ++i) before[i] = load(total_of(done.high_rows[i] - done.first_row));
    for (int row = 0; row < done.count; ++row) {
      const I32x16 low[1] = {join(sums[0], row)};
      add_row(row, load(total_of(row)), low);
    }
    for (int i = 0; i < done.num_high; ++i) {
      const int row = done.high_rows[i] - done.first_row;
      const I32x16 both[2] = {join(sums[0], row), {_mm512_load_si512(done.high_sums + i * kColumnBlock)}};
      add_row(row, before[i], both);
    }
  }

  const PackedMatrix& weights_;
  const QuantizedRows& rows_;
  int64_t num_rows_;
  const GemmScratch& scratch_;
  int64_t first_ = 0;
  int64_t num_blocks_ = 0;
  int turn_ = 0;         // which of the two sums is written next
  int planes_turn_ = 0;  // where the last item's weights are split to
  TileSums sums_[2][2];  // [turn][low, high activations]
  Pending pending_[2];
  // The gathered high planes: how many, of which super-block, and which parts of the scratch memory hold them.
  int num_high_ = 0;
  int64_t gathered_ = -1;
  int high_turn_ = 0;
  int rows_turn_ = 0;
  TileSums gathered_sums_;
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
