// A buffer that owns its memory, which is aligned to a page and zero at first. Large buffers ask for huge pages.
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
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        is_part_(std::exchange(other.is_part_, false)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(is_part_, other.is_part_);
    return *this;
  }

  // Returns memory inside this buffer, which must outlive it.
  AlignedBuffer part(size_t offset, size_t size_bytes) {
    AlignedBuffer inner;
    inner.data_ = as<uint8_t>() + offset;
    inner.size_ = size_bytes;
    inner.is_part_ = true;
    return inner;
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
  bool is_part_ = false;
};

}  // namespace paceline
