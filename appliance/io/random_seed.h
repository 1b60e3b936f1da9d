// Seeds from the kernel's generator, for Random (base/random.h) and for what must not be guessed (serial numbers).
#pragma once

#include <cstdint>
#include <string>

namespace ph::io {

uint64_t random_seed();
/// `count` unpredictable bytes. Waits only early in boot, while the kernel's generator is not yet seeded.
std::string random_bytes(size_t count);

}  // namespace ph::io
