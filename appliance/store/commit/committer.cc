#include "store/commit/committer.h"

#include <algorithm>
#include <memory>

#include "base/log.h"

namespace ph::commit {
namespace {

constexpr uint64_t kStoreCopies = 3;  // journal, log and table

}  // namespace

struct Committer::Group {
  std::vector<Participant*> participants;
  std::vector<Request> requests;
  port::WriteBatch entries;
  std::vector<Growth> growth;  // one a file system
  Result<> outcome;
  bool flushed = false;
  Result<> stored;

  void write(port::KeyedStore& store) {
    for (const Growth& g : growth)
      if (outcome) outcome = g.floor->admit(g.bytes);
    for (Participant* p : participants)
      if (outcome) outcome = p->flush();
    if (!outcome) entries = {};
    if (outcome)
      for (Participant* p : participants) p->add_flushed(entries);
    for (Request& r : requests)
      if (outcome || r.alone) entries.append(std::move(r.entries));
    flushed = true;
    store_entries(store);
  }

  void grow(DiskFloor* floor, uint64_t bytes) {
    if (!floor || bytes == 0) return;
    auto it = std::ranges::find(growth, floor, &Growth::floor);
    if (it == growth.end())
      growth.push_back({floor, bytes});
    else
      it->bytes += bytes;
  }
  uint64_t entry_bytes() const {
    uint64_t sum = 0;
    auto add = [&sum](const port::WriteBatch& batch) {
      for (const auto& e : batch.entries()) sum += e.key.size() + (e.value ? e.value->size() : 0);
    };
    add(entries);
    for (const Request& r : requests) add(r.entries);
    return sum;
  }

  void store_entries(port::KeyedStore& store) { stored = entries.empty() ? Result<>() : store.write(entries, true); }

  void report() {
    for (Participant* p : participants) p->finished(outcome);
    for (Request& r : requests) r.done(r.alone ? Result<>() : outcome);
  }
};

Committer::Committer(port::Loop& loop, port::DiskQueue& disk, port::KeyedStore& store, DiskFloor* store_floor)
    : loop_(loop), disk_(disk), store_(store), store_floor_(store_floor), retry_(loop.make_timer()) {}

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

void Committer::request_alone(port::WriteBatch entries, std::move_only_function<void()> done) {
  requests_.push_back({{}, std::move(entries), [done = std::move(done)](const Result<>&) mutable { done(); }, true});
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

std::shared_ptr<Committer::Group> Committer::gather() {
  auto group = std::make_shared<Group>();
  group->requests.swap(requests_);
  group->participants.swap(dirty_);
  for (Participant* p : group->participants) {
    p->begin(group->entries);
    const Growth g = p->growth();
    group->grow(g.floor, g.bytes);
  }
  if (!group->growth.empty()) group->grow(store_floor_, kStoreCopies * group->entry_bytes());
  return group;
}

void Committer::launch() {
  if (dirty_.empty() && requests_.empty()) return;
  busy_ = true;
  ++groups_;
  auto group = gather();
  disk_.run([group, &store = store_] { group->write(store); },
            [this, alive = alive_, group] {
              if (*alive) complete(group);
            });
}

void Committer::complete(std::shared_ptr<Group> group) {
  if (group->flushed && !group->stored) {
    ++store_failures_;
    trouble_ = group->stored.error();
    log_error("store_write_failed", {{"error", group->stored.error().to_string()}});
    retry_->start(kStoreRetry, [this, group] {
      disk_.run([group, &store = store_] { group->store_entries(store); },
                [this, alive = alive_, group] {
                  if (*alive) complete(group);
                });
    });
    return;
  }
  busy_ = false;
  trouble_.reset();
  std::shared_ptr<Group> behind;
  if (!group->outcome) {
    trouble_ = group->outcome.error();
    log_error("group_commit_failed", {{"error", group->outcome.error().to_string()}});
    behind = gather();
    behind->outcome = group->outcome;
    // What stands for itself is not taken along: it goes with the next group.
    std::vector<Request> failing;
    for (Request& r : behind->requests) (r.alone ? requests_ : failing).push_back(std::move(r));
    behind->requests = std::move(failing);
  }
  group->report();
  if (behind) behind->report();
  if (!dirty_.empty() || !requests_.empty()) schedule();
}

}  // namespace ph::commit
