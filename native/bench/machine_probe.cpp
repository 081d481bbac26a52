#include "bench/machine_probe.hpp"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "paceline/kernel_table.hpp"
#include "paceline/tile_config.hpp"

namespace paceline {
namespace {

constexpr size_t kReadChunk = size_t{1} << 20;
constexpr int kLine = 64;
constexpr int64_t kChunkIterations = int64_t{1} << 13;  // about ten microseconds with any instruction set

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Hides a register's value from the compiler, so that products with it stay in the loop.
#define PACELINE_OPAQUE(constraint, value) asm volatile("" : constraint(value))

// Reading ------------------------------------------------------------------------------------------------------------

uint64_t read_scalar(const uint8_t* data, size_t size_bytes) {
  uint64_t sums[kLine / 8] = {};
  for (size_t at = 0; at < size_bytes; at += kLine) {
    uint64_t line[kLine / 8];
    std::memcpy(line, data + at, kLine);
    for (int i = 0; i < kLine / 8; ++i) sums[i] ^= line[i];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total ^= sum;
  return total;
}

__attribute__((target("avx2"))) uint64_t read_avx2(const uint8_t* data, size_t size_bytes) {
  __m256i sums[8] = {};
  for (size_t at = 0; at < size_bytes; at += 8 * 32) {
    for (int i = 0; i < 8; ++i) {
      sums[i] = _mm256_xor_si256(sums[i], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + at) + i));
    }
  }
  for (int i = 1; i < 8; ++i) sums[0] = _mm256_xor_si256(sums[0], sums[i]);
  alignas(32) uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sums[0]);
  return lanes[0];
}

__attribute__((target("avx512f"))) uint64_t read_avx512(const uint8_t* data, size_t size_bytes) {
  __m512i sums[8] = {};
  for (size_t at = 0; at < size_bytes; at += 8 * 64) {
    for (int i = 0; i < 8; ++i) sums[i] = _mm512_xor_si512(sums[i], _mm512_load_si512(data + at + 64 * i));
  }
  for (int i = 1; i < 8; ++i) sums[0] = _mm512_xor_si512(sums[0], sums[i]);
  alignas(64) uint64_t lanes[8];
  _mm512_store_si512(lanes, sums[0]);
  return lanes[0];
}

// These macros name independent sums one by one, because the compiler would keep an array of sums in memory.
#define PACELINE_AVX2_CHAINS(apply) apply(0) apply(1) apply(2) apply(3)
#define PACELINE_AVX512_CHAINS(apply) \
  apply(0) apply(1) apply(2) apply(3) apply(4) apply(5) apply(6) apply(7) apply(8) apply(9) apply(10) apply(11)

// Multiplying --------------------------------------------------------------------------------------------------------

uint32_t dot_scalar(int64_t iterations) {
  int32_t sums[4] = {};
  int32_t weight = 3;
  int32_t activation = -2;
  for (int64_t i = 0; i < iterations; ++i) {
    for (int32_t& sum : sums) {
      PACELINE_OPAQUE("+r", weight);
      PACELINE_OPAQUE("+r", activation);
      sum += weight * activation;
      PACELINE_OPAQUE("+r", sum);
    }
  }
  return static_cast<uint32_t>(sums[0] + sums[1] + sums[2] + sums[3]);
}

// As for 4-bit weights, eight results of vpmaddubsw are summed in 16 bits before vpmaddwd. Only these additions depend
// on each other, so a few chains are enough.
constexpr int kAvx2Products = 8;

__attribute__((target("avx2"))) uint32_t dot_avx2(int64_t iterations) {
  __m256i weights = _mm256_set1_epi8(3);
  const __m256i activations = _mm256_set1_epi8(-2);
  const __m256i ones = _mm256_set1_epi16(1);
#define PACELINE_SUM(i) __m256i sum##i = _mm256_set1_epi32(i);
#define PACELINE_BEGIN(i)         \
  PACELINE_OPAQUE("+x", weights); \
  __m256i words##i = _mm256_maddubs_epi16(weights, activations);
#define PACELINE_MULTIPLY(i)      \
  PACELINE_OPAQUE("+x", weights); \
  words##i = _mm256_add_epi16(words##i, _mm256_maddubs_epi16(weights, activations));
#define PACELINE_FINISH(i) sum##i = _mm256_add_epi32(sum##i, _mm256_madd_epi16(words##i, ones));
  PACELINE_AVX2_CHAINS(PACELINE_SUM)
  for (int64_t i = 0; i < iterations; ++i) {
    PACELINE_AVX2_CHAINS(PACELINE_BEGIN)
#pragma GCC unroll 8
    for (int product = 1; product < kAvx2Products; ++product) {
      PACELINE_AVX2_CHAINS(PACELINE_MULTIPLY)
    }
    PACELINE_AVX2_CHAINS(PACELINE_FINISH)
  }
#undef PACELINE_SUM
#undef PACELINE_BEGIN
#undef PACELINE_MULTIPLY
#undef PACELINE_FINISH
  sum0 = _mm256_xor_si256(_mm256_xor_si256(sum0, sum1), _mm256_xor_si256(sum2, sum3));
  alignas(32) uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum0);
  return lanes[0];
}

// vpdpbusd has a latency of five cycles, and two can start in a cycle. So at least ten chains are needed.
__attribute__((target("avx512f,avx512vnni"))) uint32_t dot_avx512(int64_t iterations) {
  const __m512i weights = _mm512_set1_epi8(3);
  const __m512i activations = _mm512_set1_epi8(-2);
#define PACELINE_SUM(i) __m512i sum##i = _mm512_set1_epi32(i);
// Written as an instruction, because GCC 12 adds a register move for every product that is written as an intrinsic.
#define PACELINE_MULTIPLY(i) asm volatile("vpdpbusd %2, %1, %0" : "+v"(sum##i) : "v"(weights), "v"(activations));
#define PACELINE_FOLD(i) total = _mm512_xor_si512(total, sum##i);
  PACELINE_AVX512_CHAINS(PACELINE_SUM)
  for (int64_t i = 0; i < iterations; ++i) {
    PACELINE_AVX512_CHAINS(PACELINE_MULTIPLY)
  }
  __m512i total = _mm512_setzero_si512();
  PACELINE_AVX512_CHAINS(PACELINE_FOLD)
#undef PACELINE_SUM
#undef PACELINE_MULTIPLY
#undef PACELINE_FOLD
  alignas(64) uint32_t lanes[16];
  _mm512_store_si512(lanes, total);
  return lanes[0];
}

__attribute__((target("amx-tile,amx-int8"))) uint32_t dot_amx(int64_t iterations) {
  TileConfig config;
  std::fill_n(config.row_bytes, 8, uint16_t{64});
  std::fill_n(config.rows, 8, uint8_t{16});
  alignas(64) uint8_t ones[1024];
  std::fill_n(ones, sizeof ones, uint8_t{1});
  alignas(64) int32_t sums[256];
  asm volatile("" : : : "memory");  // GCC's tile intrinsics do not say which memory they read
  asm volatile("ldtilecfg %0" : : "m"(config));  // GCC 12's intrinsic says that only the first eight bytes are read
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(6, ones, 64);
  _tile_loadd(7, ones, 64);
  for (int64_t i = 0; i < iterations; ++i) {
    _tile_dpbusd(0, 6, 7);
    _tile_dpbusd(1, 6, 7);
    _tile_dpbusd(2, 6, 7);
    _tile_dpbusd(3, 6, 7);
  }
  _tile_stored(0, sums, 64);
  _tile_release();
  return static_cast<uint32_t>(sums[0]);
}

}  // namespace

MachineProbe::Parts MachineProbe::find_parts(std::string_view instruction_set) {
  const std::string_view name = kernels_named(instruction_set).name;
  if (name == "amx") return {read_avx512, {dot_amx, 4 * 16 * 16 * 64}};
  if (name == "avx512") return {read_avx512, {dot_avx512, 12 * 64}};
  if (name == "avx2") return {read_avx2, {dot_avx2, 4 * kAvx2Products * 32}};
  return {read_scalar, {dot_scalar, 4}};
}

MachineProbe::MachineProbe(int num_threads, std::string_view instruction_set, size_t buffer_bytes)
    : parts_(find_parts(instruction_set)), buffer_(buffer_bytes / kReadChunk * kReadChunk), pool_(num_threads) {
  if (buffer_.size_bytes() == 0) throw std::invalid_argument("a probe's buffer must have at least 1 MiB");
  // Every page is written once, because pages that were never written all map to one page of zeros.
  uint8_t* data = buffer_.as<uint8_t>();
  pool_.parallel_for(static_cast<int64_t>(buffer_.size_bytes() / kReadChunk), 1, [&](int64_t begin, int64_t end) {
    std::memset(data + begin * kReadChunk, 1, (end - begin) * kReadChunk);
  });
}

double MachineProbe::read_bytes_per_s() {
  const uint8_t* data = buffer_.as<uint8_t>();
  const auto num_chunks = static_cast<int64_t>(buffer_.size_bytes() / kReadChunk);
  const auto start = std::chrono::steady_clock::now();
  pool_.parallel_for(num_chunks, 1, [&](int64_t begin, int64_t end) {
    sink_ ^= parts_.read(data + begin * kReadChunk, (end - begin) * kReadChunk);
  });
  return static_cast<double>(buffer_.size_bytes()) / seconds_since(start);
}

double MachineProbe::run_dot_chunks(int64_t num_chunks) {
  const auto start = std::chrono::steady_clock::now();
  pool_.parallel_for(num_chunks, 1, [&](int64_t begin, int64_t end) {
    sink_ ^= parts_.dot.run((end - begin) * kChunkIterations);
  });
  return seconds_since(start);
}

double MachineProbe::multiply_adds_per_s(double duration_s) {
  // The first run wakes the threads and the wide vector units, and shows how long a chunk takes.
  const int64_t num_trial_chunks = 8 * pool_.num_threads();
  const double trial_s = run_dot_chunks(num_trial_chunks);
  const auto num_chunks = std::max(num_trial_chunks, static_cast<int64_t>(num_trial_chunks * duration_s / trial_s));
  const double multiply_adds = static_cast<double>(num_chunks) * kChunkIterations * parts_.dot.multiply_adds;
  return multiply_adds / run_dot_chunks(num_chunks);
}

}  // namespace paceline
