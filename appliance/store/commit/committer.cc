#include "store/commit/committer.h"

#include <algorithm>
#include <memory>

#include "base/log.h"

namespace ph::commit {

struct Committer::Group {
  struct Member {
    Participant* participant;
    port::WriteBatch entries;
    Result<> outcome;
  };
  std::vector<Member> members;
  std::vector<Request> requests;
  Result<> stored;

  const Member& of(const Participant* p) const {
    auto it = std::find_if(members.begin(), members.end(), [p](const Member& m) { return m.participant == p; });
    PH_ASSERT(it != members.end(), "a request's participants are members of its group");
    return *it;
  }

  /// Success, or the first failure among what the request rests on.
  Result<> outcome_of(const Request& request) const {
    for (const Participant* p : request.needs)
      if (const Member& m = of(p); !m.outcome) return m.outcome;
    return stored;
  }

  void write(port::KeyedStore& store) {
    for (Member& m : members) m.outcome = m.participant->flush();
    port::WriteBatch batch;
    for (Member& m : members) {
      if (!m.outcome) continue;
      m.participant->add_flushed(m.entries);
      batch.append(std::move(m.entries));
    }
    for (Request& r : requests)
      if (outcome_of(r)) batch.append(std::move(r.entries));
    if (!batch.empty()) stored = store.write(batch, true);
    if (stored) return;
    for (Member& m : members)
      if (m.outcome) m.outcome = stored;
  }
};

Committer::Committer(port::Loop& loop, port::DiskQueue& disk, port::KeyedStore& store)
    : loop_(loop), disk_(disk), store_(store) {}

Committer::~Committer() {
  *alive_ = false;
}

void Committer::touch(Participant& participant) {
  if (std::find(dirty_.begin(), dirty_.end(), &participant) == dirty_.end()) dirty_.push_back(&participant);
  schedule();
}

void Committer::request(std::vector<Participant*> needs, port::WriteBatch entries,
                        std::move_only_function<void(const Result<>&)> done) {
  for (Participant* p : needs) touch(*p);
  requests_.push_back({std::move(needs), std::move(entries), std::move(done)});
  schedule();
}

void Committer::schedule() {
  if (busy_ || scheduled_) return;
  scheduled_ = true;
  // Posted, not run at once: the rest of this turn joins the group.
  loop_.post([this, alive = alive_] {
    if (!*alive) return;
    scheduled_ = false;
    if (!busy_) launch();
  });
}

void Committer::launch() {
  if (dirty_.empty() && requests_.empty()) return;
  auto group = std::make_shared<Group>();
  group->requests.swap(requests_);
  for (Participant* p : dirty_) {
    auto& member = group->members.emplace_back(Group::Member{p, {}, {}});
    p->begin(member.entries);
  }
  dirty_.clear();
  busy_ = true;
  ++groups_;
  disk_.run([group, &store = store_] { group->write(store); },
            [this, alive = alive_, group] {
              if (*alive) complete(group);
            });
}

void Committer::complete(std::shared_ptr<Group> group) {
  busy_ = false;
  if (!group->stored) log_error("store_write_failed", {{"error", group->stored.error().to_string()}});
  for (auto& m : group->members) m.participant->finished(m.outcome);
  for (auto& r : group->requests) r.done(group->outcome_of(r));
  if (!dirty_.empty() || !requests_.empty()) schedule();
}

}  // namespace ph::commit
