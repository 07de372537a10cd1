#!/bin/sh
# Has programs that know nothing of Flashloom read the description of its API: tests/openapi.sh, from the repository's
# folder. A validator checks it, and a generator makes a client of it that uses a daemon. Both are what pip installs,
# into target/openapi.
set -eu
program=$(realpath "${FLASHLOOM_BIN:-target/debug/flashloom}")
here=$(pwd)/target/openapi
python=$here/bin/python
[ -x "$python" ] || python3 -m venv "$here"
if ! "$python" -c 'import openapi_spec_validator, openapi_python_client' 2> /dev/null; then
    "$python" -m pip install --quiet openapi-spec-validator==0.9.0 openapi-python-client==0.29.1
fi
"$program" openapi > "$here/openapi.json"
"$python" - "$here/openapi.json" <<'EOF'
import json, sys
from openapi_spec_validator import OpenAPIV31SpecValidator
with open(sys.argv[1]) as file:
    description = json.load(file)
faults = list(OpenAPIV31SpecValidator(description).iter_errors())
for fault in faults:
    print("/".join(map(str, fault.absolute_path)) or "description", fault.message, file=sys.stderr)
print(f"{len(description['paths'])} paths, {len(faults)} faults")
sys.exit(1 if faults else 0)
EOF

PATH=$here/bin:$PATH openapi-python-client generate --path "$here/openapi.json" \
    --output-path "$here/client/flashloom_client" --meta none --overwrite > "$here/generated.log" 2>&1 ||
    { cat "$here/generated.log" >&2; exit 1; }
# What it makes no code of: configurations are TOML.
unknown=$(grep -A2 '^WARNING\|^ERROR' "$here/generated.log" | grep -c '^Unsupported\|^Cannot' || true)
of_toml=$(grep -A2 '^WARNING\|^ERROR' "$here/generated.log" | grep -c 'content.type application/toml' || true)
[ "$unknown" = "$of_toml" ] || { cat "$here/generated.log" >&2; exit 1; }
"$python" tests/openapi/client.py "$program" "$here/client"
echo "a generated client made, filled and deleted a pool"
