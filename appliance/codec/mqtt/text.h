// Text rules of MQTT: UTF-8 strings (section 1.5.4), topic names and filters (section 4.7), shared subscription
// filters (section 4.8.2). Pure checks over views; called once per packet by the decoder.
#pragma once

#include <cstddef>
#include <optional>

#include "base/bytes.h"

namespace ph::mqtt {

/// Well-formed UTF-8 without surrogates or overlong forms [MQTT-1.5.4-1], and without U+0000 [MQTT-1.5.4-2] unless
/// allowed, as it is in a payload.
bool utf8_valid(ByteView text, bool nul_allowed = false);

/// A topic that a PUBLISH may name: not empty, no wildcard [MQTT-4.7.3-1, MQTT-3.3.2-2]. UTF-8 is checked elsewhere.
bool topic_valid(ByteView topic);

/// A filter that a SUBSCRIBE may name: wildcards fill their level, '#' is last [MQTT-4.7.1-1, MQTT-4.7.1-2]; a filter
/// that begins with "$share/" has a group without wildcards and a filter [MQTT-4.8.2-1, MQTT-4.8.2-2], one that begins
/// with "$queue/" a filter.
bool filter_valid(ByteView filter);

/// Number of '/' plus one.
size_t topic_levels(ByteView topic);

struct SharedFilter {
  ByteView group;
  ByteView filter;
};
/// The parts of a valid "$share/<group>/<filter>" or "$queue/<filter>", whose group has no name; nullopt for every
/// other filter.
std::optional<SharedFilter> shared_filter(ByteView filter);

/// Whether a topic matches a filter, read literally from section 4.7. The trie of core/routing answers the same for
/// many filters; this is its model in tests, and good enough where there is one filter.
bool matches(ByteView filter, ByteView topic);

}  // namespace ph::mqtt
