#include "service/relay/publishers.h"

#include "base/coding.h"

namespace ph::relay {
namespace {

constexpr char kVersion = 1;

std::string prefix_of(const std::string& upstream) {
  return "o/" + upstream + "/";
}

}  // namespace

Publishers::Publishers(std::string upstream, port::KeyedStore& store, commit::Committer& committer)
    : prefix_(prefix_of(upstream)), store_(store), committer_(committer) {}

std::string Publishers::key(char kind, StreamId stream) const {
  std::string out = prefix_ + kind;
  put_key(out, stream.value);
  return out;
}

std::string Publishers::owner_key(StreamId stream, uint64_t first) const {
  std::string out = key('r', stream);
  put_key(out, first);
  return out;
}

Result<> Publishers::load() {
  Result<> good;
  auto malformed = [&](ByteView at) {
    good = fail(link::errors::malformed, "store key " + to_hex(at));
    return false;
  };
  PH_TRY(store_.scan(prefix_, [&](ByteView at, ByteView value) {
    ByteView rest = at.substr(prefix_.size());
    Reader in(value);
    if (in.fixed<char>() != kVersion) return malformed(at);
    if (rest == "s") {
      strict_before_ = true;
      return true;
    }
    if (rest.size() < 9) return malformed(at);
    Stream& stream = streams_[StreamId{load_key(rest.data() + 1)}];
    if (rest[0] == 'p' && rest.size() == 9) {
      stream.published = in.varint();
    } else if (rest[0] == 'r' && rest.size() == 17) {
      link::SenderOwned owner;
      owner.first = load_key(rest.data() + 9);
      owner.last = owner.first + in.varint();
      owner.attempt = in.fixed<uint64_t>();
      owner.receiver = std::string(in.sized());
      owner.given_up = !in.at_end() && in.fixed<uint8_t>() == 1;
      if (owner.last <= owner.first) return malformed(at);
      stream.owned[owner.first] = std::move(owner);
    } else {
      return malformed(at);
    }
    return in.ok() || malformed(at);
  }));
  PH_TRY(std::move(good));
  if (strict_before_) return {};
  port::WriteBatch mark;
  mark.put(prefix_ + "s", std::string(1, kVersion));
  return store_.write(mark, true);
}

Result<> Publishers::forget_all(const std::string& upstream, port::KeyedStore& store) {
  port::WriteBatch entries;
  PH_TRY(store.scan(prefix_of(upstream), [&](ByteView at, ByteView) {
    entries.remove(std::string(at));
    return true;
  }));
  return entries.empty() ? Result<>() : store.write(entries, true);
}

std::vector<link::SenderOwned> Publishers::owned(StreamId stream) const {
  std::vector<link::SenderOwned> out;
  auto it = streams_.find(stream);
  if (it == streams_.end()) return out;
  for (const auto& [first, owner] : it->second.owned) out.push_back(owner);
  return out;
}

uint64_t Publishers::published(StreamId stream) const {
  auto it = streams_.find(stream);
  return it == streams_.end() ? 0 : it->second.published;
}

std::string Publishers::encode_owner(const link::SenderOwned& owner) {
  std::string value(1, kVersion);
  put_varint(value, owner.last - owner.first);
  put_fixed(value, owner.attempt);
  put_sized(value, owner.receiver);
  if (owner.given_up) put_fixed<uint8_t>(value, 1);
  return value;
}

void Publishers::own(StreamId id, const link::SenderOwned& owner, port::Task durable) {
  Stream& stream = streams_[id];
  port::WriteBatch entries;
  put_passed(id, stream, entries);
  auto it = stream.owned.lower_bound(owner.first);
  if (it != stream.owned.begin() && std::prev(it)->second.last > owner.first) --it;
  while (it != stream.owned.end() && it->first < owner.last) {
    entries.remove(owner_key(id, it->first));
    it = stream.owned.erase(it);
  }
  entries.put(owner_key(id, owner.first), encode_owner(owner));
  stream.owned.emplace(owner.first, owner);
  committer_.request_alone(std::move(entries), std::move(durable));
}

void Publishers::give_up(const std::string& receiver, port::Task durable) {
  port::WriteBatch entries;
  for (auto& [id, stream] : streams_)
    for (auto& [first, owner] : stream.owned) {
      if (owner.receiver != receiver || std::exchange(owner.given_up, true)) continue;
      entries.put(owner_key(id, first), encode_owner(owner));
    }
  committer_.request_alone(std::move(entries), std::move(durable));
}

void Publishers::passed(StreamId id, uint64_t settled) {
  Stream& stream = streams_[id];
  if (settled <= stream.published) return;
  stream.published = settled;
  stream.moved = true;
}

void Publishers::put_passed(StreamId id, Stream& stream, port::WriteBatch& entries) {
  if (!std::exchange(stream.moved, false)) return;
  while (!stream.owned.empty() && stream.owned.begin()->second.last <= stream.published) {
    entries.remove(owner_key(id, stream.owned.begin()->first));
    stream.owned.erase(stream.owned.begin());
  }
  std::string value(1, kVersion);
  put_varint(value, stream.published);
  entries.put(key('p', id), std::move(value));
}

void Publishers::forget(StreamId id) {
  auto it = streams_.find(id);
  if (it == streams_.end()) return;
  port::WriteBatch entries;
  entries.remove(key('p', id));
  for (const auto& [first, owner] : it->second.owned) entries.remove(owner_key(id, first));
  streams_.erase(it);
  committer_.request_alone(std::move(entries), [] {});
}

}  // namespace ph::relay
