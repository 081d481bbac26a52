// Philox4x32-10, the counter-based generator of "Parallel random numbers: as easy as 1, 2, 3" (Salmon et al., SC 2011).
#pragma once

#include <cstdint>

namespace paceline {

constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53U;
constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57U;
constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9U;
constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85U;
constexpr int kPhiloxRounds = 10;

// Ten rounds on `kWidth` counters at once, in place; `words[w][i]` is word w of counter i. Integers only, so any way of
// compiling the loops gives the same bits.
template <int kWidth>
[[gnu::always_inline]] inline void philox(uint32_t (&words)[4][kWidth], uint32_t key0, uint32_t key1) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (int i = 0; i < kWidth; ++i) {
      const uint64_t product0 = static_cast<uint64_t>(kPhiloxMultiplier0) * words[0][i];
      const uint64_t product1 = static_cast<uint64_t>(kPhiloxMultiplier1) * words[2][i];
      words[0][i] = static_cast<uint32_t>(product1 >> 32) ^ words[1][i] ^ key0;
      words[1][i] = static_cast<uint32_t>(product1);
      words[2][i] = static_cast<uint32_t>(product0 >> 32) ^ words[3][i] ^ key1;
      words[3][i] = static_cast<uint32_t>(product0);
    }
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
}

// What the noise of one sampled token is keyed by; the token id fills the first counter word.
struct NoiseKey {
  uint64_t seed = 0;
  uint64_t position = 0;  // absolute index in the sequence of the token that is sampled
  uint32_t choice_index = 0;
};

// The bits of `kWidth` times four consecutive token ids from `4 * first_group` on: token 4 * (first_group + i) + w has
// `words[w][i]`.
template <int kWidth>
[[gnu::always_inline]] inline void noise_bits(const NoiseKey& key, uint32_t first_group, uint32_t (&words)[4][kWidth]) {
  for (int i = 0; i < kWidth; ++i) {
    words[0][i] = first_group + static_cast<uint32_t>(i);
    words[1][i] = static_cast<uint32_t>(key.position);
    words[2][i] = static_cast<uint32_t>(key.position >> 32);
    words[3][i] = key.choice_index;
  }
  philox(words, static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32));
}

}  // namespace paceline
