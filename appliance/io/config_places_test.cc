#include "io/config_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "io/test_files.h"

namespace ph::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ConfigPlaces : public testing::Test {
 protected:
  /// What is said of this text.
  std::string said(const std::string& text) {
    settings::Outcome outcome = settings::parse(text, "host");
    EXPECT_EQ(outcome.errors(), 0u) << outcome.to_string("f");
    check_places(outcome);
    return outcome.to_string("f");
  }
  std::string data(const std::string& path) { return said("[node]\ndata_dir = \"" + path + "\"\n"); }
  std::string socket(const std::string& path) { return said("[api]\nsocket = \"" + path + "\"\n"); }
  std::string bind(const std::string& at) { return said("[[listener]]\nbind = \"" + at + "\"\n"); }
  TemporaryDirectory dir;
};

TEST_F(ConfigPlaces, folders_are_made_unless_something_else_is_in_the_way) {
  EXPECT_EQ(data(dir.path()), "");
  EXPECT_EQ(data(dir / "a/b/c"), "");
  write_file(dir / "file", "");
  EXPECT_THAT(data(dir / "file"),
              HasSubstr("f:2:12: error: `node.data_dir`: " + (dir / "file is there and is no directory")));
  EXPECT_THAT(data(dir / "file/x/y"), HasSubstr("error: `node.data_dir`: " + (dir / "file/x/y: Not a directory")));
  std::filesystem::create_symlink("/nowhere/at/all", dir / "link");
  EXPECT_THAT(data(dir / "link"), HasSubstr("is a link to nothing"));
  EXPECT_THAT(data(dir / "link/x"), HasSubstr("is a link to nothing"));
  std::filesystem::create_directory_symlink(dir.path(), dir / "back");
  EXPECT_EQ(data(dir / "back/x"), "");
  EXPECT_THAT(data(dir / std::string(300, 'x')), HasSubstr("error: "));
  EXPECT_THAT(data("/proc/self/x"), AnyOf(HasSubstr("error: "), HasSubstr("warning: ")))
      << "nobody makes folders there";
}

TEST_F(ConfigPlaces, one_folder_by_two_names_is_one_folder) {
  std::filesystem::create_directories(dir / "events");
  std::filesystem::create_directory_symlink(dir / "events", dir / "too");
  const std::string text = "[agent]\ndir = \"" + (dir / "events") + "\"\n[receiver]\ndir = \"" + (dir / "too") +
                           "\"\n[[route]]\nname = \"r\"\nto = [\"files\"]\n";
  EXPECT_THAT(said(text), HasSubstr("f:4:7: error: `receiver.dir`: " + (dir / "too is the folder of `agent.dir`")));
}

TEST_F(ConfigPlaces, where_the_socket_goes_there_is_room_for_it) {
  EXPECT_EQ(socket(dir / "api.sock"), "");
  EXPECT_THAT(socket(dir.path()),
              HasSubstr("f:2:10: error: `api.socket`: " + dir.path() + " is there and is no socket"));
  write_file(dir / "file", "");
  EXPECT_THAT(socket(dir / "file"), HasSubstr("is there and is no socket"));
  EXPECT_THAT(socket(dir / "file/api.sock"), HasSubstr("error: `api.socket`: "));
  EXPECT_THAT(socket(dir / "none/api.sock"), HasSubstr("error: `api.socket`: " + (dir / "none: No such file")));
  EXPECT_THAT(socket("/srv/elsewhere/gateway/api.sock"), HasSubstr("warning: "));
  EXPECT_THAT(socket("/run/a-service-that-is-not-here/api.sock"), HasSubstr("warning: "));
  const std::string path = dir / "live.sock";
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::strncpy(at.sun_path, path.c_str(), sizeof at.sun_path - 1);
  ASSERT_EQ(::bind(descriptor, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  EXPECT_EQ(socket(path), "") << "who has it now is not the configuration's fault";
  ::close(descriptor);
}

TEST_F(ConfigPlaces, addresses_are_this_machines) {
  for (const char* good : {"127.0.0.1:1883", "0.0.0.0:1883", "*:1883", "localhost:1883", "127.0.0.1:0"})
    EXPECT_EQ(bind(good), "") << good;
  EXPECT_THAT(bind("192.0.2.1:1883"),
              HasSubstr("f:2:8: error: `listener.bind`: 192.0.2.1 is no address of this machine"));
  EXPECT_THAT(bind("[2001:db8::1]:1883"),
              HasSubstr("error: `listener.bind`: 2001:db8::1 is no address of this machine"));
  EXPECT_THAT(bind("no-such-host.invalid:1883"), HasSubstr("error: `listener.bind`: no-such-host.invalid"));
}

TEST_F(ConfigPlaces, a_name_and_its_address_are_one) {
  const std::string text =
      "[[listener]]\nbind = \"127.0.0.1:18830\"\n[[listener]]\nbind = \"[::1]:18830\"\n[[listener]]\nbind = "
      "\"localhost:18830\"\n";
  EXPECT_THAT(said(text), HasSubstr("f:6:8: error: `listener.bind`: a second listener at "));
}

TEST_F(ConfigPlaces, everything_is_told_at_once_and_in_order) {
  const std::string text = "[node]\ndata_dir = \"/dev/null/x\"\n[api]\nsocket = \"" + dir.path() +
                           "\"\n[[listener]]\nbind = \"192.0.2.1:1\"\n[[listener]]\nbind = \"198.51.100.1:1\"\n";
  const std::string all = said(text);
  size_t at = 0;
  for (const char* place : {"f:2:12: error: ", "f:4:10: error: ", "f:6:8: error: ", "f:8:8: error: "}) {
    at = all.find(place, at);
    ASSERT_NE(at, all.npos) << place << all;
  }
}

}  // namespace
}  // namespace ph::io
