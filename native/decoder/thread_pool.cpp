#include "paceline/thread_pool.hpp"

#include <xmmintrin.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace paceline {
namespace {

constexpr uint64_t kOpen = 1;
constexpr uint64_t kOneWorker = 2;
constexpr uint64_t kWorkers = 0xfffe;
constexpr int kGenerationShift = 16;
constexpr uint32_t kDefaultMode = 0x1f80;
constexpr auto kSpinTime = std::chrono::microseconds(50);

// Spins until `is_done` holds or the spin time is over; returns whether `is_done` holds.
template <class Predicate>
bool spin_until(Predicate is_done) {
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 64; ++i) {
      if (is_done()) return true;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return is_done();
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  try {
    for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    const std::string begun = std::to_string(workers_.size() + 1);
    stop();
    throw std::runtime_error("only " + begun + " of " + std::to_string(num_threads) + " threads can run here; ask for fewer");
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  is_stopping_ = true;
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void ThreadPool::run(Loop loop) {
  loop_ = loop;
  next_.store(0, std::memory_order_relaxed);
  const uint64_t generation = (state_.load() >> kGenerationShift) + 1;
  state_.store((generation << kGenerationShift) | kOpen);
  epoch_.fetch_add(1);
  if (num_sleeping_.load() > 0) epoch_.notify_all();
  claim_ranges();
  state_.fetch_and(~kOpen);
  while (!spin_until([this] { return (state_.load() & kWorkers) == 0; })) {
    const uint64_t current = state_.load();
    if ((current & kWorkers) != 0) state_.wait(current);
  }
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::claim_ranges() {
  int64_t begin = next_.load(std::memory_order_relaxed);
  while (begin < loop_.count) {
    const int64_t end = begin + claim_length(begin);
    if (!next_.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
    try {
      loop_.call(loop_.context, begin, std::min(end, loop_.count));
    } catch (...) {
      keep_error();
      return;
    }
    begin = next_.load(std::memory_order_relaxed);
  }
}

// Keeps the first error of the loop, and ends the loop by leaving nothing to claim.
void ThreadPool::keep_error() {
  const std::lock_guard lock(error_mutex_);
  if (error_ == nullptr) error_ = std::current_exception();
  next_.store(loop_.count, std::memory_order_relaxed);
}

// Returns half of an even share of what is left, in whole grains.
int64_t ThreadPool::claim_length(int64_t begin) const {
  const int64_t share = (loop_.count - begin) / (2 * num_threads());
  return std::max(share / loop_.grain, int64_t{1}) * loop_.grain;
}

bool ThreadPool::try_enter(uint64_t& seen_generation) {
  uint64_t current = state_.load();
  while ((current & kOpen) != 0 && (current >> kGenerationShift) != seen_generation) {
    if (state_.compare_exchange_weak(current, current + kOneWorker)) {
      seen_generation = current >> kGenerationShift;
      return true;
    }
  }
  return false;
}

void ThreadPool::work() {
  const FloatingPointMode mode;
  uint64_t seen_generation = 0;
  for (;;) {
    const uint32_t epoch = epoch_.load();  // read first, so that a stop right after this wakes the thread
    if (is_stopping_) return;
    if (try_enter(seen_generation)) {
      claim_ranges();
      state_.fetch_sub(kOneWorker);
      state_.notify_one();
    } else {
      wait_for_change(epoch);
    }
  }
}

void ThreadPool::wait_for_change(uint32_t epoch) {
  if (spin_until([&] { return epoch_.load() != epoch; })) return;
  num_sleeping_.fetch_add(1);
  epoch_.wait(epoch);
  num_sleeping_.fetch_sub(1);
}

FloatingPointMode::FloatingPointMode() : saved_(_mm_getcsr()) { _mm_setcsr(kDefaultMode); }
FloatingPointMode::~FloatingPointMode() { _mm_setcsr(saved_); }

}  // namespace paceline
