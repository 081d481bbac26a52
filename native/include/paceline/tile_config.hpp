// The shapes of AMX's eight tiles, as ldtilecfg reads them (Intel SDM, palette 1).
#pragma once

#include <cstdint>

namespace paceline {

// It has no member functions, because files compiled for different instruction sets include it and must share no code.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

}  // namespace paceline
