#include "core/security/ban.h"

#include <array>
#include <utility>

#include "base/mask.h"

namespace ph::security {
namespace {

constexpr std::array<std::string_view, kBanKinds> kNames = {"clientid",     "username",      "peerhost",
                                                            "peerhost_net", "clientid_mask", "username_mask"};
constexpr size_t kWhoMax = 65'535;

}  // namespace

std::string_view name(BanBy by) {
  return kNames[static_cast<size_t>(by)];
}

std::optional<BanBy> ban_by(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<BanBy>(i);
  return std::nullopt;
}

std::string check_ban(Ban& ban) {
  if (ban.who.empty()) return "nobody is named";
  if (ban.who.size() > kWhoMax) return "the name is too long";
  if (ban.by == BanBy::address) {
    const auto address = parse_address(ban.who);
    if (!address) return "no IP address";
    ban.who = address->to_string();
  }
  if (ban.by == BanBy::network && !parse_network(ban.who)) return "no network, as in 10.0.0.0/8";
  return {};
}

BanList::BanList(std::vector<Ban> bans) : bans_(std::move(bans)) {
  for (size_t i = 0; i < bans_.size(); ++i) {
    const Ban& ban = bans_[i];
    switch (ban.by) {
      case BanBy::client_id:
        client_ids_[ban.who] = i;
        break;
      case BanBy::username:
        usernames_[ban.who] = i;
        break;
      case BanBy::address:
        addresses_[ban.who] = i;
        break;
      case BanBy::network:
        if (const auto network = parse_network(ban.who)) networks_.emplace_back(*network, i);
        break;
      case BanBy::client_id_pattern:
        client_id_patterns_.push_back(i);
        break;
      case BanBy::username_pattern:
        username_patterns_.push_back(i);
        break;
    }
  }
}

const Ban* BanList::live(const std::map<std::string, size_t, std::less<>>& in, ByteView key, WallTime now) const {
  const auto it = in.find(key);
  if (it == in.end()) return nullptr;
  const Ban& ban = bans_[it->second];
  return !ban.until || now < *ban.until ? &ban : nullptr;
}

const Ban* BanList::find(const Identity& who, std::optional<ByteView> claimed_username, WallTime now) const {
  if (bans_.empty()) return nullptr;
  if (const Ban* ban = live(client_ids_, who.client_id, now)) return ban;
  auto by_mask = [&](const std::vector<size_t>& among, ByteView text) -> const Ban* {
    for (size_t i : among)
      if (mask_matches(bans_[i].who, text) && (!bans_[i].until || now < *bans_[i].until)) return &bans_[i];
    return nullptr;
  };
  if (const Ban* ban = by_mask(client_id_patterns_, who.client_id)) return ban;
  for (const auto& username :
       {who.username ? std::optional<ByteView>(*who.username) : std::nullopt, claimed_username}) {
    if (!username) continue;
    if (const Ban* ban = live(usernames_, *username, now)) return ban;
    if (const Ban* ban = by_mask(username_patterns_, *username)) return ban;
  }
  if (!who.address) return nullptr;
  if (!addresses_.empty())
    if (const Ban* ban = live(addresses_, who.address->to_string(), now)) return ban;
  for (const auto& [network, i] : networks_)
    if (network.contains(*who.address) && (!bans_[i].until || now < *bans_[i].until)) return &bans_[i];
  return nullptr;
}

}  // namespace ph::security
