"""Scripts: they parse."""
import ast
import subprocess


def check(root, names):
    faults = []
    for name in names:
        path = root / name
        if name.endswith(".py"):
            try:
                ast.parse(path.read_text(), name)
            except SyntaxError as error:
                faults.append(f"{name}:{error.lineno}: {error.msg}")
        elif name.endswith(".sh") or name in (".ci/run", "tools/dev"):
            done = subprocess.run(["bash", "-n", path], stderr=subprocess.PIPE)
            if done.returncode:
                faults.append(done.stderr.decode().strip())
    return faults
