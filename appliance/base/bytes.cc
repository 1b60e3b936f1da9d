#include "base/bytes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace ph {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected Castagnoli

constexpr auto kTable = [] {
  std::array<std::array<uint32_t, 256>, 8> t{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c & 1) ? (c >> 1) ^ kPolynomial : c >> 1;
    t[0][i] = c;
  }
  for (uint32_t i = 0; i < 256; ++i)
    for (size_t k = 1; k < 8; ++k) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 0xFF];
  return t;
}();

uint32_t crc_portable(uint32_t c, const unsigned char* p, size_t n) {
  while (n >= 8) {
    uint64_t v;
    std::memcpy(&v, p, 8);
    v ^= c;  // little-endian hosts only: x86-64 and ARM64
    c = kTable[7][v & 0xFF] ^ kTable[6][(v >> 8) & 0xFF] ^ kTable[5][(v >> 16) & 0xFF] ^ kTable[4][(v >> 24) & 0xFF] ^
        kTable[3][(v >> 32) & 0xFF] ^ kTable[2][(v >> 40) & 0xFF] ^ kTable[1][(v >> 48) & 0xFF] ^ kTable[0][v >> 56];
    p += 8;
    n -= 8;
  }
  while (n--) c = kTable[0][(c ^ *p++) & 0xFF] ^ (c >> 8);
  return c;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc_hardware(uint32_t c, const unsigned char* p, size_t n) {
  uint64_t c64 = c;
  while (n >= 8) {
    uint64_t v;
    std::memcpy(&v, p, 8);
    c64 = _mm_crc32_u64(c64, v);
    p += 8;
    n -= 8;
  }
  auto c32 = static_cast<uint32_t>(c64);
  while (n--) c32 = _mm_crc32_u8(c32, *p++);
  return c32;
}
bool has_hardware() {
  return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
__attribute__((target("+crc"))) uint32_t crc_hardware(uint32_t c, const unsigned char* p, size_t n) {
  while (n >= 8) {
    uint64_t v;
    std::memcpy(&v, p, 8);
    c = __crc32cd(c, v);
    p += 8;
    n -= 8;
  }
  while (n--) c = __crc32cb(c, *p++);
  return c;
}
bool has_hardware() {
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
#else
uint32_t crc_hardware(uint32_t c, const unsigned char* p, size_t n) {
  return crc_portable(c, p, n);
}
bool has_hardware() {
  return false;
}
#endif

}  // namespace

uint32_t crc32c(ByteView bytes, uint32_t previous) {
  static const auto compute = has_hardware() ? crc_hardware : crc_portable;
  return ~compute(~previous, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

std::string to_hex(ByteView bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (unsigned char c : bytes) {
    text += kDigits[c >> 4];
    text += kDigits[c & 15];
  }
  return text;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Sixteen bytes at a time: each line that passes is counted at both ends of a link, and byte by byte that was a
/// quarter of what a line cost.
size_t count_newlines(ByteView bytes) {
  using Lanes = uint8_t __attribute__((vector_size(16)));
  constexpr size_t kRoundsMax = 255;  // then a lane is full
  const Lanes newlines = Lanes{} + uint8_t{'\n'};
  size_t count = 0;
  while (bytes.size() >= sizeof(Lanes)) {
    Lanes found{};
    const size_t rounds = std::min(bytes.size() / sizeof(Lanes), kRoundsMax);
    for (size_t i = 0; i < rounds; ++i) {
      Lanes lanes;
      std::memcpy(&lanes, bytes.data() + i * sizeof(Lanes), sizeof lanes);
      found -= std::bit_cast<Lanes>(lanes == newlines);  // all bits set: minus one
    }
    for (size_t i = 0; i < sizeof(Lanes); ++i) count += found[i];
    bytes.remove_prefix(rounds * sizeof(Lanes));
  }
  return count + static_cast<size_t>(std::count(bytes.begin(), bytes.end(), '\n'));
}

}  // namespace ph
