// [broker] and the arrays of tables inside of it, but for who may do what (access.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/settings/diagnostic.h"
#include "core/settings/document.h"

namespace ph::settings {

struct TableInfo;
struct Broker;

enum class SharedStrategy : uint8_t { round_robin, random, sticky, hash_clientid, hash_topic, local };
enum class Overlapping : uint8_t { once, each };

struct Rewrite {
  enum class On : uint8_t { publish, subscribe, both };
  On on = On::both;
  std::string from;
  std::string to;
};
struct AutoSubscribe {
  std::string filter;
  uint32_t qos = 0;
  bool no_local = false;
  bool retain_as_published = false;
  uint32_t retain_handling = 0;
};

std::vector<TableInfo> broker_tables();
void read_broker(const Value& broker, Broker& into, Diagnostics& out);

}  // namespace ph::settings
