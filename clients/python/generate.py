"""Generates `limber/_gen` and `limber/_reasons.py` from `proto/`.

    python clients/python/generate.py            # writes the files
    python clients/python/generate.py --check    # fails if they differ from the output for proto/

It needs `buf` (of the project's node_modules) and grpcio-tools of the version below. What it makes carries no options of the schema, registers
in a descriptor pool of its own, and asks for no version of protobuf: it stands beside other stubs of the same files, and beside whatever
protobuf the robot's other software has pinned.
"""

import argparse
import filecmp
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# The version that generated the committed output; other versions generate different comments.
GRPC_TOOLS = "1.84.0"
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGE = HERE / "limber"
# The services for robots and providers; gateway-to-gateway services and SCIM are excluded.
FOLDERS = ("limber/v1/", "limber/edge/", "limber/policy/", "limber/outbound/", "google/rpc/")
# Files that describe only how the edge serves the schema, and nothing in a message.
OPTIONS = ("buf/validate/validate.proto", "google/api/annotations.proto", "google/api/http.proto", "google/protobuf/descriptor.proto")

# Families whose names collide with Python's builtins.
FAMILIES = {"PermissionError": "PermissionRefused", "TimeoutError": "OutOfTime"}

POOL = '''"""The descriptor pool of this package alone: other stubs of the same files, in the default pool, do no harm to these."""

from google.protobuf import any_pb2, descriptor_pool, duration_pb2, struct_pb2
from google.protobuf.internal import builder

POOL = descriptor_pool.DescriptorPool()
for _known in (any_pb2, duration_pb2, struct_pb2):
    _file = POOL.AddSerializedFile(_known.DESCRIPTOR.serialized_pb)
    # Older protobuf makes no class by itself for a message of another file.
    _made: dict[str, object] = {}
    builder.BuildMessageAndEnumDescriptors(_file, _made)
    builder.BuildTopDescriptorsAndMessages(_file, __name__, _made)
'''


def image() -> descriptor_pb2.FileDescriptorSet:
    """Returns all files of the schema, with comments."""
    local = ROOT / "node_modules" / ".bin" / "buf"
    buf = str(local) if local.exists() else "buf"
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "image.binpb")
        subprocess.run([buf, "build", "--as-file-descriptor-set", "-o", out], cwd=ROOT, check=True)
        return descriptor_pb2.FileDescriptorSet.FromString(Path(out).read_bytes())


def stripped(files: descriptor_pb2.FileDescriptorSet) -> descriptor_pb2.FileDescriptorSet:
    """Returns the files without options, comments, and files that only options need."""
    bare = descriptor_pb2.FileDescriptorSet.FromString(files.SerializeToString())
    # The schema's own options are extensions that are not known here.
    bare.DiscardUnknownFields()
    kept = descriptor_pb2.FileDescriptorSet()
    for file in bare.file:
        well_known = file.name.startswith("google/protobuf/") and file.name not in OPTIONS
        if not well_known and not file.name.startswith(FOLDERS):
            continue
        del file.extension[:]
        file.ClearField("source_code_info")
        needed = [name for name in file.dependency if name not in OPTIONS]
        if "limber.edge.v1." not in str(file.message_type):
            needed = [name for name in needed if not name.startswith("limber/edge/")]
        del file.dependency[:]
        file.dependency.extend(needed)
        kept.file.append(file)
    return kept


def rewritten(text: str) -> str:
    """Rewrites a generated module to import from this package, register in its own pool, and accept any protobuf version."""
    text = re.sub(r"^from (limber|google\.rpc)(\.\S+)? import", r"from limber._gen.\1\2 import", text, flags=re.M)
    text = re.sub(r"^import (limber|google\.rpc)\.", r"import limber._gen.\1.", text, flags=re.M)
    text = text.replace("_descriptor_pool.Default()", "_POOL")
    text = text.replace("from google.protobuf import descriptor_pool as _descriptor_pool\n", "from limber._gen.pool import POOL as _POOL\n")
    text = text.replace("from google.protobuf import runtime_version as _runtime_version\n", "")
    return re.sub(r"^_runtime_version\.ValidateProtobufRuntimeVersion\(.*?^\)\n", "", text, flags=re.M | re.S)


def stubs(files: descriptor_pb2.FileDescriptorSet, folder: Path) -> None:
    """Writes the modules into `folder`."""
    from grpc_tools import protoc

    bare = stripped(files)
    with tempfile.TemporaryDirectory() as scratch:
        source = os.path.join(scratch, "set.binpb")
        Path(source).write_bytes(bare.SerializeToString())
        out = Path(scratch, "out")
        out.mkdir()
        names = [file.name for file in bare.file if not file.name.startswith("google/protobuf/")]
        code = protoc.main(["protoc", f"--descriptor_set_in={source}", f"--python_out={out}", f"--pyi_out={out}", *names])
        if code != 0:
            raise SystemExit("generate: protoc failed")
        for made in sorted(out.rglob("*.py*")):
            target = folder / made.relative_to(out)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(rewritten(made.read_text()))
    for each in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        (each / "__init__.py").write_text('"""Made by `generate.py` from `proto/`."""\n')
    (folder / "pool.py").write_text(POOL)


def camel(word: str) -> str:
    return "".join(part.capitalize() for part in word.split("_"))


def reasons(files: descriptor_pb2.FileDescriptorSet) -> str:
    """Returns the module with one exception class for each reason."""
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    options_class = message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.EnumValueOptions"))
    refusal = pool.FindExtensionByName("limber.edge.v1.refusal")
    # The class must exist before the extension is read.
    message_factory.GetMessageClass(refusal.message_type)
    families = pool.FindEnumTypeByName("limber.edge.v1.ErrorType").values_by_number
    file = next(file for file in files.file if file.name == "limber/v1/reason.proto")
    at = next(i for i, enum in enumerate(file.enum_type) if enum.name == "Reason")
    comments = {
        tuple(place.path): " ".join(place.leading_comments.split()) for place in file.source_code_info.location
    }
    lines = [
        '"""One exception class for each reason of `reason.proto`. Made by `generate.py`."""',
        "",
        "from limber import _refusal as family",
        "",
    ]
    table = []
    for i, value in enumerate(file.enum_type[at].value):
        if value.number == 0:
            continue
        code = value.name.removeprefix("REASON_").lower()
        facts = options_class.FromString(value.options.SerializeToString()).Extensions[refusal]
        base = FAMILIES.get(name := camel(families[facts.type].name.removeprefix("ERROR_TYPE_").lower()), name)
        said = comments[(5, at, 2, i)].replace("\\", "\\\\").replace('"', '\\"')
        name = camel(code)
        lines += ["", f"class {name}(family.{base}):"]
        lines += [f'    """{said}"""', "", f'    code = "{code}"', f"    status = {facts.status}"]
        lines += [f"    retryable = {bool(facts.retryable)}", ""]
        table.append((code, name))
    lines += ["", "#: Each class by the word of its reason.", "BY_CODE: dict[str, type[family.Refused]] = {"]
    lines += [f'    "{code}": {name},' for code, name in table]
    lines += ["}", "", "__all__ = [", *[f'    "{name}",' for name in sorted(["BY_CODE", *(n for _, n in table)])], "]", ""]
    return "\n".join(lines)


def differences(made: Path, kept: Path) -> list[str]:
    """Returns the names of files that differ between the folders."""
    names = {str(path.relative_to(top)) for top in (made, kept) for path in top.rglob("*.py*") if "__pycache__" not in path.parts}
    return sorted(
        name
        for name in names
        if not (made / name).exists() or not (kept / name).exists() or not filecmp.cmp(made / name, kept / name, shallow=False)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    if (have := version("grpcio-tools")) != GRPC_TOOLS:
        print(f"generate: grpcio-tools {have} is installed; {GRPC_TOOLS} makes what is committed", file=sys.stderr)
        return 2
    files = image()
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, "limber")
        (made / "_gen").mkdir(parents=True)
        stubs(files, made / "_gen")
        (made / "_reasons.py").write_text(reasons(files))
        if check:
            stale = [f"_gen/{name}" for name in differences(made / "_gen", PACKAGE / "_gen")]
            if (made / "_reasons.py").read_text() != (PACKAGE / "_reasons.py").read_text():
                stale.append("_reasons.py")
            if stale:
                print("stale: run clients/python/generate.py\n  " + "\n  ".join(stale), file=sys.stderr)
            return 1 if stale else 0
        shutil.rmtree(PACKAGE / "_gen", ignore_errors=True)
        shutil.copytree(made / "_gen", PACKAGE / "_gen")
        shutil.copy(made / "_reasons.py", PACKAGE / "_reasons.py")
    return 0


if __name__ == "__main__":
    sys.exit(main())
