// GEMM with AMX tiles: 16 columns by up to 16 rows by 64 inputs in one instruction, int8 to int32.
//
// Types with integer scales only, since their sums stay integers over a whole super-block; and from a few rows on, since
// below that memory sets the pace and unpacking to tiles costs more than it saves.
#include "kernels/amx/scaled_planes.hpp"
#include "kernels/avx512/gemm.hpp"
#include "kernels/table_parts.hpp"
#include "kernels/templates/gemm.hpp"

namespace paceline::amx {
namespace {

constexpr int64_t kFirstTileRows = 3;  // from here on tiles are faster
constexpr int kTileRows = 16;
constexpr int kTileInputs = 64;
constexpr int kTileBytes = 1024;
constexpr int kProducts = kTileRows * static_cast<int>(kColumnBlock);

// Tiles 0..3 are sums, 4 and 5 activations (high, low), 6 and 7 weights (high, low).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  explicit TileConfig(int num_rows) {
    for (int tile = 0; tile < 8; ++tile) {
      row_bytes[tile] = kRegisterBytes;
      rows[tile] = static_cast<uint8_t>(tile < 6 ? num_rows : kTileInputs / 4);
    }
  }
};

class TileSession {
 public:
  explicit TileSession(int num_rows) {
    const TileConfig config(num_rows);
    _tile_loadconfig(&config);
  }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
  ~TileSession() { _tile_release(); }
};

// Sums of a tile of rows over a super-block: [high, low activations][high, low weights][rows][16].
struct alignas(64) TileSums {
  int32_t products[2][2][kProducts];

  I32x16 load(int activations, int weights, int row) const {
    return {_mm512_load_si512(products[activations][weights] + row * kColumnBlock)};
  }
};

template <bool is_signed>
inline void multiply_tile(const int8_t* activations, const uint8_t* weights, TileSums& sums) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  PACELINE_UNROLL
  for (int i = 0; i < 4; ++i) {
    _tile_loadd(4, activations + i * kTileInputs, kActivationSegment);
    _tile_loadd(6, weights + i * kTileBytes, kRegisterBytes);
    _tile_loadd(7, weights + kPlaneBytes + i * kTileBytes, kRegisterBytes);
    _tile_loadd(5, activations + kActivationPlane + i * kTileInputs, kActivationSegment);
    if constexpr (is_signed) {
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    } else {
      _tile_dpbsud(0, 4, 6);
      _tile_dpbsud(1, 4, 7);
      _tile_dpbsud(2, 5, 6);
      _tile_dpbsud(3, 5, 7);
    }
  }
  _tile_stored(0, sums.products[0][0], kRegisterBytes);
  _tile_stored(1, sums.products[0][1], kRegisterBytes);
  _tile_stored(2, sums.products[1][0], kRegisterBytes);
  _tile_stored(3, sums.products[1][1], kRegisterBytes);
}

// Adds a super-block, split into `planes`, to totals [num_rows][16].
template <GgmlType type>
void add_rows(const SuperBlock<type>& block, const uint8_t* planes, const TileRows& rows, int64_t num_rows, float* totals) {
  constexpr int kShift = ScaledPlanes<type>::kShift;
  TileSums sums;
  const BlockFinish<type, true> finish{ScaleReader<Layout<type>::kScales>(block.scales, block.groups)};
  for (int64_t first = 0; first < num_rows; first += kTileRows) {
    multiply_tile<ScaledPlanes<type>::kIsSigned>(rows.planes + first * kActivationSegment, planes, sums);
    const int count = static_cast<int>(num_rows - first < kTileRows ? num_rows - first : kTileRows);
    for (int row = 0; row < count; ++row) {
      const I32x16 high = add_int(shift_left<kShift>(sums.load(0, 0, row)), sums.load(0, 1, row));
      const I32x16 low = add_int(shift_left<kShift>(sums.load(1, 0, row)), sums.load(1, 1, row));
      float* total = totals + (first + row) * kColumnBlock;
      store(total, finish.add(load(total), high, low, rows.sums[first + row], rows.scales[first + row]));
    }
  }
}

template <GgmlType type>
void gemm_tiles(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t block_begin,
                int64_t block_end, const GemmScratch& scratch, float* out, int64_t stride) {
  const TileSession session(static_cast<int>(num_rows < kTileRows ? num_rows : kTileRows));
  // One block at a time keeps reading memory in order, where the rows fit in cache anyway.
  const int64_t strip = num_rows <= kTileRows ? 1 : kStripBlocks;
  walk_strips(weights, rows, num_rows, block_begin, block_end, strip, scratch.totals, out, stride,
              [&](int64_t index, int64_t b, float* totals) {
                const SuperBlock<type> block(weights, index, b);
                split_super_block<type>(block.integers, block.scales, scratch.weights);
                add_rows(block, scratch.weights, TileRows(rows, b, 0), num_rows, totals);
              });
}

void multiply_quantized(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t block_begin,
                        int64_t block_end, const GemmScratch& scratch, float* out, int64_t stride) {
  visit_quantized(weights.type, [&]<GgmlType type>() {
    if constexpr (LayoutTraits<type>::kHasIntegerScales) {
      if (num_rows >= kFirstTileRows) {
        return gemm_tiles<type>(weights, rows, num_rows, block_begin, block_end, scratch, out, stride);
      }
    }
    avx512::multiply_quantized(weights, rows, num_rows, block_begin, block_end, scratch, out, stride);
  });
}

}  // namespace

void fill_gemm_kernels(KernelTable& table) { table.gemm_quantized = multiply_quantized; }

}  // namespace paceline::amx
