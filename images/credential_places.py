"""Where a credential lives: file paths with what to look for inside, and the names of variables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Look(StrEnum):
    """How the content of a file at such a path is judged. An empty file is a mount point, and harmless."""

    PRESENT = "present"  # that it is there, and not empty
    JSON_TOKENS = "json-tokens"  # a literal under one of the rule's keys, at any depth
    JSON_NAMES = "json-names"  # the name rules over every key and text, and user:password in URLs
    TEXT_NAMES = "text-names"  # NAME=value lines under the name rules, and user:password in URLs
    USERINFO = "userinfo"  # user:password in URLs, or an Authorization header
    NPMRC = "npmrc"  # _authToken, _auth or _password with a literal
    NETRC = "netrc"  # a machine's or the default's password
    INI = "ini"  # key = value or key: value, for the rule's keys
    GIT_CONFIG = "git-config"  # user in an URL, extraheader, or a password
    KEY_STORE = "key-store"  # PKCS#12, JKS or KeePass by their first bytes


@dataclass(frozen=True, slots=True)
class PathRule:
    """Globs over the path without its leading slash; ``**/`` is any home or root, ``*`` stays in a name."""

    id: str
    globs: tuple[str, ...]
    look: Look
    keys: tuple[str, ...] = ()


def _rule(id: str, globs: str, look: Look, keys: str = "") -> PathRule:
    return PathRule(id, tuple(globs.split()), look, tuple(keys.split()))


_LITERALS: Final = (
    "apiKey api_key key token access refresh accessToken refreshToken access_token refresh_token secret "
    "password"
)

PATH_RULES: Final[tuple[PathRule, ...]] = (
    # The agents.
    _rule("path-claude-credentials", "**/.claude/.credentials.json", Look.PRESENT),
    # Where CLAUDE_CONFIG_DIR, PI_CODING_AGENT_DIR or XDG_DATA_HOME moved them.
    _rule(
        "path-agent-tokens",
        "**/.credentials.json **/auth.json **/mcp-auth.json",
        Look.JSON_TOKENS,
        "access refresh accessToken refreshToken access_token refresh_token",
    ),
    _rule("path-claude-servers", "**/.claude.json **/.claude/.claude.json", Look.JSON_NAMES),
    # "approved" lists the last 20 letters of keys that were typed in.
    _rule(
        "path-claude-state",
        "**/.claude.json **/.claude/config.json **/.claude.json.backup* **/.claude/.claude.json",
        Look.JSON_TOKENS,
        "primaryApiKey oauthToken accessToken refreshToken approved",
    ),
    _rule(
        "path-claude-settings",
        "**/.claude/settings*.json **/claude-code/managed-settings.json",
        Look.JSON_NAMES,
    ),
    _rule(
        "path-claude-transcript",
        "**/.claude/projects/** **/.claude/history.jsonl **/.claude/shell-snapshots/**",
        Look.PRESENT,
    ),
    _rule(
        "path-opencode-auth", "**/opencode/auth.json **/opencode/mcp-auth.json", Look.JSON_TOKENS, _LITERALS
    ),
    _rule(
        "path-opencode-config", "**/opencode.json **/opencode.jsonc **/opencode/config.json", Look.JSON_NAMES
    ),
    _rule("path-pi-auth", "**/.pi/agent/auth.json **/.pi/agent/oauth.json", Look.JSON_TOKENS, _LITERALS),
    _rule("path-pi-models", "**/.pi/agent/models.json **/.pi/agent/settings.json", Look.JSON_NAMES),
    _rule("path-pi-transcript", "**/.pi/agent/sessions/**", Look.PRESENT),
    _rule("path-codex-auth", "**/.codex/auth.json", Look.PRESENT),
    _rule("path-gemini-auth", "**/.gemini/oauth_creds.json **/.gemini/.env", Look.PRESENT),
    _rule("path-mcp-config", "**/.mcp.json **/mcp.json **/claude_desktop_config.json", Look.JSON_NAMES),
    # Code hosting, packages.
    _rule("path-gh-hosts", "**/gh/hosts.yml", Look.INI, "oauth_token"),
    _rule("path-git-credentials", "**/.git-credentials **/git/credentials", Look.PRESENT),
    _rule("path-netrc", "**/.netrc **/_netrc", Look.NETRC),
    _rule(
        "path-git-config",
        "**/.git/config **/.gitconfig **/git/config **/.gitmodules etc/gitconfig",
        Look.GIT_CONFIG,
    ),
    _rule("path-npmrc", "**/.npmrc **/npmrc", Look.NPMRC),
    _rule("path-yarnrc", "**/.yarnrc.yml **/.yarnrc", Look.INI, "npmAuthToken npmAuthIdent _authToken"),
    _rule("path-npm-logs", "**/.npm/_logs/**", Look.PRESENT),
    _rule(
        "path-lockfile",
        "**/package-lock.json **/npm-shrinkwrap.json **/yarn.lock **/pnpm-lock.yaml **/requirements*.txt "
        "**/direct_url.json **/Pipfile.lock **/poetry.lock **/uv.lock",
        Look.USERINFO,
    ),
    _rule("path-pypirc", "**/.pypirc", Look.INI, "password"),
    _rule("path-pip-config", "**/pip.conf **/.pip/pip.conf **/uv.toml **/.condarc", Look.USERINFO),
    _rule("path-cargo-credentials", "**/.cargo/credentials **/.cargo/credentials.toml", Look.INI, "token"),
    _rule("path-gem-credentials", "**/.gem/credentials", Look.PRESENT),
    _rule(
        "path-composer-auth",
        "**/.composer/auth.json **/composer/auth.json",
        Look.JSON_TOKENS,
        "password token bearer",
    ),
    _rule(
        "path-maven-settings",
        "**/.m2/settings.xml **/.m2/settings-security.xml",
        Look.INI,
        "password passphrase",
    ),
    # Registries.
    _rule(
        "path-docker-auth",
        "**/.docker/config.json **/.dockercfg **/.dockerconfigjson **/containers/auth.json "
        "**/containers/*/auth.json **/containers/*/*/auth.json kaniko/.docker/config.json",
        Look.JSON_TOKENS,
        "auth identitytoken registrytoken password",
    ),
    # Keys.
    _rule("path-ssh-key", "**/.ssh/id_* **/.ssh/identity **/.ssh/*.pem **/.ssh/*_key", Look.PRESENT),
    _rule("path-ssh-host-key", "etc/ssh/ssh_host_*_key", Look.PRESENT),
    _rule("path-gpg-key", "**/.gnupg/private-keys-v1.d/* **/.gnupg/secring.gpg", Look.PRESENT),
    _rule("path-age-key", "**/sops/age/keys.txt", Look.PRESENT),
    _rule("path-key-store", "**/*.p12 **/*.pfx **/*.jks **/*.kdbx **/*.keystore", Look.KEY_STORE),
    # Clouds.
    _rule("path-aws", "**/.aws/credentials **/.aws/sso/cache/* **/.aws/cli/cache/*", Look.PRESENT),
    _rule(
        "path-gcloud",
        "**/gcloud/application_default_credentials.json **/gcloud/credentials.db **/gcloud/access_tokens.db "
        "**/gcloud/legacy_credentials/**",
        Look.PRESENT,
    ),
    _rule(
        "path-azure",
        "**/.azure/msal_token_cache.* **/.azure/service_principal_entries.* **/.azure/accessTokens.json",
        Look.PRESENT,
    ),
    _rule(
        "path-kube-config",
        "**/.kube/config",
        Look.INI,
        "token password client-key-data id-token refresh-token",
    ),
    _rule("path-kube-token", "**/secrets/kubernetes.io/**", Look.PRESENT),
    _rule("path-huggingface", "**/huggingface/token **/huggingface/stored_tokens", Look.PRESENT),
    _rule("path-client-token", "**/.pgpass **/.vault-token **/.kaggle/kaggle.json", Look.PRESENT),
    _rule(
        "path-client-config",
        "**/.my.cnf **/.s3cfg **/.boto **/.databrickscfg **/glab-cli/config.yml **/doctl/config.yaml "
        "**/rclone/rclone.conf **/.fly/config.yml",
        Look.INI,
        "password pass token access-token access_token secret_key client_secret secret_access_key "
        "aws_secret_access_key gs_secret_access_key",
    ),
    _rule("path-terraform", "**/.terraform.d/credentials.tfrc.json **/.terraformrc", Look.INI, "token"),
    # What builds leave behind.
    _rule("path-run-secret", "run/secrets/** var/run/secrets/**", Look.PRESENT),
    _rule("path-history", "**/.*_history **/.lesshst **/.psql_history", Look.PRESENT),
    _rule("path-command-history", "**/*_history", Look.TEXT_NAMES),
    _rule("path-apt-auth", "etc/apt/auth.conf etc/apt/auth.conf.d/*", Look.NETRC),
    _rule(
        "path-apt-sources",
        "etc/apt/sources.list etc/apt/sources.list.d/* etc/apt/apt.conf.d/*proxy*",
        Look.USERINFO,
    ),
    _rule("path-dotenv", "**/.env **/.env.*", Look.TEXT_NAMES),
    _rule(
        "path-sbom",
        "**/*.spdx.json **/*.cdx.json **/*bom.json **/*.intoto.json* **/provenance*.json",
        Look.JSON_NAMES,
    ),
)

# Files that the globs above take in and that hold no credential by their nature.
HARMLESS_PATHS: Final = re.compile(
    r"(?:^|/)(?:\.ssh/[^/]*\.pub|\.env\.(?:example|sample|template|dist|defaults?))$"
)

# Names whose literal value is a credential, however short or dull it looks.
SECRET_NAMES: Final = frozenset(
    {
        "AI_GATEWAY_API_KEY",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_AWS_API_KEY",
        "ANTHROPIC_BEDROCK_MANTLE_API_KEY",
        "ANTHROPIC_CUSTOM_HEADERS",
        "ANTHROPIC_ENVIRONMENT_KEY",
        "ANTHROPIC_FOUNDRY_API_KEY",
        "ANTHROPIC_IDENTITY_TOKEN",
        "ANTHROPIC_OAUTH_TOKEN",
        "ANTHROPIC_WEBHOOK_SIGNING_KEY",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_CLIENT_SECRET",
        "AZURE_OPENAI_API_KEY",
        "CLAUDE_BRIDGE_OAUTH_TOKEN",
        "CLAUDE_CODE_CLIENT_KEY_PASSPHRASE",
        "CLAUDE_CODE_OAUTH_REFRESH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CODE_SESSION_ACCESS_TOKEN",
        "CLAUDE_TRUSTED_DEVICE_TOKEN",
        "COPILOT_GITHUB_TOKEN",
        "DOCKER_AUTH_CONFIG",
        "GEMINI_API_KEY",
        "GH_ENTERPRISE_TOKEN",
        "GH_TOKEN",
        "GITHUB_ENTERPRISE_TOKEN",
        "GITHUB_PERSONAL_ACCESS_TOKEN",
        "GITHUB_TOKEN",
        "GIT_AUTH_TOKEN",
        "GOOGLE_CLOUD_API_KEY",
        "HF_TOKEN",
        "NODE_AUTH_TOKEN",
        "NPM_TOKEN",
        "OPENAI_API_KEY",
        "OPENCODE_API_KEY",
        "OPENCODE_AUTH_CONTENT",
        "OPENCODE_CONFIG_CONTENT",
        "OPENCODE_CONSOLE_TOKEN",
        "OPENCODE_SERVER_PASSWORD",
        "OTEL_EXPORTER_OTLP_HEADERS",
        "SSH_PRIVATE_KEY",
        "TWINE_PASSWORD",
        "UV_PUBLISH_PASSWORD",
        "UV_PUBLISH_TOKEN",
    }
)

# Anything else whose name says so, with a literal of at least LEAST_LITERAL characters.
SECRET_WORDS: Final = re.compile(
    r"(?:^|[_.\-:])(?:TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|PASS|PWD|API_?KEYS?|APIKEY|PRIVATE_?KEY|"
    r"ACCESS_?KEY|SECRET_?KEY|SIGNING_?KEY|ENCRYPTION_?KEY|MASTER_?KEY|CREDENTIALS?|AUTH_?TOKEN|_AUTH|AUTHORIZATION)"
    r"(?=$|[_.\-])|(?:TOKEN|SECRET|PASSWORD|PASSWD|APIKEY|API_KEY|_PASS)$|^NPM_CONFIG__AUTH"
)
LEAST_LITERAL: Final = 8
LEAST_NAMED_LITERAL: Final = 4

# Names that the words above take in and whose value is no credential.
HARMLESS_NAMES: Final = re.compile(
    r"GPG_KEYS?|SSH_AUTH_SOCK|AWS_ACCESS_KEY_ID|PWD|OLDPWD|"
    r".*_(?:SHA256|SHA512|VERSION|MAX_OUTPUT_TOKENS|OUTPUT_TOKENS|TOTAL_TOKENS_REMINDER|FILE_DESCRIPTOR|FILE|PATH|DIR|"
    r"URL|URI|ENDPOINT|TTL|EXPIRY|EXPIRES_IN|EXPIRATION|TIMEOUT|LENGTH|LIMIT|COUNT|TYPE|NAME|ID|FINGERPRINT|HELPER)|"
    r"MAX_.*TOKENS|GIT_ASKPASS|SSH_ASKPASS|SUDO_ASKPASS"
)

# Values that stand for a credential and are none: references, paths, versions, hashes, switches, fillers.
HARMLESS_VALUES: Final = re.compile(
    r"\s*|\$\w+|\$[{(].*|%[A-Za-z_]+%|\{\{.*\}\}|\{(?:env|file):[^}]*\}|<[^>]*>|\[[^\]]*\]|\*+|[xX]{3,}.*|\.{3,}|"
    r"(?:file:)?(?:/|\./|\.\./|~/)[^\s:]*|[\w./\-]+\.(?:[cm]?js|json|py|sh|ts|txt|pem|key)|"
    r"[\^~]?[0-9]+(?:\.[0-9]+){1,3}(?:[-+][\w.]*)?|sha(?:1|256|384|512)[-:][A-Za-z0-9+/=]*|"
    r"true|false|yes|no|none|null|undefined|[0-9]{1,3}|"
    r"(?i:your[-_ ].*|.*(?:change[-_]?me|placeholder|redacted|example|dummy|replace[-_]?(?:me|with)).*)",
    re.DOTALL,
)
