#include "io/config_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iostream>

#include "core/settings/document.h"
#include "io/config_files.h"
#include "io/config_places.h"
#include "port/files.h"

namespace ph::io {
namespace {

std::string read_some(std::istream& in) {
  std::string text(settings::kDocumentMax + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

}  // namespace

Result<std::string> read_config_text(const std::string& path) {
  if (path == "-") return read_some(std::cin);
  struct stat info{};
  if (stat(path.c_str(), &info) != 0)
    return fail_errno(errno == ENOENT ? port::file_errors::not_found : port::file_errors::failed, path, errno);
  if (S_ISDIR(info.st_mode)) return fail_errno(port::file_errors::failed, path, EISDIR);
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail_errno(port::file_errors::denied, path, EACCES);
  std::string text = read_some(in);
  if (in.bad()) return fail_errno(port::file_errors::failed, path, EIO);
  return text;
}

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "localhost";
  std::string out(name);
  out.resize(std::min(out.find('.'), out.size()));
  return out.empty() ? "localhost" : out;
}

Result<settings::Outcome> load_config(const std::string& path) {
  PH_ASSIGN(const std::string text, read_config_text(path));
  return settings::parse(text, host_name());
}

settings::Checked config_check(const std::string& path) {
  const auto text = read_config_text(path);
  if (!text) return {2, text.error().to_string() + "\n"};
  settings::Outcome outcome = settings::parse(*text, host_name());
  check_files(outcome);
  check_places(outcome);
  return settings::to_checked(outcome, path == "-" ? "(stdin)" : path);
}

}  // namespace ph::io
