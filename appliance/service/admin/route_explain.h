// Route explain: which route takes a category, a source file or an MQTT topic, why, and what becomes of it then. From
// the settings alone, so that a configuration can be asked before any node runs it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/settings/settings.h"

namespace ph::admin {

enum class SampleKind : uint8_t { category, file, topic };

struct RouteWhy {
  const settings::Route* route = nullptr;
  std::string mask;  // the mask or filter that decided; empty: the default route
};

struct Explanation {
  SampleKind kind = SampleKind::category;
  std::string sample;
  std::string category;             // of a file or a category
  std::string refused;              // why nothing takes it; empty: `routes` do
  std::vector<RouteWhy> routes;     // one for a category or file; all that match for a topic
  std::vector<std::string> stream;  // in words, by route: what numbers its events, and where it waits
};

/// `sample` may be a path below agent.dir (absolute, or relative to it), if `kind` is file. `exists` tells whether a
/// source file of that name lies beside the sample: "x.log.1" is a rotation of "x.log" only then.
Explanation explain(const settings::Settings& settings, SampleKind kind, const std::string& sample,
                    const std::function<bool(std::string_view)>& exists);
/// A path below agent.dir is a file, what has a '/' otherwise is a topic, the rest is a category.
SampleKind guess_kind(const settings::Settings& settings, std::string_view sample);

std::string to_text(const Explanation& explanation);
std::string to_json(const Explanation& explanation);

}  // namespace ph::admin
