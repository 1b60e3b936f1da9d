// Bans: who is kept out, by what, until when. A BanList is part of a Policy: immutable, asked at CONNECT.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/time.h"
#include "core/security/acl.h"

namespace ph::security {

inline constexpr size_t kBansMax = 100'000;
inline constexpr size_t kBanPatternsMax = 1'000;  // networks and patterns each, which are looked through one by one

/// What a ban goes by; the names are EMQX's. Patterns are masks in which * stands for anything.
enum class BanBy : uint8_t { client_id, username, address, network, client_id_pattern, username_pattern };
inline constexpr size_t kBanKinds = 6;
/// "clientid", "username", "peerhost", "peerhost_net", "clientid_mask", "username_mask".
std::string_view name(BanBy by);
std::optional<BanBy> ban_by(std::string_view name);

struct Ban {
  BanBy by = BanBy::client_id;
  std::string who;
  std::string reason;
  std::string author;  // "cli", "flapping"
  WallTime at{};
  std::optional<WallTime> until;  // nullopt: for ever
  bool operator==(const Ban&) const = default;
};

/// Empty if `who` can be banned by that; else what is wrong with it. Addresses are put into their one form.
std::string check_ban(Ban& ban);

class BanList {
 public:
  BanList() = default;
  explicit BanList(std::vector<Ban> bans);

  /// The ban that keeps this client out now, if there is one. `claimed_username`: as CONNECT says, not yet verified.
  const Ban* find(const Identity& who, std::optional<ByteView> claimed_username, WallTime now) const;
  const std::vector<Ban>& all() const { return bans_; }

 private:
  const Ban* live(const std::map<std::string, size_t, std::less<>>& in, ByteView key, WallTime now) const;

  std::vector<Ban> bans_;
  std::map<std::string, size_t, std::less<>> client_ids_, usernames_, addresses_;
  std::vector<std::pair<Network, size_t>> networks_;
  std::vector<size_t> client_id_patterns_, username_patterns_;
};

}  // namespace ph::security
