"""Objects in a cloud, through obstore: S3 and compatible stores, Google Cloud Storage, Azure Blob Storage.

Retries are handled here (retry.py) and documented in docs/reference/store.md. obstore's own retries are used only
within multipart uploads, where nobody else can repeat a single part.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from obstore import Bytes
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore, S3Store

from callsheet.errors import CallsheetError, RetryError
from callsheet.event_loop import LoopThread
from callsheet.store.address import StoreAddress
from callsheet.store.backend import ObjectInfo
from callsheet.store.credentials import client_settings
from callsheet.store.errors import NotFound, Unreachable, explain
from callsheet.store.retry import RetryPolicy
from callsheet.store.upload import CHUNK, Chunk, UploadBody

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PARALLEL = 4
"""Parallel requests for one large object; together with CHUNK this bounds the memory of a transfer."""
MAX_UPLOAD_PARTS = 9_000
"""S3 accepts at most 10,000 parts per upload."""
PAGE = 1_000
"""Objects per list response and per delete request."""
T = TypeVar("T")
_loop = LoopThread("callsheet-store")


class ObjectStoreBackend:
    """One bucket."""

    def __init__(self, address: StoreAddress, patience: float) -> None:
        self._address = address
        self._settings = client_settings(address)
        self._retry = RetryPolicy(patience)

    @cached_property
    def _read_client(self) -> ObjectStore:
        """For downloads, which may take long but must keep making progress."""
        return self._client(0, {"read_timeout": timedelta(seconds=self._retry.attempt(0))})

    @cached_property
    def _client_no_retry(self) -> ObjectStore:
        return self._client(0)

    @cached_property
    def _multipart_client(self) -> ObjectStore:
        """For multipart uploads."""
        return self._client(1_000)

    def _client(self, retries: int, limits: Mapping[str, Any] | None = None) -> ObjectStore:
        kinds: dict[str, Callable[..., ObjectStore]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
        attempt = self._retry.attempt(CHUNK)
        options: dict[str, Any] = {
            "config": self._settings.config,
            "client_options": {
                "allow_http": self._settings.endpoint.startswith("http://"),
                "timeout": timedelta(seconds=attempt),
                **(limits or {}),
            },
            "retry_config": {
                "max_retries": retries,
                "retry_timeout": timedelta(seconds=self._retry.window + self._retry.attempt(0)),
                "backoff": self._retry.backoff,
            },
        }
        if self._settings.provider:
            options["credential_provider"] = self._settings.provider
        try:
            return kinds[self._address.scheme](self._address.bucket, **options)
        except Exception as error:  # noqa: BLE001 - a configuration can be rejected in many ways
            raise self._translate_error(error, "") from None

    def put(self, key: str, body: UploadBody) -> str:
        return _loop.run(self._put(key, body))

    async def _put(self, key: str, body: UploadBody) -> str:
        if body.size is not None and body.size <= CHUNK:
            data = await asyncio.to_thread(body.read)
            return self._etag(
                await self._retrying(key, lambda: self._client_no_retry.put_async(key, data), len(data))
            )
        size = max(CHUNK, -(-(body.size or 0) // MAX_UPLOAD_PARTS))

        async def upload() -> Any:
            return await self._multipart_client.put_async(
                key, _async_chunks(body), use_multipart=True, chunk_size=size, max_concurrency=PARALLEL
            )

        if not body.single_use:
            return self._etag(await self._retrying(key, upload, None))
        with self._translating_errors(key):
            return self._etag(await upload())

    def create(self, key: str, data: bytes) -> str | None:
        return _loop.run(self._conditional_put(key, data, "create"))

    def replace(self, key: str, data: bytes, etag: str) -> str | None:
        named = {"version": etag} if self._address.scheme == "gs" else {"e_tag": etag}
        return _loop.run(self._conditional_put(key, data, named))

    async def _conditional_put(self, key: str, data: bytes, mode: Any) -> str | None:
        """Put if the condition holds. A request may succeed although its response is lost; then the condition fails
        on the retry, and the current content decides."""
        doubtful = False

        def mark_doubtful() -> None:
            nonlocal doubtful
            doubtful = True

        async def attempt() -> Any:
            try:
                return await self._client_no_retry.put_async(key, data, mode=mode)
            except (AlreadyExistsError, PreconditionError):
                content, meta = await self._content(key)
                if meta is None and mode == "create":
                    raise Unreachable(
                        f"{self._url(key)} was created and deleted meanwhile", fix="try again"
                    ) from None
                return meta if doubtful and content == data else None
            except FileNotFoundError as error:
                if isinstance(reason := self._translate_error(error, key), NotFound):
                    return None
                raise reason from None

        result = await self._retrying(key, attempt, len(data), mark_doubtful)
        return None if result is None else self._etag(result)

    async def _content(self, key: str) -> tuple[bytes, Any]:
        try:
            result = await self._read_client.get_async(key)
            return bytes(await result.bytes_async()), result.meta
        except FileNotFoundError:
            return b"", None

    def head(self, key: str) -> ObjectInfo:
        return self._entry(_loop.run(self._retrying(key, lambda: self._read_client.head_async(key))))

    def get(self, key: str) -> bytes:
        return b"".join(self._chunks(key))

    def stream(self, key: str) -> Iterator[bytes]:
        return map(bytes, self._chunks(key))

    def _chunks(self, key: str) -> Iterator[Bytes]:
        first, meta = _loop.run(self._retrying(key, lambda: self._read_first(key), CHUNK))
        yield first
        starts = iter(range(CHUNK, meta["size"], CHUNK))
        ahead: deque[Future[Bytes]] = deque()
        try:
            while True:
                for start in itertools.islice(starts, PARALLEL - len(ahead)):
                    ahead.append(_loop.start(self._read_chunk(key, start, meta)))
                if not ahead:
                    return
                yield _loop.wait(ahead[0])
                ahead.popleft()
        finally:
            for future in ahead:
                future.cancel()

    async def _read_first(self, key: str) -> tuple[Bytes, Any]:
        """The first chunk and the object's metadata: a single request for small objects."""
        try:
            result = await self._read_client.get_async(key, options={"range": (0, CHUNK)})
            return await result.bytes_async(), result.meta
        except BaseError as error:
            if _is_past_the_end(error):
                return Bytes(), await self._read_client.head_async(key)
            raise

    async def _read_chunk(self, key: str, start: int, meta: Any) -> Bytes:
        async def attempt() -> Bytes:
            wanted = (start, min(start + CHUNK, meta["size"]))
            result = await self._read_client.get_async(
                key, options={"range": wanted, "if_match": meta["e_tag"]}
            )
            return await result.bytes_async()

        return await self._retrying(key, attempt, CHUNK)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        async def attempt() -> bytes:
            try:
                return bytes(await self._read_client.get_range_async(key, start=start, length=length))
            except BaseError as error:
                if _is_past_the_end(error):
                    return b""
                raise

        return _loop.run(self._retrying(key, attempt, length))

    def list(self, folder: str, after: str) -> list[ObjectInfo]:
        async def attempt() -> list[ObjectInfo]:
            entries: list[ObjectInfo] = []
            async for page in self._read_client.list(folder or None, offset=after or None, chunk_size=PAGE):
                entries += [self._entry(meta) for meta in page]
            return sorted(entries, key=lambda entry: entry.key)

        return _loop.run(self._retrying(folder, attempt, None))

    def delete(self, keys: Sequence[str]) -> None:
        async def remove(some: Sequence[str]) -> None:
            await self._retrying(some[0], lambda: self._client_no_retry.delete_async(some))

        async def in_bulk() -> None:
            for at in range(0, len(keys), PAGE):
                await remove(keys[at : at + PAGE])

        async def one(key: str, turn: asyncio.Semaphore) -> None:
            async with turn:
                with contextlib.suppress(NotFound):
                    await remove([key])

        async def each() -> None:
            turn = asyncio.Semaphore(PARALLEL)
            await asyncio.gather(*(one(key, turn) for key in keys))

        # S3 deletes many at once and ignores missing ones; the others stop at a missing one.
        _loop.run(in_bulk() if self._address.scheme == "s3" else each())

    async def _retrying(
        self,
        key: str,
        work: Callable[[], Awaitable[T]],
        size: int | None = 0,
        on_failure: Callable[[], None] = lambda: None,
    ) -> T:
        """Run `work` with retries; `size` is how many bytes it moves, None if it has its own timeouts."""
        limit = None if size is None else self._retry.attempt(size)
        with self._translating_errors(key):
            return await self._retry.run(work, limit, on_failure)

    @contextlib.contextmanager
    def _translating_errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, FileNotFoundError, TimeoutError, ValueError) as error:
            raise self._translate_error(error, key) from None  # the original text may contain secrets

    def _translate_error(self, error: Exception, key: str) -> CallsheetError:
        if isinstance(error, PreconditionError):
            return RetryError(f"{self._url(key)} changed while being read", fix="read it again")
        return explain(error, self._url(key), self._settings.endpoint)

    def _url(self, key: str) -> str:
        return f"{self._address.scheme}://{self._address.bucket}" + (f"/{key}" if key else "")

    def _entry(self, meta: Any) -> ObjectInfo:
        return ObjectInfo(meta["path"], meta["size"], meta["last_modified"].timestamp(), self._etag(meta))

    def _etag(self, meta: Any) -> str:
        """What a conditional put compares: generations at Google, etags elsewhere."""
        return str(meta["version" if self._address.scheme == "gs" else "e_tag"] or "")


async def _async_chunks(body: UploadBody) -> AsyncIterator[Chunk]:
    """A body's chunks, read and hashed outside the event loop."""
    chunks = body.chunks()
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk


def _is_past_the_end(error: BaseError) -> bool:
    text = str(error)
    return "status code: 416" in text or "InvalidRange" in text
