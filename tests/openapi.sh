#!/bin/sh
# Has a validator that knows nothing of Flashloom check the description of the API: tests/openapi.sh, from the
# repository's folder. The validator is what pip installs as openapi-spec-validator, into target/openapi if need be.
set -eu
program=${FLASHLOOM_BIN:-target/debug/flashloom}
python=python3
if ! $python -c 'import openapi_spec_validator' 2>/dev/null; then
    [ -d target/openapi ] || python3 -m venv target/openapi
    target/openapi/bin/pip install --quiet openapi-spec-validator==0.9.0
    python=target/openapi/bin/python
fi
mkdir -p target
"$program" openapi > target/openapi.json
$python - target/openapi.json <<'EOF'
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
