#include "io/pki.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <set>

#include "io/clock.h"
#include "io/test_files.h"

namespace ph::io {
namespace {

/// Runs a command; its output, with "[exit N]" when it failed.
std::string shell(const std::string& command) {
  std::string output;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return "[no shell]";
  char buffer[4096];
  while (size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, n);
  if (int status = ::pclose(pipe)) output += "[exit " + std::to_string(status) + "]";
  return output;
}

bool has_openssl() {
  return shell("openssl version").starts_with("OpenSSL");
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

mode_t mode_of(const std::string& path) {
  struct stat found{};
  EXPECT_EQ(::stat(path.c_str(), &found), 0) << path;
  return found.st_mode & 0777;
}

TEST(Pki, another_implementation_verifies_its_chain_names_and_uses) {
  if (!has_openssl()) GTEST_SKIP() << "no openssl command";
  TemporaryDirectory dir;
  std::string pki = dir / "pki";
  auto ca = pki_init(pki);
  ASSERT_TRUE(ca.has_value()) << ca.error().to_string();
  auto leaf = pki_issue(pki, {"fra-1", {"fra-1.example.org", "*.fra.example.org"}, {"127.0.0.1", "2001:db8::1"}});
  ASSERT_TRUE(leaf.has_value()) << leaf.error().to_string();
  std::string verify = "openssl verify -x509_strict -CAfile " + ca->certificate_file + " ";
  for (std::string use :
       {"-purpose sslserver ", "-purpose sslclient ", "-verify_hostname fra-1 ", "-verify_hostname fra-1.example.org ",
        "-verify_hostname a.fra.example.org ", "-verify_ip 127.0.0.1 ", "-verify_ip 2001:db8::1 "})
    EXPECT_EQ(shell(verify + use + leaf->certificate_file), leaf->certificate_file + ": OK\n") << use;
  EXPECT_TRUE(contains(shell(verify + "-verify_hostname fra-2 " + leaf->certificate_file), "hostname mismatch"));

  std::string text = shell("openssl x509 -noout -text -in " + leaf->certificate_file);
  EXPECT_TRUE(contains(text, "ecdsa-with-SHA256") && contains(text, "prime256v1")) << text;
  EXPECT_TRUE(contains(text, "CA:FALSE") && contains(text, "Digital Signature"));
  EXPECT_TRUE(contains(text, "TLS Web Server Authentication, TLS Web Client Authentication"));
  std::string ca_text = shell("openssl x509 -noout -text -in " + ca->certificate_file);
  EXPECT_TRUE(contains(ca_text, "CA:TRUE, pathlen:0") && contains(ca_text, "Certificate Sign")) << ca_text;
  EXPECT_FALSE(
      contains(shell("openssl x509 -noout -checkend " + std::to_string(824 * 86400) + " -in " + leaf->certificate_file),
               "exit"));
  EXPECT_TRUE(
      contains(shell("openssl x509 -noout -checkend " + std::to_string(826 * 86400) + " -in " + leaf->certificate_file),
               "will expire"));
  std::string of_key = shell("openssl pkey -pubout -in " + leaf->key_file);
  EXPECT_TRUE(of_key.starts_with("-----BEGIN PUBLIC KEY-----"));
  EXPECT_EQ(shell("openssl x509 -noout -pubkey -in " + leaf->certificate_file), of_key);
}

TEST(Pki, another_ca_does_not_verify) {
  if (!has_openssl()) GTEST_SKIP() << "no openssl command";
  TemporaryDirectory dir;
  auto one = pki_init(dir / "one");
  auto other = pki_init(dir / "other");
  auto leaf = pki_issue(dir / "one", {"node", {}, {}});
  ASSERT_TRUE(one && other && leaf);
  EXPECT_TRUE(contains(shell("openssl verify -CAfile " + other->certificate_file + " " + leaf->certificate_file),
                       "verification failed"));
}

TEST(Pki, keys_are_private_and_nothing_is_ever_overwritten) {
  TemporaryDirectory dir;
  std::string pki = dir / "pki";
  auto ca = pki_init(pki);
  auto leaf = pki_issue(pki, {"node", {}, {}});
  ASSERT_TRUE(ca && leaf);
  EXPECT_EQ(mode_of(ca->key_file), 0600u);
  EXPECT_EQ(mode_of(leaf->key_file), 0600u);
  EXPECT_EQ(mode_of(leaf->certificate_file), 0644u);
  std::string key = read_file(leaf->key_file);
  std::string ca_key = read_file(ca->key_file);
  EXPECT_EQ(pki_init(pki).error().code, pki_errors::exists);
  EXPECT_EQ(pki_issue(pki, {"node", {}, {}}).error().code, pki_errors::exists);
  EXPECT_EQ(read_file(leaf->key_file), key);
  EXPECT_EQ(read_file(ca->key_file), ca_key);
  // One of the two is enough to stop it, and no half pair stays behind.
  std::filesystem::remove(leaf->key_file);
  EXPECT_EQ(pki_issue(pki, {"node", {}, {}}).error().code, pki_errors::exists);
  EXPECT_FALSE(std::filesystem::exists(leaf->key_file));
}

TEST(Pki, serial_numbers_differ) {
  if (!has_openssl()) GTEST_SKIP() << "no openssl command";
  TemporaryDirectory dir;
  ASSERT_TRUE(pki_init(dir / "pki"));
  std::set<std::string> serials;
  for (int i = 0; i < 5; ++i) {
    auto leaf = pki_issue(dir / "pki", {"n" + std::to_string(i), {}, {}});
    ASSERT_TRUE(leaf);
    std::string serial = shell("openssl x509 -noout -serial -in " + leaf->certificate_file);
    EXPECT_EQ(serial.size(), std::string("serial=\n").size() + 32) << serial;
    serials.insert(serial);
  }
  EXPECT_EQ(serials.size(), 5u);
}

TEST(Pki, a_leaf_never_outlives_its_ca) {
  if (!has_openssl()) GTEST_SKIP() << "no openssl command";
  TemporaryDirectory dir;
  WallTime now = wall_now();
  auto ca = pki_init(dir / "pki", {now - kClockTolerance, now + std::chrono::days(10)});
  auto leaf = pki_issue(dir / "pki", {"node", {}, {}});
  ASSERT_TRUE(ca && leaf);
  EXPECT_EQ(shell("openssl x509 -noout -enddate -in " + leaf->certificate_file),
            shell("openssl x509 -noout -enddate -in " + ca->certificate_file));
}

TEST(Pki, refuses_names_that_are_none) {
  TemporaryDirectory dir;
  ASSERT_TRUE(pki_init(dir / "pki"));
  for (std::string name : {"", "ca", "../x", "a/b", ".hidden", "-rf", "a,CN=b", "a b", "a\nb"})
    EXPECT_EQ(pki_issue(dir / "pki", {name, {}, {}}).error().code, pki_errors::bad_name) << name;
  EXPECT_EQ(pki_issue(dir / "pki", {std::string(65, 'a'), {}, {}}).error().code, pki_errors::bad_name);
  for (std::string name : {"", "a b", "*.", "a.*.b", "*", "x/y"})
    EXPECT_EQ(pki_issue(dir / "pki", {"n", {name}, {}}).error().code, pki_errors::bad_name) << name;
  for (std::string address : {"", "1.2.3", "1.2.3.4.5", "host", "::g", "1.2.3.4/24"})
    EXPECT_EQ(pki_issue(dir / "pki", {"n", {}, {address}}).error().code, pki_errors::bad_name) << address;
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir / "pki"), {}), 2) << "nothing was written";
  EXPECT_TRUE(pki_issue(dir / "pki", {"10.1.2.3", {}, {}}).has_value()) << "a node may be named by its address";
}

TEST(Pki, says_what_is_wrong_with_the_ca) {
  TemporaryDirectory dir;
  EXPECT_EQ(pki_issue(dir / "none", {"n", {}, {}}).error().code, pki_errors::bad_ca);
  auto one = pki_init(dir / "one");
  auto two = pki_init(dir / "two");
  ASSERT_TRUE(one && two);
  std::filesystem::copy_file(two->key_file, one->key_file, std::filesystem::copy_options::overwrite_existing);
  auto issued = pki_issue(dir / "one", {"n", {}, {}});
  ASSERT_FALSE(issued.has_value());
  EXPECT_EQ(issued.error().code, pki_errors::bad_ca);
  EXPECT_TRUE(contains(issued.error().detail, "ca.key is not the key of"));
}

}  // namespace
}  // namespace ph::io
