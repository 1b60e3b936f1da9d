// Sizes, durations and rates as they are written: a whole number and a unit, "10MiB", "30s", "8MiB/s". Both families of
// byte units are accepted everywhere and mean what they say: kB MB GB TB are powers of ten, KiB MiB GiB TiB of two.
#pragma once

#include <expected>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/time.h"

namespace ph::settings {

/// On failure: what is wrong, for a person.
template <class T>
using Unit = std::expected<T, std::string>;

Unit<Bytes> parse_size(std::string_view text);
Unit<Duration> parse_duration(std::string_view text);
/// Bytes per second.
Unit<Bytes> parse_rate(std::string_view text);

/// The shortest exact form: "1MiB", "5MB", "1000001B".
std::string format_size(Bytes size);
/// "60s" becomes "1m"; "0s" for nothing.
std::string format_duration(Duration duration);

}  // namespace ph::settings
