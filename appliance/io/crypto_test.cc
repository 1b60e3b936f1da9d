#include "io/crypto.h"

#include <gtest/gtest.h>

#include <atomic>

#include "core/security/password.h"
#include "io/job_pool.h"
#include "io/loop.h"

namespace ph::io {
namespace {

using port::Hash;

TEST(MbedCrypto, hashes_as_the_standards_say) {
  const MbedCrypto crypto;
  EXPECT_EQ(to_hex(crypto.digest(Hash::sha256, "abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(crypto.hmac(Hash::sha256, "Jefe", "what do ya want for nothing?")),  // RFC 4231 4.3
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(to_hex(crypto.pbkdf2(Hash::sha256, "passwd", "salt", 1)),  // RFC 7914 11, its first 32 bytes
            "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc");
  EXPECT_EQ(crypto.random(16).size(), 16U);
  EXPECT_NE(crypto.random(16), crypto.random(16));
}

TEST(MbedCrypto, agrees_with_mosquitto_passwd) {
  const MbedCrypto crypto;
  const auto hash = security::parse_password_hash(
      "$7$101$o4dgZgVJerBsRgyn$/cfFqlOl85wtP8VWDyV5o1lNf0y9E83Si+VVwAwEyetTnmFqcVmNdhEhtz7MGpApT1q5mJ3LCKiDr7mkoRdTXg=="
      "");
  ASSERT_TRUE(hash);
  EXPECT_EQ(crypto.pbkdf2(Hash::sha512, "secret", hash->salt, hash->iterations), hash->digest);
  const auto old = security::parse_password_hash(
      "$6$DcOjz7vnHUhhXtq9$UyIQ+3ZOV6TxhTBAZKmMEKayc+6dFov/0bRLSLvFPZrdOzkdSy4fy11n2wFzcve04JKBa7E2/"
      "8uQ6EvF60Cy+w==");
  ASSERT_TRUE(old);
  EXPECT_EQ(crypto.digest(Hash::sha512, "geheim" + old->salt), old->digest);
}

TEST(MbedCrypto, refuses_keys_and_signatures_that_are_none) {
  const MbedCrypto crypto;
  for (ByteView key : {"", "x", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"}) {
    EXPECT_FALSE(crypto.verify_rsa(Hash::sha256, key, "data", "signature"));
    EXPECT_FALSE(crypto.verify_ecdsa(Hash::sha256, key, "data", std::string(64, 'x')));
  }
  EXPECT_FALSE(crypto.verify_ecdsa(Hash::sha256, "x", "data", std::string(63, 'x')));
}

TEST(IoJobPool, answers_on_the_loop_and_refuses_beyond_its_bound) {
  IoLoop loop;
  std::atomic<bool> go{false};
  std::atomic<bool> begun{false};
  int done = 0;
  IoJobPool pool(1, 2);
  auto block = [&] {
    begun = true;
    begun.notify_all();
    go.wait(false);
  };
  EXPECT_TRUE(pool.run(block, loop, [&] { ++done; }));
  begun.wait(false);  // it is at work: the queue is empty again
  EXPECT_TRUE(pool.run([] {}, loop, [&] { ++done; }));
  EXPECT_TRUE(pool.run([] {}, loop, [&] { ++done; }));
  EXPECT_FALSE(pool.run([] {}, loop, [&] { ADD_FAILURE() << "it was refused"; }));
  EXPECT_EQ(pool.refused(), 1U);
  go = true;
  go.notify_all();
  EXPECT_TRUE(loop.run_until([&] { return done == 3; }, 60s));
  pool.finish();
  EXPECT_FALSE(pool.run([] {}, loop, [] {}));
}

}  // namespace
}  // namespace ph::io
