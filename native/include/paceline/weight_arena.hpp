// Memory for the many matrices of a model, side by side in a few large buffers. In a buffer of its own, a matrix would
// begin and end in the middle of a huge page. Unused memory is never touched, so it takes address space only.
#pragma once

#include <vector>

#include "paceline/aligned_buffer.hpp"

namespace paceline {

class WeightArena {
 public:
  // Returns zeroed memory that lives as long as the arena; throws std::bad_alloc.
  AlignedBuffer take(size_t size_bytes);

 private:
  std::vector<AlignedBuffer> chunks_;
  size_t used_ = 0;  // bytes of the last chunk
};

}  // namespace paceline
