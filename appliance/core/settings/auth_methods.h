// The list of authentication methods, as [broker.authn] and a listener have it.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/settings/access.h"
#include "core/settings/key.h"

namespace ph::settings {

inline const std::vector<std::string_view> kAuthMethodNames = {"users", "certificate", "jwt", "http", "psk"};

/// `Member` is vector<AuthMethod> or an optional one.
template <class Row, class Member>
Key<Row> methods_key(std::string_view name, Member Row::* member, std::string_view doc) {
  return {name,
          "array of strings",
          choices_text(kAuthMethodNames),
          doc,
          [member](Row& row, const Value& v, const Field& f) {
            if (!f.expect(v, Value::Kind::array, "an array of strings")) return;
            std::vector<AuthMethod> list;
            for (const Value& item : v.items)
              if (auto i = read_choice(item, f, kAuthMethodNames)) {
                const auto method = static_cast<AuthMethod>(*i);
                if (std::ranges::find(list, method) != list.end())
                  f.error(item.place, f.name() + " has " + in_quotes(item.text) + " twice");
                list.push_back(method);
              }
            row.*member = std::move(list);
          },
          [member](const Row& row) {
            const std::optional<std::vector<AuthMethod>> value = row.*member;
            if (!value) return std::string();
            std::vector<std::string> list;
            for (AuthMethod m : *value) list.emplace_back(kAuthMethodNames[static_cast<size_t>(m)]);
            return quoted_list(list);
          },
          "[\"users\"]",
          false};
}

}  // namespace ph::settings
