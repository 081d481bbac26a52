// Natural logarithm from plain IEEE operations, so that its bits are the same on every machine and with every C library.
#pragma once

#include <bit>
#include <cstdint>

namespace paceline {

// ln x for normal positive x, relative error below 1e-15 (also near 1). With x = 2^k m, m in [sqrt(1/2), sqrt 2), and
// s = (m - 1) / (m + 1): ln m = 2 (s + s^3/3 + s^5/5 + ...), where |s| < 0.172 leaves less than 2^-53 after s^21.
inline double natural_logarithm(double x) {
  constexpr double kSquareRootOfTwo = 1.4142135623730951;
  constexpr double kLogOfTwo = 0.6931471805599453;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);
  if (mantissa >= kSquareRootOfTwo) {
    mantissa *= 0.5;
    exponent += 1;
  }
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double square = s * s;
  double series = 1.0 / 21.0;
  for (int divisor = 19; divisor >= 3; divisor -= 2) series = series * square + 1.0 / divisor;
  const double log_mantissa = 2.0 * s + 2.0 * s * (square * series);
  return static_cast<double>(exponent) * kLogOfTwo + log_mantissa;
}

}  // namespace paceline
