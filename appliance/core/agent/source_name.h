// What the name of a source file says: its category, and which file it is a rotation of. Pure; used by the agent's
// scan.
//
// Categories follow LSD (lsd-wire.md, Source files): in a first-level directory the directory's name, whatever the file
// is called; at the first level the file's name less ".old", ".log" and "_big", once each, in that order.
// One thing more than LSD: a producer's own rotation (x.log -> x.log.1 -> x.log.2, x.log-20240131) is older data of x,
// not a new category "x.log.1" (lsd-wire.md, fault 7).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"

namespace ph::agent {

/// The category of a first-level file by LSD's rule alone. May be empty ("_big"): the caller checks it.
std::string_view category_of(std::string_view file_name);

/// Whether its writers lock the file while they append to it: "x_big", "x_big.log", rotated or not.
bool is_big(std::string_view file_name);

struct RotatedName {
  std::string_view original;  // "x.log" of "x.log.2"
  uint64_t number = 0;        // greater is older; 0: not rotated
  bool certain = true;        // false: "x.2" or "x-20240131" may as well be a file of its own
};
/// Splits a rotation suffix off: ".old" (number 1), ".<1 to 4 digits>", or a date behind "-" or ".": its digits, at
/// least the eight of the day, together or with "-" or "_" between, as in "-20240131", "-20240131-1706700000",
/// "-2024013115", ".2024-01-31_15".
RotatedName rotated(std::string_view file_name);

struct SourceName {
  std::string category;
  std::string original;   // generations with the same original are read oldest first
  uint64_t rotation = 0;  // greater is older
};
/// `directory` is empty for a first-level file. `known` tells whether a file of that name exists beside this one or a
/// generation of it is known: it decides what "x.2" is.
SourceName source_name(std::string_view directory, std::string_view file_name,
                       const std::function<bool(std::string_view)>& known);

/// Why a name is never read; empty if it may be: dotfiles and compressed copies. Static text.
std::string_view skip_reason(std::string_view file_name);

/// Name of a rotated file in the agent's hidden directory: "<16 hex digits of the generation>-<category>". Unique by
/// the generation; the category survives the loss of the store.
std::string hidden_name(StreamId generation, std::string_view category);
/// The category in a hidden name; nullopt for any other name.
std::optional<std::string_view> category_of_hidden(std::string_view name);

/// The agent's directory below its source directory: rotated files wait there for their deletion.
inline constexpr std::string_view kHiddenDirectory = ".posthouse";

}  // namespace ph::agent
