"""Addresses of stores: what is taken, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from callsheet.errors import UserError
from callsheet.store import NoCredentials, open_store
from callsheet.store.address import StoreAddress, parse
from callsheet.store.credentials import client_settings


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("s3://bucket/a/b", StoreAddress("s3", "bucket", "a/b")),
        ("s3://bucket/a/b/", StoreAddress("s3", "bucket", "a/b")),
        ("s3://bucket", StoreAddress("s3", "bucket", "")),
        ("gs://my.bucket/x", StoreAddress("gs", "my.bucket", "x")),
        ("az://container/x", StoreAddress("az", "container", "x")),
        ("file:///a/b", StoreAddress("file", "", "/a/b")),
        ("file:///a/b%20c", StoreAddress("file", "", "/a/b c")),
        ("file:///a/../b/", StoreAddress("file", "", "/b")),
        ("/a/b", StoreAddress("file", "", "/a/b")),
    ],
)
def test_what_is_taken(text: str, address: StoreAddress) -> None:
    assert parse(text) == address


def test_plain_paths_are_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert parse("runs").prefix == str(tmp_path / "runs")
    assert parse("./runs/7").prefix == str(tmp_path / "runs" / "7")
    assert parse("~/runs").prefix == str(tmp_path / "home" / "runs")
    assert open_store(tmp_path).url == tmp_path.as_uri()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s4://bucket/x", "did you mean s3://bucket/x?"),
        ("S3://bucket/x", "did you mean s3://bucket/x?"),
        ("s3a://bucket/x", "did you mean s3://bucket/x?"),
        ("gcs://bucket/x", "did you mean gs://bucket/x?"),
        ("abfss://container/x", "did you mean az://container/x?"),
        ("fiel:///data", "did you mean file:///data?"),
        ("s3:/bucket/x", "write s3://bucket/x"),
        ("s3://", "write s3://bucket/prefix"),
        ("s3:///x", "write s3://x"),
        ("file://data/x", "write file:///data/x"),
        ("pvc://claim/x", "CALLSHEET_STORAGE"),
        ("https://bucket.s3.eu-west-1.amazonaws.com/x", "did you mean s3://bucket/x?"),
        ("http://127.0.0.1:9000/bucket", "AWS_ENDPOINT_URL"),
        ("ftp://host/x", "write s3://bucket/prefix"),
        ("s3://bucket/a/../b", "remove it from the prefix"),
        ("s3://bucket/a//b", "remove it from the prefix"),
        ("s3://b", "3 to 63"),
        ("s3://Bucket/x", "lowercase letters"),
        ("", "write s3://bucket/prefix"),
    ],
)
def test_a_wrong_address_is_told_what_to_write(text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        open_store(text)
    assert said in caught.value.fix


@pytest.mark.parametrize(
    "text",
    [
        "s3://KEY:hush-hush@bucket/x",
        "az://container/x?sig=hush-hush",
        "s3a://KEY:hush-hush@bucket/x?a=hush-hush",
    ],
)
def test_a_secret_in_an_address_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UserError) as caught:
        open_store(text)
    assert "hush-hush" not in str(caught.value)


S3 = StoreAddress("s3", "bucket", "x")


def home(tmp_path: Path, credentials: str = "", config: str = "") -> dict[str, str]:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(credentials)
    (tmp_path / ".aws" / "config").write_text(config)
    return {"HOME": str(tmp_path)}


def test_keys_in_the_environment_come_first(tmp_path: Path) -> None:
    env = home(tmp_path, "[default]\naws_access_key_id = A\naws_secret_access_key = S\n")
    assert (
        client_settings(S3, env | {"AWS_ACCESS_KEY_ID": "B", "AWS_SECRET_ACCESS_KEY": "T"}).provider is None
    )


def test_a_profile_of_the_aws_tools_gives_keys_region_and_server(tmp_path: Path) -> None:
    env = home(
        tmp_path,
        "[work]\naws_access_key_id = A\naws_secret_access_key = S\naws_session_token = T\n",
        "[profile work]\nregion = eu-west-1\nendpoint_url = http://127.0.0.1:9000\n",
    )
    known = client_settings(S3, env | {"AWS_PROFILE": "work"})
    assert known.provider
    keys = known.provider()
    assert (keys["access_key_id"], keys["secret_access_key"], keys["token"]) == ("A", "S", "T")
    assert known.config == {"region": "eu-west-1", "endpoint": "http://127.0.0.1:9000"}


def test_renewed_keys_in_a_profile_are_read_again(tmp_path: Path) -> None:
    env = home(tmp_path, "[default]\naws_access_key_id = A\naws_secret_access_key = S\n")
    provider = client_settings(S3, env).provider
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = B\naws_secret_access_key = T\n"
    )
    assert provider
    assert provider()["access_key_id"] == "B"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (S3, "AWS_ACCESS_KEY_ID"),
        (StoreAddress("gs", "bucket", ""), "gcloud auth application-default login"),
        (StoreAddress("az", "container", ""), "AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
def test_nothing_known_is_said_at_once(tmp_path: Path, address: StoreAddress, said: str) -> None:
    with pytest.raises(NoCredentials) as caught:
        client_settings(address, {"HOME": str(tmp_path)})
    assert address.url in caught.value.message
    assert said in caught.value.fix


def test_a_profile_that_signs_in_another_way_is_told_how(tmp_path: Path) -> None:
    env = home(tmp_path, config="[profile sso]\nsso_session = corp\n")
    with pytest.raises(NoCredentials) as caught:
        client_settings(S3, env | {"AWS_PROFILE": "sso"})
    assert "export-credentials --profile sso" in caught.value.fix
    with pytest.raises(NoCredentials, match="AWS_PROFILE is 'other'"):
        client_settings(S3, env | {"AWS_PROFILE": "other"})


def test_a_damaged_profile_file_shows_none_of_its_lines(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        client_settings(S3, home(tmp_path, "aws_secret_access_key = hush-hush\n"))
    assert "hush-hush" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_azure_takes_the_names_of_its_own_tools() -> None:
    container = StoreAddress("az", "container", "")
    env = {"AZURE_STORAGE_ACCOUNT": "me", "AZURE_STORAGE_KEY": "a2V5"}
    assert client_settings(container, env).config == {"account_name": "me", "account_key": "a2V5"}
    with pytest.raises(NoCredentials, match="no credentials for az://container"):
        client_settings(container, {"AZURE_STORAGE_ACCOUNT": "me"})


def test_plain_http_is_allowed_exactly_where_the_user_named_it() -> None:
    keys = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S"}
    assert client_settings(S3, keys).endpoint == ""
    assert client_settings(S3, keys | {"AWS_ENDPOINT_URL": "http://x:1"}).endpoint == "http://x:1"
    both = {"AWS_ENDPOINT_URL": "http://x:1", "AWS_ENDPOINT_URL_S3": "https://y"}
    assert client_settings(S3, keys | both).endpoint == "https://y"
