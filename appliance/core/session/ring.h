// Ring: a queue in one growing array. Empty, it owns no memory at all (a std::deque owns half a KiB), which is what
// most of ten thousand idle sessions have. Elements are found by index from the front and may leave from the middle.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "base/result.h"

namespace ph::session {

template <class T>
class Ring {
 public:
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return slots_[(head_ + i) & (capacity_ - 1)]; }
  const T& operator[](size_t i) const { return slots_[(head_ + i) & (capacity_ - 1)]; }
  T& front() { return (*this)[0]; }
  T& back() { return (*this)[size_ - 1]; }

  void push_back(T value) {
    if (size_ == capacity_) grow();
    ++size_;
    back() = std::move(value);
  }

  void pop_front() {
    PH_ASSERT(size_ > 0, "pop of an empty ring");
    front() = T();
    head_ = (head_ + 1) & (capacity_ - 1);
    --size_;
  }

  /// Moves the shorter side, so taking from near the front is cheap.
  void erase(size_t i) {
    PH_ASSERT(i < size_, "erase behind the end of a ring");
    if (i <= size_ / 2) {
      for (; i > 0; --i) (*this)[i] = std::move((*this)[i - 1]);
      pop_front();
      return;
    }
    for (; i + 1 < size_; ++i) (*this)[i] = std::move((*this)[i + 1]);
    back() = T();
    --size_;
  }

  void clear() { *this = Ring(); }

  Ring() = default;
  Ring(Ring&& other) noexcept { swap(other); }
  Ring& operator=(Ring&& other) noexcept {
    Ring fresh(std::move(other));
    swap(fresh);
    return *this;
  }

 private:
  void swap(Ring& other) noexcept {
    std::swap(slots_, other.slots_);
    std::swap(capacity_, other.capacity_);
    std::swap(head_, other.head_);
    std::swap(size_, other.size_);
  }
  void grow() {
    const size_t capacity = capacity_ ? capacity_ * 2 : 4;
    auto slots = std::make_unique<T[]>(capacity);
    for (size_t i = 0; i < size_; ++i) slots[i] = std::move((*this)[i]);
    slots_ = std::move(slots);
    capacity_ = capacity;
    head_ = 0;
  }
  std::unique_ptr<T[]> slots_;
  size_t capacity_ = 0;
  size_t head_ = 0;
  size_t size_ = 0;
};

}  // namespace ph::session
