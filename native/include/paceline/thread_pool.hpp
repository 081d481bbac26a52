// A few threads that claim ranges of a loop from a shared counter. Between loops they spin briefly and then sleep.
//
// The caller takes part. It never waits for a thread that has not begun, so a sleeping worker delays nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace paceline {

class ThreadPool {
 public:
  // Runs loops on `num_threads` threads (at least 1), the caller included. Throws std::runtime_error if the system does
  // not provide that many.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls function(begin, end) for ranges that cover [0, count); returns when all calls are done. Ranges are multiples
  // of `grain` (except the last one). They are long at first, so that threads read far apart, and short at the end, so
  // that threads end together. There may be one caller at a time. An exception of `function` in any thread ends the
  // loop, and is thrown here once all threads have left the loop.
  template <class Function>
  void parallel_for(int64_t count, int64_t grain, Function&& function) {
    if (count <= 0) return;
    if (workers_.empty() || count <= grain) {
      function(int64_t{0}, count);
      return;
    }
    using Stored = std::remove_reference_t<Function>;
    run({[](void* context, int64_t begin, int64_t end) { (*static_cast<Stored*>(context))(begin, end); },
         const_cast<void*>(static_cast<const void*>(&function)), count, grain});
  }

 private:
  struct Loop {
    void (*call)(void*, int64_t, int64_t) = nullptr;
    void* context = nullptr;
    int64_t count = 0;
    int64_t grain = 1;
  };

  void stop();
  void run(Loop loop);
  void claim_ranges();
  void keep_error();
  int64_t claim_length(int64_t begin) const;
  void work();
  bool try_enter(uint64_t& seen_generation);
  void wait_for_change(uint32_t epoch);

  // Bit 0: the loop may be entered. Bits 1..15: workers inside. Higher bits: generation.
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};
  std::atomic<int> num_sleeping_{0};
  std::atomic<bool> is_stopping_{false};
  Loop loop_;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::vector<std::thread> workers_;
};

// Gives the calling thread the floating-point mode that all results are defined in (round to nearest, subnormals kept) and
// restores its own mode at the end of the scope.
class FloatingPointMode {
 public:
  FloatingPointMode();
  ~FloatingPointMode();
  FloatingPointMode(const FloatingPointMode&) = delete;
  FloatingPointMode& operator=(const FloatingPointMode&) = delete;

 private:
  uint32_t saved_;
};

}  // namespace paceline
