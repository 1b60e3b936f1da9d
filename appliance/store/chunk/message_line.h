// MQTT messages as lines of a file.
//
//   raw    the payload; `\` as `\\` and newline as `\n`, as the writers of source files escape them; nothing else
//   json   one object a line, keys in this order, absent when there is nothing to say:
//            topic, time (RFC 3339, UTC, milliseconds: when the message was accepted), qos, retain,
//            properties {payload_format, content_type, response_topic, correlation_data (base64),
//                        user: [[name, value], ...] in the order sent},
//            payload (a string, when it is valid UTF-8) or payload_base64
//          Properties that do not decode are kept whole as properties_base64.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "codec/event/block.h"

namespace ph::chunk {

/// Appends the message's line, with its '\n', as slices; the payload is shared, not copied, where it needs no escape.
void append_raw_line(const event::Block& message, std::vector<Slice>& out);
std::string to_json_line(const event::Block& message);

/// RFC 3339 with milliseconds and 'Z'.
std::string to_rfc3339(WallTime t);
std::string to_base64(ByteView bytes);
/// Whether bytes are UTF-8 as RFC 3629 has it: no surrogates, no overlong forms, nothing above U+10FFFF.
bool is_utf8(ByteView bytes);

}  // namespace ph::chunk
