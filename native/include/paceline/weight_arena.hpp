// Memory for the many matrices of a model, side by side in a few large buffers: on its own, each would begin and end in the
// middle of a huge page. What is not used is not touched, and so takes address space only.
#pragma once

#include <vector>

#include "paceline/aligned_buffer.hpp"

namespace paceline {

class WeightArena {
 public:
  // Zeroed memory that lives as long as the arena; throws std::bad_alloc.
  AlignedBuffer take(size_t size_bytes);

 private:
  std::vector<AlignedBuffer> chunks_;
  size_t used_ = 0;  // of the last chunk
};

}  // namespace paceline
