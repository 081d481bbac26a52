// Measures this machine's top speed: bytes read from memory, and int8 multiply-adds in registers, per second on all
// threads.
//
// Benchmarks compare kernels and steps with these limits. Nothing here computes anything that a model needs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "paceline/thread_pool.hpp"
#include "paceline/aligned_buffer.hpp"

namespace paceline {

class MachineProbe {
 public:
  // Reads from a buffer of `buffer_bytes`, which must be much larger than the caches to measure memory. Multiplies with
  // the fastest instruction of `instruction_set`: vpmaddubsw for avx2, vpdpbusd for avx512, tdpbusd for amx. Throws
  // std::invalid_argument for a set that this processor cannot run, or for a buffer below a MiB; std::bad_alloc.
  MachineProbe(int num_threads, std::string_view instruction_set, size_t buffer_bytes);

  // Reads the whole buffer once.
  double read_bytes_per_s();
  // Multiplies for about `duration_s`.
  double multiply_adds_per_s(double duration_s);

 private:
  // A loop of dot products, and the multiply-adds of one iteration. The result only keeps the compiler from removing
  // the loop.
  struct DotLoop {
    uint32_t (*run)(int64_t iterations);
    int64_t multiply_adds;
  };
  struct Parts {
    uint64_t (*read)(const uint8_t* data, size_t size_bytes);
    DotLoop dot;
  };
  static Parts find_parts(std::string_view instruction_set);
  double run_dot_chunks(int64_t num_chunks);  // seconds

  Parts parts_;
  AlignedBuffer buffer_;
  ThreadPool pool_;
  std::atomic<uint64_t> sink_{0};
};

}  // namespace paceline
