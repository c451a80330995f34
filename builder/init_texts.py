"""The texts that `builder init` writes: commented, and valid as they stand."""

from __future__ import annotations

from typing import Final

BUILDER_TOML: Final = """\
# What the image is. After a change: builder lock, then builder build.
# Exact versions only; every key: docs/reference/builder-toml.md
schema = 1

[image]
name = {name}  # for people and for policy; the identity of the image is its digest
base = {base}
platforms = ["linux/amd64"]
user = {{ name = "agent", uid = 1000, gid = 1000 }}  # whom the agents run as inside

[agents]
claude-code = "2.1.328"
opencode = "1.18.33"
pi = "0.73.1"

[node]
version = "22.23.5"
# Only these packages may run their install scripts, without network; the lock lists all others that have one.
install-scripts = ["@anthropic-ai/claude-code", "opencode-ai"]

[run]  # defaults of `builder run`: not part of the image; policy.toml is the ceiling
agent = "claude-code"
allow = {allow}  # {reach}: docs/how-to/allow-network.md
limits = {{ cpus = 2, memory = "4GiB", pids = 512, deadline = "2h" }}
"""

POLICY_TOML: Final = """\
# Whom this user believes, and what this host may launch. Never beside builder.toml: an image cannot approve
# itself. After a change raise `serial`: an older policy than the last accepted one is refused.
schema = 1
serial = 1
valid_until = {valid_until}

# "required" refuses what is not proved; "development" also accepts rootful engines, and every record says so.
# Chosen by init: {mode_reason}
mode = "{mode}"

# What this host cannot enforce and this operator lives with, by name. Shown in every launch record.
accept = {accept}

max_age = "90d"  # an older build is refused
min_ruleset = 1  # of the credential scan
refuse_tofu = false  # true refuses artifacts that were only trusted on first use
# refuse = []  # or any other way in which artifacts were authenticated; see docs/explanation/authenticity.md
require_audit = true  # a launch needs a layer audit; `builder verify --attest` makes and signs it
bases = [{bases}]
revoked = {{ digests = [], keys = [], builder_ids = [] }}
network = {network}  # the ceiling of [run].allow: exact host:port pairs; see docs/how-to/allow-network.md

[expect]  # image name -> lock digest; without it an image is held against the lock beside its builder.toml
{trust}"""

TRUST_TOML: Final = """
[[trust]]
role = "{role}"
kind = "key"
key = "{key}"
{role}_ids = ["{id}"]
not_after = {not_after}
"""

SETTINGS_TOML: Final = """\
# How this user reaches engine and registries. Nothing here can loosen the policy.
schema = 1
{engine}

# Images in place of those that `builder bootstrap` makes: by digest, pulled once where a registry is named,
# and hashed again. A digest without a name is in the state already. See docs/how-to/use-your-registry.md
# base = "HOST/NAME@sha256:…"
# build_container = "HOST/NAME@sha256:…"
# resolver = "HOST/NAME@sha256:…"

# Given to the resolver container as secrets, never to a build. Runs get ca_bundle alone, where they may reach
# something:
{ca_bundle}
{npmrc}
# Behind a company's proxy, with private registries: docs/how-to/company-network.md
{proxy}

# A version must be so old before it is locked: most hijacked packages are found within days.
# min_release_age = "3d"

[registries]  # aliases that stand in a lock; "client": wherever the client's own configuration points
npm = "client"
pypi = "client"
debian = "client"
"""
