"""Credentials for each cloud, by its own conventions: environment variables first, then the files of its tools.

obstore reads most variables itself. This module adds AWS profiles, allows plain HTTP exactly where the user set an
http:// endpoint, and reports missing credentials at once instead of asking a metadata service that only machines in
that cloud have.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from callsheet.errors import UserError
from callsheet.store.address import StoreAddress
from callsheet.store.errors import NoCredentials, no_credentials

Environment = Mapping[str, str]
_VENDOR = Path("/sys/class/dmi/id/sys_vendor")
_PROFILE_TTL = timedelta(minutes=5)
"""How long the keys of a profile are cached: other tools renew them in the file."""


@dataclass(frozen=True)
class ClientSettings:
    """Options for obstore beyond what it reads from the environment."""

    config: dict[str, Any] = field(default_factory=dict)
    endpoint: str = ""
    """The server's address, if the user set one."""
    provider: Callable[[], dict[str, Any]] | None = None
    """Returns the current keys."""


def client_settings(address: StoreAddress, env: Environment | None = None) -> ClientSettings:
    """The settings for an address; the error says which variables to set."""
    env = os.environ if env is None else env
    return {"s3": _s3, "gs": _gs, "az": _az}[address.scheme](address, env)


def _s3(address: StoreAddress, env: Environment) -> ClientSettings:
    profile = env.get("AWS_PROFILE") or "default"
    profile_options = _profile(env, profile)
    endpoint = _first_set(
        env, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"
    ) or profile_options.get("endpoint_url", "")
    config: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    if not _first_set(env, "AWS_REGION", "AWS_DEFAULT_REGION") and profile_options.get("region"):
        config["region"] = profile_options["region"]
    if _is_on(env, "AWS_SKIP_SIGNATURE"):
        return ClientSettings(config, endpoint)
    if _first_set(env, "AWS_ACCESS_KEY_ID"):
        # As they are now, not when the first request is made.
        names = ("access_key_id", "secret_access_key", "session_token")
        given = {name: env[f"AWS_{name.upper()}"] for name in names if env.get(f"AWS_{name.upper()}")}
        return ClientSettings(config | given, endpoint)
    if "aws_access_key_id" in profile_options:
        return ClientSettings(config, endpoint, lambda: _keys(env, profile))
    if _first_set(
        env,
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ):
        return ClientSettings(config, endpoint)
    if profile_options.keys() & {"sso_session", "sso_start_url", "role_arn", "credential_process"}:
        raise NoCredentials(
            f"the profile {profile!r} for {address.url} has no keys: it signs in another way",
            fix=f'export keys to the environment: eval "$(aws configure export-credentials --profile {profile} --format env)"',
        )
    if "AWS_PROFILE" in env and not profile_options:
        raise NoCredentials(
            f"AWS_PROFILE is {profile!r}, but there is no such profile",
            fix="list them with `aws configure list-profiles`",
        )
    if not _runs_on("Amazon") or _is_on(env, "AWS_EC2_METADATA_DISABLED"):
        raise no_credentials(address.url)
    return ClientSettings(config, endpoint)


def _profile(env: Environment, name: str) -> dict[str, str]:
    """The options of a profile in the AWS tools' files; the credentials file wins."""
    home = Path(env.get("HOME") or os.path.expanduser("~"))
    options: dict[str, str] = {}
    for variable, default, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        path = Path(env.get(variable) or home / ".aws" / default)
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):  # these errors quote the file's lines
            raise UserError(
                f"{path} cannot be read as profiles", fix="repair it with `aws configure`"
            ) from None
        if parser.has_section(section):
            options |= dict(parser.items(section))
    return options


def _keys(env: Environment, profile: str) -> dict[str, Any]:
    profile_options = _profile(env, profile)
    return {
        "access_key_id": profile_options.get("aws_access_key_id", ""),
        "secret_access_key": profile_options.get("aws_secret_access_key", ""),
        "token": profile_options.get("aws_session_token"),
        "expires_at": datetime.now(UTC) + _PROFILE_TTL,
    }


def _gs(address: StoreAddress, env: Environment) -> ClientSettings:
    endpoint = env.get("GOOGLE_BASE_URL", "")
    home = Path(env.get("HOME") or os.path.expanduser("~"))
    own = home / ".config" / "gcloud" / "application_default_credentials.json"
    named = _first_set(
        env,
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_BEARER_TOKEN",
        "GOOGLE_APPLICATION_CREDENTIALS",
    )
    if not (named or own.exists() or _is_on(env, "GOOGLE_SKIP_SIGNATURE") or _runs_on("Google")):
        raise no_credentials(address.url)
    return ClientSettings({"base_url": endpoint} if endpoint else {}, endpoint)


def _az(address: StoreAddress, env: Environment) -> ClientSettings:
    account = _first_set(env, "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
    emulator = _is_on(env, "AZURE_STORAGE_USE_EMULATOR")
    if not account and not emulator:
        raise NoCredentials(
            f"the storage account of {address.url} is unknown", fix="set AZURE_STORAGE_ACCOUNT_NAME"
        )
    endpoint = _first_set(env, "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
    config: dict[str, Any] = {"account_name": account} if account else {}
    if key := _first_set(env, "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_KEY"):
        config["account_key"] = key
    if endpoint:
        config["endpoint"] = endpoint
    signs_in = _first_set(
        env,
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_TOKEN",
        "AZURE_CLIENT_ID",
        "AZURE_STORAGE_CLIENT_ID",
        "AZURE_FEDERATED_TOKEN_FILE",
        "IDENTITY_ENDPOINT",
    )
    anonymous = _is_on(env, "AZURE_SKIP_SIGNATURE") or _is_on(env, "AZURE_USE_AZURE_CLI") or emulator
    if not (key or signs_in or anonymous or _runs_on("Microsoft")):
        raise no_credentials(address.url)
    return ClientSettings(config, endpoint or ("http://emulator" if emulator else ""))


def _first_set(env: Environment, *names: str) -> str:
    return next((env[name] for name in names if env.get(name)), "")


def _is_on(env: Environment, name: str) -> bool:
    return env.get(name, "").lower() in ("1", "true", "yes", "on")


def _runs_on(vendor: str) -> bool:
    """Whether this machine belongs to that vendor, so that asking its metadata service makes sense."""
    try:
        return vendor in _VENDOR.read_text(encoding="utf-8")
    except OSError:
        return False
