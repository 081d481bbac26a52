// Owning memory aligned to a page, with huge pages asked for where the buffer is large; contents start as zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace paceline {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size_bytes);  // throws std::bad_alloc
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  template <class T = uint8_t>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <class T = uint8_t>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }
  size_t size_bytes() const { return size_; }

  // Makes room for at least `size_bytes`; contents are lost when it grows.
  void reserve(size_t size_bytes) {
    if (size_bytes > size_) *this = AlignedBuffer(size_bytes);
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace paceline
