"""Configuration as Python values, written as TOML."""


def value(of):
    if isinstance(of, bool):
        return "true" if of else "false"
    if isinstance(of, (int, float)):
        return str(of)
    if isinstance(of, dict):
        return "{ " + ", ".join(f"{key} = {value(item)}" for key, item in of.items()) + " }"
    if isinstance(of, (list, tuple)):
        return "[" + ", ".join(value(item) for item in of) + "]"
    return '"' + str(of).replace("\\", "\\\\").replace('"', '\\"') + '"'


def document(tables):
    """Top level: name -> table, or list of tables. Within a table, a list of dicts under a name in NESTED is one too."""
    out = []

    def table(name, content, brackets):
        nested = {key: item for key, item in content.items() if key == "category" and isinstance(item, list)}
        out.append(f"{brackets[0]}{name}{brackets[1]}")
        out.extend(f"{key} = {value(item)}" for key, item in content.items() if key not in nested and item is not None)
        out.append("")
        for key, items in nested.items():
            for item in items:
                table(f"{name}.{key}", item, ("[[", "]]"))

    for name, content in tables.items():
        for one in content if isinstance(content, list) else [content]:
            table(name, one, ("[[", "]]") if isinstance(content, list) else ("[", "]"))
    return "\n".join(out)
