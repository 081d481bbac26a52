// Philox4x32-10, the counter-based generator of "Parallel random numbers: as easy as 1, 2, 3" (Salmon et al., SC 2011).
#pragma once

#include <cstdint>

namespace paceline {

constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53U;
constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57U;
constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9U;
constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85U;
constexpr int kPhiloxRounds = 10;

// Applies ten rounds to many counters at once, in place. A `Word` holds the same 32-bit word of several counters, each
// in the lower half of 64 bits (the upper half is ignored, and undefined afterwards). All operations are on integers,
// so every instruction set gives the same bits.
template <class Word>
[[gnu::always_inline]] inline void philox(Word (&words)[4], uint32_t key0, uint32_t key1) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const Word product0 = words[0].multiply(kPhiloxMultiplier0);
    const Word product1 = words[2].multiply(kPhiloxMultiplier1);
    words[0] = product1.high_half().exclusive_or(words[1]).exclusive_or(Word::broadcast(key0));
    words[1] = product1;
    words[2] = product0.high_half().exclusive_or(words[3]).exclusive_or(Word::broadcast(key1));
    words[3] = product0;
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
}

// One counter.
struct PhiloxWord {
  uint64_t value;

  static PhiloxWord broadcast(uint32_t x) { return {x}; }
  static PhiloxWord count_from(uint32_t first) { return {first}; }
  PhiloxWord multiply(uint32_t factor) const { return {(value & 0xFFFFFFFFU) * factor}; }
  PhiloxWord high_half() const { return {value >> 32}; }
  PhiloxWord exclusive_or(PhiloxWord other) const { return {value ^ other.value}; }
  void store(uint32_t* target) const { *target = static_cast<uint32_t>(value); }
};

// The key of the noise for one sampled token. The first counter word is token id / 4, and the four words of a result
// belong to four consecutive token ids.
struct NoiseKey {
  uint64_t seed = 0;
  uint64_t position = 0;  // absolute index in the sequence of the token that is sampled
  uint32_t choice_index = 0;
};

}  // namespace paceline
