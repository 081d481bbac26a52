#include "paceline/aligned_buffer.hpp"
#include "paceline/weight_arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace paceline {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kChunk = size_t{256} << 20;

size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

AlignedBuffer::AlignedBuffer(size_t size_bytes) : size_(round_up(size_bytes, kPage)) {
  if (size_ == 0) return;
  data_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    throw std::bad_alloc();
  }
  // This is only a request: everything works without huge pages too, with more TLB misses.
  if (size_ >= kHugePage) madvise(data_, size_, MADV_HUGEPAGE);
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr && !is_part_) munmap(data_, size_);
}

AlignedBuffer WeightArena::take(size_t size_bytes) {
  const size_t size = round_up(size_bytes, kPage);
  if (chunks_.empty() || chunks_.back().size_bytes() - used_ < size) {
    chunks_.emplace_back(std::max(size, kChunk));
    used_ = 0;
  }
  used_ += size;
  return chunks_.back().part(used_ - size, size);
}

}  // namespace paceline
