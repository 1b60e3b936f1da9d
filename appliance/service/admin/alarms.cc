#include "service/admin/alarms.h"

#include <algorithm>

#include "base/log.h"

namespace ph::admin {

const Alarm* Alarms::find(const std::vector<Alarm>& in, const Alarm& what) const {
  auto it = std::ranges::find_if(in, [&](const Alarm& a) { return a.code == what.code && a.about == what.about; });
  return it == in.end() ? nullptr : &*it;
}

void Alarms::update(std::vector<Alarm> now_wrong, WallTime now) {
  if (now_wrong.size() > kMax) now_wrong.resize(kMax);
  for (Alarm& a : now_wrong) {
    const Alarm* before = find(list_, a);
    a.since = before ? before->since : now;
    if (!before) log_error("alarm_raised", {{"code", a.code}, {"about", a.about}, {"text", a.text}});
  }
  for (const Alarm& a : list_)
    if (!find(now_wrong, a)) log_info("alarm_over", {{"code", a.code}, {"about", a.about}});
  list_ = std::move(now_wrong);
}

}  // namespace ph::admin
