// Work that can be cut into pieces, done by several threads; what comes out is in the order of the pieces, so that it
// is the same for any number of threads.
//
// in_order(count, make, take): `make(i)`, for each i < count, runs on any of the threads, of several i at once; what it
// reads, nobody may change meanwhile. `take(i, result)` runs on the caller's thread, one after another by i. At most
// two results a thread wait to be taken, so memory is bounded by the largest of them.
//
// Errors: what make() or take() throws is thrown to the caller, of several the one of the lowest i; what comes behind
// it may have been made and is not taken. Where no thread can be started the caller does all of it.
// Threads: they have all signals blocked, and are gone when in_order() returns. Within make() is_parallel() is true:
// what would start threads of its own does without (gzip.h), and so does an in_order() there.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace torchprof::formats {

constexpr size_t kMostWorkers = 8;

// How many threads in_order() uses: what was set, or else one for each processor that this process may use, at most
// kMostWorkers. `count` > 0. To be set before there are threads.
size_t thread_count();
void set_thread_count(size_t count);
bool is_parallel();

namespace detail {

// A thread that starts while this lives inherits a mask that blocks all signals: they are for the main thread.
class BlockSignals {
 public:
  BlockSignals();
  ~BlockSignals();
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_{};
};

// Gives out numbers to threads, and has them wait where they are too far ahead.
template <class Result>
class Pieces {
 public:
  Pieces(size_t count, size_t ahead) : count_(count), ahead_(ahead) {}

  std::optional<size_t> next() {
    std::unique_lock lock(lock_);
    changed_.wait(lock, [this] { return stops_ || next_ == count_ || next_ < taken_ + ahead_; });
    if (stops_ || next_ == count_) return {};
    return next_++;
  }
  void put(size_t i, std::optional<Result> result, std::exception_ptr error) {
    {
      const std::lock_guard lock(lock_);
      done_.emplace(i, std::pair(std::move(result), error));
    }
    changed_.notify_all();
  }
  Result wait_for(size_t i) {
    std::unique_lock lock(lock_);
    changed_.wait(lock, [this, i] { return done_.contains(i); });
    auto [result, error] = std::move(done_.extract(i).mapped());
    taken_ = i + 1;
    lock.unlock();
    changed_.notify_all();
    if (error) std::rethrow_exception(error);
    return std::move(*result);
  }
  void stop() {
    {
      const std::lock_guard lock(lock_);
      stops_ = true;
    }
    changed_.notify_all();
  }

 private:
  const size_t count_, ahead_;
  std::mutex lock_;
  std::condition_variable changed_;
  std::map<size_t, std::pair<std::optional<Result>, std::exception_ptr>> done_;
  size_t next_ = 0, taken_ = 0;
  bool stops_ = false;
};

// Joins them, whatever happens.
class Team {
 public:
  explicit Team(std::function<void()> stop) : stop_(std::move(stop)) {}
  ~Team() {
    stop_();
    for (std::thread& thread : threads_) thread.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  // Returns how many could be started.
  size_t start(size_t count, const std::function<void()>& work);

 private:
  const std::function<void()> stop_;
  std::vector<std::thread> threads_;
};

}  // namespace detail

template <class Make, class Take>
void in_order(size_t count, const Make& make, const Take& take) {
  using Result = std::invoke_result_t<const Make&, size_t>;
  const size_t threads = is_parallel() ? 1 : std::min(thread_count(), count);
  if (threads > 1) {
    detail::Pieces<Result> pieces(count, 2 * threads);
    detail::Team team([&pieces] { pieces.stop(); });
    const size_t started = team.start(threads, [&] {
      while (const std::optional<size_t> i = pieces.next()) {
        std::optional<Result> result;
        std::exception_ptr error;
        try {
          result.emplace(make(*i));
        } catch (...) {
          error = std::current_exception();
        }
        pieces.put(*i, std::move(result), error);
      }
    });
    if (started > 0) {
      for (size_t i = 0; i < count; ++i) take(i, pieces.wait_for(i));
      return;
    }
  }
  for (size_t i = 0; i < count; ++i) take(i, make(i));
}

}  // namespace torchprof::formats
