// PlainCrypto and LoopJobs: port::Crypto and port::JobPool for tests without mbedTLS and threads. The functions are
// deterministic and tell their inputs apart; nothing more.
#pragma once

#include <atomic>
#include <deque>
#include <string>
#include <utility>

#include "port/crypto.h"

namespace ph::test {

class PlainCrypto final : public port::Crypto {
 public:
  std::string digest(port::Hash hash, ByteView data) const override { return spread(hash, "digest", data); }
  std::string hmac(port::Hash hash, ByteView key, ByteView data) const override {
    return spread(hash, "hmac" + std::to_string(key.size()) + std::string(key), data);
  }
  std::string pbkdf2(port::Hash hash, ByteView password, ByteView salt, uint32_t iterations) const override {
    ++slow_hashes;
    return spread(hash, std::to_string(iterations) + ":" + std::to_string(salt.size()) + std::string(salt), password);
  }
  bool verify_rsa(port::Hash hash, ByteView key, ByteView data, ByteView signature) const override {
    return signature == hmac(hash, key, data);
  }
  bool verify_ecdsa(port::Hash hash, ByteView key, ByteView data, ByteView signature) const override {
    return signature == hmac(hash, key, data);
  }
  std::string random(size_t count) const override { return std::string(count, 'r'); }

  mutable std::atomic<size_t> slow_hashes = 0;  // calls of pbkdf2

 private:
  static std::string spread(port::Hash hash, std::string kind, ByteView data) {
    const size_t size = hash == port::Hash::sha256 ? 32 : hash == port::Hash::sha384 ? 48 : 64;
    kind += '\0';
    kind += data;
    uint64_t h = 1469598103934665603ULL;  // FNV-1a
    std::string out;
    while (out.size() < size) {
      for (unsigned char c : kind) h = (h ^ c) * 1099511628211ULL;
      out.push_back(static_cast<char>(h >> 32));
      kind.push_back('.');
    }
    return out;
  }
};

/// Jobs run when release() says so, or at once; a bound on those that wait.
class LoopJobs final : public port::JobPool {
 public:
  bool run(port::Task job, port::Loop& loop, port::Task done) override {
    if (waiting_.size() >= waiting_max) return false;
    waiting_.push_back({std::move(job), &loop, std::move(done)});
    if (!held) release();
    return true;
  }
  void release() {
    for (auto& w : std::exchange(waiting_, {})) {
      ++ran;
      w.job();
      w.loop->post(std::move(w.done));
    }
  }
  bool held = false;
  size_t waiting_max = 100;
  size_t ran = 0;

 private:
  struct Waiting {
    port::Task job;
    port::Loop* loop;
    port::Task done;
  };
  std::deque<Waiting> waiting_;
};

}  // namespace ph::test
