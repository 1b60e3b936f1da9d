// The command line of load generators on plain sockets: ADDRESS:PORT, then name=number of the names that there are.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

namespace ph::bench {

/// False for what cannot be read.
inline bool load_words(int argc, char** argv, sockaddr_in& to, std::map<std::string, size_t>& numbers) {
  const std::string at = argc > 1 ? argv[1] : "";
  const size_t colon = at.rfind(':');
  to.sin_family = AF_INET;
  if (colon == std::string::npos || ::inet_pton(AF_INET, at.substr(0, colon).c_str(), &to.sin_addr) != 1) return false;
  to.sin_port = htons(static_cast<uint16_t>(std::strtoul(at.c_str() + colon + 1, nullptr, 10)));
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t sign = word.find('=');
    auto it = numbers.find(word.substr(0, sign));
    if (sign == std::string::npos || it == numbers.end()) return false;
    it->second = std::strtoul(word.c_str() + sign + 1, nullptr, 10);
  }
  return true;
}

}  // namespace ph::bench
