"""Configuration as Python values, written as TOML."""
import re


def name(key):
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'


def value(of):
    if isinstance(of, bool):
        return "true" if of else "false"
    if isinstance(of, (int, float)):
        return str(of)
    if isinstance(of, dict):
        return "{ " + ", ".join(f"{name(key)} = {value(item)}" for key, item in of.items()) + " }"
    if isinstance(of, (list, tuple)):
        return "[" + ", ".join(value(item) for item in of) + "]"
    return '"' + str(of).replace("\\", "\\\\").replace('"', '\\"') + '"'


def document(tables):
    """Top level: name -> table, or list of tables. Within a table, a list of dicts under a name in NESTED is one too."""
    out = []

    def table(title, content, brackets):
        nested = {key: item for key, item in content.items() if key == "category" and isinstance(item, list)}
        out.append(f"{brackets[0]}{title}{brackets[1]}")
        out.extend(f"{key} = {value(item)}" for key, item in content.items() if key not in nested and item is not None)
        out.append("")
        for key, items in nested.items():
            for item in items:
                table(f"{title}.{key}", item, ("[[", "]]"))

    for title, content in tables.items():
        for one in content if isinstance(content, list) else [content]:
            table(title, one, ("[[", "]]") if isinstance(content, list) else ("[", "]"))
    return "\n".join(out)
